package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"sync"
)

// A Training is the effect of a plan on the training, compared with the job as it is written.
type Training string

// The classes, from the strongest to the weakest. Exact: the same losses and gradients up to
// rounding, and up to the random draws of dropout if a call is split. Average: equal in
// expectation, such as a smaller micro batch with more accumulation that is not proven to be
// exact for this job. Changed: another precision, optimizer or sequence length.
const (
	Exact   Training = "exact"
	Average Training = "average"
	Changed Training = "changed"
)

// weakness orders the classes, the strongest first.
var weakness = []Training{Exact, Average, Changed}

// Compare orders two classes, the stronger first; an unknown one counts as exact.
func (t Training) Compare(other Training) int {
	return max(slices.Index(weakness, t), 0) - max(slices.Index(weakness, other), 0)
}

// Weaker reports whether another class is stronger; an unknown one counts as exact.
func (t Training) Weaker(than Training) bool { return t.Compare(than) > 0 }

// Words is a class for people, with its reason: "equal on average: the batches are padded".
func (t Training) Words(reason string) string {
	words := map[Training]string{Exact: "exact", Average: "equal on average", Changed: "changes the training"}[t]
	if reason != "" && words != "" {
		words += ": " + reason
	}
	return words
}

// A Loss is the knowledge, before a run, about a job's loss when the samples of an optimizer step
// are divided among more micro batches.
type Loss struct {
	// Class is Exact or Average by the recipe of the job's framework; empty: the process is asked when memory has
	// run out.
	Class Training `json:"class,omitempty"`
	// Reason is the proof, or the reason why there is none: "the loss is a mean over the samples,
	// divided by --accum (train.py:40)".
	Reason string `json:"reason,omitempty"`
	// Weighted: micro batches are weighted by their tokens or samples, as by transformers'
	// num_items_in_batch, so padding does not matter.
	Weighted bool `json:"weighted,omitempty"`
	// Own: the job's code may compute the loss, so it is not known whether samples depend on each other in it.
	Own bool `json:"own,omitempty"`
}

// A LossSeen is the report of a job's process about its loss; a zero field is not known.
type LossSeen struct {
	// Scale is the effect of another accumulation on the scale of the loss.
	Scale    LossScale `json:"scale,omitempty"`
	Weighted bool      `json:"weighted,omitempty"` // as Loss.Weighted
	// Uniform is "yes" if all batches had one shape and no padding, else "no".
	Uniform string `json:"uniform,omitempty"`
	Reason  string `json:"reason,omitempty"` // how the process found out, as the end of a sentence
	// Rows is "no", with the reason, if the loss selects among the samples or compares them: its graph shows it.
	Rows       string `json:"rows,omitempty"`
	RowsReason string `json:"rows_reason,omitempty"`
	// ModelRows is the same of the model's forward: a process that ran out of memory is asked for it.
	ModelRows       string `json:"model_rows,omitempty"`
	ModelRowsReason string `json:"model_rows_reason,omitempty"`
	// Outside are the changes that the job itself makes; nil: not observed. Differs is how they differ from
	// those of the attempt with the job's own batch.
	Outside *Outside `json:"outside,omitempty"`
	Differs string   `json:"differs,omitempty"`
	// Numbers are numbers of the training that its batch should not change: "weight_decay of AdamW".
	Numbers map[string]float64 `json:"numbers,omitempty"`
	// Samples is the number of samples in the data set of the loader that gives the batches, and Batch
	// the loader's micro batch; 0: not known.
	Samples int64 `json:"samples,omitempty"`
	Batch   int64 `json:"batch,omitempty"`
}

// Outside counts what a job changes outside of the optimizer's step and the model's forward: the intervals
// between these in which parameters, buffers or the optimizer's numbers changed, in so many optimizer steps.
type Outside struct {
	Steps      int `json:"steps"`
	Parameters int `json:"parameters,omitempty"`
	Buffers    int `json:"buffers,omitempty"`
	Numbers    int `json:"numbers,omitempty"`
}

// Untouched is the latest report of Outside from an attempt with the job's own batch; nil for none.
func (j Job) Untouched(history []Attempt) *Outside {
	for i := len(history) - 1; i >= 0; i-- {
		a := &history[i]
		own := func(k Knob) bool { v, set := a.Plan[k]; return !set || v == j.Written[k] }
		if o := a.Loss.Outside; o != nil && o.Steps > 0 && own(MicroBatchSize) && own(GradientAccumulationSteps) {
			return o
		}
	}
	return nil
}

// follows returns why the number of samples follows from the micro batch, by two reports: with half the batch
// the data set has half the samples, and the job would make half the steps. Empty if it does not.
func (l LossSeen) follows(other LossSeen) string {
	if min(l.Samples, l.Batch, other.Samples, other.Batch) <= 0 || l.Batch == other.Batch ||
		l.Samples*other.Batch != other.Samples*l.Batch {
		return ""
	}
	return fmt.Sprintf("the number of samples follows from the micro batch: the data set has %d with %d, and had %d with %d", other.Samples, other.Batch, l.Samples, l.Batch)
}

// A LossScale is the effect of another accumulation on the scale of the gradients.
type LossScale string

// The scales. Kept: the gradients of an optimizer step have the same scale. Wrong: they grow or
// shrink with the accumulation, so it is not offered.
const (
	ScaleKept  LossScale = "kept"
	ScaleWrong LossScale = "wrong"
)

// with adds another report: the worse one counts, with its reason.
func (l LossSeen) with(other LossSeen) LossSeen {
	if why := l.follows(other); why != "" {
		other.Scale, other.Reason = ScaleWrong, why
	}
	if l.Samples == 0 {
		l.Samples, l.Batch = other.Samples, other.Batch
	}
	worse := other.Scale == ScaleWrong && l.Scale != ScaleWrong || other.Uniform == "no" && l.Uniform != "no" &&
		l.Scale != ScaleWrong
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
	if other.Rows == "no" && l.Rows != "no" {
		l.Rows, l.RowsReason = other.Rows, other.RowsReason
	}
	known := []string{"", "unknown", "yes", "no"}
	if slices.Index(known, other.ModelRows) > slices.Index(known, l.ModelRows) {
		l.ModelRows, l.ModelRowsReason = other.ModelRows, other.ModelRowsReason
	}
	l.Outside, l.Differs = cmp.Or(l.Outside, other.Outside), cmp.Or(l.Differs, other.Differs)
	for _, name := range slices.Sorted(maps.Keys(other.Numbers)) {
		was, known := l.Numbers[name]
		if apart := math.Abs(other.Numbers[name] - was); l.Rows != "no" && known && apart > 1e-6*math.Abs(was) {
			l.Rows, l.RowsReason = "no", fmt.Sprintf("%s is %.4g, and was %.4g: it follows from the batch", name,
				other.Numbers[name], was)
		}
	}
	if l.Numbers == nil {
		l.Numbers = other.Numbers
	}
	return l
}

// Loss combines the reports of all ranks.
func (e *Evidence) Loss() LossSeen {
	var seen LossSeen
	for _, r := range e.folded().reports() {
		if r.Loss != nil {
			seen = seen.with(*r.Loss)
		}
	}
	return seen
}

// Follows returns why this attempt would train on another number of samples than those before it; empty if it
// would not, or if the processes have not reported that.
func (e *Evidence) Follows(history []Attempt) string {
	now := e.Loss()
	for i := range history {
		if why := history[i].Loss.follows(now); why != "" {
			return why
		}
	}
	return ""
}

// lossSeen combines the reports of all attempts.
func lossSeen(history []Attempt) LossSeen {
	var seen LossSeen
	for i := range history { // attempts are large
		if l := &history[i].Loss; l.Scale != "" || l.Weighted || l.Uniform != "" || l.Reason != "" || l.Rows != "" ||
			l.ModelRows != "" || l.Differs != "" || l.Numbers != nil || l.Samples > 0 {
			seen = seen.with(*l)
		}
	}
	return seen
}

// undividable returns why no accumulation keeps the training; empty if some may. A loss that selects among the
// samples of a micro batch is refused by the process, as a knob that it cannot change.
func undividable(history []Attempt) string {
	for i := range history { // attempts are large
		if why := history[i].Refused[MicroBatchSize]; why != "" {
			return why
		}
	}
	if seen := lossSeen(history); seen.Scale == ScaleWrong {
		return cmp.Or(seen.Reason, "the gradients do not keep their scale with another accumulation")
	}
	return ""
}

// Training is the effect of a plan on the training, by the evidence of all attempts of the run,
// with the reason if there is one.
func (j Job) Training(plan Plan, history []Attempt) (class Training, reason string) {
	c := j.classifier(history)
	return c.class(plan)
}

// A classifier classifies the plans of a run. It reads the history once, and only for plans that
// change the micro batch: a run may have thousands of attempts.
type classifier struct {
	original Plan
	divided  func() (class Training, reason string) // of a smaller micro batch
}

func (j Job) classifier(history []Attempt) classifier {
	divided := sync.OnceValues(func() (Training, string) { return j.divided(history) })
	return classifier{j.original(history), divided}
}

// class returns the class of the plan's weakest remedy.
func (c *classifier) class(plan Plan) (class Training, reason string) {
	class = Exact
	for k, v := range plan {
		written := c.original[k]
		switch {
		case v == written, k == EvalBatchSize, k == GradientAccumulationSteps && written == "":
			// An evaluation trains nothing, and an unknown accumulation follows from the batch.
		case k == MicroBatchSize, k == GradientAccumulationSteps:
			if divided, why := c.divided(); !class.Weaker(divided) {
				class, reason = divided, why
			}
		case k.training().Weaker(class):
			class, reason = k.training(), effects[k]
		}
	}
	return class, reason
}

// effects explain the class of a knob's remedy, where its name does not. Each loader worker draws its own random
// numbers (torch/utils/data/_utils/worker.py), and without workers the rank draws them.
var effects = map[Knob]string{
	DataloaderWorkers: "random augmentation draws other numbers",
	RolloutBatchSize:  otherSamples, RolloutMemory: otherSamples, RolloutSleep: otherSamples,
}

const otherSamples = "generation draws other random numbers"

// training is the class of the remedy that changes a knob.
func (k Knob) training() Training {
	for _, row := range remedyRows {
		if slices.Contains(row.turns, k) {
			return row.training
		}
	}
	return Exact
}

// original returns the job as it is written, with the values that its processes reported of knobs
// before any plan set them.
func (j Job) original(history []Attempt) Plan {
	original := Plan{}
	if len(history) > 0 && j.Recalled == nil {
		original = history[0].Plan.With(nil)
	}
	for i := range history { // attempts are large
		if len(history[i].Observed) == 0 {
			continue
		}
		for k, v := range history[i].Observed {
			_, set := history[i].Plan[k]
			if _, known := original[k]; !set && !known {
				original[k] = v
			}
		}
	}
	return original.With(j.Written)
}

// divided is the class of a smaller micro batch with more accumulation: exact if the process has shown it at the
// failure, and the framework's recipe does not say otherwise.
func (j Job) divided(history []Attempt) (class Training, reason string) {
	seen := lossSeen(history)
	proof := ""
	if j.Loss.Reason != "" {
		proof = j.Loss.Reason + "; "
	}
	switch why := undividable(history); {
	case why != "":
		return Changed, why
	case j.Loss.Class == Average:
		return Average, cmp.Or(j.Loss.Reason, "the framework's loss is not a mean that is divided by the accumulation")
	case j.Loss.Class == "" && !ranOut(history):
		return Average, askedAtFailure
	case len(history) == 0:
		return Exact, proof + "to be confirmed by the process"
	case seen.Differs != "":
		return Average, seen.Differs
	case seen.Rows == "no":
		return Average, cmp.Or(seen.RowsReason, "the samples of a batch depend on each other")
	case seen.ModelRows == "no":
		return Average, cmp.Or(seen.ModelRowsReason, "the samples of a batch depend on each other")
	case seen.Scale != ScaleKept:
		return Average, proof + "the process has not confirmed it"
	case (j.Loss.Own || j.Loss.Class == "") && seen.ModelRows != "yes":
		return Average, unshown + cmp.Or(seen.ModelRowsReason, "the model was not asked")
	case seen.Uniform == "no" && !j.Loss.Weighted && !seen.Weighted:
		return Average, cmp.Or(seen.Reason, padded)
	case seen.Uniform == "" && !j.Loss.Weighted && !seen.Weighted:
		return Average, "no process has reported whether the batches are padded"
	case j.Loss.Own || j.Loss.Class == "":
		return Average, "what the job's own loop does between micro batches is not known"
	}
	return Exact, proof + "confirmed by the process"
}

const unshown = "the process has not shown that samples do not depend on each other: "

// ranOut reports whether an attempt ran out of memory.
func ranOut(history []Attempt) bool {
	for i := range history { // attempts are large
		if history[i].Diagnosis.OutOfMemory() {
			return true
		}
	}
	return false
}

// askedAtFailure is the reason for a class that only the process can give, when memory has run out.
const askedAtFailure = "asked at the failure"

const padded = "the batches are padded and the mean is taken per micro batch"
