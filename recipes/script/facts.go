// Package script reads a job's command and source: the framework, and, if no recipe knows the
// script, which of its arguments or configuration keys are knobs. The job's interpreter parses
// the source (facts/, which imports nothing of the job's); the conclusions are drawn here.
package script

import (
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
)

// The parts of the program, each of which is read after those before it.
var (
	//go:embed facts/files.py
	filesPart string
	//go:embed facts/sources.py
	sourcesPart string
	//go:embed facts/conditions.py
	conditionsPart string
	//go:embed facts/values.py
	valuesPart string
	//go:embed facts/settings.py
	settingsPart string
	//go:embed facts/training.py
	trainingPart string
	//go:embed facts/rows.py
	rowsPart string
	//go:embed facts/loss.py
	lossPart string
	//go:embed facts/loops.py
	loopsPart string
)

// Program is the Python program that an interpreter runs for a request, with Input on its
// standard input; its output is for Read. It needs Python 3.8. The parts for deep requests are
// omitted otherwise: to compile them would take longer than to read most scripts.
func (r SourceRequest) Program() string {
	parts := []string{filesPart}
	if r.Deep {
		parts = append(parts, sourcesPart, conditionsPart, valuesPart, settingsPart, trainingPart, rowsPart, lossPart, loopsPart)
	}
	return strings.Join(append(parts, programEnd), "\n\n")
}

const programEnd = "if __name__ == \"__main__\":\n    main()\n"

// A SourceRequest is the input of Program.
type SourceRequest struct {
	// Sources are the script, then its local modules.
	Sources []format.Source
	// Names are functions, by their last names, whose calls are listed in addition to those of
	// classes.
	Names []string
	// Deep: also report the conclusions from all the sources together.
	Deep bool
	// Seconds is the limit of its processor time; its findings until then are the result.
	Seconds float64
}

// Input is the request in the form that Program reads.
func (r SourceRequest) Input() ([]byte, error) {
	type file struct {
		Path string `json:"path"`
		Text string `json:"text"`
	}
	files := make([]file, len(r.Sources))
	for i, s := range r.Sources {
		files[i] = file{s.Path, string(s.Text)}
	}
	return json.Marshal(map[string]any{"sources": files, "names": r.Names, "deep": r.Deep, "seconds": r.Seconds})
}

// A SourceReading is the result of a request.
type SourceReading struct {
	Code    format.ScriptCode `json:"files"`
	Facts   *Facts            `json:"facts"`   // nil if they were not requested, or are not known
	Unknown string            `json:"unknown"` // why a part is missing
}

// Facts are the relevant statements and expressions of all sources together.
type Facts struct {
	Settings   []Argument `json:"settings"`
	Loaders    []loader   `json:"loaders"`
	Gates      []gate     `json:"gates"`
	Conditions []use      `json:"conditions"`
	Steps      []use      `json:"steps"`
	Losses     []use      `json:"losses"`
	Rates      []use      `json:"rates"`
	Schedules  []use      `json:"schedules"`
	Bounds     []use      `json:"bounds"`
	Asserts    []use      `json:"asserts"`
	Files      []use      `json:"files"` // that are read as configurations
	// Overlays are files that give arguments: defaults (kind default), or later changes (over).
	Overlays []use `json:"overlays"`
	// Dotted: words a.b=c of the command override the files.
	Dotted      bool      `json:"dotted"`
	Checkpoints []use     `json:"checkpoints"`
	Unlike      []use     `json:"unlike"`
	Trained     []trained `json:"trained"`
	Draws       []use     `json:"draws"` // of random numbers, for each micro batch
	Saves       []use     `json:"saves"`
	Loads       []use     `json:"loads"`
	Made        []use     `json:"made"`
	Split       []use     `json:"split"`
	Backwards   []use     `json:"backwards"`
	Restores    bool      `json:"restores"` // an optimizer's state is loaded
	Hydra       *hydra    `json:"hydra"`
	// Counted are the numbers of words of the command that the code asks for.
	Counted []int `json:"counted"`
	Modules int   `json:"modules"`
	// Unread is why only the settings and the loaders were read; empty: all was.
	Unread string `json:"unread"`
}

// A location is a line of a source.
type location struct {
	File string `json:"file"`
	Line int    `json:"line"`
}

func (p location) String() string { return fmt.Sprintf("%s:%d", p.File, p.Line) }

// An Argument is an argument, or a field of a class that is read from the command line.
type Argument struct {
	location
	ID      int      `json:"id"`
	Kind    string   `json:"kind"` // "argparse", "hf", "click" …
	Options []string `json:"options"`
	Dest    string   `json:"dest"`
	Type    string   `json:"type"`
	Action  string   `json:"action"`
	Nargs   string   `json:"nargs"`
	Help    string   `json:"help"`
	Default any      `json:"default"`
	Known   bool     `json:"known"` // the default is a literal, or there is none
	Read    bool     `json:"read"`
	Flag    bool     `json:"flag"`
	Idle    bool     `json:"idle"` // the command does not have it: only code reads it that does not run
}

// A use is a value in the sources. A schedule sets the learning rate for each batch (kind batch),
// or is a number that makes a schedule: computed from the number of batches (batches), or not
// (length). An unlike makes a batch more than the sum of its samples.
type use struct {
	location
	ID      int      `json:"id"`     // of a statement that a gate may cover; 0: none
	Covers  []int    `json:"covers"` // the statements that depend on it
	Text    string   `json:"text"`
	Kind    string   `json:"kind"`
	Call    string   `json:"call"`
	Op      string   `json:"op"`
	Counter string   `json:"counter"`
	Keys    []string `json:"keys"`
	Value   value    `json:"value"`
	Path    value    `json:"path"`
	Of      []int    `json:"of"` // the settings that it may change; nil: all
	// Branches are the conditions under which it runs, of an optimizer's step, of what loads a file, and of what makes a
	// batch more than its samples.
	Branches []branch `json:"branches"`
}

type loader struct {
	location
	Kind     string `json:"kind"`
	Target   string `json:"target"`
	Function string `json:"function"`
	Data     string `json:"data"`
	Sampler  string `json:"sampler"`
	Shuffle  *bool  `json:"shuffle"`
	Role     string `json:"role"`
	Loop     string `json:"loop"` // "train" or "other": what reads its batches, if it is known
	Batch    value  `json:"batch"`
	Sliced   bool   `json:"sliced"` // the batch is the width of the slices of a training loop, whatever its name is
	Workers  value  `json:"workers"`
	// Branches are the conditions of its function under which it is made.
	Branches []branch `json:"branches"`
}

// A branch is a condition, and whether it holds where some code runs.
type branch struct {
	Test  value  `json:"test"`
	Text  string `json:"text"`
	Holds bool   `json:"holds"`
	// Before: the code would have ended before, if it held.
	Before bool `json:"before"`
}

// A gate decides when an optimizer makes its step.
type gate struct {
	use
	Counters    []string `json:"counters"`
	Local       bool     `json:"local"`
	Accumulates bool     `json:"accumulates"`
}

// A trained is an expression that is backpropagated as a loss.
type trained struct {
	location
	Kind string  `json:"kind"` // "mean", "masked", "sum", "pairs", "unknown", "data", "handed"
	Text string  `json:"text"` // its form, or why it is not a plain mean
	By   []value `json:"by"`   // its divisors
	// Least are the divisors that all of its parts have.
	Least []value `json:"least"`
	Root  string  `json:"root"`  // "backward", "engine", "training_step", "compute_loss", "forward"
	At    int     `json:"at"`    // the line on which it is backpropagated
	Sized bool    `json:"sized"` // divided by a number that follows from the size of a micro batch
}

type hydra struct {
	File   string  `json:"file"`
	Folder *string `json:"folder"`
	Name   *string `json:"name"`
}

// A value is an expression in which names have been resolved. One of the fields is set: an
// argument, a literal, an unknown name, an operation, several possible values, a key of a file, a
// key of Hydra's configuration.
type value struct {
	Set     *int          `json:"set"`
	Const   pythonLiteral `json:"const"`
	Name    string        `json:"name"`
	Op      string        `json:"op"`
	Of      []value       `json:"of"`
	Any     []value       `json:"any"`
	File    *value        `json:"file"`
	Path    []string      `json:"path"`
	Hydra   []string      `json:"hydra"`
	Default any           `json:"default"`
	// Pairs: words KEY VALUE of the command override the file.
	Pairs bool `json:"pairs"`
	// Under is the value where the file has no such key: another file, or a default.
	Under *value `json:"under"`
	// When are the conditions under which the code gives it, as far as they are known.
	When []branch `json:"when"`

	found *target // what a name stands for
}

// A pythonLiteral is a literal, which can be None, or nothing.
type pythonLiteral struct {
	known bool
	value any
}

// UnmarshalJSON is also called for null, which is None.
func (l *pythonLiteral) UnmarshalJSON(text []byte) error {
	l.known = true
	return json.Unmarshal(text, &l.value)
}

// Read reads the output of Program: its last line, because a sitecustomize may have printed
// before.
func Read(printed []byte) (SourceReading, error) {
	text := strings.TrimSpace(string(printed))
	var r SourceReading
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &r); err != nil {
		return SourceReading{}, fmt.Errorf("read the output of the script's reader: %w", err)
	}
	if len(r.Code) == 0 {
		r.Code = nil
	}
	return r, nil
}

// alternatives lists all possible values.
func (v value) alternatives() []value {
	if v.Any == nil {
		return []value{v}
	}
	var all []value
	for _, one := range v.Any {
		all = append(all, one.alternatives()...)
	}
	return all
}

// none reports whether the value is the literal None.
func (v value) none() bool { return v.Const.known && v.Const.value == nil }

// holds reports whether some part of the value satisfies a condition.
func (v value) holds(want func(value) bool) bool {
	if want(v) {
		return true
	}
	inner := func(part value) bool { return part.holds(want) }
	return slices.ContainsFunc(v.Of, inner) || slices.ContainsFunc(v.Any, inner)
}
