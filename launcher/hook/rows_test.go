package hook

import (
	"encoding/json"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// A forward that computes a row from others, keeps something from one call to the next, or
// gives no mean is found by its results, whatever computes it; the question leaves no trace.
func TestRowsThatDependOnEachOtherAreFound(t *testing.T) {
	needs(t)
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	r := newTrial(t)
	r.bare = true
	no := []string{"batch norm", "sequence", "attention", "sorted", "shuffled", "largest", "by its size", "keeping", "root of the loss", "running sum", "neighbours"}
	unknown := []string{"failing", "hook", "one row"}
	seen := 0
	for line := range strings.Lines(r.warmed(t, testdata(t, "rows.py"), folder)) {
		var got struct {
			Forward, Word, Reason string
			Left                  bool
		}
		if err := json.Unmarshal([]byte(line), &got); err != nil {
			t.Fatalf("%q: %v", line, err)
		}
		seen++
		want := "yes"
		if slices.Contains(no, got.Forward) {
			want = "no"
		} else if slices.Contains(unknown, got.Forward) {
			want = "unknown"
		}
		if got.Word != want || got.Left {
			t.Errorf("%s: %s, %s, want %s; it left something behind: %v", got.Forward, got.Word, got.Reason, want, got.Left)
		}
	}
	if seen != 25 {
		t.Errorf("%d forwards", seen)
	}
}

// Large outputs are compared where little memory is left: the question comes after memory ran out.
func TestLargeOutputsAreComparedInPieces(t *testing.T) {
	needs(t)
	folder, err := filepath.Abs(".")
	if err != nil {
		t.Fatal(err)
	}
	r := newTrial(t)
	r.bare = true
	const want = "False True yes  no the forward of Words computes a row from others"
	if got := r.warmed(t, testdata(t, "rows_memory.py"), folder); strings.TrimSpace(got) != want {
		t.Errorf("%q", got)
	}
}
