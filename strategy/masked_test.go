package strategy

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Ends of processes below one shell: which of them decides how the job ended.
func TestLastTrainingDecidesBelowAShell(t *testing.T) {
	type process struct {
		began, at int
		trained   bool
		failed    cause.Code
	}
	for _, c := range []struct {
		name      string
		exit      int
		processes []process
		want      cause.Code
	}{
		{"out of memory behind a pipe", 0, []process{{0, 5, true, cause.CUDAOOM}}, cause.CUDAOOM},
		{"a later one ended well", 0, []process{{0, 5, true, cause.CUDAOOM}, {6, 9, true, ""}}, cause.None},
		{"one beside it ended well", 0, []process{{0, 5, true, cause.CUDAOOM}, {1, 9, true, ""}}, cause.CUDAOOM},
		{"a later one only looked", 0, []process{{0, 5, true, cause.CUDAOOM}, {6, 9, false, ""}}, cause.CUDAOOM},
		{"a check before the training", 0, []process{{0, 1, false, cause.UserError}, {2, 9, true, ""}}, cause.None},
		{"a check after the training", 0, []process{{0, 5, true, ""}, {6, 9, false, cause.UserError}}, cause.None},
		{"out of memory while loading", 0, []process{{0, 5, false, cause.CUDAOOM}}, cause.CUDAOOM},
		{"nothing trained", 0, []process{{0, 5, false, cause.UserError}}, cause.UserError},
		{"the last one failed", 0, []process{{0, 5, true, ""}, {6, 9, true, cause.UserError}}, cause.UserError},
		{"the shell failed", 3, []process{{0, 5, true, ""}}, cause.Unknown},
	} {
		ev := Evidence{Ranks: 1}
		start := time.Unix(1000, 0)
		for i, p := range c.processes {
			stream := string(rune('a' + i))
			at := start.Add(time.Duration(p.at) * time.Second)
			if p.failed != "" {
				ev.Add(Fact{Time: at, Source: "probe", Finding: &cause.Finding{Code: p.failed, Weight: cause.WeightCause, Raised: true, Top: true, Rank: -1, Stream: stream, Seq: 1, Beside: i > 0, Text: "E: x"}})
			}
			ev.Add(Fact{Time: at, Source: "probe", ProcessEnd: &ProcessEnd{PID: i + 2, Stream: stream, Began: start.Add(time.Duration(p.began) * time.Second), At: at, Trained: p.trained, Failed: p.failed}})
		}
		ev.Add(Fact{Time: start.Add(time.Minute), Source: "exit", Exit: &Exit{Code: c.exit, PID: 1}})
		if d := Diagnose(ev); d.Cause != c.want || d.Fatal != (c.want != cause.None) {
			t.Errorf("%s: %s, fatal %v, want %s", c.name, d.Cause, d.Fatal, c.want)
		}
	}
}

// A shell may start another process after one that failed: it is given the time. A process
// that lives on after its last word hangs, and so does a rank of several.
func TestShellMayTryAgain(t *testing.T) {
	start := time.Unix(1000, 0)
	word := Fact{Time: start, Source: "probe", Finding: &cause.Finding{Code: cause.CUDAOOM, Weight: cause.WeightCause, Raised: true, Rank: -1, Stream: "probe", Seq: 1}}
	end := Fact{Time: start.Add(time.Second), Source: "probe", ProcessEnd: &ProcessEnd{PID: 2, Stream: "probe", At: start, Trained: true, Failed: cause.CUDAOOM}}
	for _, c := range []struct {
		name  string
		ranks int
		facts []Fact
		stops bool
	}{
		{"the process is gone", 1, []Fact{word, end}, false},
		{"the process hangs", 1, []Fact{word}, true},
		{"one of two ranks", 2, []Fact{word, end}, true},
	} {
		d := NewDetector(&Evidence{Ranks: c.ranks, Started: start, HangTimeout: unlimited})
		for _, f := range c.facts {
			d.Add(f, f.Time)
		}
		if stop, stops := d.Verdict(start.Add(time.Minute)); stops != c.stops {
			t.Errorf("%s: stops %v (%+v)", c.name, stops, stop)
		}
	}
}
