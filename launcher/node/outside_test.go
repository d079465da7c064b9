package node

import (
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// What a process holds outside PyTorch's allocator is the driver's figure less its own, once
// that is settled; the last one that could be had stays.
func TestMemoryOutsideTheAllocator(t *testing.T) {
	driver := map[int]int64{7: 1000}
	var got memory.Measurement
	add := withOutside(func(pid int) int64 { return driver[pid] }, func(f strategy.Fact) { got = *f.Memory() })
	for i, test := range []struct {
		used int64
		m    memory.Measurement
		want int64
	}{
		{1000, memory.Measurement{PID: 7, Held: 100}, 0}, // in the first forward
		{1000, memory.Measurement{PID: 7, Held: 400, Steps: 1}, 600},
		{0, memory.Measurement{PID: 7, Held: 500, Steps: 3}, 600},
		{1400, memory.Measurement{PID: 7, Held: 700, Failed: "backward"}, 700},
		{0, memory.Measurement{PID: 8, Held: 500, Steps: 3}, 0},
		{100, memory.Measurement{PID: 8, Held: 500, Steps: 3}, 0}, // another process's
	} {
		driver[test.m.PID] = test.used
		add(strategy.Fact{Content: (*strategy.Measurement)(&test.m)})
		if got.Outside != test.want {
			t.Errorf("%d: %d bytes are outside, want %d", i, got.Outside, test.want)
		}
	}
	withOutside(nil, func(f strategy.Fact) { got = *f.Memory() })(strategy.Fact{Content: &strategy.Measurement{PID: 9}})
	if got.PID != 9 {
		t.Error("without a driver nothing comes through")
	}
}
