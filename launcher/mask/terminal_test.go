package mask

import (
	"errors"
	"strings"
	"testing"
	"time"
	"unicode"
	"unicode/utf8"

	"pgregory.net/rapid"

	_ "github.com/gpurun/gpurun/test/testenv"
)

func TestLine(t *testing.T) {
	for text, want := range map[string]string{
		"plain, with a tab\t→ 4 × 2, „naïve“ 日本 👍": "plain, with a tab\t→ 4 × 2, „naïve“ 日本 👍",
		"\x1b]0;title\a\x1b[2J":                    `\x1b]0;title\a\x1b[2J`,
		"two\nlines\r\n":                           `two\nlines\r\n`,
		"\u009b31mC1\u0085":                        `\x9b31mC1\x85`,
		"raw C1 \x9b31m":                           `raw C1 \x9b31m`,
		"exe\u202egpj.pt":                          `exe\u202egpj.pt`,
		"\u2066isolate\u2069 mark\u200f\u061c":     `\u2066isolate\u2069 mark\u200f\u061c`,
		"zero\u200bwidth\u200d\ufeff\u00ad":        `zero\u200bwidth\u200d\ufeff\xad`,
		"line\u2028sep\u2029":                      `line\u2028sep\u2029`,
		"filler\u3164\u115f\u2800\u034f":           `filler\u3164\u115f\u2800\u034f`,
		"tags\U000e0041\U000e0100":                 `tags\U000e0041\U000e0100`,
		"\x00\x7f\b":                               `\x00\x7f\b`,
		"C:\\new":                                  `C:\new`,
	} {
		if got := TerminalLine(text); got != want {
			t.Errorf("%q becomes %q, want %q", text, got, want)
		}
	}
	if got, want := TerminalLines("--- a\n+b\x1b\r\n"), "--- a\n+b\\x1b\\r\n"; got != want {
		t.Errorf("lines become %q, want %q", got, want)
	}
}

// Whatever is shown, a terminal obeys nothing in it, and a second pass changes nothing.
func TestControlCharactersHaveNoEffect(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		text := string(rapid.SliceOf(rapid.Byte()).Draw(t, "bytes")) + rapid.String().Draw(t, "text")
		got := TerminalLine(text)
		if !utf8.ValidString(got) || strings.ContainsFunc(got, func(r rune) bool { return r != '\t' && !unicode.IsGraphic(r) }) {
			t.Fatalf("%q becomes %q", text, got)
		}
		if again := TerminalLine(got); again != got {
			t.Fatalf("%q becomes %q the second time", got, again)
		}
	})
}

type name string

type pair struct{ A, B string }

func TestSprintfEscapesArguments(t *testing.T) {
	got := TerminalSprintf("%s\n%v %d %v %s %v %v %v%%\n", "a\nb", name("\x1b"), 3, errors.New("e\r"), 2*time.Second, pair{"x\n", "y"}, []string{"\a"}, nil)
	if want := "a\\nb\n\\x1b 3 e\\r 2s {x\\n y} [\\a] <nil>%\n"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
}
