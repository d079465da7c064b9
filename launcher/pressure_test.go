package launcher

import (
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// pressed is a rank's report of memory pressure.
func pressed(after time.Duration, rank int, why string) act {
	p := &strategy.Pressure{Retries: 24, Steps: 20, Step: 40, Why: why}
	return act{after, strategy.Fact{Rank: rank, Source: "probe", Content: &strategy.ProcessReport{PID: 10 + rank, Pressure: p}}}
}

// Memory pressure is warned of once for each rank, and once more when its process cannot end it; the
// verdict has it.
func TestMemoryPressureIsWarnedOf(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		m, done := time.Minute, "all that is done in place to need less memory is done already"
		s := &stage{t: t, scripts: []script{{acts: []act{
			pressed(m, 0, ""), pressed(2*m, 0, ""), pressed(3*m, 1, ""), pressed(4*m, 0, done), pressed(5*m, 0, done), exit(6*m, 0, 0), exit(6*m, 1, 0),
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
			!strings.Contains(warned[2], done) {
			t.Errorf("warned:\n%s", strings.Join(warned, "\n"))
		}
		if got := v.Attempts[0].MemoryPressure; len(got) != 2 || !strings.Contains(got[0], done) {
			t.Errorf("the verdict has %q", got)
		}
	})
}
