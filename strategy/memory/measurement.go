package memory

// A Measurement is what one rank's process measured of its memory in one attempt: of its first
// two steps, of its error where it ran out, and of the longest input so far. All bytes are of the
// device's allocator (of the process, where the job trains on the CPU), with those that were held
// before the model. A zero is not known, or was not reached.
type Measurement struct {
	Rank int `json:"rank"`
	PID  int `json:"pid,omitempty"`
	// Plan is what the process ran with. The reader of a measurement sets it.
	Plan  RankPlan      `json:"plan"`
	Model *TrainedModel `json:"model,omitempty"`

	// Batch is the number of samples of the first root call, Longest the elements of its
	// largest input tensor; Shape is that tensor's shape.
	Batch   int   `json:"batch,omitempty"`
	Longest int64 `json:"longest,omitempty"`
	Shape   []int `json:"shape,omitempty"`
	// Autocast is the dtype of autocast in the first root call: "bfloat16"; empty: none.
	Autocast string `json:"autocast,omitempty"`
	// Linger says that the gradients of a step are held until after the next one's forward.
	Linger bool `json:"gradients_linger,omitempty"`
	// Optimizer is the optimizer's class; Foreach and Fused its implementation.
	Optimizer string `json:"optimizer,omitempty"`
	Foreach   bool   `json:"foreach,omitempty"`
	Fused     bool   `json:"fused,omitempty"`
	// States are the bytes of the optimizer's state on the device after its first step.
	States int64 `json:"state_bytes,omitempty"`
	// Calls is how many root calls there were before the first optimizer step.
	Calls int `json:"calls,omitempty"`

	// Start is what is held when the root is first called.
	Start int64 `json:"start_bytes,omitempty"`
	// Marks are what is held when each block of a list begins in the first forward.
	Marks []Marks `json:"marks,omitempty"`
	// First and Second are of the first and the second optimizer step.
	First  StepMemory `json:"first,omitzero"`
	Second StepMemory `json:"second,omitzero"`
	// Longer is the step with the longest input, where that is longer than in the two.
	Longer StepMemory `json:"longer,omitzero"`
	// Evaluation is the peak of a call without gradients, EvaluationBatch its samples.
	Evaluation      int64 `json:"evaluation_bytes,omitempty"`
	EvaluationBatch int   `json:"evaluation_batch,omitempty"`

	// Peak and Reserved are the most that the allocator ever gave and held, Held is what it
	// held when this was written.
	Peak     int64 `json:"peak_bytes,omitempty"`
	Reserved int64 `json:"reserved_bytes,omitempty"`
	Held     int64 `json:"held_bytes,omitempty"`
	// Split is what the allocator held in inactive parts of blocks at the end; Retries are
	// how often it gave its cache back to find room.
	Split   int64 `json:"inactive_split_bytes,omitempty"`
	Retries int64 `json:"retries,omitempty"`
	// Outside is what the process holds on the device outside the allocator: its context,
	// libraries, NCCL. Total is the device's memory.
	Outside int64 `json:"outside_bytes,omitempty"`
	Total   int64 `json:"total_bytes,omitempty"`
	// Host is the largest resident set of the process.
	Host int64 `json:"host_bytes,omitempty"`

	// Failed is the instant in which memory ran out: load, forward, loss, backward,
	// optimizer, evaluation; empty: it did not. Allocated and Requested are what was held
	// then and what more was wanted; Allowed is what the allocator was held to.
	Failed    string `json:"failed,omitempty"`
	Allocated int64  `json:"allocated_bytes,omitempty"`
	Requested int64  `json:"requested_bytes,omitempty"`
	Allowed   int64  `json:"allowed_bytes,omitempty"`

	// Steps are the optimizer steps that were seen, StepSeconds the median time of one
	// from the third on, CallSeconds that of a forward with its backward.
	Steps       int     `json:"steps,omitempty"`
	StepSeconds float64 `json:"step_seconds,omitempty"`
	CallSeconds float64 `json:"call_seconds,omitempty"`

	// Doubt is by which fraction its bytes may be off here, where it was measured under
	// other conditions: with another minor version of PyTorch.
	Doubt float64 `json:"doubt,omitempty"`
}

// Marks are what is held when each block of a list begins.
type Marks struct {
	Path  string  `json:"path"`
	Bytes []int64 `json:"bytes"`
	// Input is the bytes of the first block's input, the hidden state of all samples.
	Input int64 `json:"input_bytes,omitempty"`
	// After is what is held when the last block has ended, 0 where that was not reached.
	After int64 `json:"after_bytes,omitempty"`
}

// A StepMemory is what was held in one optimizer step, by phase. A phase's peak is known only if
// it is a new maximum of the process: PyTorch keeps one peak, which the job may read, so that it
// is not reset.
type StepMemory struct {
	// Longest are the elements of the largest input in it.
	Longest int64 `json:"longest,omitempty"`
	// Forward is what is held when the first root call ends, ForwardPeak the most until
	// then.
	Forward     int64 `json:"forward_bytes,omitempty"`
	ForwardPeak int64 `json:"forward_peak_bytes,omitempty"`
	// BackwardPeak is the most from the end of the last root call to the optimizer's step,
	// Before what is held when that begins.
	BackwardPeak int64 `json:"backward_peak_bytes,omitempty"`
	Before       int64 `json:"before_bytes,omitempty"`
	// Micro is the most between the end of the first root call and the start of the second,
	// where there is a second.
	Micro int64 `json:"micro_bytes,omitempty"`
	// LaterPeak is the most from the start of the second root call to the end of the last.
	LaterPeak int64 `json:"later_peak_bytes,omitempty"`
	// OptimizerPeak is the most in the optimizer's step, After what is held when it ends.
	OptimizerPeak int64 `json:"optimizer_peak_bytes,omitempty"`
	After         int64 `json:"after_bytes,omitempty"`
}

// stepPeak is the highest peak of the measured steps.
func (m Measurement) stepPeak() int64 {
	return max(m.Second.ForwardPeak, m.Second.BackwardPeak, m.Second.OptimizerPeak, m.Second.Micro,
		m.First.OptimizerPeak, m.Longer.ForwardPeak, m.Longer.BackwardPeak, m.Longer.OptimizerPeak)
}
