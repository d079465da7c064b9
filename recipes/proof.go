package recipes

import (
	"fmt"
	"regexp"
	"slices"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// A lineReader reads a line of the job's output.
type lineReader func(line string) (strategy.ObservedSetting, bool)

// Prover returns a reader of the lines that show which settings the job uses: a value, a start
// from scratch instead of a resume, nothing to do. It is nil if the recipe knows no such line. A
// batch that the recipe counts over all ranks is read as theirs.
func (r Recipe) Prover(at Topology) func(line string) (strategy.ObservedSetting, bool) {
	var readers []lineReader
	for _, p := range r.Proofs {
		if p.Line != nil {
			ranks := 1
			if countsAll(p.Knob, r.Knobs[p.Knob]) {
				ranks = at.Sharing()
			}
			readers = append(readers, valueLine(p, ranks))
		}
	}
	for _, fixed := range []struct {
		expression string
		shown      strategy.ObservedSetting
	}{{r.Resume.Lost, strategy.ObservedSetting{Fresh: true}}, {r.Progress.Nothing, strategy.ObservedSetting{Nothing: true}}} {
		if fixed.expression != "" {
			re := regexp.MustCompile(fixed.expression) // Parse has already compiled it
			readers = append(readers, func(line string) (strategy.ObservedSetting, bool) {
				fixed.shown.Text = line
				return fixed.shown, re.MatchString(line)
			})
		}
	}
	if len(readers) == 0 {
		return nil
	}
	return func(line string) (strategy.ObservedSetting, bool) {
		for _, read := range readers {
			if shown, ok := read(line); ok {
				return shown, true
			}
		}
		return strategy.ObservedSetting{}, false
	}
}

// valueLine reads a value that counts this number of ranks, while a plan counts one.
func valueLine(p format.Proof, ranks int) lineReader {
	return func(line string) (strategy.ObservedSetting, bool) {
		m := p.Line.FindStringSubmatch(line)
		if m == nil {
			return strategy.ObservedSetting{}, false
		}
		v, ok := p.Value(m[1])
		if n, whole := v.Number(); ok && whole && ranks > 1 {
			v, ok = strategy.Number(n/ranks), n%ranks == 0
		}
		return strategy.ObservedSetting{Knob: p.Knob, Value: v, Text: line}, ok
	}
}

// ProofFiles lists globs of files in which the command's job will show its settings.
func (r Recipe) ProofFiles(cmd Command) []string {
	var globs []string
	for _, p := range r.Proofs {
		if glob, known := r.proofFile(cmd, p); known && !slices.Contains(globs, glob) {
			globs = append(globs, glob)
		}
	}
	return globs
}

func (r Recipe) proofFile(cmd Command, p format.Proof) (glob string, known bool) {
	glob, known = filled(format.NewDraft(r.Recipe, cmd), p.File)
	return glob, known && p.File != ""
}

// ProofFile reads the values that the framework uses from a file that matches one of those globs.
func (r Recipe) ProofFile(cmd Command, glob string, text []byte) []strategy.ObservedSetting {
	var proofs []strategy.ObservedSetting
	for _, p := range r.Proofs {
		own, known := r.proofFile(cmd, p)
		format, readable := edit.FormatOf(glob, text)
		if !known || !readable || own != glob {
			continue
		}
		word, found, err := edit.Get(format, text, p.Path)
		if !found || err != nil {
			continue
		}
		if v, ok := p.Value(word); ok {
			if n, whole := v.Number(); whole && p.Knob == strategy.MicroBatchSize {
				v = strategy.Number(n / spread(r.Recipe, cmd))
			}
			proofs = append(proofs, strategy.ObservedSetting{Knob: p.Knob, Value: v, Text: fmt.Sprintf("%s: %v", p.Path, word)})
		}
	}
	return proofs
}
