package strategy

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
}

// A LossSeen is what a job's process says of its loss; a zero field is not known.
type LossSeen struct {
	// Scale is how the loss is scaled with another accumulation: ScaleKept or ScaleWrong.
	Scale LossScale `json:"scale,omitempty"`
	// Uniform says whether all batches seen so far had one shape and no padding: "yes" or "no".
	Uniform string `json:"uniform,omitempty"`
	// Reason is how the process found out, as the end of a sentence.
	Reason string `json:"reason,omitempty"`
}

// A LossScale is what another accumulation does to the scale of the gradients.
type LossScale string

// The scales. Kept: what is backpropagated in one optimizer step has the scale that it had.
// Wrong: it grows or shrinks with the accumulation, so that accumulation is not offered.
const (
	ScaleKept  LossScale = "kept"
	ScaleWrong LossScale = "wrong"
)
