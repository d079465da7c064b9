package strategy

import (
	"maps"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Prospects are all inputs of a decision about a speed-up.
type prospects struct {
	policy  Policy
	job     Job
	history []Attempt
	now     Attempt
	inv     Inventory
	best    faster
	found   bool
}

var (
	ran8 = Plan{MicroBatchSize: "8", GradientAccumulationSteps: "4", ActivationCheckpointing: "none"}
	ran2 = Plan{MicroBatchSize: "2", GradientAccumulationSteps: "16", ActivationCheckpointing: "none"}
	ran4 = Plan{MicroBatchSize: "4", GradientAccumulationSteps: "8", ActivationCheckpointing: "none"}
	dawn = time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC)
)

// promising is a run that speeds up: micro batch 8 ran out of memory, 2 has resumed from a
// checkpoint and trains, and 4 would fit.
func promising() *prospects {
	failed := ended(0, ran8, oom(cause.Backward))
	failed.Stepping = Stepping{Steps: 40, Last: 40, For: Seconds(time.Minute), Before: Seconds(30 * time.Second), Total: 20000}
	return &prospects{
		policy:  Policy{Mode: Predict, Speedup: true, MaxAttempts: 20, Numerics: MixedPrecision, RestartFromZero: Seconds(time.Hour)},
		job:     gpt(1),
		history: []Attempt{failed},
		now: Attempt{
			N: 1, Plan: ran2, From: "out/checkpoint-40", Started: dawn.Add(2 * time.Hour), Diagnosis: Diagnosis{Cause: cause.None, Rank: -1},
			Stepping: Stepping{Steps: 361, Last: 400, For: Seconds(6 * time.Minute), Before: Seconds(time.Minute), Total: 20000},
			Measured: []memory.Measurement{{Steps: 361, Peak: 31 << 30}},
		},
		inv: Inventory{
			At: dawn.Add(2*time.Hour + 8*time.Minute), Accelerator: "cuda", BF16: true,
			Checkpoint: "out/checkpoint-400", CheckpointWritten: dawn.Add(2*time.Hour + 7*time.Minute),
		},
		best: faster{plan: ran4, expected: memory.Prediction{Evidence: "same mode"}, gain: 1.6, peak: 31 << 30, room: 80 << 30}, found: true,
	}
}

func (o *prospects) speedup() Speedup {
	s := &situation{policy: o.policy, job: o.job, inventory: o.inv}
	s.look(ran(append(slices.Clone(o.history), o.now)))
	return s.ascend(o.scout)
}

func (o *prospects) scout([]Plan, bool) (faster, bool) { return o.best, o.found }

func TestSpeedup(t *testing.T) {
	a := promising().speedup()
	want := Decision{
		Relaunch: true, Rule: "climb", Next: ran4, Resume: "out/checkpoint-400", Expected: &memory.Prediction{Evidence: "same mode"},
		Changed: Changes{MicroBatchSize: {"2", "4"}, GradientAccumulationSteps: {"16", "8"}},
		Reason: "attempt 1: step 400 of 20000, peak 31.0 of 80.0 GiB → micro batch 2→4, accumulation 16→8 (global batch 32 kept), " +
			"about 1.6 times as fast, saves about 2 h; from checkpoint-400",
	}
	if diff := cmp.Diff(want, a.Decision); diff != "" {
		t.Error(diff)
	}
	if a.Refused != "" || a.Later || a.Proposal != "micro batch 4 would fit and be about 1.6 times as fast" {
		t.Errorf("%+v", a)
	}
}

// Each condition by itself keeps the plan, and is named.
func TestConditionsForASpeedUp(t *testing.T) {
	for name, test := range map[string]struct {
		change  func(*prospects)
		refused string
		later   bool
		nothing bool // no proposal
	}{
		"switched off":       {change: func(o *prospects) { o.policy.Speedup = false }, refused: "recovery.climb = false"},
		"on the ladder":      {change: func(o *prospects) { o.policy.Mode = Ladder }, refused: `recovery.mode = "ladder"`},
		"recovery off":       {change: func(o *prospects) { o.policy.Mode = Off }, refused: `recovery.mode = "off"`},
		"nothing measured":   {change: func(o *prospects) { o.now.Measured = nil }, refused: "the first steps have not been measured", later: true, nothing: true},
		"two steps":          {change: func(o *prospects) { o.now.Measured[0].Steps = 2 }, refused: "the first steps have not been measured", later: true, nothing: true},
		"one rank is behind": {change: func(o *prospects) { o.now.Measured = append(o.now.Measured, memory.Measurement{Rank: 1, Steps: 1}) }, refused: "the first steps have not been measured", later: true, nothing: true},
		"a rank ran out":     {change: func(o *prospects) { o.now.Measured[0].Failed = "backward" }, refused: "the first steps have not been measured", later: true, nothing: true},
		"nothing faster":     {change: func(o *prospects) { o.found = false }, refused: "no faster plan is likely to fit", nothing: true},
		"gone up before":     {change: func(o *prospects) { o.history[0].Speedup = &Decision{Next: ran2} }, refused: "a run speeds up once"},
		"samples are lost":   {change: func(o *prospects) { o.job.Resumption.Data = "it begins the epoch anew" }, refused: "on resuming, it begins the epoch anew"},
		"it is not known":    {change: func(o *prospects) { o.job.Resumption.Own = true }, refused: `it is not known whether the job continues with the next sample when it resumes: resume.data = "kept" confirms it`},
		"a knob that shifts": {change: func(o *prospects) {
			o.job.Resumption.Shifts = map[Knob]string{MicroBatchSize: "it counts micro batches"}
		}, refused: "on resuming, it counts micro batches"},
		"a checkpoint's form": {change: func(o *prospects) {
			o.job.Knobs[MicroBatchSize] = Range{Checkpoint: &Survival{Reason: "it holds the sampler"}}
		}, refused: "the checkpoint out/checkpoint-400 does not survive micro batch 2→4: it holds the sampler"},
		"never resumed":    {change: func(o *prospects) { o.now.From = "" }, refused: "no attempt of this run has resumed from a checkpoint and made a step"},
		"resumed in words": {change: func(o *prospects) { o.now.Fresh = true }, refused: "no attempt of this run has resumed from a checkpoint and made a step"},
		"no end":           {change: func(o *prospects) { o.now.Stepping.Total = 0 }, refused: "it would save 38s in the time that the job has run, with the relaunch, and 1m0s at least are worth one", later: true},
		"beyond the end":   {change: func(o *prospects) { o.now.Stepping.Total = 399 }, refused: "it would save 38s in the time that the job has run, with the relaunch, and 1m0s at least are worth one", later: true},
		"one step":         {change: func(o *prospects) { o.now.Stepping.Steps = 1 }, refused: "no step has been timed", later: true},
		"the last hour":    {change: func(o *prospects) { o.inv.Deadline = o.inv.At.Add(59 * time.Minute) }, refused: "the time here ends within the hour"},
		"costs unseen":     {change: func(o *prospects) { o.now.Stepping.Before, o.history[0].Stepping.Before = 0, 0 }, refused: "the cost of a relaunch is not known"},
		"less than a minute": {change: func(o *prospects) { o.now.Stepping.Total = 800 },
			refused: "it would save 53s until the end, with the relaunch, and 1m0s at least are worth one"},
		"a slow start": {change: func(o *prospects) { o.history[0].Stepping.Before = Seconds(3 * time.Hour) },
			refused: "it would save nothing until the end: a relaunch costs 3h0m0s until the first step"},
		"no checkpoint":     {change: func(o *prospects) { o.inv.Checkpoint = "" }, refused: "the attempt has written no complete checkpoint", later: true},
		"an old checkpoint": {change: func(o *prospects) { o.inv.CheckpointWritten = o.now.Started.Add(-time.Second) }, refused: "the attempt has written no complete checkpoint", later: true},
	} {
		t.Run(name, func(t *testing.T) {
			o := promising()
			test.change(o)
			a := o.speedup()
			if a.Refused != test.refused || a.Later != test.later || a.Decision.Relaunch || (a.Proposal == "") != test.nothing {
				t.Errorf("%+v", a)
			}
			o.now.Ended = o.inv.At.Add(9 * time.Hour)
			if said := o.speedup().summary(); (said == "") != test.nothing {
				t.Errorf("in the summary: %q", said)
			}
		})
	}
}

// Cases next to a condition that allow the speed-up.
func TestConditionsThatAllowASpeedUp(t *testing.T) {
	for name, change := range map[string]func(*prospects){
		"somebody vouches for it":    func(o *prospects) { o.now.From, o.job.Resumption = "", Resumption{Own: true, Exact: true} },
		"the attempt before resumed": func(o *prospects) { o.now.From, o.history[0].From = "", "out/checkpoint-10" },
		"another knob shifts":        func(o *prospects) { o.job.Resumption.Shifts = map[Knob]string{Sharding: "it is another"} },
		"an hour is left":            func(o *prospects) { o.inv.Deadline = o.inv.At.Add(time.Hour) },
		"the checkpoint outlives it": func(o *prospects) {
			o.job.Knobs[MicroBatchSize] = Range{Checkpoint: &Survival{Groups: [][]Value{{"2", "4"}}}}
		},
		"another rank has measured, too": func(o *prospects) { o.now.Measured = append(o.now.Measured, memory.Measurement{Rank: 1, Steps: 3}) },
		"a plan before had another batch": func(o *prospects) {
			o.history = append(o.history, ended(1, ran4.With(Plan{ActivationCheckpointing: "full"}), Diagnosis{}))
		},
	} {
		o := promising()
		change(o)
		if a := o.speedup(); !a.Decision.Relaunch || a.Refused != "" {
			t.Errorf("%s: %+v", name, a)
		}
	}
}

// Where the job's number of steps is not known, it is expected to go on for as long as it has run: with a checkpoint a
// relaunch pays once the attempt has run for start / (1 - r), r being the present speed over the better plan's, and without
// one for start / (1 - 2r), which is looked at then. A minute at least has to be saved, too.
func TestSpeedUpWithoutAKnownEnd(t *testing.T) {
	for name, test := range map[string]struct {
		ran        time.Duration
		gain       float64
		checkpoint bool
		relaunch   bool
		again      time.Duration
	}{
		"at a checkpoint":              {ran: 5 * time.Minute, gain: 2, checkpoint: true, relaunch: true},
		"at an early checkpoint":       {ran: 3 * time.Minute, gain: 2, checkpoint: true},
		"a little faster, in time":     {ran: 21 * time.Minute, gain: 10. / 9, checkpoint: true, relaunch: true},
		"a little faster, too early":   {ran: 19 * time.Minute, gain: 10. / 9, checkpoint: true},
		"from the beginning":           {ran: 5 * time.Minute, gain: 4, relaunch: true},
		"from the beginning, so early": {ran: 3 * time.Minute, gain: 4, again: 4 * time.Minute},
		"less than twice as fast":      {ran: 5 * time.Minute, gain: 2},
		"too much is done again":       {ran: 6 * time.Minute, gain: 4},
	} {
		o := rescuedInPlace()
		o.best.gain, o.now.Stepping.Total = test.gain, 0
		o.now.Stepping.Steps, o.now.Stepping.Last, o.now.Stepping.For = 100, 100, Seconds(test.ran)
		if test.checkpoint {
			o.job.Resumption.Exact = true
			o.inv.Checkpoint, o.inv.CheckpointWritten = "ckpt-100", o.inv.At
		}
		a := o.speedup()
		if a.Decision.Relaunch != test.relaunch || a.Again != test.again || !test.relaunch && !a.Later && a.Refused == "" {
			t.Errorf("%s: again after %s, refused %q, decided %+v", name, a.Again, a.Refused, a.Decision)
		}
		if d := a.Decision; d.Relaunch && (!strings.Contains(d.Reason, "if the job runs as long again") || !strings.Contains(d.Reason, "step 100, ")) {
			t.Errorf("%s: %s", name, d.Reason)
		}
	}
}

// A run goes back, once, from a plan that was predicted to be faster and is slower, if that pays.
func TestSlowerPlanIsLeft(t *testing.T) {
	for name, test := range map[string]struct {
		change func(*prospects)
		back   bool
		resume string
	}{
		"at a checkpoint": {change: func(*prospects) {}, back: true, resume: "out/checkpoint-400"},
		"from the beginning": {change: func(o *prospects) {
			o.inv.Checkpoint, o.now.From, o.now.Stepping.For, o.now.Stepping.Steps = "", "", Seconds(2*time.Minute), 61
		}, back: true},
		"faster, but less than predicted": {change: func(o *prospects) { o.now.Stepping.For = Seconds(5 * time.Minute) }},
		"near the end":                    {change: func(o *prospects) { o.now.Stepping.Total = 420 }},
		"no checkpoint for long":          {change: func(o *prospects) { o.inv.Checkpoint = "" }},
		"it went back before": {change: func(o *prospects) {
			first := o.history[0]
			first.Speedup = &Decision{Next: ran4}
			o.history = append([]Attempt{first}, o.history...)
		}},
		"samples would be lost": {change: func(o *prospects) { o.job.Resumption.Data = "it begins the epoch anew" }},
	} {
		o := promising()
		o.history[0] = ended(0, ran8, Diagnosis{Cause: cause.None})
		o.history[0].Speedup = &Decision{Next: ran2}
		o.history[0].Stepping = Stepping{Steps: 101, Last: 101, For: Seconds(90 * time.Second), Before: Seconds(30 * time.Second)}
		test.change(o)
		a := o.speedup()
		d := a.Decision
		if d.Relaunch != test.back || test.back && (!maps.Equal(d.Next, ran8) || d.Resume != test.resume) {
			t.Errorf("%s: refused %q, decided %+v", name, a.Refused, d)
		}
		if test.back && !strings.Contains(d.Reason, "s before → back to the plan of attempt 0: micro batch 2→8") {
			t.Errorf("%s: %s", name, d.Reason)
		}
	}
}

// Faster plans keep the global batch, dtypes and optimizer, and the settings that the policy
// bars.
func TestHigherPlans(t *testing.T) {
	o := promising()
	at := func(change func(*prospects)) []Plan {
		o := promising()
		change(o)
		s := &situation{policy: o.policy, job: o.job, inventory: o.inv}
		s.look(ran(append(slices.Clone(o.history), o.now)))
		return s.higher()
	}
	all := at(func(*prospects) {})
	has := func(plans []Plan, p Plan) bool {
		return slices.ContainsFunc(plans, func(q Plan) bool { return maps.Equal(p, q) })
	}
	for _, p := range []Plan{ran4, ran8.With(Plan{ActivationCheckpointing: "full"}), ran2.With(Plan{ActivationCheckpointing: "full"})} {
		if !has(all, p) {
			t.Errorf("no %s", p)
		}
	}
	for _, p := range all {
		b, known := batchOf(p, o.job)
		if !known || b.global() != 32 || maps.Equal(p, ran2) || maps.Equal(p, ran8) || len(p) != len(ran2) {
			t.Errorf("%s", p)
		}
		if micro, _ := p.Number(MicroBatchSize); micro >= 8 && p[ActivationCheckpointing] == "none" {
			t.Errorf("%s needs what has run out", p)
		}
	}
	if barred := at(func(o *prospects) { o.policy.Never = []string{"micro-batch", "activation_checkpointing"} }); len(barred) > 0 {
		t.Errorf("%v", barred)
	}
	offload := at(func(o *prospects) {
		o.job.Knobs[OffloadOptimizer] = Range{Values: []Value{"none", "cpu", "nvme"}}
		o.now.Plan = ran2.With(Plan{OffloadOptimizer: "cpu"})
	})
	if !has(offload, ran2.With(Plan{OffloadOptimizer: "none"})) || has(offload, ran2.With(Plan{OffloadOptimizer: "nvme"})) {
		t.Errorf("%v", offload)
	}
	if died := at(func(o *prospects) {
		o.history = append(o.history, ended(1, ran4, Diagnosis{Cause: cause.UserError, Fatal: true}))
	}); has(died, ran4) {
		t.Error("a plan that died is gone up to again")
	}
}

// speedingUp is a history in which an attempt was stopped for a faster plan, with the result of
// that plan.
func speedingUp(after ...Attempt) []Attempt {
	o := promising()
	up := o.speedup().Decision
	o.now.Ended, o.now.Speedup = o.inv.At, &up
	return append([]Attempt{o.history[0], o.now}, after...)
}

func TestAfterASpeedUp(t *testing.T) {
	inv := Inventory{Accelerator: "cuda", BF16: true, Checkpoint: "out/checkpoint-500"}
	up := func(d Diagnosis, change func(*Attempt)) Attempt {
		a := ended(2, ran4, d)
		a.From = "out/checkpoint-400"
		change(&a)
		return a
	}
	same := func(*Attempt) {}
	died := Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 0, Error: "RuntimeError: size mismatch"}
	tests := []struct {
		name    string
		history []Attempt
		rule    string
		next    Plan
		reason  string
	}{
		{name: "the ranks have been stopped", history: speedingUp(), rule: "climb", next: ran4,
			reason: "attempt 1: stopped for a faster plan → micro batch 2→4, accumulation 16→8, from checkpoint-500" + unprovenLoss},
		{name: "out of memory", history: speedingUp(up(oom(cause.Backward), same)), rule: "climb-back", next: ran2,
			reason: "attempt 2: CUDA out of memory in backward on rank 0 → back to the plan of attempt 1, which trained: micro batch 4→2, accumulation 8→16" + unprovenLoss},
		{name: "something new, sooner", history: speedingUp(up(died, same)), rule: "climb-back", next: ran2},
		{name: "cannot be started", history: speedingUp(up(Diagnosis{Fatal: true}, func(a *Attempt) { a.Unstarted = &Unstarted{Reason: "no such file"} })), rule: "climb-back", next: ran2},
		{name: "no memory to start it", history: speedingUp(up(Diagnosis{Fatal: true}, func(a *Attempt) { a.Unstarted = &Unstarted{Reason: "fork", Wait: true} })), rule: "could-not-start"},
		{name: "does not take effect", history: speedingUp(up(Diagnosis{}, func(a *Attempt) { a.Halted, a.Observed = true, Plan{MicroBatchSize: "2"} })), rule: "climb-back", next: ran2},
		{name: "something new, later", history: speedingUp(up(died, func(a *Attempt) { a.Steps = 9000 })), rule: "job-failed"},
		{name: "the network", history: speedingUp(up(Diagnosis{Cause: cause.NCCLError, Fatal: true}, same)), rule: "transient", next: ran4},
		{name: "trained", history: speedingUp(up(Diagnosis{}, same)), rule: "trained"},
		{name: "memory, after the network", history: speedingUp(up(Diagnosis{Cause: cause.NCCLError, Fatal: true}, same), up(oom(cause.Backward), func(a *Attempt) { a.N = 3 })), rule: "climb-back", next: ran2},
		{name: "the plan before runs out, too", history: speedingUp(up(oom(cause.Backward), same), ended(3, ran2, oom(cause.Backward))), rule: "out-of-memory"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			o := promising()
			o.policy.TransientRetries = 3
			o.policy.MaxAttempts = 2 // the first, and one that counts
			if test.rule == "out-of-memory" {
				o.policy.MaxAttempts = 3
			}
			d := Decide(o.policy, o.job, test.history, inv)
			if d.Rule != test.rule || test.next != nil && (!maps.Equal(d.Next, test.next) || d.Resume != inv.Checkpoint || !d.Relaunch || d.Remedy != "") {
				t.Errorf("%+v", d)
			}
			if test.reason != "" && d.Reason != test.reason {
				t.Errorf("%s", d.Reason)
			}
		})
	}
}

// A run that has trained proposes the plan that it did not take, with the reason.
func TestProposal(t *testing.T) {
	o := promising()
	o.policy.Speedup = false
	o.now.Ended = o.inv.At.Add(9 * time.Hour)
	s := &situation{policy: o.policy, job: o.job, inventory: o.inv}
	s.look(append(slices.Clone(o.history), o.now))
	want := func(proposal string) {
		t.Helper()
		if got := s.ascend(o.scout).summary(); got != proposal {
			t.Errorf("%q, want %q", got, proposal)
		}
	}
	const would = "micro batch 4 would fit and be about 1.6 times as fast; gpurun did not switch to it, since "
	want(would + "recovery.climb = false")
	s.last.Kept, s.policy.Speedup = "the time here ends within the hour", true
	want(would + "the time here ends within the hour")
	o.best.expected.Evidence = "prior"
	want("micro batch 4 may fit (its need was not measured) and be about 1.6 times as fast; gpurun did not switch to it, " +
		"since the time here ends within the hour")
	s.last.Measured = nil
	want("")
}

// checkpointed is the measurement of a process of the small model that trains with full
// checkpointing under a ceiling: each block holds its input, and one at a time is computed again.
func checkpointed(micro int, allowed int64, seconds float64) memory.Measurement {
	x, n := int64(micro)*1024*1024*4, int64(len(ranOutInForward(1, 200<<30).Marks[0].Bytes))
	held := 4 * small.Bytes["float32"] // with gradients and Adam's state
	m := memory.Measurement{
		Model: &small, Batch: micro, Longest: int64(micro) * 1024, Shape: []int{micro, 1024}, Optimizer: "AdamW",
		Start: 1600e6, States: 3200e6, Calls: 32 / micro, Allowed: allowed, Total: 80 << 30, Outside: 600 << 20,
		Steps: 361, StepSeconds: seconds, CallSeconds: seconds / float64(32/micro),
	}
	marks := memory.Marks{Path: "h", Input: x, After: m.Start + n*x}
	for i := range n {
		marks.Bytes = append(marks.Bytes, m.Start+i*x)
	}
	m.Marks = []memory.Marks{marks}
	again := n*x + block*int64(micro)*3/2
	m.First = memory.StepMemory{Forward: marks.After, ForwardPeak: marks.After, BackwardPeak: m.Start + again + 1600e6, Before: 3200e6, OptimizerPeak: held, After: held}
	m.Second = memory.StepMemory{Forward: held + n*x, ForwardPeak: held + n*x, BackwardPeak: held + again, Before: held, OptimizerPeak: held, After: held}
	m.Peak, m.Reserved = held+again, held+again
	return m
}

// The measured plan leaves half of the memory free, and without checkpointing a smaller micro
// batch is predicted to fit and to be faster.
func TestSpeedUpFromMeasurements(t *testing.T) {
	const room = 16 << 30
	o := promising()
	o.history[0] = failedAt(0, ran8, room)
	o.now.Plan = ran4.With(Plan{ActivationCheckpointing: "full"})
	o.now.Measured = []memory.Measurement{checkpointed(4, room, 1)}
	a := FindSpeedup(o.policy, o.job, o.history, o.now, o.inv)
	if !a.Decision.Relaunch || a.Decision.Expected == nil || a.Decision.Expected.Mean <= 0 || a.Decision.Expected.Mean > room {
		t.Fatalf("%+v", a)
	}
	if b, _ := batchOf(a.Decision.Next, o.job); a.Decision.Next[ActivationCheckpointing] != "none" || b.global() != 32 || !strings.Contains(a.Decision.Reason, "checkpointing full→none") {
		t.Errorf("%s: %s", a.Decision.Next, a.Decision.Reason)
	}

	o.now.Measured[0].Peak = 15 << 30 // the longest input needs nearly all memory
	if a := FindSpeedup(o.policy, o.job, o.history, o.now, o.inv); a.Decision.Relaunch || a.Refused != "no faster plan is likely to fit" {
		t.Errorf("%+v", a)
	}
}

// A job that fails by itself with the plan of a speed-up is restarted as often as requested, and
// no more.
func TestRestartsAfterASpeedUp(t *testing.T) {
	o := promising()
	o.policy.Restarts = 1
	up := o.now
	up.Speedup, up.Ended = &Decision{Relaunch: true, Next: ran4}, up.Started.Add(time.Hour)
	history := []Attempt{up}
	for n, want := range []bool{true, false} {
		a := ended(2+n, ran4, Diagnosis{Cause: cause.UserError, Fatal: true, Error: "ValueError: " + string(rune('a'+n)), Rank: 0})
		a.Steps, a.Ended = 1000*(n+1), a.Started.Add(time.Duration(2+n)*time.Hour)
		history = append(history, a)
		if d := Decide(o.policy, o.job, history, o.inv); d.Relaunch != want {
			t.Errorf("failure %d: %v by %s, want %v", n, d.Relaunch, d.Rule, want)
		}
	}
}

// An offload does not change if recovery.never names the remedy or the knob.
func TestNeverBarsRemovingAnOffload(t *testing.T) {
	for _, never := range [][]string{nil, {"undo-offload"}, {"offload-optimizer"}, {"offload_optimizer"}} {
		j := gpt(1)
		j.Knobs[OffloadOptimizer] = Range{Values: []Value{"none", "cpu"}}
		s := &situation{policy: Policy{Mode: Predict, Speedup: true, Never: never}, job: j, inventory: h100}
		s.look([]Attempt{{Plan: plain.With(Plan{OffloadOptimizer: "cpu"})}})
		undone := slices.ContainsFunc(s.higher(), func(p Plan) bool { return p[OffloadOptimizer] == "none" })
		if undone != (never == nil) {
			t.Errorf("never %q: undone %v", never, undone)
		}
	}
}

// rescuedInPlace is a run whose first attempt recomputes blocks in place, and where a smaller micro batch without that
// would be faster, under a ceiling of 16 GiB.
func rescuedInPlace() *prospects {
	const room = 16 << 30
	o := promising()
	o.job, o.history, o.policy.InPlace = proven(o.job), nil, true
	m, failed := checkpointed(8, room, 1), ranOutInForward(8, room)
	m.InPlace, m.Peak = []string{"checkpointing"}, 15<<30
	m.RanOut = &memory.RanOut{Failed: failed.Failed, Allocated: failed.Allocated, Requested: failed.Requested, Marks: failed.Marks}
	o.now.N, o.now.Plan, o.now.From, o.now.Measured, o.now.InPlace = 0, ran8, "", []memory.Measurement{m}, []InPlace{repeat(0, 0, 8192, 1024)}
	o.now.Loss = LossSeen{Scale: ScaleKept, Uniform: "yes"}
	o.now.Stepping = Stepping{Steps: 6, Last: 6, For: Seconds(6 * time.Second), Before: Seconds(time.Minute), Total: 20000}
	o.inv.Checkpoint, o.inv.CheckpointWritten = "", time.Time{}
	return o
}

// After steps were done again in place, a faster plan that trains the same is taken: at once while hardly any step was
// made and there is no checkpoint, else at a checkpoint. The memory that the failed tries filled does not count.
func TestSpeedUpAfterRepeatsInPlace(t *testing.T) {
	late := func(o *prospects) {
		o.now.Stepping.Last, o.now.Stepping.Steps, o.now.Stepping.For = 400, 400, Seconds(400*time.Second)
	}
	for name, test := range map[string]struct {
		change  func(*prospects)
		refused string // empty: it speeds up
		resume  string
	}{
		"at once":                {func(*prospects) {}, "", ""},
		"no step is lost then":   {func(o *prospects) { o.job.Resumption.Data = "it begins the epoch anew" }, "", ""},
		"late":                   {late, "no attempt of this run has resumed from a checkpoint and made a step", ""},
		"late, a resume is safe": {func(o *prospects) { late(o); o.job.Resumption.Exact = true }, "the attempt has written no complete checkpoint", ""},
		"at a checkpoint": {func(o *prospects) {
			late(o)
			o.job.Resumption.Exact = true
			o.inv.Checkpoint, o.inv.CheckpointWritten = "ckpt-1", o.inv.At
		}, "", "ckpt-1"},
		"it resumed":                   {func(o *prospects) { o.now.From = "ckpt-0" }, "the attempt has written no complete checkpoint", ""},
		"nothing was done again":       {func(o *prospects) { o.now.InPlace = nil }, "no attempt of this run has resumed from a checkpoint and made a step", ""},
		"switched off":                 {func(o *prospects) { o.policy.Speedup = false }, "recovery.climb = false", ""},
		"once":                         {func(o *prospects) { o.history = []Attempt{{Speedup: &Decision{}}} }, "a run speeds up once", ""},
		"not worth it":                 {func(o *prospects) { o.now.Stepping.Total = 300 }, "it would save", ""},
		"equal on average only":        {func(o *prospects) { o.job.Loss = Loss{} }, "no faster plan is likely to fit", ""},
		"also where speed is wanted":   {func(o *prospects) { o.job.Loss, o.policy.Prefer = Loss{}, Speed }, "no faster plan is likely to fit", ""},
		"some calls used the remedies": {func(o *prospects) { o.now.Measured[0].InPlace = nil }, "no faster plan is likely to fit", ""},
	} {
		t.Run(name, func(t *testing.T) {
			o := rescuedInPlace()
			test.change(o)
			a := FindSpeedup(o.policy, o.job, o.history, o.now, o.inv)
			if !strings.HasPrefix(a.Refused, test.refused) || a.Decision.Relaunch != (test.refused == "") || a.Decision.Resume != test.resume {
				t.Fatalf("refused %q, decided %+v", a.Refused, a.Decision)
			}
			if d := a.Decision; d.Relaunch {
				b, _ := batchOf(d.Next, o.job)
				if d.Next[ActivationCheckpointing] != "none" || b.micro >= 8 || b.global() != 32 || d.Expected.Mean > 16<<30 {
					t.Errorf("%+v", d)
				}
			}
		})
	}
	o := rescuedInPlace()
	up := FindSpeedup(o.policy, o.job, nil, o.now, o.inv).Decision
	o.now.Speedup, o.now.Ended = &up, o.inv.At
	if d := Decide(o.policy, o.job, []Attempt{o.now}, o.inv); d.Rule != "climb" || !maps.Equal(d.Next, up.Next) || d.Resume != "" || !strings.Contains(d.Reason, ", from the beginning") {
		t.Errorf("%+v", d)
	}
	failed := ended(1, up.Next, oom(cause.Forward))
	if d := Decide(o.policy, o.job, []Attempt{o.now, failed}, o.inv); d.Rule != "climb-back" || !maps.Equal(d.Next, ran8) {
		t.Errorf("%+v", d)
	}
}

// A rank that uses remedies in place has two measurements: of its steps, with the plan that it so runs with, and of the
// error before.
func TestMeasurementsWithRemediesInPlace(t *testing.T) {
	o := rescuedInPlace()
	got := o.job.Measured(o.now)
	if len(got) != 2 || got[0].Plan.Checkpointing != "full" || got[0].Failed != "" || got[0].StepSeconds != 1 ||
		got[1].Plan.Checkpointing != "none" || got[1].Failed != "forward" || got[1].StepSeconds != 0 || got[1].Peak != 0 || len(got[1].Marks[0].Bytes) == 0 {
		t.Errorf("measured %+v", got)
	}
}
