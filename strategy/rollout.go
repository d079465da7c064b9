package strategy

import (
	"fmt"
	"math"
	"strconv"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Generation beside the training has settings of its own: the share of the device that its engine reserves, whether
// the engine gives its memory back while the model trains, and how many samples it handles at once. The training does
// not depend on them, except for the random numbers of the samples.

// shareStep is the part of the device by which an engine's share is lowered at a time, and leastShare the smallest.
const shareStep, leastShare = 0.1, 0.1

// Share reads a part of a whole: "0.85".
func (v Value) Share() (float64, bool) {
	f, err := strconv.ParseFloat(string(v), 64)
	return f, err == nil && f > 0 && f <= 1
}

// lessGeneration lists the changes of the settings of generation: a smaller share of the device, fewer samples at once,
// an engine that sleeps while the model trains.
func lessGeneration(s *situation) (plans []Plan, reason string) {
	reason = s.cannot(RolloutMemory)
	if reason == "" {
		share, known := s.current(RolloutMemory).Share()
		if !known {
			reason = fmt.Sprintf("the engine's share of the device is %s", s.current(RolloutMemory))
		}
		for next := lower(share); known && next >= leastShare; next = lower(next) {
			plans = append(plans, Plan{RolloutMemory: Value(strconv.FormatFloat(next, 'f', -1, 64))})
		}
	}
	if s.cannot(RolloutBatchSize) == "" {
		fewer, _ := halve(RolloutBatchSize)(s)
		plans = append(plans, fewer...)
	}
	if s.cannot(RolloutSleep) == "" {
		asleep, _ := stepRemedy(RolloutSleep)(s)
		plans = append(plans, asleep...)
	}
	if len(plans) > 0 {
		return plans, ""
	}
	if reason == "" {
		reason = "the settings of generation are at their least already"
	}
	return nil, reason
}

// lower is the next smaller share, in whole hundredths.
func lower(share float64) float64 { return math.Round((share-shareStep)*100) / 100 }

// actsOnGeneration: a remedy for generation helps in no other phase.
var actsOnGeneration = func() idleIn {
	idle := idleIn{}
	for _, phase := range []cause.Phase{cause.NoPhase, cause.Load, cause.Forward, cause.Backward, cause.Optimizer,
		cause.Eval, cause.Save, cause.Collective} {
		idle[phase] = "memory did not run out in generation"
	}
	return idle
}()
