package strategy

import (
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// The positions of all ranks show which rank hangs.
func TestDiagnoseStalledRanks(t *testing.T) {
	train := cause.StackFrame{File: "/home/u/train.py", Line: 52, Function: "step"}
	load := cause.StackFrame{File: "/home/u/train.py", Line: 41, Function: "load"}
	reduce := cause.StackFrame{File: "/v/lib/python3.12/site-packages/torch/distributed/distributed_c10d.py", Line: 2501, Function: "all_reduce"}
	backward := cause.StackFrame{File: "/v/lib/python3.12/site-packages/torch/autograd/graph.py", Line: 9, Function: "_engine_run_backward"}
	sleep := cause.StackFrame{File: "/usr/lib/python3.12/queue.py", Line: 180, Function: "get"}
	waits, backs, away, loads := []cause.StackFrame{reduce, train}, []cause.StackFrame{backward, train}, []cause.StackFrame{load, train}, []cause.StackFrame{sleep, load}
	for name, test := range map[string]struct {
		stacks [][]cause.StackFrame
		ranks  []int
		words  string
	}{
		"one is elsewhere":        {[][]cause.StackFrame{waits, away, waits, waits}, []int{1}, "rank 1 at train.py:41 in load; ranks 0, 2–3 waiting at train.py:52 in step, in all_reduce"},
		"a loader's queue":        {[][]cause.StackFrame{loads, backs}, []int{0}, "rank 0 at train.py:41 in load; rank 1 waiting at train.py:52 in step, in _engine_run_backward"},
		"two are elsewhere":       {[][]cause.StackFrame{away, waits, loads}, []int{0, 2}, "ranks 0, 2 at train.py:41 in load; rank 1 waiting at train.py:52 in step, in all_reduce"},
		"another collective":      {[][]cause.StackFrame{waits, waits, {reduce, load}}, []int{2}, "rank 2 waiting at train.py:41 in load, in all_reduce; ranks 0–1 waiting at train.py:52 in step, in all_reduce"},
		"all wait at one place":   {[][]cause.StackFrame{waits, waits}, nil, "ranks 0–1 waiting at train.py:52 in step, in all_reduce"},
		"two, and nobody waits":   {[][]cause.StackFrame{{train}, {load}}, nil, "rank 0 at train.py:52 in step; rank 1 at train.py:41 in load"},
		"most are at one place":   {[][]cause.StackFrame{{train}, {train}, {load}}, []int{2}, "rank 2 at train.py:41 in load; ranks 0–1 at train.py:52 in step"},
		"the hook of gpurun":      {[][]cause.StackFrame{{{File: "/r/attempt-0/probe-21/inside/root.py", Line: 65, Function: "called"}, load}, backs}, []int{0}, "rank 0 at train.py:41 in load; rank 1 waiting at train.py:52 in step, in _engine_run_backward"},
		"one process":             {[][]cause.StackFrame{loads}, []int{0}, "rank 0 at train.py:41 in load"},
		"one told nothing":        {[][]cause.StackFrame{waits, nil}, []int{1}, "rank 1 silent, stopped; rank 0 waiting at train.py:52 in step, in all_reduce"},
		"a library's own file":    {[][]cause.StackFrame{waits, {reduce}}, nil, "rank 0 waiting at train.py:52 in step, in all_reduce; rank 1 waiting at distributed_c10d.py:2501 in all_reduce"},
		"nobody tells":            {nil, nil, ""},
		"none of them tells more": {[][]cause.StackFrame{nil, nil}, nil, "ranks 0–1 silent, stopped"},
	} {
		t.Run(name, func(t *testing.T) {
			ev := Evidence{Ranks: len(test.stacks)}
			ev.Add(Fact{Rank: -1, Source: "gpurun", Content: &Stall{For: 60}})
			for rank, frames := range test.stacks {
				ev.Add(Fact{Rank: rank, Source: "probe", Content: &Stack{PID: rank, Frames: frames, State: "stopped"}})
			}
			d := Diagnose(ev)
			if d.Cause != cause.Hang || !slices.Equal(d.Ranks, test.ranks) || d.Error != test.words {
				t.Errorf("%s on %v: %q\nwant %v: %q", d.Cause, d.Ranks, d.Error, test.ranks, test.words)
			}
			if want := -1; len(test.ranks) > 0 {
				if want = test.ranks[0]; d.Rank != want {
					t.Errorf("rank %d, want %d", d.Rank, want)
				}
			} else if d.Rank != want {
				t.Errorf("rank %d, want %d", d.Rank, want)
			}
		})
	}
}

// The lines about a hang name the time, the rank and its place, and the next step.
func TestAHangIsReported(t *testing.T) {
	stop := Stop{Reason: StopStalled, For: Seconds(20 * time.Minute)}
	if got, want := stop.Notice(), "no rank has made a step for 20m0s: the job hangs, and all ranks are stopped"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	hung := ended(0, plain, Diagnosis{Cause: cause.Hang, Fatal: true, Rank: 1, Error: "rank 1 at train.py:13 in fetch; ranks 0, 2–7 waiting at train.py:23 in step, in all_reduce"})
	d := Decide(Policy{TransientRetries: 3, RestartFromZero: Seconds(time.Hour)}, Job{}, []Attempt{hung}, Inventory{})
	if want := "attempt 0: the job hung on rank 1 (rank 1 at train.py:13 in fetch; ranks 0, 2–7 waiting at train.py:23 in step, in all_reduce) → the same plan again (1 of 3)"; d.Reason != want {
		t.Errorf("%q, want %q", d.Reason, want)
	}
}

// A job that hangs at the same place each time does not need another day.
func TestSameHangAgainFails(t *testing.T) {
	hang := func(n int, at string) Attempt {
		return ended(n, plain, Diagnosis{Cause: cause.Hang, Fatal: true, Rank: 1, Error: at})
	}
	for name, test := range map[string]struct {
		history []Attempt
		code    int // 0: again
	}{
		"the first":      {[]Attempt{hang(0, "a")}, 0},
		"the last":       {[]Attempt{hang(0, "a"), hang(1, "a"), hang(2, "a"), hang(3, "a")}, CodeFailed},
		"elsewhere":      {[]Attempt{hang(0, "a"), hang(1, "b"), hang(2, "a"), hang(3, "a")}, CodeRetry},
		"nobody told":    {[]Attempt{hang(0, ""), hang(1, ""), hang(2, ""), hang(3, "")}, CodeRetry},
		"a lost network": {[]Attempt{network(0, Stepping{}, ""), hang(1, "a"), hang(2, "a"), hang(3, "a")}, CodeRetry},
	} {
		if d := Decide(Policy{TransientRetries: 3, RestartFromZero: Seconds(100 * time.Hour)}, Job{}, test.history, Inventory{}); d.Code != test.code || d.Relaunch != (test.code == 0) {
			t.Errorf("%s: %d, %s", name, d.Code, d.Reason)
		}
	}
}
