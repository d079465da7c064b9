package recipes

import (
	"fmt"
	"github.com/gpurun/gpurun/recipes/format"

	"github.com/gpurun/gpurun/strategy"
)

// accelerateAccum is what accelerate launch makes of gradient_accumulation_steps
// in its own configuration.
const accelerateAccum = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"

// launchedAccumulation is the rule for jobs whose accumulation accelerate launch
// may have been told, too. Accelerator takes the variable before its argument
// (accelerate/accelerator.py), and the Trainer refuses to start where the two
// differ, so that both change together.
var launchedAccumulation = format.Rule{Read: readLaunched, Apply: applyLaunched}

// launched is the accumulation that the launcher was told; "auto" is none.
func launched(d *format.Draft) (n int, told bool) {
	value, _ := d.Variable(accelerateAccum)
	return strategy.Value(value).Number()
}

func readLaunched(d *format.Draft, _ Topology, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	n, told := launched(d)
	accum, known := plan.Number(strategy.GradientAccumulationSteps)
	if !told || !known || n == accum {
		return nil
	}
	reason := fmt.Sprintf("accelerate launch is told to accumulate %d, and the job %d: make them agree", n, accum)
	ranges[strategy.MicroBatchSize] = strategy.Range{Absent: reason}
	ranges[strategy.GradientAccumulationSteps] = strategy.Range{Absent: reason}
	return nil
}

func applyLaunched(d *format.Draft, _ Topology, old, plan strategy.Plan) error {
	_, told := launched(d)
	accum := plan[strategy.GradientAccumulationSteps]
	if told && accum != old[strategy.GradientAccumulationSteps] {
		d.SetVariable(accelerateAccum, string(accum))
	}
	return nil
}
