package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
)

// A Training is what a plan does to the training, beside the job as it is written.
type Training string

// The classes, from the strongest to the weakest. Exact: the same losses and gradients up to
// rounding, and up to the random draws of dropout where a call is split. Average: equal in
// expectation, such as a smaller micro batch with more accumulation that is not proven to be
// exact for this job. Changed: another precision, optimizer or sequence length.
const (
	Exact   Training = "exact"
	Average Training = "average"
	Changed Training = "changed"
)

// A Loss is what is known, before a run, of how a job's loss behaves when the samples of an
// optimizer step are divided among more micro batches.
type Loss struct {
	// Class is Exact where the framework's recipe or the script's source proves that the loss
	// is a mean that is divided by the accumulation; Average, or empty, where nothing does.
	Class Training `json:"class,omitempty"`
	// Reason is what proves it, or why it is not proven, with file and line where there are
	// some: "the loss is a mean over the samples, divided by --accum (train.py:40)".
	Reason string `json:"reason,omitempty"`
	// Weighted says that micro batches are weighted by their tokens or samples, so that
	// padding does not matter: transformers' num_items_in_batch.
	Weighted bool `json:"weighted,omitempty"`
	// Own says that the job's own source computes the loss: then the process has to show that
	// no sample's part of it depends on other samples.
	Own bool `json:"own,omitempty"`
}

// A LossSeen is what a job's process says of its loss; a zero field is not known.
type LossSeen struct {
	// Scale is how the loss is scaled with another accumulation: ScaleKept or ScaleWrong.
	Scale LossScale `json:"scale,omitempty"`
	// Weighted says that micro batches are weighted by their tokens or samples, as Loss.Weighted.
	Weighted bool `json:"weighted,omitempty"`
	// Uniform says whether all batches seen so far had one shape and no padding: "yes" or "no".
	Uniform string `json:"uniform,omitempty"`
	// Reason is how the process found out, as the end of a sentence.
	Reason string `json:"reason,omitempty"`
	// Rows says whether each sample's part of the loss depends on that sample alone: "yes",
	// "no" or "unknown", with the reason.
	Rows       string `json:"rows,omitempty"`
	RowsReason string `json:"rows_reason,omitempty"`
	// Numbers are those that the job trains with and its batch should not change, by what
	// they are: "weight_decay of AdamW", "a number in train.py:40".
	Numbers map[string]float64 `json:"numbers,omitempty"`
}

// A LossScale is what another accumulation does to the scale of the gradients.
type LossScale string

// The scales. Kept: what is backpropagated in one optimizer step has the scale that it had.
// Wrong: it grows or shrinks with the accumulation, so that accumulation is not offered.
const (
	ScaleKept  LossScale = "kept"
	ScaleWrong LossScale = "wrong"
)

// weakness orders the classes, the strongest first.
var weakness = []Training{Exact, Average, Changed}

// Weaker reports whether another class is stronger; one that is not known counts as exact.
func (t Training) Weaker(than Training) bool {
	return slices.Index(weakness, t) > max(slices.Index(weakness, than), 0)
}

// Compare orders two classes, the stronger first; one that is not known counts as exact.
func (t Training) Compare(other Training) int {
	return max(slices.Index(weakness, t), 0) - max(slices.Index(weakness, other), 0)
}

// Words are what people are told of a class and what it rests on: "equal on average: the
// batches are padded".
func (t Training) Words(reason string) string {
	words := map[Training]string{Exact: "exact", Average: "equal on average", Changed: "changes the training"}[t]
	if reason != "" && words != "" {
		words += ": " + reason
	}
	return words
}

// with adds what another process, or the same one later, says: the worse word counts, and
// its reason.
func (l LossSeen) with(other LossSeen) LossSeen {
	worse := other.Scale == ScaleWrong && l.Scale != ScaleWrong || other.Uniform == "no" && l.Uniform != "no" && l.Scale != ScaleWrong
	if worse || l.Reason == "" {
		l.Reason = other.Reason
	}
	if other.Scale != "" {
		l.Weighted = other.Weighted && (l.Weighted || l.Scale == "")
	}
	if l.Scale == "" || other.Scale == ScaleWrong {
		l.Scale = cmp.Or(other.Scale, l.Scale)
	}
	if l.Uniform == "" || other.Uniform == "no" {
		l.Uniform = cmp.Or(other.Uniform, l.Uniform)
	}
	if known := []string{"", "unknown", "yes", "no"}; slices.Index(known, other.Rows) > slices.Index(known, l.Rows) {
		l.Rows, l.RowsReason = other.Rows, other.RowsReason
	}
	if name := l.changed(other); name != "" && l.Rows != "no" {
		l.Rows, l.RowsReason = "no", fmt.Sprintf("%s is %.4g, and was %.4g: it follows from the batch", name, other.Numbers[name], l.Numbers[name])
	}
	if l.Numbers == nil {
		l.Numbers = other.Numbers
	}
	return l
}

// changed is the first number that is another in the other process; empty for none.
func (l LossSeen) changed(other LossSeen) string {
	for _, name := range slices.Sorted(maps.Keys(other.Numbers)) {
		was, known := l.Numbers[name]
		if apart := math.Abs(other.Numbers[name] - was); known && apart > 1e-6*math.Abs(was) {
			return name
		}
	}
	return ""
}

// Loss is what the job's processes found out of its loss, of all ranks.
func (e *Evidence) Loss() LossSeen {
	var seen LossSeen
	for _, said := range e.folded().reports() {
		if said.Loss != nil {
			seen = seen.with(*said.Loss)
		}
	}
	return seen
}

// lossSeen is what the processes of a run's attempts found out of the job's loss.
func lossSeen(history []Attempt) LossSeen {
	var seen LossSeen
	for _, a := range history {
		seen = seen.with(a.Loss)
	}
	return seen
}

// Training is what a plan does to the training beside the job as it is written, by all that
// was seen in the attempts of the run, and why where that is not plain.
func (j Job) Training(plan Plan, history []Attempt) (class Training, reason string) {
	c := j.classifier(history)
	return c.class(plan)
}

// A classifier knows what was seen in a run, and classifies its plans.
type classifier struct {
	original Plan
	// divided is what a smaller micro batch does to the training, and why.
	divided Training
	why     string
}

func (j Job) classifier(history []Attempt) classifier {
	c := classifier{original: j.original(history)}
	c.divided, c.why = j.divided(history)
	return c
}

// class is that of the plan's weakest rung.
func (c *classifier) class(plan Plan) (class Training, reason string) {
	class = Exact
	for k, v := range plan {
		written := c.original[k]
		switch {
		case v == written, k == EvalBatchSize, k == GradientAccumulationSteps && written == "":
			// An evaluation trains nothing, and an accumulation that is not known follows from the batch.
		case k == MicroBatchSize, k == GradientAccumulationSteps:
			if !class.Weaker(c.divided) {
				class, reason = c.divided, c.why
			}
		case k.training().Weaker(class):
			class, reason = k.training(), ""
		}
	}
	return class, reason
}

// training is what a change of a knob does to the training, by the rung that turns it.
func (k Knob) training() Training {
	for _, row := range rungRows {
		if slices.Contains(row.turns, k) {
			return row.training
		}
	}
	return Exact
}

// original is the job as it is written, with what its processes said of knobs that no plan
// had set by then.
func (j Job) original(history []Attempt) Plan {
	original := Plan{}
	if len(history) > 0 && j.Recalled == nil {
		original = history[0].Plan.With(nil)
	}
	for _, a := range history {
		for k, v := range a.Observed {
			_, set := a.Plan[k]
			if _, known := original[k]; !set && !known {
				original[k] = v
			}
		}
	}
	return original.With(j.Written)
}

// divided is what a smaller micro batch with more accumulation does to the training: it is
// exact where the framework's recipe or the script's source proves it, and the process has
// confirmed it.
func (j Job) divided(history []Attempt) (class Training, reason string) {
	seen := lossSeen(history)
	switch {
	case seen.Scale == ScaleWrong:
		return Changed, seen.wrong()
	case j.Loss.Class != Exact:
		return Average, cmp.Or(j.Loss.Reason, "nothing proves that the loss is a mean that is divided by the accumulation")
	case len(history) == 0:
		return Exact, andThen(j.Loss.Reason, "to be confirmed by the process")
	case seen.Rows == "no":
		return Average, cmp.Or(seen.RowsReason, "the samples of a batch depend on each other")
	case seen.Scale != ScaleKept:
		return Average, andThen(j.Loss.Reason, "the process has not confirmed it")
	case j.Loss.Own && seen.Rows != "yes":
		return Average, "the process has not shown that samples do not depend on each other: " + cmp.Or(seen.RowsReason, "no loss was seen")
	case j.Loss.Weighted || seen.Weighted || seen.Uniform == "yes":
		return Exact, andThen(j.Loss.Reason, "confirmed by the process")
	case seen.Uniform == "no":
		return Average, cmp.Or(seen.Reason, padded)
	}
	return Average, "no process has said whether the batches are padded"
}

const padded = "the batches are padded and the mean is taken per micro batch"

// wrong says why the accumulation is not offered.
func (l LossSeen) wrong() string {
	return cmp.Or(l.Reason, "the gradients do not keep their scale with another accumulation")
}

func andThen(first, then string) string {
	if first == "" {
		return then
	}
	return first + "; " + then
}
