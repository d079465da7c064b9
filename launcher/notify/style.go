package notify

import (
	"encoding/json"
	"fmt"
	"maps"
	"strings"
	"unicode/utf16"
)

// The longest texts that chats accept, in characters: Discord refuses more; Slack cuts it, and
// advises less than 4,000; a card of Teams has 28 KB in all.
const (
	slackMost   = 3000
	discordMost = 2000
	teamsMost   = 4000
)

// styled is the body of an event: the event itself, or a chat's message. Text from the job
// has no effect there: no markup, no links, no mentions.
func styled(style string, m Notification, event []byte) ([]byte, error) {
	switch style {
	case "json":
		return event, nil
	case "slack":
		return json.Marshal(slack(m))
	case "discord":
		return json.Marshal(discord(m))
	case "teams":
		return json.Marshal(teams(m))
	}
	return nil, fmt.Errorf("there is no style %q", style)
}

// where describes the place of a run.
func where(m Notification) string {
	words := fmt.Sprintf("run %s on %s", clean(m.Run), clean(m.Host))
	if m.Code != nil && *m.Code != 0 {
		words += fmt.Sprintf(", exit code %d", *m.Code)
	}
	return words
}

// slack is a message of an incoming webhook: https://docs.slack.dev/messaging
func slack(m Notification) any {
	text := escaped(slackEscapes, clean(m.Summary), slackMost) + "\n" + escaped(slackEscapes, where(m), slackMost)
	return map[string]any{"text": text, "mrkdwn": false, "unfurl_links": false, "unfurl_media": false}
}

// slackEscapes are the characters that Slack obeys; its markup is switched off.
var slackEscapes = map[rune]string{'&': "&amp;", '<': "&lt;", '>': "&gt;"}

// discord executes a webhook: https://discord.com/developers/docs/resources/webhook
func discord(m Notification) any {
	at := escaped(discordEscapes, where(m), discordMost/4)
	const suppressEmbeds = 1 << 2
	return map[string]any{
		"content":          escaped(discordEscapes, clean(m.Summary), discordMost-len(at)-1) + "\n" + at,
		"allowed_mentions": map[string]any{"parse": []string{}},
		"flags":            suppressEmbeds,
	}
}

// discordEscapes escape Markdown's characters.
var discordEscapes = backslashed("\\*_~`|>#-[]<:@")

func backslashed(chars string) map[rune]string {
	escapes := map[rune]string{}
	for _, r := range chars {
		escapes[r] = `\` + string(r)
	}
	return escapes
}

// teams is an Adaptive Card for a workflow that posts what a webhook gets:
// https://learn.microsoft.com/microsoftteams/platform/webhooks-and-connectors. Runs of text
// know no Markdown.
func teams(m Notification) any {
	line := func(text string, more map[string]any) any {
		run := map[string]any{"type": "TextRun", "text": escaped(teamsEscapes, text, teamsMost)}
		maps.Copy(run, more)
		return map[string]any{"type": "RichTextBlock", "inlines": []any{run}}
	}
	card := map[string]any{
		"$schema": "http://adaptivecards.io/schemas/adaptive-card.json", "type": "AdaptiveCard", "version": "1.4",
		"msteams": map[string]any{"width": "Full"},
		"body":    []any{line(clean(m.Summary), map[string]any{"weight": "Bolder"}), line(where(m), map[string]any{"isSubtle": true})},
	}
	return map[string]any{"type": "message", "attachments": []any{
		map[string]any{"contentType": "application/vnd.microsoft.card.adaptive", "contentUrl": nil, "content": card},
	}}
}

// teamsEscapes keep {{DATE(…)}} from being read as a function of cards.
var teamsEscapes = map[rune]string{'{': "{\u200b"}

// escaped is a text with some characters escaped, and at most so many of them, as UTF-16 counts
// them. No escape is cut in two.
func escaped(escapes map[rune]string, text string, most int) string {
	var b strings.Builder
	used := 0
	for _, r := range text {
		piece, special := escapes[r]
		if !special {
			piece = string(r)
		}
		if used += len(utf16.Encode([]rune(piece))); used >= most {
			return b.String() + "…"
		}
		b.WriteString(piece)
	}
	return b.String()
}
