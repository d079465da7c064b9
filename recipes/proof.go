package recipes

import (
	"fmt"
	"github.com/gpurun/gpurun/recipes/format"
	"regexp"
	"slices"

	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// shown is what a line of the output shows.
type shown struct {
	format.Proof
	ranks int // that the value counts, which a plan counts one by one
}

// in reads a line of the job's output.
func (p shown) in(line string) (strategy.ObservedSetting, bool) {
	m := p.Line.FindStringSubmatch(line)
	if m == nil {
		return strategy.ObservedSetting{}, false
	}
	v, ok := p.Value(m[1])
	if n, whole := v.Number(); ok && whole && p.ranks > 1 {
		v, ok = strategy.Number(n/p.ranks), n%p.ranks == 0
	}
	return strategy.ObservedSetting{Knob: p.Knob, Value: v, Text: line}, ok
}

// Prover returns what finds in a line of the job's output what the job says of the
// settings that it was given: a value that it uses, that it starts anew although it
// was told to resume, that there was nothing to do. It is nil where the recipe knows
// no such line. A batch that the recipe counts over all ranks is said of them, too.
func (r Recipe) Prover(at Topology) func(line string) (strategy.ObservedSetting, bool) {
	var finders []func(string) (strategy.ObservedSetting, bool)
	for _, p := range r.Proofs {
		if p.Line != nil {
			ranks := 1
			if p.Knob != strategy.GradientAccumulationSteps && r.Knobs[p.Knob].Scope == strategy.ScopeGlobal {
				ranks = at.Sharing()
			}
			finders = append(finders, shown{p, ranks}.in)
		}
	}
	finders = append(finders, saying(r.Resume.Lost, strategy.ObservedSetting{Fresh: true})...)
	finders = append(finders, saying(r.Progress.Nothing, strategy.ObservedSetting{Nothing: true})...)
	if len(finders) == 0 {
		return nil
	}
	return func(line string) (strategy.ObservedSetting, bool) {
		for _, find := range finders {
			if proof, ok := find(line); ok {
				return proof, true
			}
		}
		return strategy.ObservedSetting{}, false
	}
}

// saying finds lines that match an expression, which Parse has compiled once.
func saying(expression string, proof strategy.ObservedSetting) []func(string) (strategy.ObservedSetting, bool) {
	if expression == "" {
		return nil
	}
	re := regexp.MustCompile(expression)
	return []func(string) (strategy.ObservedSetting, bool){func(line string) (strategy.ObservedSetting, bool) {
		said := proof
		said.Text = line
		return said, re.MatchString(line)
	}}
}

// ProofFiles lists globs of files in which the command's job will say what it uses.
func (r Recipe) ProofFiles(cmd Command) []string {
	var globs []string
	for _, p := range r.Proofs {
		if glob, known := filled(format.NewDraft(r.Recipe, cmd), p.File); p.File != "" && known && !slices.Contains(globs, glob) {
			globs = append(globs, glob)
		}
	}
	return globs
}

// ProofFile reads a file that one of those globs matches: the values that the
// framework says it uses.
func (r Recipe) ProofFile(cmd Command, glob string, text []byte) []strategy.ObservedSetting {
	var proofs []strategy.ObservedSetting
	for _, p := range r.Proofs {
		own, known := filled(format.NewDraft(r.Recipe, cmd), p.File)
		format, readable := patch.FormatOf(glob, text)
		if p.File == "" || !known || !readable || own != glob {
			continue
		}
		word, found, err := patch.Get(format, text, p.Path)
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
