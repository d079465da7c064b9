package launcher

import (
	"encoding/json"
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// trace returns a fact with a traceback of n frames, named by its source.
func trace(rank int, source string, n int) strategy.Fact {
	lines := []string{"Traceback (most recent call last):"}
	for i := range n {
		lines = append(lines, fmt.Sprintf("  File %q, line %d", source, i))
	}
	return strategy.Fact{Rank: rank, Source: source, Content: &strategy.Finding{Raised: true, Text: "KeyError: " + source, Traceback: lines}}
}

func TestTraceback(t *testing.T) {
	exit := strategy.Fact{Rank: 0, Source: "exit", Content: &strategy.Exit{Code: 1}}
	bare := strategy.Fact{Rank: 0, Source: "stderr", Content: &strategy.Finding{Text: "Killed"}}
	ended := trace(0, "stderr", 1)
	ended.Finding().Traceback = append(ended.Finding().Traceback, "KeyError: std…")
	tests := []struct {
		name    string
		facts   []strategy.Fact
		because []int
		rank    int
		want    string // the last line; empty for none
		lines   int
	}{
		{"what the diagnosis rests on", []strategy.Fact{trace(0, "stdout", 1), trace(0, "stderr", 1), trace(0, "probe", 1)}, []int{1, 0}, 0, "KeyError: stderr", 3},
		{"another rank's is not its own", []strategy.Fact{trace(1, "stderr", 1), trace(0, "stdout", 1)}, []int{0}, 0, "KeyError: stdout", 3},
		{"the rank's own word", []strategy.Fact{trace(0, "error.json", 1), trace(0, "stderr", 1), exit}, []int{2}, 0, "KeyError: error.json", 3},
		{"the last that it printed", []strategy.Fact{trace(0, "stdout", 1), trace(0, "stderr", 1), bare, exit}, []int{3, 2}, 0, "KeyError: stderr", 3},
		{"the exception stands in it, shortened", []strategy.Fact{ended}, []int{0}, 0, "KeyError: std…", 3},
		{"the last lines of many", []strategy.Fact{trace(0, "stderr", 200)}, []int{0}, 0, "KeyError: stderr", 50},
		{"none was printed", []strategy.Fact{bare, exit}, []int{0}, 0, "", 0},
		{"no rank is known", []strategy.Fact{trace(0, "stderr", 1)}, []int{0}, -1, "", 0},
		{"a journal that was changed", []strategy.Fact{trace(0, "stderr", 1)}, []int{-1, 7}, 0, "KeyError: stderr", 3},
	}
	for _, test := range tests {
		d := strategy.Diagnosis{Fatal: true, Rank: test.rank, Because: test.because}
		got := Traceback(strategy.Evidence{Facts: test.facts}, d)
		if len(got) != test.lines || test.want != "" && got[len(got)-1] != test.want {
			t.Errorf("%s: %q", test.name, got)
		}
		d.Fatal = false
		if got := Traceback(strategy.Evidence{Facts: test.facts}, d); got != nil {
			t.Errorf("%s: an attempt that did not fail has the traceback %q", test.name, got)
		}
	}
}

// The verdict has the traceback, with control characters escaped losslessly.
func TestTheVerdictHasTheTraceback(t *testing.T) {
	f := trace(0, "stderr", 1)
	f.Finding().Code, f.Finding().Traceback[1] = cause.UserError, "  \x1b[31mred\x00"
	e := strategy.Evidence{Ranks: 1, Facts: []strategy.Fact{f, {Rank: 0, Source: "exit", Content: &strategy.Exit{Code: 1}}}}
	var s State
	s.End(e, strategy.Diagnose(e))
	s.decide(Decided{Decision: strategy.Decision{Outcome: strategy.Failed}})
	text, err := json.Marshal(s.Verdict)
	if err != nil || !strings.Contains(string(text), `"traceback":["Traceback (most recent call last):","  \u001b[31mred\u0000","KeyError: stderr"]`) {
		t.Errorf("%s, %v", text, err)
	}
	var back Verdict
	if err := json.Unmarshal(text, &back); err != nil || back.Attempts[0].Traceback[1] != "  \x1b[31mred\x00" {
		t.Errorf("%+v, %v", back, err)
	}
	if diff := cmp.Diff(s.Verdict, back); diff != "" {
		t.Error(diff)
	}
}
