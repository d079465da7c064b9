package node

import (
	"context"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/strategy"
)

// devices play package gpu.
type devices struct {
	facts    []strategy.Fact
	baseline []gpu.Device
}

func (d *devices) Settle(_ context.Context, baseline []gpu.Device, _ time.Duration) []strategy.Fact {
	d.baseline = baseline
	return d.facts
}

// Memory that somebody else holds is told with its amount and holders, and goes
// to the next attempt as evidence.
func TestATenantIsToldOf(t *testing.T) {
	held := strategy.Fact{Rank: -1, Source: "nvml", Tenant: &strategy.Tenant{Device: "cuda:1", Bytes: 12 << 30, PIDs: []int{1 << 30}}}
	d := &devices{facts: []strategy.Fact{held}}
	var notes []string
	w := NewWorld(WorldOptions{Devices: d, Baseline: []gpu.Device{{Used: 7}}}, nil, func(text string) { notes = append(notes, text) })
	got := [][]strategy.Fact{w.Before(t.Context())}
	if d.baseline[0].Used != 0 || w.opts.Baseline[0].Used != 7 {
		t.Errorf("before attempt 0, all that is held counts: %+v, %+v", d.baseline, w.opts.Baseline)
	}
	got = append(got, w.Settle(t.Context(), time.Second))
	if diff := cmp.Diff([][]strategy.Fact{{held}, {held}}, got); diff != "" || d.baseline[0].Used != 7 {
		t.Errorf("facts (-want +got):\n%s", diff)
	}
	want := "warning: 12.0 GiB of cuda:1 are in use, and not by this run (process 1073741824)"
	if diff := cmp.Diff([]string{want, want}, notes); diff != "" {
		t.Errorf("notices (-want +got):\n%s", diff)
	}
}
