package recipes

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// Apply changes the original command so that the job runs with the whole plan. The caller writes
// the new files under dir, as strategy.Command describes. A knob that already has its value is not changed.
func (r Recipe) Apply(cmd Command, plan strategy.Plan, at Topology, dir string) (strategy.Command, error) {
	d, err := r.draft(cmd, plan, at)
	if err != nil {
		return strategy.Command{}, err
	}
	return d.Finish(dir)
}

// Edit changes the original command like Apply. Its files are the changed ones under their own names, for the user
// to change.
func (r Recipe) Edit(cmd Command, plan strategy.Plan, at Topology) (strategy.Command, error) {
	d, err := r.draft(cmd, plan, at)
	if err != nil {
		return strategy.Command{}, err
	}
	return d.Edited()
}

func (r Recipe) draft(cmd Command, plan strategy.Plan, at Topology) (*format.Draft, error) {
	d := format.NewDraft(r.Recipe, cmd)
	old, ranges, err := r.read(d, at)
	if err != nil {
		return nil, err
	}
	next := old.With(plan)
	if err := settle(d, len(old.Changed(next)) > 0); err != nil {
		return nil, err
	}
	for _, k := range strategy.Knobs {
		value, wanted := plan[k]
		if !wanted || value == old[k] || ranges[k].Scope == strategy.ScopeDerived || r.Knobs[k].Global != nil {
			continue
		}
		if err := turn(d, k, value, ranges[k]); err != nil {
			return nil, fmt.Errorf("set %s to %s: %w", k, value, err)
		}
	}
	if err := applyGlobal(d, old, next, ranges[strategy.GradientAccumulationSteps]); err != nil {
		return nil, err
	}
	if err := scale(d, old, next); err != nil {
		return nil, err
	}
	for _, name := range r.Rules {
		if apply := rules[name].Apply; apply != nil {
			if err := apply(d, old, next); err != nil {
				return nil, err
			}
		}
	}
	return d, nil
}

// settle writes the settings of every attempt, and those of every changed command.
func settle(d *format.Draft, changed bool) error {
	for _, s := range d.Recipe.OwnOOM {
		if on, err := s.TurnedOn(d); err != nil {
			return err
		} else if !on {
			continue
		}
		if err := s.Write(d); err != nil {
			return err
		}
	}
	for _, s := range d.Recipe.Relaunch {
		if !changed || s.Place.Lacking(d) != "" {
			continue
		}
		if err := s.Write(d); err != nil {
			return err
		}
	}
	return nil
}

// turn sets one knob at all its places.
func turn(d *format.Draft, k strategy.Knob, value strategy.Value, allowed strategy.Range) error {
	knob := d.Recipe.Knobs[k]
	switch {
	case allowed.Absent != "":
		return errors.New(allowed.Absent)
	case !allowed.Allows(value):
		return errors.New(allowance(allowed))
	case k == strategy.Allocator:
		setAllocator(d)
		return nil
	}
	places, weaker, reason := written(d, k, knob)
	if reason != "" {
		return errors.New(reason)
	}
	word := value
	if n, whole := value.Number(); whole && countsAll(k, knob) {
		word = strategy.Number(n * d.At.Sharing())
	}
	absence := absenceOf(d, k, knob, weaker)
	for _, p := range places {
		if knob.Given && !knob.Alternatives && !p.Present(d) {
			continue
		}
		if err := p.Set(d, k, word, absence); err != nil {
			return fmt.Errorf("%s: %w", p, err)
		}
	}
	if slices.Contains(createdKnobs, k) && d.Recipe.Creation != nil && !d.Given(knob) {
		return nil // they come with the new configuration
	}
	return knob.WriteAlso(d, value)
}

// absenceOf is the job's value without the written place: the value of a weaker place, or else
// the knob's default.
func absenceOf(d *format.Draft, k strategy.Knob, knob format.Knob, weaker []format.Place) strategy.Value {
	for _, p := range weaker {
		if v, found, err := p.Get(d, k); found && err == nil {
			return v
		}
	}
	value, _ := d.DefaultOf(k, knob)
	return value
}

// allowance lists the values that a knob can be set to.
func allowance(r strategy.Range) string {
	switch {
	case r.Values != nil:
		return "it can be " + format.Join(r.Values)
	case r.Max > 0:
		return fmt.Sprintf("it can be %d to %d", r.Min, r.Max)
	}
	return fmt.Sprintf("it can be %d or more", r.Min)
}

const expandable = "expandable_segments"

// allocatorOf returns the variable with the job's settings, and its value. Every version reads
// the old name; the new one only counts if the user has set it.
func allocatorOf(d *format.Draft) (name, value string) {
	old, since := strategy.AllocatorVariables[0], strategy.AllocatorVariables[1]
	if value, set := d.Variable(since); set {
		return since, value
	}
	value, _ = d.Variable(old)
	return old, value
}

// readAllocator reads a knob that every recipe has. A key that the user set is never replaced.
func readAllocator(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) {
	name, value := allocatorOf(d)
	settings := allocatorSettings(value)
	plan[strategy.Allocator] = "default"
	ranges[strategy.Allocator] = strategy.Range{Values: strategy.Vocabulary(strategy.Allocator)}
	own, set := settings[expandable]
	switch {
	case set:
		if strings.EqualFold(own, "true") {
			plan[strategy.Allocator] = "expandable"
		}
		ranges[strategy.Allocator] = strategy.Range{Absent: name + " sets " + expandable + " itself"}
	case settings["backend"] != "" && settings["backend"] != "native":
		ranges[strategy.Allocator] = strategy.Range{Absent: name + " chooses the allocator " + settings["backend"]}
	}
}

// setAllocator adds the key of the knob.
func setAllocator(d *format.Draft) {
	name, value := allocatorOf(d)
	setting := expandable + ":True"
	if strings.TrimSpace(value) != "" {
		setting = strings.TrimRight(value, ", ") + "," + setting
	}
	d.SetVariable(name, setting)
}

// allocatorSettings splits the variable's value. Commas inside brackets, as in
// roundup_power2_divisions:[256:1,512:2], belong to the value.
func allocatorSettings(text string) map[string]string {
	settings := map[string]string{}
	depth, start := 0, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ',' && depth == 0:
			if key, value, found := strings.Cut(text[start:i], ":"); found {
				settings[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
			start = i + 1
		case text[i] == '[':
			depth++
		case text[i] == ']':
			depth--
		}
	}
	return settings
}

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
		format.LeaveBatch(ranges, fmt.Sprintf("the global batch of %d is not a multiple of %d on %d data-parallel ranks",
			size, micro, d.At.Sharing()))
		return nil
	}
	plan[strategy.GradientAccumulationSteps] = strategy.Number(n)
	if product := n * micro * d.At.Sharing(); g.Fixed && product != size {
		format.LeaveBatch(ranges,
			fmt.Sprintf("the framework takes steps of %d samples (nominal %d), and a smaller micro batch would change that",
				product, size))
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
	same := old[strategy.MicroBatchSize] == plan[strategy.MicroBatchSize] &&
		old[strategy.GradientAccumulationSteps] == plan[strategy.GradientAccumulationSteps]
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
			return fmt.Errorf("%s: %v counts micro-steps, and is not a whole number of them with accumulation %d instead of %d",
				p, word, after, before)
		}
		if err := p.Put(d, int64(n*after/before), false); err != nil {
			return err
		}
	}
	return nil
}
