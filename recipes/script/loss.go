package script

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// bounded explains how a user can allow a smaller micro batch anyway.
const bounded = "; to allow it, write how small it may be in train.toml: [knobs] micro_batch_size = { min = … }"

// boundedElsewhere ends it for a script that accumulates no gradients.
const boundedElsewhere = "; to allow it, gpurun has to know the script's gradient accumulation, and how small it may be, in train.toml: [knobs] micro_batch_size = { min = … }"

// Against is the condition that a training speaks against any change of a knob.
func Against(reason string) format.Condition {
	for _, end := range []string{bounded, boundedElsewhere} {
		if plain, floor := strings.CutSuffix(reason, end); floor {
			return format.Condition{Always: true, Reason: reason, Against: plain, Floor: true}
		}
	}
	return format.Condition{Always: true, Reason: reason, Against: reason}
}

// HasBatchNorm is the reason against a smaller micro batch of a job whose code has BatchNorm at a place.
func HasBatchNorm(place string) string { return hasBatchNorm(place) + bounded }

func hasBatchNorm(place string) string {
	return fmt.Sprintf("the code has BatchNorm (%s): in training mode it takes the statistics of one micro batch, whatever is accumulated", place)
}

// unknownLoss is the reason why the class of a job with an unknown loss is not exact.
const unknownLoss = "the loss was not recognised"

// Loss is the job's loss by its source; empty if the source shows no accumulation either.
func (s *Analysis) Loss() strategy.Loss { return s.loss }

// LossDividedBy is the loss of a job whose user named the argument for its accumulation.
func (s *Analysis) LossDividedBy(options []string) strategy.Loss {
	i := slices.IndexFunc(s.facts.Settings, func(known Argument) bool {
		return slices.ContainsFunc(known.Options, func(o string) bool { return slices.Contains(options, o) })
	})
	if i < 0 {
		return s.loss
	}
	accumulation := &FoundKnob{target: s.facts.setting(i)}
	why := s.unequal(accumulation, &FoundKnob{})
	if why == "" {
		why = s.scaled(accumulation, divisor{})
	}
	if why != "" {
		return strategy.Loss{Class: strategy.Average, Reason: why}
	}
	return s.ownLoss(accumulation, divisor{}, &FoundKnob{})
}

// LibraryLoss is the loss of a job whose framework divides it by the accumulation. found is false
// if the job's own code computes none.
func (s *Analysis) LibraryLoss() (loss strategy.Loss, found bool) {
	all := s.facts.roots(nil)
	for _, u := range s.facts.Unlike {
		if u.Kind == "touched" || u.Kind == "gradients" && strings.Contains(u.Text, "clip") {
			return strategy.Loss{Class: strategy.Average, Reason: fmt.Sprintf("%s is run for each micro batch (%s)", u.Text, u.location)}, len(all) > 0
		}
	}
	return s.classified(all, false, nil), len(all) > 0
}

// dividedTwice is the place where a script divides the loss by the accumulation although its
// framework does so as well; empty: none.
func (s *Analysis) dividedTwice() string {
	for _, d := range s.divisors() {
		t, why := s.facts.pure(d.value)
		if why != "" || d.gate.Kind != "framework" {
			continue
		}
		for _, loss := range s.facts.roots(nil) {
			if s.factors(loss.By, &FoundKnob{target: t}, d) > 0 {
				return fmt.Sprintf("the script divides the loss by the accumulation (%s:%d), and so does the framework (%s)", loss.File, loss.At, d.gate.location)
			}
		}
	}
	return ""
}

// Unequal is the reason why a smaller micro batch is another training for any accumulation, if a
// framework trains the job; empty if nothing shows that. computed: the job's code computes loss
// and model, and its modules are not the framework's.
func (s *Analysis) Unequal(computed bool) string {
	known := *s
	known.facts.Unlike = slices.DeleteFunc(slices.Clone(s.facts.Unlike), func(u use) bool {
		return u.Kind == "models" || u.Kind == "norm" && (!computed || strings.Contains(u.Text, "convert"))
	})
	if why := known.unequal(nil, nil); why != "" {
		return why
	}
	if why := s.dividedTwice(); why != "" {
		return why
	}
	if t, is := s.facts.sum(nil); is && computed {
		return fmt.Sprintf("the loss is a sum over the samples (%s: %s), and is divided by the accumulation: smaller micro batches would have smaller gradients", t.location, t.Text) + bounded
	}
	return ""
}

// unequal is the reason why a batch is more than the sum of its samples: first a reason that no minimum of the user
// allows. Statements that the gate of the accumulation covers run once per step; nil is the gate of a framework.
func (s *Analysis) unequal(accumulation, micro *FoundKnob) string {
	var covered map[int]bool
	if accumulation != nil && micro != nil {
		covered = s.covered(accumulation, micro)
	}
	allowed, kinds := []string{}, map[string]bool{}
	for _, u := range s.facts.Unlike {
		why := ""
		switch {
		case u.Kind == "pairs":
			return fmt.Sprintf("the code compares the samples of one micro batch with each other (%s): in smaller ones each has fewer to be compared with", u.location)
		case u.Kind == "optimizers":
			return fmt.Sprintf("two optimizers make steps in one loop, as for a GAN (%s: %s)", u.location, u.Text)
		case u.Kind == "norm":
			why = hasBatchNorm(fmt.Sprint(u.location))
		case u.Kind == "models":
			why = fmt.Sprintf("the model of %s (%s) may have BatchNorm, with the statistics of one micro batch", u.Text, u.location)
		case u.Kind == "first":
			why = fmt.Sprintf("the first micro batch sets what later ones use (%s: %s)", u.location, u.Text)
		case u.Kind == "state" && !covered[u.ID]:
			why = fmt.Sprintf("each micro batch updates what later ones use (%s: %s)", u.location, u.Text)
		}
		if why != "" && !kinds[u.Kind] {
			allowed, kinds[u.Kind] = append(allowed, why), true
		}
	}
	if len(allowed) == 0 {
		return ""
	}
	return strings.Join(allowed, "; ") + bounded
}

// roots lists the expressions that are backpropagated; in a job whose gate makes the steps, those
// of its loops.
func (f Facts) roots(g *gate) []trained {
	var all, handed []trained
	for _, t := range f.Trained {
		switch {
		case g != nil && g.Kind != "framework" && t.Root != "backward" && t.Root != "engine", g != nil && t.Root == "forward":
		case t.Kind == "handed":
			handed = append(handed, t)
		default:
			all = append(all, t)
		}
	}
	if len(all) == 0 {
		return handed
	}
	return all
}

// unrelated reports whether no loss was seen to follow from a batch.
func (f Facts) unrelated() bool {
	all := f.roots(nil)
	return len(all) > 0 && !slices.ContainsFunc(all, func(t trained) bool { return t.Kind != "free" })
}

// sum returns a loss that adds up the samples.
func (f Facts) sum(g *gate) (trained, bool) {
	all := f.roots(g)
	if i := slices.IndexFunc(all, func(t trained) bool { return t.Kind == "sum" }); i >= 0 {
		return all[i], true
	}
	return trained{}, false
}

// divisions counts the factors equal to the accumulation by which a loss is divided.
func (s *Analysis) divisions(t trained, found *FoundKnob, d divisor) int {
	n := s.factors(t.By, found, d)
	if d.gate.Kind == "framework" {
		n++
	}
	for _, u := range s.facts.Unlike {
		if u.Kind == "rescaled" && s.isAccumulation(u.Value, found, d) {
			n++ // the gradients, in place of the loss
		}
	}
	return n
}

// divisorName is the name of the number of micro batches per step, for people.
func (s *Analysis) divisorName(found *FoundKnob, d divisor) string {
	return cmp.Or(found.Name(), s.facts.text(d.value))
}

func (s *Analysis) factors(of []value, found *FoundKnob, d divisor) (n int) {
	for _, by := range of {
		if s.isAccumulation(by, found, d) {
			n++
		}
	}
	return n
}

// scaled is the reason why the gradients would have another scale with another accumulation.
func (s *Analysis) scaled(found *FoundKnob, d divisor) string {
	by := s.divisorName(found, d)
	for _, t := range s.facts.roots(&d.gate) {
		n := s.divisions(t, found, d)
		switch {
		case s.factors(t.Least, found, d) < s.factors(t.By, found, d), n == 0 && t.Kind == "free" && s.anyDivided(found, d):
			return fmt.Sprintf("a part of the loss is not divided by %s (%s:%d): its gradients would grow with more accumulation", by, t.File, t.At)
		case n > 1:
			return fmt.Sprintf("the gradients are divided by %s more than once (%s:%d): they would shrink with more accumulation", by, t.File, t.At)
		case n == 1 && t.Kind == "sum":
			return fmt.Sprintf("the loss is a sum over the samples (%s: %s), divided by %s: smaller micro batches would have smaller gradients", t.location, t.Text, by)
		}
	}
	return ""
}

// anyDivided reports whether some loss is divided by the accumulation.
func (s *Analysis) anyDivided(found *FoundKnob, d divisor) bool {
	return slices.ContainsFunc(s.facts.roots(&d.gate), func(t trained) bool { return s.divisions(t, found, d) > 0 })
}

// addsUp reports whether all losses are sums over the samples that are not divided by anything
// that depends on the micro batch: their gradients add up to that of the whole batch.
func (s *Analysis) addsUp(found *FoundKnob, d divisor) bool {
	all := s.facts.roots(&d.gate)
	return len(all) > 0 && !slices.ContainsFunc(all, func(t trained) bool { return t.Kind != "sum" || t.Sized || s.divisions(t, found, d) > 0 })
}

// offbeat returns a statement that changes the gradients of each micro batch, or an optimizer
// that makes steps at micro batches other than the last ones.
func (s *Analysis) offbeat(found *FoundKnob, d divisor, micro *FoundKnob) string {
	covered := s.covered(found, micro)
	own := d.gate.Kind != "framework" // a framework's optimizer waits for the step by itself
	for _, u := range s.facts.Unlike {
		switch {
		case u.Kind == "gradients" && own && !covered[u.ID]:
			return fmt.Sprintf("%s changes the gradients of each micro batch (%s)", u.Text, u.location)
		case u.Kind == "offset" && u.location == d.gate.location:
			return fmt.Sprintf("%s counts samples and not micro batches (%s), so that the optimizer would make other steps", u.Text, u.location)
		}
	}
	return ""
}

// ownLoss is a loss that the script's loop divides.
func (s *Analysis) ownLoss(found *FoundKnob, d divisor, micro *FoundKnob) strategy.Loss {
	covered := s.covered(found, micro)
	for _, u := range s.facts.Unlike {
		if u.Kind == "touched" && !covered[u.ID] {
			return strategy.Loss{Class: strategy.Average, Reason: fmt.Sprintf("%s is run for each micro batch (%s)", u.Text, u.location)}
		}
	}
	sums := s.addsUp(found, d)
	return s.classified(s.facts.roots(&d.gate), sums, func(t trained) (by string, ok bool) {
		return s.divisorName(found, d), sums || s.divisions(t, found, d) == 1 && (!t.Sized || found.Derived)
	})
}

// classified is the weakest class of several losses. divided returns the divisor of one; nil: the
// framework divides. sums: they are sums, which add up undivided.
func (s *Analysis) classified(all []trained, sums bool, divided func(trained) (by string, ok bool)) strategy.Loss {
	average := func(reason string, args ...any) strategy.Loss {
		return strategy.Loss{Class: strategy.Average, Reason: fmt.Sprintf(reason, args...)}
	}
	if len(all) == 0 || s.facts.unrelated() {
		return average(unknownLoss)
	}
	loss := strategy.Loss{}
	for _, u := range s.facts.Unlike {
		switch u.Kind {
		case "early":
			return average("the first step is made after one micro batch (%s)", u.location)
		}
	}
	for _, t := range all {
		by, ok := "the framework", !t.Sized
		if divided != nil {
			by, ok = divided(t)
		}
		switch {
		case t.Kind == "free" && ok:
			continue // a penalty on the weights
		case t.Kind == "masked":
			return average("%s (%s)", t.Text, t.location)
		case t.Kind == "unknown" || t.Kind == "data":
			return average("the loss was not recognised as a mean: %s (%s)", t.Text, t.location)
		case t.Kind != "mean" && !sums:
			return average("%s (%s)", unknownLoss, t.location)
		case !ok:
			return average("the loss is not seen to be divided by %s (%s:%d)", by, t.File, t.At)
		case len(s.facts.Draws) > 0:
			return average("random numbers are drawn for each micro batch (%s: %s)", s.facts.Draws[0].location, s.facts.Draws[0].Text)
		case sums:
			loss = strategy.Loss{Class: strategy.Exact, Reason: fmt.Sprintf("the loss is a sum over the samples (%s), whose gradients add up", t.location)}
		case loss.Class == "":
			loss = strategy.Loss{Class: strategy.Exact, Reason: fmt.Sprintf("the loss is a mean over the samples (%s), divided by %s", t.location, by)}
		}
	}
	if loss.Class == "" {
		return average(unknownLoss)
	}
	if i := slices.IndexFunc(s.facts.Unlike, func(u use) bool { return u.Kind == "doubt" }); i >= 0 && loss.Class == strategy.Exact {
		u := s.facts.Unlike[i]
		return average("the loss is a mean, but %s (%s)", u.Text, u.location)
	}
	return loss
}
