package script

import (
	"cmp"
	_ "embed"
	"encoding/json"
	"fmt"
	"slices"
	"strings"
	"unicode/utf8"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// The parts of the program for a patch, which are read after those for a deep request.
var (
	//go:embed facts/changes.py
	changesPart string
	//go:embed facts/accumulate.py
	accumulatePart string
	//go:embed facts/patched.py
	patchedPart string
)

// A PatchPart is something that a patch adds to a script.
type PatchPart string

const (
	PatchBatch        PatchPart = "batch"        // an argument for the batch size
	PatchAccumulation PatchPart = "accumulation" // an argument for the accumulation of gradients
	PatchResume       PatchPart = "resume"       // an argument for a checkpoint to continue from
)

// A Patch adds arguments to a script without changing the training with their defaults.
type Patch struct {
	Added   []PatchPart `json:"added"`
	Missing []Gap       `json:"missing"`
	// Notes are reasons why gpurun does not use an added argument by itself.
	Notes []string `json:"notes,omitempty"`
	Text  []byte   `json:"-"`    // the patched script
	Facts *Facts   `json:"-"`    // what the patched script shows
	Diff  string   `json:"diff"` // unified, for git apply; empty if nothing is added
}

// A Gap is a part that a patch does not have.
type Gap struct {
	Part   PatchPart `json:"part"`
	Reason string    `json:"reason"`
	File   string    `json:"file"`
	Line   int       `json:"line,omitempty"` // 0: none
}

// String is the gap for people.
func (g Gap) String() string {
	if g.Line == 0 {
		return fmt.Sprintf("%s: %s: %s", g.File, g.Part, g.Reason)
	}
	return fmt.Sprintf("%s:%d: %s: %s", g.File, g.Line, g.Part, g.Reason)
}

// lacks lists the parts that the script lacks. One that saves nothing cannot resume.
func (s *Analysis) lacks() []PatchPart {
	var all []PatchPart
	if _, certain := s.Certain(strategy.MicroBatchSize); !certain {
		all = append(all, PatchBatch)
	}
	if _, certain := s.Certain(strategy.GradientAccumulationSteps); !certain {
		all = append(all, PatchAccumulation)
	}
	if s.Resume.Doubt != "" && len(s.facts.Saves) > 0 {
		all = append(all, PatchResume)
	}
	return all
}

// MakePatch adds parts to a script, the first of the sources; the others are its modules. Without
// parts it adds those that the script lacks. ask runs a program of Python with an input, and returns
// its output. A part is added only if its code is
// recognised with certainty, and if the patched script, when it is read again, shows the setting.
func MakePatch(sources []format.Source, parts []PatchPart, ask func(program string, input []byte) ([]byte, error)) (Patch, error) {
	script := sources[0]
	var missing []Gap
	miss := func(part PatchPart, reason string, line int, module string) {
		missing = append(missing, Gap{part, reason, cmp.Or(module, script.Path), line})
		parts = slices.DeleteFunc(slices.Clone(parts), func(p PatchPart) bool { return p == part })
	}
	if !utf8.Valid(script.Text) {
		return Patch{}, fmt.Errorf("change %s: it is not UTF-8", script.Path)
	}
	doubt := ""
	if parts == nil {
		found, err := change(sources, nil, false, ask)
		if err != nil {
			return Patch{}, err
		}
		if parts = []PatchPart{PatchBatch, PatchAccumulation, PatchResume}; found.Reading.Facts != nil {
			s := Decide(*found.Reading.Facts, script.Path, nil, func(string) []byte { return nil })
			parts, doubt = s.lacks(), s.uncertainty(strategy.MicroBatchSize)
		}
		if len(parts) == 0 {
			return Patch{}, nil
		}
	}
	for undivided := false; ; {
		found, err := change(sources, parts, undivided, ask)
		if err != nil {
			return Patch{}, err
		}
		for _, gap := range found.Missing {
			miss(gap.Part, cmp.Or(gap.Reason, doubt, "it is an argument already"), gap.Line, gap.File)
		}
		if len(found.Added) == 0 {
			return Patch{Missing: missing}, nil
		}
		if found.Reading.Facts == nil {
			return Patch{}, fmt.Errorf("read the patched %s: %s", script.Path, found.Reading.Unknown)
		}
		s := Decide(*found.Reading.Facts, script.Path, nil, func(string) []byte { return nil })
		if _, sum := s.facts.sum(nil); sum && !undivided && slices.Contains(found.Added, PatchAccumulation) {
			undivided = true // gradients of sums add up
			continue
		}
		part, reason := PatchAccumulation, found.Summed
		if reason == "" {
			part, reason = s.unread(found.Added)
		}
		if reason == "" {
			p := Patch{Added: found.Added, Missing: missing, Text: []byte(found.Text), Facts: found.Reading.Facts}
			p.Diff = string(format.Unified("a/"+script.Path, script.Text, "b/"+script.Path, p.Text))
			if micro, known := s.Certain(strategy.MicroBatchSize); known && micro.Refusal != "" {
				p.Notes = append(p.Notes, "gpurun does not lower the batch size of the patched script: "+micro.Refusal)
			} else if !known && slices.Contains(p.Added, PatchAccumulation) {
				p.Notes = append(p.Notes, "gpurun does not raise the accumulation of the patched script by itself: the batch size is not certain")
			}
			return p, nil
		}
		miss(part, reason, 0, "")
	}
}

// unread returns an added part that the patched script does not show, and why.
func (s *Analysis) unread(added []PatchPart) (part PatchPart, reason string) {
	for _, part := range []PatchPart{PatchAccumulation, PatchBatch, PatchResume} {
		if !slices.Contains(added, part) {
			continue
		}
		switch part {
		case PatchAccumulation:
			reason = cmp.Or(s.compares(), s.uncertainty(strategy.GradientAccumulationSteps))
			if s.facts.unrelated() {
				reason = "it is not known how the loss follows from a batch"
			}
			if reason == batchUncertain { // the patch divides no batch by it
				reason = ""
			}
		case PatchBatch:
			if _, known := s.Certain(strategy.MicroBatchSize); !known {
				reason = s.uncertainty(strategy.MicroBatchSize)
			}
		case PatchResume:
			reason = s.Resume.Doubt
		}
		if reason != "" {
			return part, reason
		}
	}
	return "", ""
}

// compares is the reason why a smaller micro batch is another training, apart from layers such as
// BatchNorm, which a user can allow; empty if there is none.
func (s *Analysis) compares() string {
	known := *s
	known.facts.Unlike = slices.DeleteFunc(slices.Clone(s.facts.Unlike), func(u use) bool { return u.Kind == "models" || u.Kind == "norm" })
	if micro, certain := s.Certain(strategy.MicroBatchSize); certain && s.unequal(nil, nil) == "" {
		return micro.Refusal
	}
	return known.unequal(nil, nil)
}

// uncertainty is the reason why a knob is not certain or must not change; empty if it can.
func (s *Analysis) uncertainty(k strategy.Knob) string {
	for _, found := range s.Found {
		if found.Knob == k && found.Doubt != "" {
			return found.Doubt
		}
		if found.Knob == k {
			return found.Refusal
		}
	}
	return s.Missing[k]
}

// A changed is the output of the program.
type changed struct {
	Text    string
	Added   []PatchPart
	Missing []struct {
		Part   PatchPart
		Reason string
		Line   int
		File   string // a module; empty: the script
	}
	Summed  string // why the loss may be a sum, which the patch divides
	Reading SourceReading
}

// change runs the program.
func change(sources []format.Source, parts []PatchPart, undivided bool, ask func(string, []byte) ([]byte, error)) (changed, error) {
	r := SourceRequest{Sources: sources, Deep: true, Seconds: 2}
	input, err := r.Input()
	if err != nil {
		return changed{}, err
	}
	wanted, err := json.Marshal(map[string]any{"parts": append([]PatchPart{}, parts...), "undivided": undivided})
	if err != nil {
		return changed{}, err
	}
	input = slices.Concat([]byte(`{"patch": `), wanted, []byte(", "), input[1:])
	printed, err := ask(PatchProgram(), input)
	if err != nil {
		return changed{}, err
	}
	text := strings.TrimSpace(string(printed))
	var found changed
	if err := json.Unmarshal([]byte(text[strings.LastIndexByte(text, '\n')+1:]), &found); err != nil {
		return changed{}, fmt.Errorf("read the output of the script's patcher: %w", err)
	}
	return found, nil
}

// PatchProgram is the Python program that MakePatch runs.
func PatchProgram() string {
	reader := strings.TrimSuffix(SourceRequest{Deep: true}.Program(), programEnd)
	return strings.Join([]string{reader + changesPart, accumulatePart, patchedPart, strings.Replace(programEnd, "main()", "main(patched)", 1)}, "\n\n")
}
