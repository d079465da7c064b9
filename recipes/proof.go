package recipes

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// A Proof is where it shows which value of a knob the framework really uses: in
// a line of the job's output, or in a file that the framework writes.
type Proof struct {
	Knob strategy.Knob
	// Line matches a line; its first group is the value. Nil: the proof is a file.
	Line *regexp.Regexp
	// File is a path, written as Resume.Latest is, and Path a key in it.
	File, Path string
	// Values are the framework's words for the knob's values; nil: as in the plan.
	Values map[strategy.Value][]any
}

// value understands what a proof shows; false where it says nothing, such as a
// word that the recipe does not know.
func (p Proof) value(word any) (strategy.Value, bool) {
	text := fmt.Sprint(word)
	if p.Knob.Whole() {
		word = strings.ReplaceAll(text, ",", "") // 1,024
	}
	v, err := Place{Values: p.Values}.understand(p.Knob, word)
	return v, err == nil
}

// ProofLine reads a line of the job's output: the value of a knob that the
// framework says it uses.
func (r Recipe) ProofLine(line string) (k strategy.Knob, v strategy.Value, ok bool) {
	for _, p := range r.Proofs {
		if p.Line == nil {
			continue
		}
		if m := p.Line.FindStringSubmatch(line); m != nil {
			if v, ok := p.value(m[1]); ok {
				return p.Knob, v, true
			}
		}
	}
	return "", "", false
}

// ProofFiles lists the files in which the command's job will say what it uses.
func (r Recipe) ProofFiles(cmd Command) []string {
	var files []string
	for _, p := range r.Proofs {
		if name, known := newDraft(r, cmd).filled(p.File); p.File != "" && known {
			files = append(files, name)
		}
	}
	return files
}

// ProofFile reads one of those files: the values that the framework says it uses.
func (r Recipe) ProofFile(cmd Command, name string, text []byte) strategy.Plan {
	plan := strategy.Plan{}
	for _, p := range r.Proofs {
		file, known := newDraft(r, cmd).filled(p.File)
		format, readable := patch.FormatOf(name, text)
		if p.File == "" || !known || !readable || file != name {
			continue
		}
		word, found, err := patch.Get(format, text, p.Path)
		if !found || err != nil {
			continue
		}
		if v, ok := p.value(word); ok {
			plan[p.Knob] = v
		}
	}
	return plan
}

// Contradicted lists the knobs that were changed and that the proof shows with
// another value: the edit did not take effect. A knob without proof is not listed.
func Contradicted(changed strategy.Changes, proved strategy.Plan) []strategy.Knob {
	var lost []strategy.Knob
	for _, k := range strategy.Knobs {
		pair, was := changed[k]
		if v, known := proved[k]; was && known && v != pair[1] {
			lost = append(lost, k)
		}
	}
	return lost
}
