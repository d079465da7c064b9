package console

import (
	"strings"

	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// predicted says with an attempt's start what its plan is predicted to need; empty where
// nothing predicts.
func predicted(p *memory.Prediction) string {
	if p == nil || p.Mean == 0 {
		return ""
	}
	return "; predicted peak " + strategy.Interval(p.Mean, p.Bound) + " GiB"
}

// peaks says what an attempt was predicted to need, and what it needed: "; predicted
// 36.1–37.8, measured 36.9 of 40.0 GiB". Of one that ran out only the prediction counts:
// its peak is what there was.
func peaks(a *runstate.Attempt) string {
	var words []string
	measured, room := a.Peak(), a.Decision.Headroom
	figure := func(bytes int64) string { return strategy.Interval(bytes, bytes) }
	if room != nil {
		figure = room.Measured
	}
	if p := a.Expected; p != nil && p.Mean > 0 {
		words = append(words, "predicted "+figure(p.Mean))
		if mean, bound := figure(p.Mean), figure(p.Bound); mean != bound {
			words[0] += "–" + bound
		}
	}
	if measured > 0 && (len(words) > 0 || room != nil) {
		words = append(words, "measured "+figure(measured))
	}
	if len(words) == 0 {
		return ""
	}
	said := "; " + strings.Join(words, ", ")
	if room != nil {
		return said + " of " + room.Of()
	}
	return said + " GiB"
}

// headroom says what the job left, and what else would have done.
func (p *People) headroom() {
	if last := p.last(); last != nil && last.Decision.Headroom != nil {
		p.chat("  %s", last.Decision.Headroom.Words())
	}
}
