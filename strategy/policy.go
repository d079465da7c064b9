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
	// NumericsSaid: the user set Numerics explicitly.
	NumericsSaid bool     `json:"numerics_said,omitempty"`
	Never        []string `json:"never,omitempty"` // rungs or knobs to leave alone
	NVMePath     string   `json:"nvme_path,omitempty"`
	// TransientRetries is the budget for transient failures, such as a lost network. Progress
	// between two of them refills it.
	TransientRetries int `json:"transient_retries"`
	// Restarts is the budget for failures of the job itself (torchrun's --max-restarts): the
	// same plan again.
	Restarts int `json:"restarts"`
	// RestartFromZero is the work that may be repeated without a checkpoint.
	RestartFromZero Seconds `json:"restart_from_zero_seconds"`
	Prefer          Prefer  `json:"prefer,omitempty"`
	// Climb lets a run speed up, once, where a faster plan fits.
	Climb bool `json:"climb,omitempty"`
}

// A Mode is how the next plan is found.
type Mode string

// The modes. Predict falls back to the ladder where too little is known.
const (
	Predict Mode = "predict"
	Ladder  Mode = "ladder"
	Off     Mode = "off"
)

// Prefer decides among plans that fit.
type Prefer string

// The preferences: plans that train the same before those that are equal on average, and of each
// the fastest; the fastest of both; or the order of the rungs. An empty one is ExactFirst.
const (
	ExactFirst Prefer = "exact"
	Speed      Prefer = "speed"
	Tree       Prefer = "tree"
)

// ExactFirst reports whether a plan that trains the same is preferred to a faster one that is
// equal on average.
func (p Policy) ExactFirst() bool {
	return p.Prefer != Speed && p.Prefer != Tree && p.Mode != Ladder
}

// Numerics is how far a plan may change the computation.
type Numerics string

// Preserve keeps dtypes and optimizer; MixedPrecision allows autocast; Any also allows another
// optimizer and sequence length.
const (
	Preserve       Numerics = "preserve"
	MixedPrecision Numerics = "mixed-precision"
	Any            Numerics = "any"
)

// A Job is what Decide knows about the job.
type Job struct {
	Knobs        map[Knob]Range `json:"knobs"` // those that are absent cannot be changed
	Ranks        int            `json:"ranks"`
	LocalRanks   int            `json:"local_ranks"`
	DataParallel int            `json:"data_parallel"`
	Ceiling      int64          `json:"ceiling_bytes,omitempty"` // the user's limit for each rank's device memory; 0: none
	Written      Plan           `json:"written,omitempty"`       // the plan of the job as it is written
	// Remembered are measurements of earlier runs of the job, the newest first; Unsure those
	// with other code: see priors.
	Remembered []memory.Measurement `json:"remembered,omitempty"`
	Unsure     []memory.Measurement `json:"unsure,omitempty"`
	// Recalled is the plan of an earlier run with which attempt 0 ran in place of Written.
	Recalled *Recalled `json:"recalled,omitempty"`
	// Pipeline: DeepSpeed trains the model as a pipeline, which supports ZeRO 1 only.
	Pipeline   bool       `json:"pipeline,omitempty"`
	Resumption Resumption `json:"resumption,omitzero"`
	Loss       Loss       `json:"loss,omitzero"`
}

// A Resumption says what happens to the samples that a job has seen when it resumes, unless it
// just continues with the next one.
type Resumption struct {
	Data   string          `json:"data,omitempty"`
	Shifts map[Knob]string `json:"shifts,omitempty"` // where a knob was changed since
	// Own: the user said how the job resumes, so that no recipe knows about its data.
	Own bool `json:"own,omitempty"`
	// Exact: the recipe or the user guarantees that the job resumes with the next sample, whatever
	// the micro batch is by then.
	Exact bool `json:"exact,omitempty"`
}

// An Inventory is what there is to work with at one moment. 0 bytes: unknown.
type Inventory struct {
	At          time.Time `json:"at"`
	Accelerator string    `json:"accelerator"` // "cuda" or "cpu"
	BF16        bool      `json:"bf16"`        // the device computes in bfloat16
	// HostAvailable is the free host memory, within cgroup limits; HostTotal what the machine
	// has or a cgroup allows.
	HostAvailable int64               `json:"host_available_bytes,omitempty"`
	HostTotal     int64               `json:"host_total_bytes,omitempty"`
	Device        memory.DeviceMemory `json:"device,omitzero"`           // of each rank
	NVMeFree      int64               `json:"nvme_free_bytes,omitempty"` // below Policy.NVMePath
	Missing       map[Rung]string     `json:"missing,omitempty"`         // parts that rungs need and that are not installed
	// Checkpoint is the newest complete one that this run wrote, and CheckpointWritten when;
	// zero: not known. NoCheckpoint says why none was found where one was expected.
	Checkpoint        string    `json:"checkpoint,omitempty"`
	CheckpointWritten time.Time `json:"checkpoint_written,omitzero"`
	Deadline          time.Time `json:"deadline,omitzero"` // of the run; zero: none is known
	NoCheckpoint      string    `json:"no_checkpoint,omitempty"`
	Node              Node      `json:"node,omitzero"`
}

// An Attempt is one launch of all ranks, as history remembers it.
type Attempt struct {
	N         int       `json:"n"`
	Plan      Plan      `json:"plan"`
	Rung      Rung      `json:"rung,omitempty"` // that led to this plan; empty for the first
	Diagnosis Diagnosis `json:"diagnosis"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Steps     int       `json:"steps,omitempty"` // training steps that were seen
	Stepping  Stepping  `json:"stepping,omitzero"`
	// Checkpoint is the run's newest complete checkpoint after the attempt, and
	// CheckpointWritten when it was written.
	Checkpoint        string    `json:"checkpoint,omitempty"`
	CheckpointWritten time.Time `json:"checkpoint_written,omitzero"`
	Stuck             *Stuck    `json:"stuck,omitempty"`
	StopSignal        int       `json:"stop_signal,omitempty"` // by which a user stopped gpurun
	CutShort          string    `json:"cut_short,omitempty"`   // see Evidence.CutShort
	Observed          Plan      `json:"observed,omitempty"`    // reported by the job; absent: not known
	// From is the checkpoint that the attempt started from. Fresh: the job started from the
	// beginning anyway.
	From  string `json:"from,omitempty"`
	Fresh bool   `json:"fresh,omitempty"`
	// Climb is the decision for which the attempt was stopped: to continue with a faster plan.
	// Kept says why the plan was kept where a faster one would fit.
	Climb   *Decision       `json:"climb,omitempty"`
	Kept    string          `json:"kept,omitempty"`
	World   int             `json:"world,omitempty"`   // ranks that the processes saw; 0: not reported
	Alone   int             `json:"alone,omitempty"`   // ranks that trained the whole job each; see Evidence.Alone
	Asked   bool            `json:"asked,omitempty"`   // a process has reported its model
	Refused map[Knob]string `json:"refused,omitempty"` // why the hook did not change a knob
	// Halted: gpurun stopped the ranks because a change had no effect.
	Halted    bool       `json:"halted,omitempty"`
	Nothing   string     `json:"nothing,omitempty"`   // the line by which the job said that it found nothing to do
	Unstepped bool       `json:"unstepped,omitempty"` // the job trained, and its optimizer made no step
	Unstarted *Unstarted `json:"unstarted,omitempty"` // why no rank ran; nil where they did
	// Expected is the predicted need of the plan; nil where nothing predicted it.
	Expected *memory.Prediction   `json:"expected,omitempty"`
	Loss     LossSeen             `json:"loss,omitzero"`
	Measured []memory.Measurement `json:"measured,omitempty"` // see Evidence.Measured
}

// Lasted is how long the attempt ran.
func (a Attempt) Lasted() time.Duration { return a.Ended.Sub(a.Started) }
