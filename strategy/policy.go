package strategy

import "time"

// A Policy is what the user allows a run to do.
type Policy struct {
	Mode        Mode     `json:"mode"`
	MaxAttempts int      `json:"max_attempts"`
	Numerics    Numerics `json:"numerics"`
	// NumericsSaid: somebody said it in words; it is not just the default.
	NumericsSaid bool `json:"numerics_said,omitempty"`
	// Never lists rungs, or knobs, to leave alone.
	Never    []string `json:"never,omitempty"`
	NVMePath string   `json:"nvme_path,omitempty"`
	// TransientRetries is the budget for causes that pass: a lost network. Progress
	// between two such failures refills it.
	TransientRetries int `json:"transient_retries"`
	// Restarts is the budget for failures of the job's own (torchrun's
	// --max-restarts): the same plan again.
	Restarts int `json:"restarts"`
	// RestartFromZero is the work that may be repeated where there is no
	// checkpoint to resume from.
	RestartFromZero Seconds `json:"restart_from_zero_seconds"`
}

// A Mode is how the decision tree is walked.
type Mode string

// The modes. Predict falls back to the ladder where too little is known.
const (
	Predict Mode = "predict"
	Ladder  Mode = "ladder"
	Off     Mode = "off"
)

// Numerics is how far a plan may change what is computed.
type Numerics string

// Preserve keeps dtypes and optimizer; MixedPrecision lets autocast in; Any lets
// the optimizer's algorithm and the sequence length change too.
const (
	Preserve       Numerics = "preserve"
	MixedPrecision Numerics = "mixed-precision"
	Any            Numerics = "any"
)

// A Job is what Decide has to know about the job.
type Job struct {
	// Knobs is what the recipe can do with each knob; a missing one cannot be turned.
	Knobs        map[Knob]Range `json:"knobs"`
	Ranks        int            `json:"ranks"`
	LocalRanks   int            `json:"local_ranks"`
	DataParallel int            `json:"data_parallel"`
	// Ceiling is what the user holds each rank's device memory to, in bytes; 0: nothing.
	Ceiling int64 `json:"ceiling_bytes,omitempty"`
	// Written is the plan of the job as it is written.
	Written Plan `json:"written,omitempty"`
	// Resumption is what the framework does with the data when it resumes.
	Resumption Resumption `json:"resumption,omitzero"`
}

// A Resumption says what becomes of the samples that a job has seen when it goes on
// from a checkpoint, where it does not just go on where it was.
type Resumption struct {
	Data string `json:"data,omitempty"`
	// Shifts says so for a knob that was changed since.
	Shifts map[Knob]string `json:"shifts,omitempty"`
}

// An Inventory is what there is to work with at one moment.
type Inventory struct {
	At time.Time `json:"at"`
	// Accelerator is what the job trains on: "cuda" or "cpu".
	Accelerator string `json:"accelerator"`
	// BF16 says that the device computes in bfloat16.
	BF16 bool `json:"bf16"`
	// HostAvailable is the host memory that can still be had, in bytes, cgroup
	// limits counted; 0: unknown.
	HostAvailable int64 `json:"host_available_bytes,omitempty"`
	// NVMeFree is the space that is left below Policy.NVMePath, in bytes; 0: unknown.
	NVMeFree int64 `json:"nvme_free_bytes,omitempty"`
	// Missing names, for a rung, the part that it needs and that is not there.
	Missing map[Rung]string `json:"missing,omitempty"`
	// Checkpoint is the newest complete checkpoint that this run wrote, and
	// CheckpointWritten when; the zero time where that is not known.
	Checkpoint        string    `json:"checkpoint,omitempty"`
	CheckpointWritten time.Time `json:"checkpoint_written,omitzero"`
	// NoCheckpoint says why there is none, where one was looked for.
	NoCheckpoint string `json:"no_checkpoint,omitempty"`
}

// An Attempt is one launch of all ranks, as history remembers it.
type Attempt struct {
	N         int       `json:"n"`
	Plan      Plan      `json:"plan"`
	Rung      Rung      `json:"rung,omitempty"` // the rung that led to this plan, empty for the first
	Diagnosis Diagnosis `json:"diagnosis"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	// Steps is the number of training steps that were seen, 0 if none can be seen.
	Steps int `json:"steps,omitempty"`
	// Stepping is what was seen of those steps.
	Stepping Stepping `json:"stepping,omitzero"`
	// Checkpoint is the run's newest complete checkpoint when the attempt had ended, and
	// CheckpointWritten when that was written.
	Checkpoint        string    `json:"checkpoint,omitempty"`
	CheckpointWritten time.Time `json:"checkpoint_written,omitzero"`
	// Stuck is a process of the attempt that SIGKILL did not end.
	Stuck *Stuck `json:"stuck,omitempty"`
	// StopSignal is the signal by which somebody asked gpurun to stop, 0 for none.
	StopSignal int `json:"stop_signal,omitempty"`
	// CutShort says why the attempt was over before the job was, where a notice that the
	// time ends is the reason; empty where it is not.
	CutShort string `json:"cut_short,omitempty"`
	// Observed is what the job itself said that it used; a knob that is absent is not known.
	Observed Plan `json:"observed,omitempty"`
	// World is the number of ranks that the job's processes saw, 0 where none said it.
	World int `json:"world,omitempty"`
	// Asked says that a process has told of its model: what it then neither has nor
	// refuses can be turned in it.
	Asked bool `json:"asked,omitempty"`
	// Refused says why the process could not, or did not, turn a knob from inside.
	Refused map[Knob]string `json:"refused,omitempty"`
	// Halted says that gpurun stopped the ranks because a change had not taken effect.
	Halted bool `json:"halted,omitempty"`
	// Nothing is the line by which the job said that it found nothing to do.
	Nothing string `json:"nothing,omitempty"`
	// Unstarted is why no rank of the attempt ran; nil where they did.
	Unstarted *Unstarted `json:"unstarted,omitempty"`
}

// Lasted is how long the attempt ran.
func (a Attempt) Lasted() time.Duration { return a.Ended.Sub(a.Started) }
