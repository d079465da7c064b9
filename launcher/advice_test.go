package launcher

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// The advice names the user's limit if memory ran out at that limit, and only then.
func TestAdviceNamesTheCeiling(t *testing.T) {
	const gib = int64(1) << 30
	wanted := 2 * gib
	leak := "memory leaks: \"mem\" grew by 1.0 GiB a step"
	for name, c := range map[string]struct {
		d       strategy.Diagnosis
		ev      strategy.Evidence
		ceiling int64
		want    string
		not     string
	}{
		"a GPU's share":     {d: strategy.Diagnosis{Cause: cause.CUDAOOM}, ceiling: gib, want: "limits.device_memory holds each rank to 1.0 GiB: raise it"},
		"no ceiling":        {d: strategy.Diagnosis{Cause: cause.CUDAOOM}, want: "use less device memory", not: "limits"},
		"one large request": {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Figures: cause.Figures{Requested: &wanted}}, ceiling: gib, want: "a single request of 2.0 GiB is more than limits.device_memory = 1.0 GiB"},
		"one rank of two": {
			d: strategy.Diagnosis{Cause: cause.CUDAOOM, Advice: "rank 1 of 2 alone ran out: look for imbalance"}, ceiling: gib,
			want: "rank 1 of 2 alone ran out: look for imbalance; limits.device_memory holds each of them to 1.0 GiB",
		},
		"a leak":             {d: strategy.Diagnosis{Cause: cause.CUDAOOM, Growth: &cause.Growth{}, Advice: leak}, ceiling: gib, want: leak, not: "limits"},
		"on the CPU":         {d: strategy.Diagnosis{Cause: cause.HostOOM}, ev: strategy.Evidence{Accelerator: "cpu"}, ceiling: gib, want: "limits.device_memory holds", not: "workers"},
		"the host of a GPU":  {d: strategy.Diagnosis{Cause: cause.HostOOM}, ev: strategy.Evidence{Accelerator: "cuda"}, ceiling: gib, want: "use fewer loader workers", not: "limits"},
		"killed by the host": {d: strategy.Diagnosis{Cause: cause.HostOOM}, ev: strategy.Evidence{Accelerator: "cpu", Facts: []strategy.Fact{{Kills: &strategy.Kills{Count: 1}}}}, ceiling: gib, want: "use fewer loader workers", not: "limits"},
		"another cause":      {d: strategy.Diagnosis{Cause: cause.Segfault}, ceiling: gib, want: "run with PYTHONFAULTHANDLER=1", not: "limits"},
	} {
		got := Advice(c.d, c.ev, c.ceiling)
		if !strings.HasPrefix(got, c.want) || c.not != "" && strings.Contains(got, c.not) {
			t.Errorf("%s: %q, want %q", name, got, c.want)
		}
	}
}
