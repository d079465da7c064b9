package job

import (
	"fmt"
	"slices"
	"strconv"

	"github.com/gpurun/gpurun/strategy"
)

// modes, prefers and numerics are the words of the policy.
var (
	modes    = []string{string(strategy.Predict), string(strategy.Ladder), string(strategy.Off)}
	prefers  = []string{string(strategy.ExactFirst), string(strategy.Speed), string(strategy.Tree)}
	numerics = []string{string(strategy.Preserve), string(strategy.MixedPrecision), string(strategy.Any)}
)

// readRecovery reads [recovery].
func (r *reader) readRecovery() {
	t := r.readKeys("recovery")
	r.job.NumericsSaid = r.job.NumericsSaid || t.has("numerics")
	r.checkNever(t)
}

// checkNever reports words in recovery.never that bar nothing.
func (r *reader) checkNever(t *table) {
	barred := barrable()
	value, _ := t.get("never")
	array, _ := value.([]any)
	for i, e := range array {
		if name, isText := e.(string); isText && !slices.Contains(barred, name) {
			r.problems = append(r.problems, Problem{
				Key: []string{"recovery", "never", strconv.Itoa(i)}, AtValue: true,
				Message: fmt.Sprintf("%q is neither a rung nor a knob", name), Suggest: Nearest(name, barred),
			})
		}
	}
}

// barrable lists what recovery.never may name.
func barrable() []string {
	var names []string
	for _, rung := range slices.Concat(strategy.DeviceRungs, strategy.HostRungs) {
		names = append(names, string(rung))
	}
	for _, knob := range strategy.Knobs {
		if !slices.Contains(names, string(knob)) { // precision is both
			names = append(names, string(knob))
		}
	}
	return names
}
