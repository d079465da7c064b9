package edit_test

import (
	"testing"

	"github.com/gpurun/gpurun/recipes/edit"
)

// Each key, table and item of an array has its own position, also in arrays of arrays.
func TestPositions(t *testing.T) {
	const text = "\uFEFFa.b = 1 # x\nc = [[2], [3, {d = 4}]]\n[e.\"f g\"]\n[[h]]\n[[h]] # y\ni = 5\nj = = 6\nk = 7\n"
	found := edit.Positions([]byte(text))
	for path, want := range map[string]struct {
		key, value string // the text there
		item       bool
	}{
		"a": {"a.b", "a.b", false}, "a.b": {"b = 1", "1 #", false}, "c": {"c =", "[[2]", false},
		"c.0": {"[2]", "[2]", true}, "c.0.0": {"2]", "2]", true}, "c.1": {"[3,", "[3,", true}, "c.1.0": {"3,", "3,", true}, "c.1.1": {"{d", "{d", true}, "c.1.1.d": {"d = 4", "4}", false},
		"e": {"e.", "e.", false}, "e.f g": {"\"f g", "\"f g", false}, "h": {"h]]\n", "h]]\n", false}, "h.0": {"h]]\n", "h]]\n", true}, "h.1": {"h]] #", "h]] #", true}, "h.1.i": {"i =", "5", false},
	} {
		p, known := found[path]
		if !known || p.Item != want.item || text[p.Key:][:len(want.key)] != want.key || text[p.Value:][:len(want.value)] != want.value {
			t.Errorf("%s is at %+v, want %+v", path, p, want)
		}
	}
	if len(found) != 15 {
		t.Errorf("%d positions, want 15: %v", len(found), found)
	}
}
