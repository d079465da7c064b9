package ranks

import (
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// settingsHead is how many bytes of a stream are searched for the job's settings: frameworks
// print them before the first step.
const settingsHead = 1 << 20

// settings finds the job's settings in a stream.
type settings struct {
	find func(line string) (strategy.ObservedSetting, bool)
	read int                               // bytes so far
	seen map[strategy.ObservedSetting]bool // without their texts
}

// search searches one line for a new setting.
func (p *settings) search(line []byte) (strategy.ObservedSetting, bool) {
	if p == nil || p.read > settingsHead {
		return strategy.ObservedSetting{}, false
	}
	p.read += len(line) + 1
	setting, ok := p.find(string(line))
	same := setting
	same.Text = ""
	if !ok || p.seen[same] {
		return strategy.ObservedSetting{}, false
	}
	if p.seen == nil {
		p.seen = map[strategy.ObservedSetting]bool{}
	}
	p.seen[same] = true
	return setting, true
}

// observed emits a setting of the job.
func (r *rank) observed(source string, now time.Time, setting strategy.ObservedSetting) {
	r.facts.emit(strategy.Fact{Time: now, Rank: r.global, Source: source, Content: &setting})
}
