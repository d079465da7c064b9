// Package memory predicts the bytes and the time that a plan of a training job needs, calibrated
// by measurements of that job's processes, and chooses among plans.
//
// A peak is the largest of a few phases (the end of the forward, the backward, the optimizer's
// step), never a sum of everything that is held at some time.
package memory

// A RankPlan has the settings that decide how much memory a job needs, for one rank. Words are
// the values of package strategy's knobs; an empty word or a zero is not known.
type RankPlan struct {
	MicroBatch   int `json:"micro_batch"`  // samples in one call of the root module, on one rank
	Accumulation int `json:"accumulation"` // calls for each optimizer step; 0 counts as 1
	// Weights is the dtype of the parameters: fp32, bf16, fp16. Compute is the dtype of the
	// activations, which differs from Weights under autocast.
	Weights string `json:"weights"`
	Compute string `json:"compute"`
	// Checkpointing is none, selective or full.
	Checkpointing string `json:"checkpointing"`
	// ForwardParts is the number of parts of the batch in which the model runs forward and
	// backward; 0 counts as 1.
	ForwardParts int    `json:"forward_parts,omitempty"`
	Attention    string `json:"attention,omitempty"`
	// Optimizer is adamw, sgd, adafactor, adamw-8bit …
	Optimizer string `json:"optimizer,omitempty"`
	// Sharding is none, zero1, zero2, zero3 or fsdp, over DataParallel ranks.
	Sharding     string `json:"sharding,omitempty"`
	DataParallel int    `json:"data_parallel,omitempty"`
	// StepInBackward: each parameter's step follows its gradient, which is then let go.
	StepInBackward bool `json:"step_in_backward,omitempty"`
	// KeepGathered: FSDP keeps the gathered weights from the forward to the backward, as SHARD_GRAD_OP and
	// reshard_after_forward=False do.
	KeepGathered bool `json:"keep_gathered,omitempty"`
	// Parts held in host memory, or on NVMe, in place of the device: none, cpu, nvme.
	OffloadOptimizer   string `json:"offload_optimizer,omitempty"`
	OffloadParam       string `json:"offload_param,omitempty"`
	OffloadActivations string `json:"offload_activations,omitempty"`
	// LossParts is on if large cross entropies are computed in parts of their rows, chunked if the
	// framework does so with logits in 16 bits, and fused if a kernel of the framework computes output
	// and loss together and makes no logits.
	LossParts string `json:"loss_parts,omitempty"`
	// Allocator is default or expandable.
	Allocator string `json:"allocator,omitempty"`
	// Sequence is the sequence length if it is a setting of the job.
	Sequence int `json:"sequence,omitempty"`
	// Evaluation is the number of samples of a call in evaluation.
	Evaluation int `json:"evaluation,omitempty"`
	// DeepSpeed: DeepSpeed holds the weights, with a master copy in fp32.
	DeepSpeed bool `json:"deepspeed,omitempty"`
}

// A DeviceMemory is the memory that a rank can train in.
type DeviceMemory struct {
	Name string `json:"name,omitempty"`
	// Total is the device's memory in bytes; Allowed is the allocator's limit, if any; Others the
	// bytes held by other processes.
	Total   int64 `json:"total_bytes"`
	Allowed int64 `json:"allowed_bytes,omitempty"`
	Others  int64 `json:"others_bytes,omitempty"`
	// CPU: the model trains in host memory.
	CPU bool `json:"cpu,omitempty"`
	// Host is the available memory of the host, all local ranks together; NVMe the space on disk.
	// LocalRanks share both.
	Host       int64 `json:"host_bytes,omitempty"`
	NVMe       int64 `json:"nvme_bytes,omitempty"`
	LocalRanks int   `json:"local_ranks,omitempty"`
}

// A Prediction is the expected need of a plan.
type Prediction struct {
	// Mean and Bound are the peak of the allocator on the device, in bytes: as expected, and at
	// most.
	Mean  int64 `json:"mean_bytes"`
	Bound int64 `json:"bound_bytes"`
	// Least is the bytes that the plan holds between steps: it needs no less.
	Least int64 `json:"least_bytes,omitempty"`
	// Instant is the phase of the peak: load, forward, loss, recompute, backward, optimizer,
	// evaluation.
	Instant string `json:"instant,omitempty"`
	// Seconds is the time of one optimizer step of the same global batch; 0: unknown. Timed: steps of
	// this job were timed. Otherwise it only shows which plan is faster.
	Seconds float64 `json:"seconds,omitempty"`
	Timed   bool    `json:"timed,omitempty"`
	// Host, Pinned and NVMe are bytes of one rank outside the device.
	Host   int64 `json:"host_bytes,omitempty"`
	Pinned int64 `json:"pinned_bytes,omitempty"`
	NVMe   int64 `json:"nvme_bytes,omitempty"`
	// Evidence is the basis of the prediction: "measured", "same mode", "blocks seen", "prior".
	Evidence string `json:"evidence,omitempty"`
	// Unknown is the reason why nothing can be predicted; the figures are zero then.
	Unknown string `json:"unknown,omitempty"`
}
