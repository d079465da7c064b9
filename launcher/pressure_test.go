package launcher

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// pressed is a rank's report of memory pressure.
func pressed(after time.Duration, rank int, tried strategy.Remedy) act {
	p := &strategy.Pressure{Retries: 24, Steps: 20, Step: 40, Tried: tried}
	return act{after, strategy.Fact{Rank: rank, Source: "probe", Content: &strategy.ProcessReport{PID: 10 + rank, Pressure: p}}}
}

// Memory pressure is warned of once for each rank, and once more when its process has tried a remedy; the
// verdict has it.
func TestMemoryPressureIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m := time.Minute
		s := &stage{t: t, scripts: []script{{acts: []act{
			pressed(m, 0, ""), pressed(2*m, 0, ""), pressed(3*m, 1, ""), pressed(4*m, 0, strategy.RemedyCheckpointing), pressed(5*m, 0, strategy.RemedyCheckpointing), exit(6*m, 0, 0), exit(6*m, 1, 0),
		}}}}
		v, err := newLauncher(s).Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		var warned []string
		for _, e := range s.events {
			if e, ok := e.(Noticed); ok && strings.Contains(e.Text, "allocator") {
				warned = append(warned, e.Text)
			}
		}
		if len(warned) != 3 || !strings.HasPrefix(warned[0], "warning: rank 0: the allocator had to free and retry 24 times in 20 steps") || !strings.Contains(warned[1], "rank 1") ||
			!strings.Contains(warned[2], "that was undone") {
			t.Errorf("warned:\n%s", strings.Join(warned, "\n"))
		}
		if got := v.Attempts[0].MemoryPressure; len(got) != 2 || !strings.Contains(got[0], "that was undone") {
			t.Errorf("the verdict has %q", got)
		}
	})
}
