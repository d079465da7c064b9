package strategy

import (
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A Fact is one observation.
type Fact struct {
	Time time.Time `json:"time"`
	// Again is the time after Time at which a finding changed its state; zero: never.
	Again time.Time `json:"again,omitzero"`
	// Rank is the global rank, -1 for a node or the job.
	Rank int `json:"rank"`
	// Source is the observer: "stdout", "stderr", "error.json", "exit", "cgroup", "nvml",
	// "probe", "gpurun".
	Source string `json:"source"`
	// Content is what was observed. In JSON it is a field with the name of its kind.
	Content Content `json:"-"`
}

// Reporter names the source of the fact for people.
func (f Fact) Reporter() string {
	if f.Source == "probe" {
		return "gpurun's hook"
	}
	return f.Source
}

// WithText returns the fact with the job's own text in it changed, such as by masking its secrets.
func (f Fact) WithText(change func(string) string) Fact {
	if f.Finding() == nil {
		return f
	}
	finding := Finding(*f.Finding())
	finding.Text, finding.Traceback = change(finding.Text), slices.Clone(finding.Traceback)
	for i, line := range finding.Traceback {
		finding.Traceback[i] = change(line)
	}
	f.Content = &finding
	return f
}

// An Exit is the end of one rank's process.
type Exit struct {
	Code   int `json:"code"`             // 0–255; 128+n where a signal ended it
	Signal int `json:"signal,omitempty"` // that ended the process; 0: none
	// Stopped: gpurun had begun to stop the rank, so code and signal mean nothing.
	Stopped bool `json:"stopped,omitempty"`
	// Shell: the process was a program that starts others, and its code may be the code of any of
	// them.
	Shell bool  `json:"shell,omitempty"`
	Peak  int64 `json:"peak_bytes,omitempty"` // largest resident set; 0: unknown
	PID   int   `json:"pid"`
}

// Signals that point to a cause.
const (
	sigHUP  = 1
	sigINT  = 2
	sigILL  = 4
	sigTRAP = 5
	sigABRT = 6
	sigBUS  = 7
	sigFPE  = 8
	sigKILL = 9
	sigSEGV = 11
	sigPIPE = 13
	sigALRM = 14
	sigTERM = 15
	sigXCPU = 24
	sigXFSZ = 25
	sigSYS  = 31
)

// failed reports whether a rank ended badly without being stopped.
func failed(e *Exit) bool { return !e.Stopped && (e.Code != 0 || signalOf(e) != 0) }

// signalOf returns the signal that ended a process, even if a shell turned it into an exit code.
// Codes beyond the standard signals are more often a program's own.
func signalOf(e *Exit) int {
	if e.Signal == 0 && e.Code > 128 && e.Code <= 128+sigSYS {
		return e.Code - 128
	}
	return e.Signal
}

// Progress sums up the training steps that a rank reported in one attempt.
type Progress struct {
	Steps int `json:"steps"` // lines whose step number differs from the line before
	First int `json:"first"` // number of the first step
	Last  int `json:"last"`
	Total int `json:"total,omitempty"` // steps of the job; 0: unknown
	// Loss is the loss of the last step line with a finite one; nil: none.
	Loss    *float64 `json:"loss,omitempty"`
	Longest Seconds  `json:"longest_seconds,omitempty"`
	For     Seconds  `json:"for_seconds,omitempty"` // from the first step to the last
}

// Kills is a rise of a cgroup's oom_kill counter during the attempt.
type Kills struct {
	Count int64  `json:"count"`
	Group string `json:"group"`
	Limit int64  `json:"limit_bytes,omitempty"` // 0: none
	Peak  int64  `json:"peak_bytes,omitempty"`
}

// A Tenant is memory on a device that none of the job's ranks holds.
type Tenant struct {
	Device string `json:"device"`
	Bytes  int64  `json:"bytes"`
	PIDs   []int  `json:"pids,omitempty"`
}

// Stuck is a process that SIGKILL did not end in time.
type Stuck struct {
	PID     int    `json:"pid"`
	Channel string `json:"wait_channel,omitempty"`
}

// An ObservedSetting was found in the job's output or files: the value of a knob, or one of the
// other fields.
type ObservedSetting struct {
	Knob    Knob   `json:"knob,omitempty"`
	Value   Value  `json:"value,omitempty"`
	Fresh   bool   `json:"fresh,omitempty"`   // the job starts from the beginning
	Nothing bool   `json:"nothing,omitempty"` // the job found nothing to do
	Text    string `json:"text,omitempty"`    // the line, or the name of the file
}

// A Sign is a rank's last sign of life. Zero times mean never.
type Sign struct {
	Output  time.Time `json:"output,omitzero"`           // the last byte that the rank wrote
	Step    time.Time `json:"step,omitzero"`             // its last step
	Others  time.Time `json:"others,omitzero"`           // the last step of any rank
	Longest Seconds   `json:"longest_seconds,omitempty"` // the longest step of any rank
	Steps   int       `json:"steps,omitempty"`           // of all ranks together
	Anyone  time.Time `json:"anyone,omitzero"`           // the last byte that any rank wrote
	Awake   time.Time `json:"awake,omitzero"`            // when the ranks were last resumed after a pause
	// Saved is the time at which the job's checkpoint grew after a rank had reported its end. It
	// belongs to no rank, because the writer is not known.
	Saved time.Time `json:"saved,omitzero"`
}

// A ProcessReport is the report of a rank's process: the values that it runs with, which knobs
// can be changed in it, and which were.
type ProcessReport struct {
	PID   int `json:"pid"`
	World int `json:"world,omitempty"` // ranks of its process group; 0 without one
	// Settings are its values after all changes, without uncertain ones. By names the source of
	// each: "transformers.TrainingArguments".
	Settings Plan            `json:"settings,omitempty"`
	By       map[Knob]string `json:"told_by,omitempty"`
	// Refused is the reason why a knob cannot be changed in the process: "the model is compiled".
	Refused map[Knob]string `json:"refused,omitempty"`
	// Applied lists the changes made in the process; Failed those that were not possible, with
	// the reason.
	Applied Changes         `json:"applied,omitempty"`
	Failed  map[Knob]string `json:"failed,omitempty"`
	// Model is set after the first call of the root module; from then on Refused is complete.
	Model *Model `json:"model,omitempty"`
	// Waiting: before its first optimizer step, the process waits for the reports of all ranks.
	Waiting    bool `json:"waiting,omitempty"`
	Stepping   bool `json:"stepping,omitempty"`    // it has reached its first optimizer step
	TotalSteps int  `json:"total_steps,omitempty"` // optimizer steps of the job; 0: unknown
	// Arguments are the values in the results of the job's parsers, when those returned: whole numbers and truth
	// values, by name. Those of an inner object are "train.batch_size".
	Arguments map[string]Value `json:"arguments,omitempty"`
	Loss      *LossSeen        `json:"loss,omitempty"`
	// InPlace are the steps that it did again after memory had run out in them, InPlaceRefused the
	// latest failure that it did not answer so.
	InPlace        []InPlace       `json:"in_place,omitempty"`
	InPlaceRefused *InPlaceRefusal `json:"in_place_refused,omitempty"`
	// Pressure is memory pressure without an error.
	Pressure *Pressure `json:"pressure,omitempty"`
}

// Asking: a process that reported the error that ends it is asked about its model before it ends, for a time;
// 0: it has answered.
type Asking struct {
	For Seconds `json:"for_seconds"`
}

// A Model is the root module that a process trains.
type Model struct {
	Class      string   `json:"class"`
	Parameters int64    `json:"parameters"` // their number
	Blocks     []Blocks `json:"blocks,omitempty"`
	// Switch is the model's method for activation checkpointing; empty: none.
	Switch   string `json:"switch,omitempty"`
	Compiled bool   `json:"compiled,omitempty"`
}

// Blocks is a list of repeated modules of one class.
type Blocks struct {
	Path  string `json:"path"` // "transformer.h"
	Class string `json:"class"`
	Count int    `json:"count"`
}

// A Call is a keyword argument of a call in the job's code. gpurun's hook changes it when the
// process makes the call.
type Call struct {
	Name    string `json:"call"` // "transformers.TrainingArguments"; includes subclasses
	Keyword string `json:"keyword"`
	Knob    Knob   `json:"knob,omitempty"` // of the keyword; empty: none
	// Where are keyword arguments that select among calls of the name; nil: all calls.
	Where map[string]any `json:"where,omitempty"`
	// From is the argument in the source, a number, string or truth value; nil: unknown. Calls
	// with another value are not changed.
	From any `json:"from"`
	To   any `json:"to"`
}

// A Lost is a node that left the attempt: its machine, network or gpurun is gone. The end of its
// ranks is not known.
type Lost struct {
	Node  int    `json:"node"`
	Host  string `json:"host,omitempty"`
	Why   string `json:"why"`
	Ranks []int  `json:"ranks"`          // global ranks that it ran
	Left  bool   `json:"left,omitempty"` // it announced that it was stopped
	Code  int    `json:"code,omitempty"` // exit code of its NotReady if it could not start its ranks; else 0
}

// NodeName names a node in a sentence: "node 2 (n3)".
func NodeName(node int, host string) string {
	if host == "" {
		return fmt.Sprintf("node %d", node)
	}
	return fmt.Sprintf("node %d (%s)", node, host)
}

// String is "node 2 (n3) was lost: its gpurun is gone".
func (l Lost) String() string { return NodeName(l.Node, l.Host) + " was lost: " + l.Why }

func (l Lost) finding() *cause.Finding {
	f := &cause.Finding{Code: cause.GPUHardware, Weight: cause.WeightCause, Rank: -1,
		Remarks: []cause.Remark{cause.SaysNode}, Text: l.String()}
	switch {
	case l.Left:
		f.Code, f.Remarks = cause.Preempted, nil
	case l.Code != 0:
		f.Code, f.Remarks = cause.Unknown, nil
	}
	return f
}
