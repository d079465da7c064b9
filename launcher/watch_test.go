package launcher

import (
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// The peers of a rank that reported the cause of its end are stopped 0.3 s later; the rank itself has 5 s.
// Its peers have as long while the job's checkpoint grows.
func TestPeersAreStoppedFirst(t *testing.T) {
	const m, s = time.Minute, time.Second
	saving := act{m + s/10, strategy.Fact{Rank: -1, Source: "gpurun", Content: &strategy.Sign{Saved: time.Unix(1, 0)}}}
	for name, test := range map[string]struct {
		acts   []act
		parted []parted
		all    time.Duration
	}{
		"it ends":              {[]act{told(m, 1, cause.CUDAOOM, "probe"), exit(m+s/10, 1, 1)}, nil, m + 3*s/10},
		"it takes its time":    {[]act{told(m, 1, cause.CUDAOOM, "probe"), exit(m+2*s, 1, 1)}, []parted{{15, []int{1}, m + 3*s/10}}, m + 2*s},
		"it hangs":             {[]act{told(m, 1, cause.CUDAOOM, "probe")}, []parted{{15, []int{1}, m + 3*s/10}}, m + 5*s},
		"the checkpoint grows": {[]act{told(m, 1, cause.CUDAOOM, "probe"), saving, exit(m+s, 1, 1)}, nil, m + 5*s},
		"a symptom":            {[]act{as(told(m, 1, cause.NCCLError, "probe"), symptom), exit(m+s/10, 1, 1)}, nil, m + 10*s},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				st := &stage{t: t, scripts: []script{{acts: append(test.acts, exit(time.Hour, 0, 0))}}}
				l := newLauncher(st)
				l.Policy.Mode, l.Policy.TransientRetries = strategy.Off, 0
				if _, err := l.Run(t.Context(), first()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff(test.parted, st.parted, cmp.AllowUnexported(parted{})); diff != "" {
					t.Errorf("peers (-want +got):\n%s", diff)
				}
				if len(st.stops) != 1 || st.stops[0].after != test.all {
					t.Errorf("stops %+v, want one after %s", st.stops, test.all)
				}
				if again, _ := strategy.Replay(ended(t, st.events)); again.At.Sub(ended(t, st.events).Started) != test.all {
					t.Errorf("replayed from the journal: %+v", again)
				}
			})
		})
	}
}
