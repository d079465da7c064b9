package edit

import (
	"strings"
	"testing"
)

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
