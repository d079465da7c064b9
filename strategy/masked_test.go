package strategy

import (
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Which of the processes below one shell decides how the job ended.
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
				ev.Add(Fact{Time: at, Source: "probe", Content: &Finding{Code: p.failed, Weight: cause.WeightCause, Raised: true, Top: true, Rank: -1, Stream: stream, Seq: 1, Beside: i > 0, Text: "E: x"}})
			}
			ev.Add(Fact{Time: at, Source: "probe", Content: &ProcessEnd{PID: i + 2, Stream: stream, Began: start.Add(time.Duration(p.began) * time.Second), At: at, Trained: p.trained, Failed: p.failed}})
		}
		ev.Add(Fact{Time: start.Add(time.Minute), Source: "exit", Content: &Exit{Code: c.exit, PID: 1}})
		if d := Diagnose(ev); d.Cause != c.want || d.Fatal != (c.want != cause.None) {
			t.Errorf("%s: %s, fatal %v, want %s", c.name, d.Cause, d.Fatal, c.want)
		}
	}
}

// A shell may start another process after one that failed: the detector gives it time. A process
// that still runs after its last message hangs, and so does a rank of several.
func TestShellMayRetry(t *testing.T) {
	start := time.Unix(1000, 0)
	word := Fact{Time: start, Source: "probe", Content: &Finding{Code: cause.CUDAOOM, Weight: cause.WeightCause, Raised: true, Rank: -1, Stream: "probe", Seq: 1}}
	end := Fact{Time: start.Add(time.Second), Source: "probe", Content: &ProcessEnd{PID: 2, Stream: "probe", At: start, Trained: true, Failed: cause.CUDAOOM}}
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

// The kernel's exit status of a program outranks the reports of the processes in it, and another
// script's good end does not make up for a failure.
func TestExitStatusOutranksReports(t *testing.T) {
	start := time.Unix(1000, 0)
	end := func(pid, began, at int, runs string, exit *Exit, trained bool) Fact {
		when := start.Add(time.Duration(at) * time.Second)
		return Fact{Time: when, Source: "gpurun", Content: &ProcessEnd{PID: pid, Began: start.Add(time.Duration(began) * time.Second), At: when, Runs: runs, Members: []int{pid, pid + 1}, Exit: exit, Trained: trained}}
	}
	inner := func(pid int, failed cause.Code, trained bool) Fact {
		return Fact{Time: start, Source: "probe", Content: &ProcessEnd{PID: pid, Stream: "probe", Inner: true, Failed: failed, Trained: trained}}
	}
	steps := func(pid int) Fact {
		return Fact{Time: start, Source: "probe", Content: &ProcessReport{PID: pid, Stepping: true}}
	}
	text := func(at int, f cause.Finding) Fact {
		f.Rank, f.Stream, f.Seq, f.Text = -1, "stderr", 1, "E: x"
		return Fact{Time: start.Add(time.Duration(at) * time.Second), Source: "stderr", Content: (*Finding)(&f)}
	}
	left := end(10, 0, 9, "train.py", nil, true)
	As[*ProcessEnd](left).Left = true
	for _, c := range []struct {
		name  string
		facts []Fact
		want  cause.Code
	}{
		{"killed", []Fact{end(10, 0, 5, "train.py", &Exit{Code: 137, Signal: 9}, true)}, cause.Unknown},
		{"ended with 3", []Fact{end(10, 0, 5, "train.py", &Exit{Code: 3}, true)}, cause.Unknown},
		{"crashed", []Fact{end(10, 0, 5, "train.py", &Exit{Code: 139, Signal: 11}, true)}, cause.Segfault},
		{"the same script later", []Fact{end(10, 0, 5, "train.py", &Exit{Code: 3}, true), steps(20), end(20, 6, 9, "train.py", &Exit{}, false)}, cause.None},
		{"another script later", []Fact{end(10, 0, 5, "train.py", &Exit{Code: 3}, true), steps(20), end(20, 6, 9, "eval.py", &Exit{}, false)}, cause.Unknown},
		{"a later one without a step", []Fact{end(10, 0, 5, "train.py", &Exit{Code: 3}, true), end(20, 6, 9, "train.py", &Exit{}, false)}, cause.Unknown},
		{"a driver passes it on", []Fact{inner(11, cause.CUDAOOM, true), end(10, 0, 5, "driver.py", &Exit{Code: 1}, true)}, cause.Unknown},
		{"a driver accepts it", []Fact{inner(11, cause.UserError, true), end(10, 0, 5, "driver.py", &Exit{}, false)}, cause.None},
		{"nothing trained, the last one failed", []Fact{end(10, 0, 2, "prepare.py", &Exit{}, false), end(20, 3, 5, "train.py", &Exit{Code: 1}, false)}, cause.Unknown},
		{"nothing trained, the last one did not fail", []Fact{end(10, 0, 2, "check.py", &Exit{Code: 1}, false), end(20, 3, 5, "prepare.py", &Exit{}, false)}, cause.None},
		{"a server that its script ends", []Fact{end(10, 0, 9, "server.py", &Exit{Code: 143, Signal: 15}, false), end(20, 3, 5, "prepare.py", &Exit{}, false)}, cause.None},
		{"left behind", []Fact{left}, cause.Unknown},
		{"left beside a training", []Fact{steps(20), end(20, 3, 5, "train.py", &Exit{}, false), left}, cause.None},
		{"a traceback in the output", []Fact{text(4, cause.Finding{Code: cause.UserError, Raised: true, Top: true})}, cause.UserError},
		{"a traceback of a function", []Fact{text(4, cause.Finding{Code: cause.UserError, Raised: true})}, cause.None},
		{"a traceback that was outlived", []Fact{text(4, cause.Finding{Code: cause.UserError, Raised: true, Top: true, Weight: cause.WeightOutlived})}, cause.None},
		{"a traceback before a program that ended well", []Fact{text(1, cause.Finding{Code: cause.UserError, Raised: true, Top: true}), end(20, 0, 5, "train.py", &Exit{}, false)}, cause.None},
		{"a command that is not there", []Fact{text(1, cause.Finding{Code: cause.UserError, Weight: cause.WeightWarning, Remarks: []cause.Remark{cause.SaysNotRun}})}, cause.UserError},
		{"a command that is not there, and a training", []Fact{text(1, cause.Finding{Code: cause.UserError, Weight: cause.WeightWarning, Remarks: []cause.Remark{cause.SaysNotRun}}), steps(20), end(20, 3, 5, "train.py", &Exit{}, false)}, cause.None},
	} {
		ev := Evidence{Ranks: 1}
		for _, f := range append(c.facts, Fact{Time: start.Add(time.Minute), Source: "exit", Content: &Exit{PID: 1, Shell: true}}) {
			ev.Add(f)
		}
		if d := Diagnose(ev); d.Cause != c.want || d.Fatal != (c.want != cause.None) {
			t.Errorf("%s: %s, fatal %v, want %s", c.name, d.Cause, d.Fatal, c.want)
		}
	}
}
