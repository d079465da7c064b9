package strategy

import (
	"testing"

	"github.com/gpurun/gpurun/strategy/memory"
)

// TestFitting: measurements of an earlier run decide whether a plan fits a present device.
func TestFitting(t *testing.T) {
	job := gpt(1)
	failed := failedAt(0, sixteen, 24<<30)
	past := []Past{{Plan: sixteen, Measured: job.Measured(failed)}}
	for room, want := range map[int64]bool{24 << 30: false, 40 << 30: false, 120 << 30: true} {
		if got := Fitting(job, past, sixteen, memory.DeviceMemory{Total: room}); got != want {
			t.Errorf("%s: %v", GiB(room), got)
		}
	}
	if Fitting(job, nil, sixteen, memory.DeviceMemory{Total: 120 << 30}) {
		t.Error("nothing was measured")
	}
}
