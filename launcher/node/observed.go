package node

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/strategy"
)

// compareEnvironments compares the variables that gpurun set with those of a failed rank: a script may have set
// them itself.
func (a *attempt) compareEnvironments() {
	if a.node.opts.UsedVariable == nil {
		return
	}
	for _, rank := range a.ranks() {
		for name, value := range hook.Environ(a.dir, rank) {
			if value == a.asked[name] {
				continue
			}
			for k, v := range a.node.opts.UsedVariable(name, a.asked[name], value) {
				a.emit(strategy.Fact{Time: time.Now(), Rank: rank, Source: "probe", Content: &strategy.ObservedSetting{
					Knob: k, Value: v, Text: fmt.Sprintf("%s=%s in the environment of rank %d", name, value, rank)}})
			}
		}
	}
}
