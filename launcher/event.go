package launcher

import (
	"encoding/json"
	"fmt"
	"maps"
	"reflect"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// An Event is one thing that happened in a run. Events are journaled before gpurun acts on them, and shown to
// the user in the same order.
type Event interface{ kind() string }

// Began opens or resumes a run.
type Began struct {
	Run     string `json:"run"`
	Name    string `json:"name"`
	Version string `json:"version"` // of gpurun
	// Digest identifies the job.
	Digest string `json:"digest"`
	// Files are the configuration files that the command names, as SHA-256 in hexadecimal by name, and the
	// variables that the job's source reads, as keyed digests by "$NAME".
	Files  map[string]string `json:"files,omitempty"`
	Recipe string            `json:"recipe"`
	Python string            `json:"python,omitempty"`
	// PythonBy is the place where the user names that interpreter, or could: "command" for the typed command,
	// "--python", or a key of train.toml such as "job.python".
	PythonBy string          `json:"python_by,omitempty"`
	Place    string          `json:"place,omitempty"`
	Policy   strategy.Policy `json:"policy"`
	Job      strategy.Job    `json:"job"`
	Plan     strategy.Plan   `json:"plan"`
	// Tracked is the run's name for experiment trackers.
	Tracked string `json:"tracked,omitempty"`
	// Scheduler is the scheduler's name for the job, the same after a restart. Restart counts the restarts
	// before this process began.
	Scheduler string    `json:"scheduler,omitempty"`
	Restart   int       `json:"restart,omitempty"`
	At        time.Time `json:"at"` // when this process began
}

// Started: an attempt is about to be launched.
type Started struct {
	N          int             `json:"n"`
	Plan       strategy.Plan   `json:"plan"`
	Remedy     strategy.Remedy `json:"rung,omitempty"`
	Checkpoint string          `json:"checkpoint,omitempty"`
	// Arguments are the settings by which the plan changes knobs that only names suggest.
	Arguments strategy.Arguments `json:"arguments,omitempty"`
	Written   time.Time          `json:"checkpoint_written,omitzero"`
	Rescue    bool               `json:"rescue,omitempty"` // it follows a failure
	// Expected is the prediction for the plan; nil without one.
	Expected *memory.Prediction `json:"expected,omitempty"`
	// InPlace are the remedies that processes may take in the step that runs out of memory; nil: none.
	InPlace *strategy.InPlaceOrders `json:"in_place,omitempty"`
	Dir     string                  `json:"dir"`
	Command strategy.Command        `json:"command"`
	At      time.Time               `json:"at,omitzero"`
	Diff    string                  `json:"-"` // for people; diff.patch keeps it
}

// InPlace: a rank did a step again that had run out of memory. Later repeats of the same kind are one more event
// each time that their number has doubled, and one at the attempt's end.
type InPlace struct {
	N int `json:"n"` // the attempt
	strategy.InPlace
	More int `json:"more"` // how many repeats no earlier event has
}

// Exited: all ranks of an attempt have ended, and gpurun begins to wait for processes that they left behind.
// With it the attempt's end is known even if gpurun is killed meanwhile. It is written if the ranks ended
// well or ran out of memory.
type Exited struct {
	Evidence strategy.Evidence `json:"evidence"` // up to then
}

// Ended: an attempt is over. It has all evidence.
type Ended struct {
	Evidence strategy.Evidence `json:"evidence"`
}

// Decided is the decision after the last attempt.
type Decided struct {
	Diagnosis strategy.Diagnosis `json:"diagnosis"`
	Decision  strategy.Decision  `json:"decision"`
	Inventory strategy.Inventory `json:"inventory"`
	// Conditions is a digest of everything besides the job that the end of the run depends on: another run
	// under the same conditions would end the same. Empty if that is not certain.
	Conditions string `json:"conditions,omitempty"`
	// GPUTime is that of the run up to here; nil from an earlier version.
	GPUTime *strategy.GPUTime `json:"gpu_time,omitempty"`
}

// SpedUp is the decision to relaunch with a faster plan. It is written before the attempt's ranks are
// stopped for that, with everything that the decision depends on besides the earlier attempts.
type SpedUp struct {
	Attempt   strategy.Attempt   `json:"attempt"` // at that time
	Decision  strategy.Decision  `json:"decision"`
	Inventory strategy.Inventory `json:"inventory"`
}

// Noticed is a message to the user.
type Noticed struct {
	Text string `json:"text"`
}

// Finished closes a run.
type Finished struct {
	Verdict Verdict `json:"verdict"`
	// Since is when the run's latest gpurun began, and Started how many attempts were started. With them, a
	// program can list a run by the ends of its journal. They are zero in one of an earlier version.
	Since   time.Time `json:"since,omitzero"`
	Started int       `json:"started,omitempty"`
}

func (Began) kind() string    { return "began" }
func (Started) kind() string  { return "started" }
func (InPlace) kind() string  { return "in_place" }
func (Exited) kind() string   { return "exited" }
func (Ended) kind() string    { return "ended" }
func (Decided) kind() string  { return "decided" }
func (SpedUp) kind() string   { return "climbed" }
func (Noticed) kind() string  { return "noticed" }
func (Finished) kind() string { return "finished" }

// eventKinds maps each kind of event to its type.
var eventKinds = map[string]reflect.Type{}

func init() {
	for _, e := range []Event{Began{}, Started{}, InPlace{}, Exited{}, Ended{}, Decided{}, SpedUp{}, Noticed{},
		Finished{}} {
		eventKinds[e.kind()] = reflect.TypeOf(e)
	}
}

// EventTypes returns the type of each kind of event.
func EventTypes() map[string]reflect.Type { return maps.Clone(eventKinds) }

// journalVersion is raised when the meaning of a line changes.
const journalVersion = 2

type envelope struct {
	Version int             `json:"v"`
	Kind    string          `json:"kind"`
	Time    time.Time       `json:"time"`
	Event   json.RawMessage `json:"event"`
}

// Encode writes an event as one line of JSON, without the line's end.
func Encode(e Event, at time.Time) ([]byte, error) {
	body, err := json.Marshal(e)
	if err != nil {
		return nil, fmt.Errorf("encode the event %q: %w", e.kind(), err)
	}
	return json.Marshal(envelope{Version: journalVersion, Kind: e.kind(), Time: at, Event: body})
}

// Decode reads what Encode wrote.
func Decode(line []byte) (Event, time.Time, error) {
	var env envelope
	if err := json.Unmarshal(line, &env); err != nil {
		return nil, time.Time{}, fmt.Errorf("decode an event: %w", err)
	}
	switch {
	case env.Version > journalVersion:
		return nil, env.Time, fmt.Errorf("decode an event: version %d is newer than this gpurun", env.Version)
	case env.Version < journalVersion:
		return nil, env.Time, fmt.Errorf("decode an event: this gpurun does not read version %d", env.Version)
	}
	kind, known := eventKinds[env.Kind]
	if !known {
		return nil, env.Time, fmt.Errorf("decode an event: unknown kind %q", env.Kind)
	}
	e := reflect.New(kind)
	if err := json.Unmarshal(env.Event, e.Interface()); err != nil {
		return nil, env.Time, fmt.Errorf("decode the event %q: %w", env.Kind, err)
	}
	return e.Elem().Interface().(Event), env.Time, nil
}
