package node

import (
	"context"
	"testing"
	"testing/synctest"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A checkpoint that grows after a rank has named the cause of its end is reported once, and
// only then is it looked at.
func TestSavingIsSeen(t *testing.T) {
	word := func(source string, weight cause.Weight) strategy.Fact {
		return strategy.Fact{Source: source, Content: &strategy.Finding{Code: cause.CUDAOOM, Weight: weight}}
	}
	for name, c := range map[string]struct {
		facts []strategy.Fact
		from  time.Duration // when it is seen to grow
		want  int           // signs
	}{
		"it grows":                 {[]strategy.Fact{word("probe", cause.WeightCause), word("error.json", cause.WeightCause)}, 100 * time.Millisecond, 1},
		"it grows too late":        {[]strategy.Fact{word("probe", cause.WeightCause)}, time.Second, 0},
		"a symptom":                {[]strategy.Fact{word("probe", cause.WeightSymptom)}, 0, 0},
		"a line in the output":     {[]strategy.Fact{word("stderr", cause.WeightCause)}, 0, 0},
		"no rank says why it ends": {nil, 0, 0},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				begin, looks, told, signs := time.Now(), 0, 0, 0
				w := newSavingWatch(func(context.Context) func(context.Context) bool {
					return func(context.Context) bool { looks++; return time.Since(begin) >= c.from }
				}, func(f strategy.Fact) {
					if strategy.As[*strategy.Sign](f) == nil {
						told++
					} else if signs++; strategy.As[*strategy.Sign](f).Saved.IsZero() || f.Rank != -1 {
						t.Errorf("sign %+v of rank %d", strategy.As[*strategy.Sign](f), f.Rank)
					}
				})
				for _, f := range c.facts {
					w.see(f)
				}
				time.Sleep(2 * time.Second)
				w.stop()
				if told != len(c.facts) || signs != c.want || looks > 6 {
					t.Errorf("%d facts and %d signs after %d looks, want %d and %d", told, signs, looks, len(c.facts), c.want)
				}
			})
		})
	}
}
