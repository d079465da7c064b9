package strategy

// A Said is what a rank's own process says of itself: what it really runs with, what
// could be turned from inside and what was. The newest of a process counts.
type Said struct {
	PID int `json:"pid"`
	// World is the number of ranks that the process sees, 0 where it has no process
	// group.
	World int `json:"world,omitempty"`
	// Settings are what the process runs with after all changes; what is not certain is
	// absent. By says which part of the process told each: "transformers.TrainingArguments".
	Settings Plan            `json:"settings,omitempty"`
	By       map[Knob]string `json:"told_by,omitempty"`
	// Refused says why a knob cannot be turned from inside: "the model is compiled".
	Refused map[Knob]string `json:"refused,omitempty"`
	// Applied is what was turned from inside, and Failed what should have been and
	// was not, with the reason.
	Applied Changes         `json:"applied,omitempty"`
	Failed  map[Knob]string `json:"failed,omitempty"`
	// Model says that the root module was called: Refused is complete from then on.
	Model *Model `json:"model,omitempty"`
	// Waiting says that the process waits before its first optimizer step, until all
	// ranks have said what they run with.
	Waiting bool `json:"waiting,omitempty"`
	// Stepping says that the process has come to its first optimizer step.
	Stepping bool `json:"stepping,omitempty"`
	// TotalSteps is the number of optimizer steps that the job has, 0 if unknown.
	TotalSteps int `json:"total_steps,omitempty"`
	// Loss is what the process found out of its loss; nil: nothing yet.
	Loss *LossSeen `json:"loss,omitempty"`
}

// A Model is the root module that a process trains.
type Model struct {
	Class      string `json:"class"`
	Parameters int64  `json:"parameters"` // their number
	Trainable  int64  `json:"trainable,omitempty"`
	// Bytes are those of the parameters by dtype: "float32".
	Bytes  map[string]int64 `json:"bytes,omitempty"`
	Blocks []Blocks         `json:"blocks,omitempty"`
	// Switch is the model's own method for activation checkpointing, empty for none.
	Switch   string `json:"switch,omitempty"`
	Compiled bool   `json:"compiled,omitempty"`
}

// Blocks is a list of repeated modules of one class.
type Blocks struct {
	Path  string `json:"path"` // "transformer.h"
	Class string `json:"class"`
	Count int    `json:"count"`
}
