package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A relaunch from a checkpoint names what the framework does not guarantee about the data; other
// relaunches do not.
func TestResumeCaveats(t *testing.T) {
	job := gpt(1)
	job.Resumption = Resumption{Data: "it begins the epoch anew", Shifts: map[Knob]string{MicroBatchSize: "it counts micro batches"}}
	full := plain.With(Plan{ActivationCheckpointing: "full", Allocator: "expandable"})
	first, second := ended(0, plain, oom(cause.Backward)), ended(1, full, oom(cause.Backward))
	for _, test := range []struct {
		name       string
		checkpoint string
		history    []Attempt
		want       string
	}{
		{"nothing to go on from", "", []Attempt{first, second}, ""},
		{"checkpointing changed", "ckpt-3", []Attempt{first}, "it begins the epoch anew"},
		{"the micro batch changed", "ckpt-3", []Attempt{first, second}, "it begins the epoch anew; it counts micro batches"},
		{"the micro batch changed before", "ckpt-3", []Attempt{first, second, ended(2, full.With(Plan{MicroBatchSize: "1", GradientAccumulationSteps: "16"}), oom(cause.Backward))}, "it begins the epoch anew; it counts micro batches"},
	} {
		t.Run(test.name, func(t *testing.T) {
			inv := h100
			inv.Checkpoint = test.checkpoint
			got := Decide(defaults, job, test.history, inv)
			if !got.Relaunch || got.Caveat != test.want {
				t.Errorf("relaunch %v, caveat %q, want %q", got.Relaunch, got.Caveat, test.want)
			}
			if said := strings.Contains(got.Reason, "; on resuming, "+test.want); said != (test.want != "") {
				t.Errorf("reason %q", got.Reason)
			}
		})
	}
}
