package strategy

import (
	"strings"
	"testing"
	"time"
)

// A decision still holds when a run is started again, if its checkpoint still exists.
func TestAgain(t *testing.T) {
	job := zero(2)
	sharding := job.Knobs[Sharding]
	sharding.Checkpoint = &Survival{Groups: [][]Value{{"zero1", "zero2"}}, Reason: "the shards differ"}
	job.Knobs[Sharding] = sharding
	one, two, three := sharded.With(Plan{Sharding: "zero1"}), sharded.With(Plan{Sharding: "zero2"}), sharded.With(Plan{Sharding: "zero3"})
	first := ended(0, one, oom("backward"))
	first.Ended = first.Started.Add(40 * time.Minute) // more than the 30 minutes of the policy
	short := ended(0, one, oom("backward"))
	later := first.Started.Add(2 * time.Hour)

	for _, test := range []struct {
		name    string
		history Attempt
		next    Pending
		found   Checkpoints
		from    string
		notice  string
		refused string
	}{
		{"nothing has run", first, Pending{Plan: one}, Checkpoints{}, "", "", ""},
		{"as decided", first, Pending{N: 1, Plan: two, Checkpoint: "ckpt-5"}, Checkpoints{Decided: true, Newest: "ckpt-5", Written: first.Ended}, "ckpt-5", "", ""},
		{"another run has written a newer one", first, Pending{N: 1, Plan: two, Checkpoint: "ckpt-5"}, Checkpoints{Decided: true, Newest: "ckpt-900", Written: later}, "ckpt-5", "", ""},
		{"from the beginning, as decided", first, Pending{N: 1, Plan: three}, Checkpoints{Newest: "ckpt-5", Written: first.Ended}, "", "", ""},
		{"gone, and an older one is there", first, Pending{N: 1, Plan: two, Checkpoint: "ckpt-5"}, Checkpoints{Newest: "ckpt-4", Written: first.Ended}, "ckpt-4", "the checkpoint ckpt-5 is gone or not complete: attempt 1 starts from ckpt-4", ""},
		{"gone, and the older one does not survive", first, Pending{N: 1, Plan: three, Checkpoint: "ckpt-5"}, Checkpoints{Newest: "ckpt-4", Written: first.Ended}, "", "",
			"attempt 1 would start from the beginning and repeat 40m0s of work: the checkpoint ckpt-5 is gone or not complete, and the checkpoint ckpt-4 does not survive sharding zero1→zero3"},
		{"gone, with much work", first, Pending{N: 1, Plan: two, Checkpoint: "ckpt-5"}, Checkpoints{}, "", "", "repeat 40m0s of work: the checkpoint ckpt-5 is gone or not complete, and there is no other"},
		{"gone, with little work", short, Pending{N: 1, Plan: two, Checkpoint: "ckpt-5"}, Checkpoints{}, "", "attempt 1 starts from the beginning", ""},
		{"cut off, and it has written a newer one", first, Pending{N: 2, Plan: three, Checkpoint: "ckpt-5", Ran: true, Began: later}, Checkpoints{Decided: true, Newest: "ckpt-7", Written: later.Add(time.Minute)}, "ckpt-7", "", ""},
		{"cut off before it wrote one", first, Pending{N: 2, Plan: two, Checkpoint: "ckpt-5", Ran: true, Began: later}, Checkpoints{Decided: true, Newest: "ckpt-5", Written: first.Ended}, "ckpt-5", "", ""},
		{"cut off, and its start is not known", first, Pending{N: 2, Plan: three, Ran: true}, Checkpoints{Newest: "ckpt-7", Written: later}, "ckpt-7", "", ""},
		{"cut off, having begun anew, beside one that does not survive", first, Pending{N: 2, Plan: three, Ran: true, Began: later}, Checkpoints{Newest: "ckpt-5", Written: first.Ended}, "", "", ""},
		{"cut off, and nothing is left", first, Pending{N: 2, Plan: two, Checkpoint: "ckpt-5", Ran: true, Began: later}, Checkpoints{}, "", "", "there is no other"},
		{"stopped in attempt 0", first, Pending{N: 1, Plan: one, Ran: true, Began: first.Started}, Checkpoints{Newest: "ckpt-5", Written: first.Ended}, "ckpt-5", "", ""},
	} {
		got := Again(defaults, job, []Attempt{test.history}, test.next, test.found)
		if got.Checkpoint != test.from || !strings.Contains(got.Notice, test.notice) || (got.Notice != "") != (test.notice != "") ||
			!strings.Contains(got.Refused, test.refused) || (got.Refused != "") != (test.refused != "") || (got.Hint != "") != (test.refused != "") {
			t.Errorf("%s: %+v", test.name, got)
		}
	}
	unbounded := defaults
	unbounded.RestartFromZero = 0
	if got := Again(unbounded, job, []Attempt{first}, Pending{N: 1, Plan: two, Checkpoint: "ckpt-5"}, Checkpoints{}); got.Refused != "" || got.Notice == "" {
		t.Errorf("without a bound: %+v", got)
	}
}

// A plan from a file may contain anything.
func TestValidate(t *testing.T) {
	for _, test := range []struct {
		plan Plan
		want string // empty: valid
	}{
		{nil, ""},
		{sharded.With(plain), ""},
		{Plan{Optimizer: "adamw-8bit", DataloaderWorkers: "0", PinMemory: "false"}, ""},
		{Plan{"batch": "8"}, `the knob "batch", which does not exist`},
		{Plan{MicroBatchSize: "-4"}, "micro_batch_size is -4, and cannot be negative"},
		{Plan{MicroBatchSize: "many"}, `micro_batch_size is "many", and has to be a whole number`},
		{Plan{MicroBatchSize: "99999999999999999999"}, "has to be a whole number"},
		{Plan{Precision: "fp4"}, `precision is "fp4", and has to be one of fp32, tf32, fp16, bf16, fp8`},
		{Plan{PinMemory: ""}, `pin_memory is ""`},
		{Plan{Optimizer: ""}, "optimizer is empty"},
	} {
		err := test.plan.Validate()
		if (err != nil) != (test.want != "") || err != nil && !strings.Contains(err.Error(), test.want) {
			t.Errorf("%v: %v, want %q", test.plan, err, test.want)
		}
	}
}

// A relaunch from the beginning gives the reason, if the user configured where checkpoints are.
func TestReasonNamesMissingCheckpoint(t *testing.T) {
	inv := h100
	inv.NoCheckpoint = "nothing matches out/ckpt-*"
	d := Decide(defaults, gpt(1), []Attempt{ended(0, plain, oom("backward"))}, inv)
	if !d.Relaunch || !strings.HasSuffix(d.Reason, "; it starts from the beginning: nothing matches out/ckpt-*") {
		t.Errorf("relaunch %v: %s", d.Relaunch, d.Reason)
	}
	inv.NoCheckpoint, inv.Checkpoint = "", "out/ckpt-3"
	if d := Decide(defaults, gpt(1), []Attempt{ended(0, plain, oom("backward"))}, inv); strings.Contains(d.Reason, "beginning") {
		t.Error(d.Reason)
	}
}
