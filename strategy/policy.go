package strategy

import (
	"time"

	"github.com/gpurun/gpurun/strategy/memory"
)

// A Policy lists what the user permits in a run.
type Policy struct {
	Mode        Mode     `json:"mode"`
	MaxAttempts int      `json:"max_attempts"`
	Numerics    Numerics `json:"numerics"`
	// NumericsSaid: the user set Numerics explicitly.
	NumericsSaid bool     `json:"numerics_said,omitempty"`
	Never        []string `json:"never,omitempty"` // remedies or knobs that must not change
	NVMePath     string   `json:"nvme_path,omitempty"`
	// TransientRetries is the budget for transient failures, such as a lost network. Progress
	// between two of them refills it.
	TransientRetries int `json:"transient_retries"`
	// Restarts is the budget for failures of the job itself (torchrun's --max-restarts), with the
	// same plan each time.
	Restarts int `json:"restarts"`
	// RestartFromZero is the work that may be repeated without a checkpoint.
	RestartFromZero Seconds `json:"restart_from_zero_seconds"`
	Prefer          Prefer  `json:"prefer,omitempty"`
	// Speedup lets a run speed up, once, if a faster plan fits.
	Speedup bool `json:"climb,omitempty"`
	// InPlace lets processes do a step again that ran out of memory.
	InPlace bool `json:"in_place,omitempty"`
	// Tune lets processes look for the fastest exact way to do their steps after one was done again.
	Tune bool `json:"tune,omitempty"`
	// Questions is how long a failed process may be asked about its model before it ends; 0: not at all.
	Questions Seconds `json:"questions_seconds,omitempty"`
	// ExitCodes are what the job asks for by its own exit codes.
	ExitCodes map[string]ExitAnswer `json:"exit_codes,omitempty"`
}

// An ExitAnswer is what an exit code of the job asks for.
type ExitAnswer string

// Requeue ends the run with 75, NoRetry with 1; RetryExit runs the same plan again, under the budget for transient
// failures.
const (
	Requeue   ExitAnswer = "requeue"
	NoRetry   ExitAnswer = "no-retry"
	RetryExit ExitAnswer = "retry"
)

// ExitAnswers are the words in their order.
var ExitAnswers = []string{string(Requeue), string(NoRetry), string(RetryExit)}

// A Mode is the way in which the next plan is found.
type Mode string

// The modes. Predict falls back to the order of remedies if too little is known.
const (
	Predict Mode = "predict"
	Ladder  Mode = "ladder"
	Off     Mode = "off"
)

// Prefer decides among plans that fit.
type Prefer string

// The preferences. ExactFirst tries plans that train the same before those that are equal on
// average, and takes the fastest of each. Speed ignores this difference. Tree takes the first in
// the order of remedies. An empty one is ExactFirst.
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

// Numerics limits the changes to the computation.
type Numerics string

// Preserve keeps dtypes and optimizer; MixedPrecision allows autocast; Any also allows another
// optimizer and sequence length.
const (
	Preserve       Numerics = "preserve"
	MixedPrecision Numerics = "mixed-precision"
	Any            Numerics = "any"
)

// A Job has the facts about the job on which Decide depends.
type Job struct {
	Knobs        map[Knob]Range `json:"knobs"` // absent ones cannot be changed
	Ranks        int            `json:"ranks"`
	LocalRanks   int            `json:"local_ranks"`
	DataParallel int            `json:"data_parallel"`
	Ceiling      int64          `json:"ceiling_bytes,omitempty"` // the user's limit for each rank's device memory; 0: none
	Written      Plan           `json:"written,omitempty"`       // the plan of the job as it is written
	// Remembered are measurements of earlier runs of the job, the newest first; see priors.
	Remembered []memory.Measurement `json:"remembered,omitempty"`
	// Recalled is the plan of an earlier run with which attempt 0 ran in place of Written.
	Recalled *Recalled `json:"recalled,omitempty"`
	// Armed are the remedies in place that an earlier run needed.
	Armed *ArmedPlan `json:"armed,omitempty"`
	// NotInside is the reason why gpurun's hook must not change anything in the job's processes;
	// empty: it may.
	NotInside  string     `json:"not_inside,omitempty"`
	Resumption Resumption `json:"resumption,omitzero"`
	Loss       Loss       `json:"loss,omitzero"`
}

// A Resumption describes the effect of a resume on the samples that a job has seen, unless the
// job continues with the next one.
type Resumption struct {
	Data   string          `json:"data,omitempty"`
	Shifts map[Knob]string `json:"shifts,omitempty"` // for knobs that changed since
	// Own: the user gave the way in which the job resumes, so no recipe knows about its data.
	Own bool `json:"own,omitempty"`
	// Exact: the recipe or the user guarantees that the job resumes with the next sample, for any
	// micro batch.
	Exact bool `json:"exact,omitempty"`
}

// An Inventory lists the resources at one moment. 0 bytes: unknown.
type Inventory struct {
	At          time.Time `json:"at"`
	Accelerator string    `json:"accelerator"` // "cuda" or "cpu"
	BF16        bool      `json:"bf16"`        // the device computes in bfloat16
	// HostAvailable is the free host memory, within cgroup limits; HostTotal the memory of the
	// machine or the limit of a cgroup.
	HostAvailable int64               `json:"host_available_bytes,omitempty"`
	HostTotal     int64               `json:"host_total_bytes,omitempty"`
	Device        memory.DeviceMemory `json:"device,omitzero"`           // of each rank
	NVMeFree      int64               `json:"nvme_free_bytes,omitempty"` // below Policy.NVMePath
	// parts that remedies need and that are not installed
	Missing map[Remedy]string `json:"missing,omitempty"`
	// Checkpoint is the newest complete one that this run wrote, and CheckpointWritten its time;
	// zero: not known. NoCheckpoint is the reason why none was found though one was expected.
	Checkpoint        string    `json:"checkpoint,omitempty"`
	CheckpointWritten time.Time `json:"checkpoint_written,omitzero"`
	Deadline          time.Time `json:"deadline,omitzero"` // of the run; zero: none is known
	NoCheckpoint      string    `json:"no_checkpoint,omitempty"`
	Node              Node      `json:"node,omitzero"`
}

// An Attempt is one launch of all ranks, as recorded in the history.
type Attempt struct {
	N         int       `json:"n"`
	Plan      Plan      `json:"plan"`
	Remedy    Remedy    `json:"rung,omitempty"` // the remedy that led to this plan; empty for the first
	Diagnosis Diagnosis `json:"diagnosis"`
	Started   time.Time `json:"started"`
	Ended     time.Time `json:"ended"`
	Steps     int       `json:"steps,omitempty"` // training steps that were seen
	Stepping  Stepping  `json:"stepping,omitzero"`
	// Checkpoint is the run's newest complete checkpoint after the attempt, and CheckpointWritten
	// its time.
	Checkpoint        string    `json:"checkpoint,omitempty"`
	CheckpointWritten time.Time `json:"checkpoint_written,omitzero"`
	Stuck             *Stuck    `json:"stuck,omitempty"`
	StopSignal        int       `json:"stop_signal,omitempty"` // by which a user stopped gpurun
	CutShort          string    `json:"cut_short,omitempty"`   // see Evidence.CutShort
	Observed          Plan      `json:"observed,omitempty"`    // reported by the job; absent: not known
	// Arguments are the likely settings by which the plan was changed, Parsed the values of such settings that
	// the processes reported.
	Arguments Arguments        `json:"arguments,omitempty"`
	Parsed    map[string]Value `json:"parsed,omitempty"`
	// From is the checkpoint that the attempt started from. Fresh: the job started from the
	// beginning anyway.
	From  string `json:"from,omitempty"`
	Fresh bool   `json:"fresh,omitempty"`
	// Speedup is the decision to continue with a faster plan, for which the attempt was stopped.
	// Kept is the reason why the plan was kept though a faster one would fit.
	Speedup *Decision       `json:"climb,omitempty"`
	Kept    string          `json:"kept,omitempty"`
	World   int             `json:"world,omitempty"`   // ranks that the processes saw; 0: not reported
	Alone   int             `json:"alone,omitempty"`   // ranks that trained the whole job each; see Evidence.Alone
	Asked   bool            `json:"asked,omitempty"`   // a process has reported its model
	Refused map[Knob]string `json:"refused,omitempty"` // why the hook did not change a knob
	// Halted: gpurun stopped the ranks because a change had no effect.
	Halted    bool       `json:"halted,omitempty"`
	Nothing   string     `json:"nothing,omitempty"`   // the line in which the job reported that it found nothing to do
	Unstepped bool       `json:"unstepped,omitempty"` // the job trained, and its optimizer made no step
	Unstarted *Unstarted `json:"unstarted,omitempty"` // why no rank ran; nil where they did
	// Expected is the predicted need of the plan; nil: no prediction.
	Expected *memory.Prediction   `json:"expected,omitempty"`
	Loss     LossSeen             `json:"loss,omitzero"`
	Measured []memory.Measurement `json:"measured,omitempty"` // see Evidence.Measured
	InPlace  []InPlace            `json:"in_place,omitempty"`
	// InPlaceRefused is the latest error of memory that a process did not answer in place.
	InPlaceRefused *InPlaceRefusal `json:"in_place_refused,omitempty"`
}

// Lasted returns the duration of the attempt; 0 if the clock was put back meanwhile.
func (a Attempt) Lasted() time.Duration { return max(a.Ended.Sub(a.Started), 0) }
