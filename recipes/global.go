package recipes

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// sizeOf is the global batch that the command gives; 0: none.
func sizeOf(d *format.Draft, g *format.Global) (int, error) {
	word, from, err := d.First(g.Places)
	if err != nil || word == nil {
		return g.Default, err
	}
	text := strings.ToLower(strings.TrimSpace(fmt.Sprint(word)))
	if text == "none" || text == "null" || text == "" {
		return 0, nil
	}
	n, err := strconv.Atoi(strings.TrimSuffix(text, ".0"))
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a whole number", from, text)
	}
	return max(n, 0), nil // below 0: the framework's word for none
}

// accumulationOf is the accumulation that the framework derives from a global batch; false if it
// is not whole.
func accumulationOf(d *format.Draft, g *format.Global, size, micro int) (int, bool) {
	step := micro * d.At.Sharing()
	if g.Nominal != "" {
		step = micro * max(d.At.Ranks, 1) // a nominal batch also counts ranks that see the same samples
	}
	switch {
	case size == 0:
		return 1, true
	case g.Nominal == "ceil":
		return max((size+step-1)/step, 1), true
	case g.Nominal == "nearest":
		n := size / step
		if rest := 2 * (size % step); rest > step || rest == step && n%2 == 1 {
			n++ // as Python rounds: halves to even
		}
		return max(n, 1), true
	}
	return size / step, size%step == 0
}

// readGlobal derives the accumulation if the command gives a global batch, and none of the knob's
// own places a number.
func readGlobal(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	g := d.Recipe.Knobs[strategy.GradientAccumulationSteps].Global
	micro, known := plan.Number(strategy.MicroBatchSize)
	if _, given := plan.Number(strategy.GradientAccumulationSteps); g == nil || given || !known {
		return nil
	}
	size, err := sizeOf(d, g)
	if err != nil {
		return err
	}
	n, whole := accumulationOf(d, g, size, micro)
	if !whole {
		format.LeaveBatch(ranges, fmt.Sprintf("the global batch of %d is not a multiple of %d on %d data-parallel ranks", size, micro, d.At.Sharing()))
		return nil
	}
	plan[strategy.GradientAccumulationSteps] = strategy.Number(n)
	if product := n * micro * d.At.Sharing(); g.Fixed && product != size {
		format.LeaveBatch(ranges, fmt.Sprintf("the framework takes steps of %d samples (nominal %d), and a smaller micro batch would change that", product, size))
	}
	return nil
}

// applyGlobal writes the accumulation, or the global batch if the knob has no places, unless the
// framework derives the wanted value.
func applyGlobal(d *format.Draft, old, plan strategy.Plan, allowed strategy.Range) error {
	knob := d.Recipe.Knobs[strategy.GradientAccumulationSteps]
	g := knob.Global
	micro, known := plan.Number(strategy.MicroBatchSize)
	accumulation, also := plan.Number(strategy.GradientAccumulationSteps)
	same := old[strategy.MicroBatchSize] == plan[strategy.MicroBatchSize] && old[strategy.GradientAccumulationSteps] == plan[strategy.GradientAccumulationSteps]
	if g == nil || !known || !also || same {
		return nil
	}
	size, err := sizeOf(d, g)
	if err != nil {
		return err
	}
	given, err := current(d, strategy.GradientAccumulationSteps, knob)
	if err != nil {
		return err
	}
	if n, whole := accumulationOf(d, g, size, micro); whole && n == accumulation && given == "" {
		return nil
	}
	if len(knob.Places) > 0 {
		return turn(d, strategy.GradientAccumulationSteps, strategy.Number(accumulation), allowed)
	}
	places := d.Existing(g.Places)
	if len(places) == 0 || g.Fixed {
		return fmt.Errorf("the framework derives another accumulation than %d, and takes no global batch", accumulation)
	}
	return places[0].Put(d, int64(micro*accumulation*d.At.Sharing()), false)
}

// scale changes the numbers that count micro-steps along with accumulation.
func scale(d *format.Draft, old, plan strategy.Plan) error {
	before, known := old.Number(strategy.GradientAccumulationSteps)
	after, also := plan.Number(strategy.GradientAccumulationSteps)
	if !known || !also || before == after {
		return nil
	}
	for _, p := range d.Existing(d.Recipe.Knobs[strategy.GradientAccumulationSteps].Scales) {
		word, found, err := p.Read(d)
		if err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
		if !found || word == nil || strings.Contains(fmt.Sprint(word), ".") {
			continue // a fraction is relative
		}
		n, err := strconv.Atoi(fmt.Sprint(word))
		if err != nil || n*after%before != 0 {
			return fmt.Errorf("%s: %v counts micro-steps, and is not a whole number of them with accumulation %d instead of %d", p, word, after, before)
		}
		if err := p.Put(d, int64(n*after/before), false); err != nil {
			return err
		}
	}
	return nil
}
