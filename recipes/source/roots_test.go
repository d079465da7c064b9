package source

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestRoots: classes are followed to those of other packages.
func TestRoots(t *testing.T) {
	classes := ClassesOf([]byte(`
from trl import DPOConfig as Theirs, GRPOConfig
class Ours(Theirs):
    pass
class GRPOConfig(trl.GRPOConfig, Mixin):  # the same name
    pass
class Mixin(object):
    pass
class Plain:
    pass
class Loop(Around): pass
class Around(Loop): pass
`), []byte("from x import Ours as Arguments\n# class Comment(TrainingArguments): pass\n"))
	for name, want := range map[string][]string{
		"Ours": {"DPOConfig"}, "Arguments": {"DPOConfig"}, "GRPOConfig": {"GRPOConfig"}, "Plain": nil, "Unknown": {"Unknown"}, "Comment": {"Comment"},
		"Loop": {"Loop"}, "Around": {"Around"},
	} {
		if diff := cmp.Diff(want, classes.Roots(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestRootsOfManyWays: between two classes there can be very many ways.
func TestRootsOfManyWays(t *testing.T) {
	var text strings.Builder
	for i := range 60 {
		fmt.Fprintf(&text, "class A%d(B%d, C%d): pass\nclass B%d(A%d): pass\nclass C%d(A%d): pass\n", i, i, i, i, i+1, i, i+1)
	}
	if got := ClassesOf([]byte(text.String())).Roots("A0"); !cmp.Equal(got, []string{"A60"}) {
		t.Errorf("roots %v", got)
	}
}
