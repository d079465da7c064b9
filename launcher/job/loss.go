package job

import (
	"context"
	"maps"
	"regexp"
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// computes matches source that may compute a loss of its own, or change more than gradients
// in a forward pass.
var computes = regexp.MustCompile(`(?m)^\s*(?:async )?def (?:forward|compute_loss|training_step|loss\w*|\w*_loss)\b|\bbackward\(|\bcross_entropy\(|Loss\(|return_loss`)

// judge says what the recipe and the job's own code show of the loss, and keeps the micro
// batch of a loss that compares its samples.
func (s Inspected) judge(ctx context.Context, c choice) (choice, error) {
	command, err := s.load(c.command, c.recipe.Recipe)
	if err != nil {
		command = c.command // reading the plan complains of a file that is missing
	}
	of := c.recipe.LossOf(command)
	c.loss = of.Known()
	if of.Class == format.LossFeatures || !slices.ContainsFunc(s.sources(), func(f format.Source) bool { return computes.Match(f.Text) }) {
		return c, nil
	}
	found, err := s.script(ctx)
	if err != nil {
		c.loss = strategy.Loss{Class: strategy.Average, Reason: "the job's own code, which may compute a loss, was not read"}
	}
	if found == nil {
		return c, err
	}
	if why := found.Unequal(of.Computed()); why != "" {
		c.recipe.Knobs = maps.Clone(c.recipe.Knobs)
		micro := c.recipe.Knobs[strategy.MicroBatchSize]
		micro.Unless = append(slices.Clip(micro.Unless), format.Condition{Always: true, Reason: why})
		c.recipe.Knobs[strategy.MicroBatchSize] = micro
	}
	own, computed := found.LibraryLoss()
	switch {
	case !of.Computed() || !computed:
	case own.Class == strategy.Exact:
		c.loss = strategy.Loss{Class: strategy.Exact, Reason: own.Reason + "; " + of.Reason, Own: true}
	default:
		c.loss = own
	}
	return c, nil
}
