package recipes

import (
	"fmt"
	"github.com/gpurun/gpurun/recipes/format"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// sizeOf is the global batch that the command gives, 0 for none.
func sizeOf(d *format.Draft, g *format.Global) (int, error) {
	for _, p := range d.Existing(g.Places) {
		word, found, err := p.Read(d)
		if err != nil {
			return 0, fmt.Errorf("%s: %w", p, err)
		}
		if !found {
			continue
		}
		switch text := strings.ToLower(strings.TrimSpace(fmt.Sprint(word))); text {
		case "none", "null", "":
			return 0, nil
		default:
			n, err := strconv.Atoi(strings.TrimSuffix(text, ".0"))
			if err != nil {
				return 0, fmt.Errorf("%s: %q is not a whole number", p, text)
			}
			return max(n, 0), nil // below 0: the framework's word for none
		}
	}
	return g.Default, nil
}

// accumulationOf is what the framework derives from a global batch; false where
// that is not whole.
func accumulationOf(g *format.Global, size, micro, ranks int) (int, bool) {
	step := micro * ranks
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

// sharing is how many ranks share a global batch. A nominal one counts them all,
// those too that see the same samples.
func sharing(d *format.Draft, g *format.Global) int {
	if g.Nominal != "" {
		return max(d.At.Ranks, 1)
	}
	return d.At.Sharing()
}

// readGlobal derives the accumulation where the command gives a global batch, and
// none of the knob's own places a number.
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
	n, whole := accumulationOf(g, size, micro, sharing(d, g))
	if !whole {
		reason := fmt.Sprintf("the global batch of %d is no multiple of %d on %d data-parallel ranks", size, micro, d.At.Sharing())
		ranges[strategy.MicroBatchSize] = strategy.Range{Absent: reason}
		ranges[strategy.GradientAccumulationSteps] = strategy.Range{Absent: reason}
		return nil
	}
	plan[strategy.GradientAccumulationSteps] = strategy.Number(n)
	if product := n * micro * d.At.Sharing(); g.Fixed && product != size {
		reason := fmt.Sprintf("the framework makes steps of %d samples of the nominal %d, and would of a smaller micro batch make others", product, size)
		ranges[strategy.MicroBatchSize] = strategy.Range{Absent: reason}
		ranges[strategy.GradientAccumulationSteps] = strategy.Range{Absent: reason}
	}
	return nil
}

// applyGlobal writes the accumulation, or the global batch where the knob has no
// places of its own, unless the framework derives what is wanted.
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
	if n, whole := accumulationOf(g, size, micro, sharing(d, g)); whole && n == accumulation && given == "" {
		return nil
	}
	if len(knob.Places) > 0 {
		return turn(d, strategy.GradientAccumulationSteps, knob, strategy.Number(accumulation), allowed)
	}
	places := d.Existing(g.Places)
	if len(places) == 0 || g.Fixed {
		return fmt.Errorf("the framework derives another accumulation than %d, and takes no global batch", accumulation)
	}
	return places[0].Write(d, int64(micro*accumulation*d.At.Sharing()), false)
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
			continue // a fraction is one of whatever there is
		}
		n, err := strconv.Atoi(fmt.Sprint(word))
		if err != nil || n*after%before != 0 {
			return fmt.Errorf("%s: %v counts micro-steps, and is no whole number of them with accumulation %d instead of %d", p, word, after, before)
		}
		if err := p.Write(d, format.InStyle(word, int64(n*after/before)), false); err != nil {
			return err
		}
	}
	return nil
}
