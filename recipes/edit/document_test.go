package edit

import (
	"bytes"
	"fmt"
	"strings"
	"testing"
)

func TestLongLineIsCutAroundTheCaret(t *testing.T) {
	source := strings.Repeat("é", 500) + "X" + strings.Repeat("z", 500)
	line, caret := excerpt(source, 501)
	at := len([]rune(caret)) - 1
	if n := len([]rune(line)); n > widest {
		t.Errorf("%d characters are shown, want at most %d", n, widest)
	}
	if got := []rune(line)[at]; got != 'X' {
		t.Errorf("the caret is under %q, want X", got)
	}
}

// FuzzPlaces checks that no text makes the decoder panic, and that every key of a text is found
// at its position.
func FuzzPlaces(f *testing.F) {
	for _, text := range []string{
		"", "a = 1", "[a.b]\nc = {d = [1, {e = 2}, [[3]]]}\n", "[[a]]\nx = 1\n[[a]]\ny.\"z z\" = ''' ''''\n", "a = \n", "\"\" = 1\n",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		for bytes.HasPrefix(text, []byte("\uFEFF")) {
			text = text[3:]
		}
		root, fault := DecodeTOML(text, "a file")
		if fault == nil {
			places, _ := tomlTree(text)
			samePlaces(t, text, root, places)
		} else if lines := strings.Count(string(text), "\n") + 1; fault.Line < 1 || fault.Line > lines {
			t.Errorf("%+v is not in the text", fault)
		}
	})
}

// samePlaces checks that a key's position in the text is where the key is written.
func samePlaces(t *testing.T, text []byte, v any, at *node) {
	t.Helper()
	check := func(name string, inner any) {
		next := at.children[name]
		if next == nil {
			t.Errorf("%q has no place", name)
			return
		}
		written := text[next.key:]
		if !next.item && !bytes.HasPrefix(written, []byte(name)) && written[0] != '"' && written[0] != '\'' {
			t.Errorf("%q is said to be at %q", name, written)
		}
		samePlaces(t, text, inner, next)
	}
	switch v := v.(type) {
	case map[string]any:
		for name, inner := range v {
			check(name, inner)
		}
	case []any:
		for i, inner := range v {
			check(fmt.Sprint(i), inner)
		}
	}
}

func TestGuess(t *testing.T) {
	words := []string{"mode", "max_attempts", "numerics", "never", "restart_from_zero", "micro-batch", "checkpointing"}
	for wrong, want := range map[string]string{
		"mod": "mode", "MODE": "mode", "mdoe": "mode", "max-attempts": "max_attempts", "numeric": "numerics", "nevr": "never",
		"micro_batch": "micro-batch", "check": "checkpointing", "zzz": "", "x": "", "": "", "restart": "restart_from_zero",
	} {
		if got := Nearest(wrong, words); got != want {
			t.Errorf("Nearest(%q) = %q, want %q", wrong, got, want)
		}
	}
	for _, c := range []struct {
		a, b string
		want int
	}{{"", "", 0}, {"abc", "", 3}, {"kitten", "sitting", 3}, {"ab", "ba", 1}, {"abcd", "acbd", 1}, {"same", "same", 0}} {
		if got := distance(c.a, c.b); got != c.want {
			t.Errorf("distance(%q, %q) = %d, want %d", c.a, c.b, got, c.want)
		}
	}
}
