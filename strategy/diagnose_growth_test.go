package strategy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// leaking is a log whose memory rises by a gibibyte per step, and its end.
func leaking(word, end string) string {
	var log strings.Builder
	for n := 101; n <= 120; n++ {
		fmt.Fprintf(&log, "step %d loss 1.0 %s %dGiB\n", n, word, n-90)
	}
	return log.String() + end
}

func TestGrowthUpToAnOutOfMemoryErrorIsALeak(t *testing.T) {
	const hostOOM = "RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 1073741824 bytes.\n"
	progress := one(0, 1, Fact{Source: "stdout", Content: &Progress{Steps: 20, First: 100, Last: 120}})
	for _, tt := range []struct {
		name  string
		facts []Fact
		leak  bool
		again int
	}{
		{"a device's memory", says(0, 1, leaking("mem", oomForward)), true, 0}, // 120 steps of 1 GiB are more than the device has
		{"with the steps that were made", append(says(0, 1, leaking("mem", oomForward)), progress...), true, 20},
		{"the host's memory and a CUDA error", says(0, 1, leaking("rss", oomForward)), false, 0},
		{"a job on the CPU", append(says(0, 1, leaking("mem", hostOOM)), progress...), true, 20},
		{"constant memory", says(0, 1, strings.Repeat("step 1 loss 1.0 mem 20GiB\n", 20)+oomForward), false, 0},
		{"another failure", says(0, 1, leaking("mem", valueError)), false, 0},
	} {
		d := Diagnose(Evidence{Facts: append(tt.facts, exits(0, 9, 1)...)})
		if (d.Growth != nil) != tt.leak || d.Again != tt.again {
			t.Errorf("%s: growth %+v, again after %d, want leak %v, %d", tt.name, d.Growth, d.Again, tt.leak, tt.again)
		}
		if strings.Contains(d.Advice, "leaks") != tt.leak {
			t.Errorf("%s: advice %q", tt.name, d.Advice)
		}
	}
}

// A rank that the kernel kills prints no error: its growth is a fact.
func TestGrowthBeforeAKillIsALeak(t *testing.T) {
	facts := append(exits(0, 9, 137),
		at(-1, 9, Fact{Source: "cgroup", Content: &Kills{Count: 1, Group: "/job", Limit: 64 << 30}}),
		at(0, 9, Fact{Source: "stdout", Content: &Growth{Word: "rss", Host: true, PerStep: 1 << 30, FromStep: 1, ToStep: 60, From: 1 << 30, To: 60 << 30}}))
	d := Diagnose(Evidence{Facts: facts})
	if d.Cause != cause.HostOOM || d.Growth == nil || d.Again != 60 {
		t.Fatalf("%s, growth %+v, again after %d", d.Cause, d.Growth, d.Again)
	}
	if !strings.Contains(d.Advice, "loader workers") {
		t.Errorf("advice %q", d.Advice)
	}
}
