package commandline

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

func TestLastValueOfANameCounts(t *testing.T) {
	got := ParseEnviron([]string{"A=1", "B=x=y", "nothing", "A=2", "EMPTY="})
	if diff := cmp.Diff(Environ{"A": "2", "B": "x=y", "EMPTY": ""}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"A=2", "B=x=y", "EMPTY="}, got.Words()); diff != "" {
		t.Error(diff)
	}
}

func TestWithLeavesTheOriginalAlone(t *testing.T) {
	base := ParseEnviron([]string{"A=1"})
	over := base.With(map[string]string{"A": "2", "B": "3"}, map[string]string{"B": "4"})
	if diff := cmp.Diff([]string{"A=2", "B=4"}, over.Words()); diff != "" {
		t.Error(diff)
	}
	if base["A"] != "1" || len(base) != 1 {
		t.Errorf("the original became %v", base)
	}
	var none Environ
	if _, set := none.With(map[string]string{"A": ""}).Lookup("A"); !set {
		t.Error("a variable that is empty is not told from one that is not set")
	}
}
