package memory

import "maps"

// A Measurement has the measurements of one rank's process of its memory in one attempt: of its
// first two steps, of its out-of-memory error if there was one, and of the longest input so far.
// All bytes are of the device's allocator (of the process, if the job trains on the CPU),
// including those held before the model. A zero is not known, or was not reached.
type Measurement struct {
	Rank int `json:"rank"`
	PID  int `json:"pid,omitempty"`
	// Plan is the plan of the process. The reader of a measurement sets it.
	Plan  RankPlan      `json:"plan"`
	Model *TrainedModel `json:"model,omitempty"`

	// Batch is the number of samples of the first root call, Longest the elements of its
	// largest input tensor; Shape is that tensor's shape.
	Batch   int   `json:"batch,omitempty"`
	Longest int64 `json:"longest,omitempty"`
	Shape   []int `json:"shape,omitempty"`
	// Autocast is the dtype of autocast in the first root call: "bfloat16"; empty: none.
	Autocast string `json:"autocast,omitempty"`
	// Twice is how the job differentiates twice, such as by a gradient penalty; empty: it does not.
	// Recomputed blocks then hold as much as others.
	Twice string `json:"twice,omitempty"`
	// Others are the bytes of the parameters that other optimizers of the process train: those of a
	// second model, as a GAN has.
	Others int64 `json:"others_bytes,omitempty"`
	// Linger: the gradients of a step are held until after the next one's forward.
	Linger bool `json:"gradients_linger,omitempty"`
	// Kept: the gradients of a step are set to zero and not let go, and so are held in the next one's forward
	// and backward, too.
	Kept bool `json:"gradients_kept,omitempty"`
	// Optimizer is the optimizer's class; Foreach: it works on all parameters at once.
	Optimizer string `json:"optimizer,omitempty"`
	Foreach   bool   `json:"foreach,omitempty"`
	// States are the bytes of the optimizer's state on the device after its first step.
	States int64 `json:"state_bytes,omitempty"`
	// Calls is the number of root calls before the first optimizer step.
	Calls int `json:"calls,omitempty"`
	// Together is the number of those before the first backward pass: a model that is called twice for one loss,
	// as by contrastive training, has the gradients of the later call held until the earlier one's are added.
	Together int `json:"calls_together,omitempty"`

	// Start is the bytes held when the root is first called; StartStates those of the optimizer's state among them,
	// which a resumed run has loaded: nil: not known.
	Start       int64  `json:"start_bytes,omitempty"`
	StartStates *int64 `json:"start_state_bytes,omitempty"`
	// Marks are the bytes held when each block of a list begins in the first forward.
	Marks []Marks `json:"marks,omitempty"`
	// First and Second are of the first and the second optimizer step.
	First  StepMemory `json:"first,omitzero"`
	Second StepMemory `json:"second,omitzero"`
	// Longer is the step with the longest input, if that is longer than in the two.
	Longer StepMemory `json:"longer,omitzero"`
	// Evaluation is the peak of a call without gradients, EvaluationBatch its samples.
	Evaluation      int64 `json:"evaluation_bytes,omitempty"`
	EvaluationBatch int   `json:"evaluation_batch,omitempty"`

	// Peak and Reserved are the most bytes that the allocator gave out and held, Held the bytes
	// that it held at the time of the report.
	Peak     int64 `json:"peak_bytes,omitempty"`
	Reserved int64 `json:"reserved_bytes,omitempty"`
	Held     int64 `json:"held_bytes,omitempty"`
	// Retries is the number of times that the allocator emptied its cache to serve a request.
	Retries int64 `json:"retries,omitempty"`
	// Outside is the bytes that the process holds on the device outside the allocator: its
	// context, libraries, NCCL. Total is the device's memory.
	Outside int64 `json:"outside_bytes,omitempty"`
	Total   int64 `json:"total_bytes,omitempty"`
	// Host is the largest resident set of the process.
	Host int64 `json:"host_bytes,omitempty"`

	// Failed is the phase in which memory ran out: load, forward, loss, backward, optimizer,
	// evaluation; empty: it did not. Allocated and Requested are the bytes held then and the size
	// of the failed allocation; Allowed is the allocator's limit.
	Failed    string `json:"failed,omitempty"`
	Allocated int64  `json:"allocated_bytes,omitempty"`
	Requested int64  `json:"requested_bytes,omitempty"`
	Allowed   int64  `json:"allowed_bytes,omitempty"`

	// InPlace are the remedies that were on in all measured steps because memory had run out before; RanOut is
	// the first such failure, nil: none.
	InPlace []string `json:"in_place,omitempty"`
	RanOut  *RanOut  `json:"ran_out,omitempty"`

	// Steps is the number of optimizer steps that were seen, StepSeconds the median time of one
	// from the third on, CallSeconds that of a forward with its backward.
	Steps       int     `json:"steps,omitempty"`
	StepSeconds float64 `json:"step_seconds,omitempty"`
	CallSeconds float64 `json:"call_seconds,omitempty"`

	// Launch are the host's times to launch the kernels of a call.
	Launch Launch `json:"launch,omitzero"`
}

// A RanOut is an error of memory after which the process did the step again: the same as in a Measurement of a
// process that ended by it.
type RanOut struct {
	Failed    string  `json:"failed"`
	Allocated int64   `json:"allocated_bytes,omitempty"`
	Requested int64   `json:"requested_bytes,omitempty"`
	Marks     []Marks `json:"marks,omitempty"`
	Launch    Launch  `json:"launch,omitzero"`
}

// A Launch has the host's times in seconds to launch the kernels of a root call, which takes no less with fewer
// samples: of its forward and its backward. AtMost: the forward's was measured in a cold first call, or on a
// device with a full queue. A zero is not known; on the CPU none is, because a launch is the work itself.
type Launch struct {
	Forward  float64 `json:"forward_seconds,omitempty"`
	Backward float64 `json:"backward_seconds,omitempty"`
	AtMost   bool    `json:"at_most,omitempty"`
}

// WithoutRemedies is the measurement of the process as if it had ended by the first error of memory, after which it
// did the step again; false if there was none.
func (m Measurement) WithoutRemedies() (Measurement, bool) {
	r := m.RanOut
	if r == nil {
		return Measurement{}, false
	}
	m.Failed, m.Allocated, m.Requested, m.Marks, m.Launch = r.Failed, r.Allocated, r.Requested, r.Marks, r.Launch
	m.First, m.Second, m.Longer, m.Peak, m.Reserved, m.Held, m.Steps, m.StepSeconds, m.CallSeconds = StepMemory{}, StepMemory{}, StepMemory{}, 0, 0, 0, 0, 0, 0
	m.InPlace, m.RanOut = nil, nil
	return m, true
}

// Marks are the bytes held when each block of a list begins.
type Marks struct {
	Path  string  `json:"path"`
	Bytes []int64 `json:"bytes"`
	// Ends are the bytes held when each block ends, Outputs those of the tensors that it returns
	// and was not given.
	Ends    []int64 `json:"ends,omitempty"`
	Outputs []int64 `json:"outputs,omitempty"`
	// Input is the bytes of the first block's input, the hidden state of all samples.
	Input int64 `json:"input_bytes,omitempty"`
	// After is the bytes held when the last block has ended, 0 if that was not reached.
	After int64 `json:"after_bytes,omitempty"`
}

// A StepMemory has the bytes held in one optimizer step, by phase. A phase's peak is known only
// if it is a new maximum of the process: PyTorch keeps one peak. gpurun does not reset it,
// because the job may read it.
type StepMemory struct {
	// Longest are the elements of the largest input in it.
	Longest int64 `json:"longest,omitempty"`
	// Forward is the bytes held when the first root call ends, ForwardPeak the most until then.
	Forward     int64 `json:"forward_bytes,omitempty"`
	ForwardPeak int64 `json:"forward_peak_bytes,omitempty"`
	// BackwardPeak is the most from the end of the last root call to the optimizer's step, Before
	// the bytes held when that begins.
	BackwardPeak int64 `json:"backward_peak_bytes,omitempty"`
	Before       int64 `json:"before_bytes,omitempty"`
	// Micro is the most between the end of the first root call and the start of the second, if
	// there is a second.
	Micro int64 `json:"micro_bytes,omitempty"`
	// LaterPeak is the most from the start of the second root call to the end of the last.
	LaterPeak int64 `json:"later_peak_bytes,omitempty"`
	// OptimizerPeak is the most in the optimizer's step, After the bytes held when it ends.
	OptimizerPeak int64 `json:"optimizer_peak_bytes,omitempty"`
	After         int64 `json:"after_bytes,omitempty"`
}

// together is the number of root calls for one loss, 1 if that is not known.
func (m Measurement) together() int { return max(m.Together, 1) }

// Passes is the number of backward passes before the first optimizer step, 1 if that is not known.
func (m Measurement) Passes() int { return max(m.Calls/m.together(), 1) }

// resumed reports whether the optimizer's state, of so many bytes, was there when the root was first called: as
// reported, or else by the bytes that were held in addition to all others known.
func (m Measurement) resumed(states, rest float64) bool {
	if m.StartStates != nil {
		return float64(*m.StartStates) > .5*states && states > 0
	}
	return rest > .8*states && states > 0
}

// stepPeak is the highest peak of the measured steps.
func (m Measurement) stepPeak() int64 {
	return max(m.Second.ForwardPeak, m.Second.BackwardPeak, m.Second.OptimizerPeak, m.Second.Micro,
		m.First.OptimizerPeak, m.Longer.ForwardPeak, m.Longer.BackwardPeak, m.Longer.OptimizerPeak)
}

// A TrainedModel has the properties of the model that a rank trains which do not depend on the
// plan. Bytes and counts are of the whole model, also if ranks hold parts of it. A zero is not
// known.
type TrainedModel struct {
	Class      string `json:"class"`
	Parameters int64  `json:"parameters"` // their number
	Trainable  int64  `json:"trainable"`  // the number of those that get gradients
	// Bytes are those of the parameters by dtype, as PyTorch names it: "float32".
	Bytes map[string]int64 `json:"bytes,omitempty"`
	// Buffers are the bytes of the buffers.
	Buffers int64 `json:"buffer_bytes,omitempty"`
	// Outside is the number of parameters outside all lists of blocks.
	Outside int64 `json:"outside,omitempty"`
	// Cast is the number of parameters of which autocast keeps a 16-bit copy during a step's
	// forward and backward: the weights of linear and convolution modules. CastOutside is the
	// number of those outside the blocks.
	Cast        int64 `json:"cast,omitempty"`
	CastOutside int64 `json:"cast_outside,omitempty"`
	// UnitOutermost and UnitLargest are the numbers of parameters that FSDP gathers at once: those
	// of the outermost unit, and of the largest other one.
	UnitOutermost int64 `json:"unit_outermost,omitempty"`
	UnitLargest   int64 `json:"unit_largest,omitempty"`
	// Largest is the number of parameters of the largest single one.
	Largest int64 `json:"largest,omitempty"`
	// Embedding is the number of parameters of all embeddings; Tied: one of them is also the
	// output's weight.
	Embedding int64 `json:"embedding,omitempty"`
	Tied      bool  `json:"tied,omitempty"`
	// Vocabulary is the width of the widest linear module, Hidden its input's.
	Vocabulary int64 `json:"vocabulary,omitempty"`
	Hidden     int64 `json:"hidden,omitempty"`
	// Convolutional: more of the calls are convolutions than linear modules, or every block has
	// one over an image.
	Convolutional bool `json:"convolutional,omitempty"`
	// Attention: the name of one of the modules contains attention.
	Attention bool `json:"attention,omitempty"`
	// Compiled: torch.compile or TorchScript runs a part of it.
	Compiled bool        `json:"compiled,omitempty"`
	Blocks   []BlockList `json:"blocks,omitempty"`
}

// A BlockList is a list of repeated modules of one class, innermost lists only.
type BlockList struct {
	Path       string `json:"path"` // "transformer.h"
	Class      string `json:"class"`
	Count      int    `json:"count"`
	Parameters int64  `json:"parameters,omitempty"` // the number of all its blocks' together
}

// Dtype is the dtype of most of the parameters' bytes, as plans name it: fp32, bf16, fp16; empty
// if none is known.
func (m *TrainedModel) Dtype() string {
	most, name := int64(0), ""
	for dtype, bytes := range m.Bytes {
		if bytes > most || bytes == most && dtype < name {
			most, name = bytes, dtype
		}
	}
	return Dtype(name)
}

// Dtype is PyTorch's name of a dtype as plans have it: "bfloat16" is bf16.
func Dtype(torch string) string {
	switch torch {
	case "float32":
		return "fp32"
	case "bfloat16":
		return "bf16"
	case "float16":
		return "fp16"
	}
	return torch
}

// A Fingerprint identifies a model by the observations of a process: figures of one model hold
// for another with the same fingerprint, even if its code differs.
type Fingerprint struct {
	Class      string           `json:"class"`
	Parameters int64            `json:"parameters"`      // their number
	Bytes      map[string]int64 `json:"bytes,omitempty"` // of the parameters, by dtype
	Blocks     []BlockList      `json:"blocks,omitempty"`
	// Sample is the bytes of the hidden state of one sample; 0: not seen. Compute is the
	// precision in which it was seen.
	Sample  int64  `json:"sample_bytes,omitempty"`
	Weights string `json:"weights,omitempty"`
	Compute string `json:"compute,omitempty"`
}

// Fingerprint returns the fingerprint of the measured model; false if nothing was seen of one.
func (m Measurement) Fingerprint() (Fingerprint, bool) {
	if m.Model == nil || m.Model.Parameters == 0 {
		return Fingerprint{}, false
	}
	f := Fingerprint{
		Class: m.Model.Class, Parameters: m.Model.Parameters, Bytes: m.Model.Bytes, Blocks: m.Model.Blocks,
		Weights: m.Plan.Weights, Compute: m.Plan.Compute,
	}
	if m.Batch > 0 && len(m.Marks) > 0 {
		f.Sample = m.Marks[0].Input / int64(m.Batch)
	}
	return f, true
}

// sampleRange is the largest ratio between sample sizes of one job: texts have no fixed length.
// With samples twice as long, or half, it is another job.
const sampleRange = 2

// Same reports whether two fingerprints are of one model with samples of one size. The dtype of
// parameters and of hidden states depends on the precision, and is compared only if both were
// seen in the same.
func (f Fingerprint) Same(other Fingerprint) bool {
	if f.Class != other.Class || f.Parameters != other.Parameters || len(f.Blocks) != len(other.Blocks) {
		return false
	}
	for i, b := range f.Blocks {
		if o := other.Blocks[i]; b.Path != o.Path || b.Class != o.Class || b.Count != o.Count ||
			b.Parameters != o.Parameters {
			return false
		}
	}
	if f.Weights == other.Weights && len(f.Bytes) > 0 && len(other.Bytes) > 0 && !maps.Equal(f.Bytes, other.Bytes) {
		return false
	}
	if f.Sample == 0 || other.Sample == 0 || f.Compute != other.Compute {
		return true
	}
	return max(f.Sample, other.Sample) < sampleRange*min(f.Sample, other.Sample)
}
