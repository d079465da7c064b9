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
		root, fault := DecodeTOML(text)
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

// Each key, table and item of an array has its own position, also in arrays of arrays.
func TestPositions(t *testing.T) {
	const text = "a.b = 1 # x\nc = [[2], [3, {d = 4}]]\n[e.\"f g\"]\n[[h]]\n[[h]] # y\ni = 5\nj = = 6\nk = 7\n"
	root, _ := tomlTree([]byte(text))
	for path, want := range map[string]struct {
		key, value string // the text there
		item       bool
	}{
		"a": {"a.b", "a.b", false}, "a.b": {"b = 1", "1 #", false}, "c": {"c =", "[[2]", false},
		"c.0": {"[2]", "[2]", true}, "c.0.0": {"2]", "2]", true}, "c.1": {"[3,", "[3,", true}, "c.1.0": {"3,", "3,", true}, "c.1.1": {"{d", "{d", true}, "c.1.1.d": {"d = 4", "4}", false},
		"e": {"e.", "e.", false}, "e.f g": {"\"f g", "\"f g", false}, "h": {"h]]\n", "h]]\n", false}, "h.0": {"h]]\n", "h]]\n", true}, "h.1": {"h]] #", "h]] #", true}, "h.1.i": {"i =", "5", false},
	} {
		n, rest := root.follow(strings.Split(path, "."))
		if len(rest) > 0 || n.item != want.item || text[n.key:][:len(want.key)] != want.key || text[n.start:][:len(want.value)] != want.value {
			t.Errorf("%s is at %+v, want %+v", path, n, want)
		}
	}
	if _, rest := root.follow([]string{"k"}); len(rest) == 0 {
		t.Error("a key behind a syntax error has a position")
	}
}
