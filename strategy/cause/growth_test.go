package cause

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// growth scans a log whose lines have a step and the memory in use.
func growth(format string, used func(step int) float64) *Growth {
	s := NewScanner("stdout")
	for n := 1; n <= 60; n++ {
		_, _ = fmt.Fprintf(s, format+"\n", n, used(n)) // a Scanner's Write never fails
	}
	return s.Growth()
}

func TestRisingMemoryIsGrowth(t *testing.T) {
	leak := func(step int) float64 { return 1000 + 8*float64(step) }
	for _, tt := range []struct {
		format string
		want   *Growth
	}{
		{"step %d/100 | loss 0.5 | mem %.1fMB", &Growth{Word: "mem", PerStep: 8 << 20, FromStep: 1, ToStep: 60, From: 1008 << 20, To: 1480 << 20}},
		{"[rank0]: step %d loss 0.5 rss=%.0f MiB", &Growth{Word: "rss", Host: true, PerStep: 8 << 20, FromStep: 1, ToStep: 60, From: 1008 << 20, To: 1480 << 20}},
		{"Epoch: [%d/90] eta: 0:10:00 loss: 1.2 max mem: %.0f", &Growth{Word: "mem", PerStep: 8 << 20, FromStep: 1, ToStep: 60, From: 1008 << 20, To: 1480 << 20}},
		{"step: %d loss: 12.1 memory: %.2fMiB(45.1%%) tps: 9", &Growth{Word: "memory", PerStep: 8 << 20, FromStep: 1, ToStep: 60, From: 1008 << 20, To: 1480 << 20}},
		{"step %d loss 0.5 memory fraction %.3f", nil},
		{"step %d loss %.3f", nil},
	} {
		if diff := cmp.Diff(tt.want, growth(tt.format, leak)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", tt.format, diff)
		}
	}
}

func TestSettledMemoryIsNotGrowth(t *testing.T) {
	for name, used := range map[string]func(int) float64{
		"constant":    func(int) float64 { return 1000 },
		"warming up":  func(step int) float64 { return 2000 - 1000/float64(step) },
		"a long one":  func(step int) float64 { return 1000 + 500*float64(step/30) },
		"up and down": func(step int) float64 { return 1000 + 300*float64(step%4) + float64(step) },
		"falling":     func(step int) float64 { return 2000 - 8*float64(step) },
		"rounding":    func(step int) float64 { return 1000 + float64(step)/10 },
	} {
		if g := growth("step %d loss 0.5 mem %.1fMB", used); g != nil {
			t.Errorf("%s: %+v", name, g)
		}
	}
}

func TestOutOfMemoryErrorHasGrowthBeforeIt(t *testing.T) {
	var log strings.Builder
	for n := 1; n <= 30; n++ {
		fmt.Fprintf(&log, "step %d loss 0.5 mem %dMB\n", n, 1000+8*n)
	}
	log.WriteString("Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB\n")
	all := Scan("stderr", log.String())
	if len(all) != 1 || all[0].Growth == nil || all[0].Growth.PerStep != 8<<20 || all[0].Growth.ToStep != 30 {
		t.Fatalf("%+v", all)
	}
}
