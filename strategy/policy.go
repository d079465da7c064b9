package strategy

import (
	"time"

	"github.com/gpurun/gpurun/strategy/memory"
)

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
	// Prefer is what decides among plans that fit.
	Prefer Prefer `json:"prefer,omitempty"`
	// Climb lets a run go up to a faster plan, once, where there is room for it.
	Climb bool `json:"climb,omitempty"`
}

// A Mode is how the decision tree is walked.
type Mode string

// The modes. Predict falls back to the ladder where too little is known.
const (
	Predict Mode = "predict"
	Ladder  Mode = "ladder"
	Off     Mode = "off"
)

// Prefer is what decides among plans that fit.
type Prefer string

// The preferences: plans that train the same come before those that are equal on average,
// and of each the fastest; the fastest of both; or the order of the tree. An empty one is
// ExactFirst.
const (
	ExactFirst Prefer = "exact"
	Speed      Prefer = "speed"
	Tree       Prefer = "tree"
)

// ExactFirst reports whether a plan that trains the same is preferred to a faster one that
// is equal on average.
func (p Policy) ExactFirst() bool {
	return p.Prefer != Speed && p.Prefer != Tree && p.Mode != Ladder
}

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
	// Remembered is what earlier runs of the job measured, the newest first.
	Remembered []memory.Measurement `json:"remembered,omitempty"`
	// Unsure is what they measured when the job's code was another: Priors says when it
	// counts.
	Unsure []memory.Measurement `json:"unsure,omitempty"`
	// Recalled is the plan of an earlier run that attempt 0 ran with in place of Written;
	// nil where it ran as written.
	Recalled *Recalled `json:"recalled,omitempty"`
	// Pipeline says that DeepSpeed trains the model as a pipeline, which knows ZeRO 1 only.
	Pipeline bool `json:"pipeline,omitempty"`
	// Resumption is what the framework does with the data when it resumes.
	Resumption Resumption `json:"resumption,omitzero"`
	// Loss is what is known of the job's loss before it runs.
	Loss Loss `json:"loss,omitzero"`
}

// A Resumption says what becomes of the samples that a job has seen when it goes on
// from a checkpoint, where it does not just go on where it was.
type Resumption struct {
	Data string `json:"data,omitempty"`
	// Shifts says so for a knob that was changed since.
	Shifts map[Knob]string `json:"shifts,omitempty"`
	// Own says that the job's user told how it resumes, so that no recipe knows what it
	// does with the data.
	Own bool `json:"own,omitempty"`
	// Exact says that somebody vouches for it, the framework's recipe or the job's user: a
	// job that resumes goes on with the next sample, whatever the micro batch is by then.
	Exact bool `json:"exact,omitempty"`
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
	// HostTotal is what a job can have of it, whoever holds how much now: the machine's, or
	// what a cgroup allows; 0: unknown.
	HostTotal int64 `json:"host_total_bytes,omitempty"`
	// Device is what each rank has to train in.
	Device memory.DeviceMemory `json:"device,omitzero"`
	// NVMeFree is the space that is left below Policy.NVMePath, in bytes; 0: unknown.
	NVMeFree int64 `json:"nvme_free_bytes,omitempty"`
	// Missing names, for a rung, the part that it needs and that is not there.
	Missing map[Rung]string `json:"missing,omitempty"`
	// Checkpoint is the newest complete checkpoint that this run wrote, and
	// CheckpointWritten when; the zero time where that is not known.
	Checkpoint        string    `json:"checkpoint,omitempty"`
	CheckpointWritten time.Time `json:"checkpoint_written,omitzero"`
	// Deadline is by when the run has to be over; the zero time where nobody knows, or asked.
	Deadline time.Time `json:"deadline,omitzero"`
	// NoCheckpoint says why there is none, where one was looked for.
	NoCheckpoint string `json:"no_checkpoint,omitempty"`
	// Node is where the ranks ran.
	Node Node `json:"node,omitzero"`
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
	// From is the checkpoint that the attempt started from, empty for none, and Fresh says
	// that the job started from the beginning all the same.
	From  string `json:"from,omitempty"`
	Fresh bool   `json:"fresh,omitempty"`
	// Climb is the decision for which the attempt was stopped: to go up to a faster plan.
	// It is nil for none. Kept says why the plan was kept where a faster one would fit.
	Climb *Decision `json:"climb,omitempty"`
	Kept  string    `json:"kept,omitempty"`
	// World is the number of ranks that the job's processes saw, 0 where none said it.
	World int `json:"world,omitempty"`
	// Alone is the number of ranks that trained the whole job each, without a process group;
	// 0: they trained together, or it is not known.
	Alone int `json:"alone,omitempty"`
	// Asked says that a process has told of its model: what it then neither has nor
	// refuses can be turned in it.
	Asked bool `json:"asked,omitempty"`
	// Refused says why the process could not, or did not, turn a knob from inside.
	Refused map[Knob]string `json:"refused,omitempty"`
	// Halted says that gpurun stopped the ranks because a change had not taken effect.
	Halted bool `json:"halted,omitempty"`
	// Nothing is the line by which the job said that it found nothing to do.
	Nothing string `json:"nothing,omitempty"`
	// Unstepped says that the job trained, and its optimizer made no step.
	Unstepped bool `json:"unstepped,omitempty"`
	// Unstarted is why no rank of the attempt ran; nil where they did.
	Unstarted *Unstarted `json:"unstarted,omitempty"`
	// Expected is what the plan was predicted to need; nil where nothing predicted it.
	Expected *memory.Prediction `json:"expected,omitempty"`
	// Loss is what its processes found out of the job's loss.
	Loss LossSeen `json:"loss,omitzero"`
	// Measured is what the ranks' processes measured of their memory, the ranks that say
	// the most first: the one that ran out, the one with the highest peak.
	Measured []memory.Measurement `json:"measured,omitempty"`
}

// Lasted is how long the attempt ran.
func (a Attempt) Lasted() time.Duration { return a.Ended.Sub(a.Started) }
