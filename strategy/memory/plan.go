package memory

// A RankPlan is what decides how much memory a job needs, for one rank. Words are those of
// the knobs of package strategy; an empty word or a zero is not known.
type RankPlan struct {
	MicroBatch   int `json:"micro_batch"`  // samples in one call of the root module, on one rank
	Accumulation int `json:"accumulation"` // calls for each optimizer step; 0 counts as 1
	// Weights is the dtype that the parameters are held in: fp32, bf16, fp16. Compute is
	// that of the activations: another than Weights under autocast.
	Weights string `json:"weights"`
	Compute string `json:"compute"`
	// Checkpointing is none, selective or full.
	Checkpointing string `json:"checkpointing"`
	Attention     string `json:"attention,omitempty"`
	// Optimizer is adamw, sgd, adafactor, adamw-8bit …
	Optimizer string `json:"optimizer,omitempty"`
	// Sharding is none, zero1, zero2, zero3 or fsdp, over DataParallel ranks.
	Sharding     string `json:"sharding,omitempty"`
	DataParallel int    `json:"data_parallel,omitempty"`
	// What is held in host memory, or on NVMe, in place of the device: none, cpu, nvme.
	OffloadOptimizer   string `json:"offload_optimizer,omitempty"`
	OffloadParam       string `json:"offload_param,omitempty"`
	OffloadActivations string `json:"offload_activations,omitempty"`
	// Allocator is default or expandable.
	Allocator string `json:"allocator,omitempty"`
	// Sequence is the sequence length where it is a setting of the job.
	Sequence int `json:"sequence,omitempty"`
	// Evaluation is the samples of a call in evaluation.
	Evaluation int `json:"evaluation,omitempty"`
	// DeepSpeed says that DeepSpeed holds the weights, its own way: a master copy in fp32
	// beside them.
	DeepSpeed bool `json:"deepspeed,omitempty"`
}
