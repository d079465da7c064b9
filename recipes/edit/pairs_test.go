package edit_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes/edit"
)

// TestPairs: overrides of two words come after the options. New options are put before them,
// because nothing after the first pair is read as an option.
func TestPairs(t *testing.T) {
	a := edit.Argv{Pairs: true}
	tests := []struct{ before, key, value, after string }{
		{"x.py --gpus 8", "A.B", "4", "x.py --gpus 8 A.B 4"},
		{"x.py --gpus 8 A.B 2 C 1", "A.B", "4", "x.py --gpus 8 A.B 4 C 1"},
		{"x.py A.B 1 A.B 2", "A.B", "4", "x.py A.B 1 A.B 4"},
		{"x.py --name A.B", "A.B", "4", "x.py --name A.B A.B 4"},
		{"x.py --name A.B C 1", "A.B", "4", "x.py --name A.B C 1 A.B 4"},
	}
	for _, test := range tests {
		got := a.SetOverride(strings.Fields(test.before), "", test.key, test.value)
		if strings.Join(got, " ") != test.after {
			t.Errorf("%s: %q, want %q", test.before, got, test.after)
		}
		if value, found := a.Override(got, test.key); value != test.value || !found {
			t.Errorf("%s: read %q, %v", test.after, value, found)
		}
	}
	if got := strings.Join(a.Append(strings.Fields("x.py --gpus 8 A 1"), "--resume"), " "); got != "x.py --resume --gpus 8 A 1" {
		t.Errorf("an option: %s", got)
	}
	if got := strings.Join(a.RemoveOverride(strings.Fields("x.py A 1 B 2 A 3"), "A"), " "); got != "x.py B 2" {
		t.Errorf("taken away: %s", got)
	}
	if value, found := a.Override(strings.Fields("x.py A.B"), "A.B"); found {
		t.Errorf("a key without a value is %q", value)
	}
}
