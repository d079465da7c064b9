package notify

import (
	"encoding/json"
	"regexp"
	"strings"
	"testing"
	"unicode/utf16"
)

// hostile is what a job may say, in every chat's markup.
const hostile = "<!channel> <https://evil.example|ok> & @everyone <@123> *b* _i_ ~s~ `c` [x](https://evil.example) {{DATE(2026-01-01T00:00:00Z)}} # h\\ |spoiler| \x1b[31m\u202e"

func body(t *testing.T, style, summary string) (text string, whole map[string]any) {
	t.Helper()
	code := 1
	content, err := styled(style, Notification{Summary: summary, Run: "run_1", Host: "node<7>", Code: &code}, []byte("{}"))
	if err == nil {
		err = json.Unmarshal(content, &whole)
	}
	if err != nil {
		t.Fatal(err)
	}
	switch style {
	case "slack":
		text, _ = whole["text"].(string)
	case "discord":
		text, _ = whole["content"].(string)
	}
	return text, whole
}

// What comes from the job is text in every chat: it mentions no one, links nothing, no
// terminal obeys it.
func TestMarkupIsText(t *testing.T) {
	text, whole := body(t, "slack", hostile)
	if strings.ContainsAny(text, "<>") || strings.Count(text, "&") != strings.Count(text, "&lt;")+strings.Count(text, "&gt;")+strings.Count(text, "&amp;") || whole["mrkdwn"] != false ||
		!strings.HasSuffix(text, "\nrun run_1 on node&lt;7&gt;, exit code 1") || !strings.Contains(text, `\x1b[31m\u202e`) {
		t.Errorf("slack: %q", text)
	}
	text, whole = body(t, "discord", hostile)
	mentions, _ := json.Marshal(whole["allowed_mentions"])
	if bare := regexp.MustCompile("(^|[^\\\\])(\\\\\\\\)*[*_~`|<>@\\[\\]:#]").FindString(text); bare != "" || string(mentions) != `{"parse":[]}` || whole["flags"] != 4.0 {
		t.Errorf("discord: %q is not escaped in %q, %s", bare, text, mentions)
	}
	_, whole = body(t, "teams", hostile)
	card, _ := json.Marshal(whole)
	if strings.Contains(string(card), `{{DATE`) || strings.Contains(string(card), `"TextBlock"`) || whole["type"] != "message" || !strings.Contains(string(card), `"contentType":"application/vnd.microsoft.card.adaptive"`) {
		t.Errorf("teams: %s", card)
	}
}

// A text that is too long for a chat is cut, and no escape in two.
func TestLongTexts(t *testing.T) {
	for _, piece := range []string{"a", "&", "*", "🙂", "{", "é"} {
		long := strings.Repeat(piece, 20_000)
		for style, most := range map[string]int{"slack": slackMost + 100, "discord": discordMost} {
			text, _ := body(t, style, long)
			if n := len(utf16.Encode([]rune(text))); n > most || n < 900 || !strings.Contains(text, "…") || !strings.Contains(text, "exit code 1") {
				t.Errorf("%s of %q: %d characters", style, piece, n)
			}
			if style == "slack" && regexp.MustCompile(`&[a-z]*…`).MatchString(text) || strings.Contains(text, `\…`) {
				t.Errorf("%s of %q: an escape is cut", style, piece)
			}
		}
		if card, err := styled("teams", Notification{Summary: long}, nil); err != nil || len(card) > 28<<10 {
			t.Errorf("teams of %q: %d bytes, %v", piece, len(card), err)
		}
	}
}
