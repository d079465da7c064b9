package script

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
)

// evaluation is the batch of the loaders that evaluation reads from.
func (s *Analysis) evaluation(micro *FoundKnob) *FoundKnob {
	const k = strategy.EvalBatchSize
	loaders := slices.DeleteFunc(slices.Clone(s.facts.Loaders), func(l loader) bool { return l.role() != "eval" })
	found, unknown := s.reaching(k, loaders, func(l loader) value { return l.Batch }, "batch size", "size batches of evaluations")
	switch {
	case found == nil || unknown != "":
		return s.miss(k, unknown)
	case micro != nil && found.target.key == micro.target.key:
		return s.miss(k, fmt.Sprintf("evaluation takes the batches of training, %s (%s)", found.Name(), loaders[0].location))
	}
	return found
}

// workers is the number of processes that load data for one rank.
func (s *Analysis) workers() *FoundKnob {
	const k = strategy.DataloaderWorkers
	loaders := slices.DeleteFunc(slices.Clone(s.training()), func(l loader) bool { return l.Workers.Name == "absent" })
	found, unknown := s.reaching(k, loaders, func(l loader) value { return l.Workers }, "workers", "count workers of training")
	if found == nil && (unknown != "" || len(s.like(k)) == 1) {
		found = s.likely(k, cmp.Or(unknown, notFollowed))
	}
	if found == nil {
		return s.miss(k, unknown)
	}
	found.Doubt = cmp.Or(unknown, found.Doubt) // another loader may be the one that trains
	return found
}

// shortestSequence is the least default that a sequence length has.
const shortestSequence = 16

// sequence is the length of a sample. It is recognised by its name alone, because its value goes
// to a hundred places.
func (s *Analysis) sequence() *FoundKnob {
	const k = strategy.SequenceLength
	candidates := slices.DeleteFunc(s.named(k), func(one Argument) bool { // as the side of a block of pixels
		n, isNumber := one.Default.(float64)
		return one.Known && isNumber && n < shortestSequence
	})
	if len(candidates) == 0 {
		return s.miss(k, "")
	}
	found := s.only(k, candidates, "")
	switch {
	case found == nil:
		return s.miss(k, fmt.Sprintf("%s and %s may both be it", candidates[0].Options[0], candidates[1].Options[0]))
	case !candidates[0].Read:
		found.Doubt = "nothing reads it"
	default:
		found.Doubt = s.doubtOf(k, found.target, false)
	}
	return found
}

// ofFiles matches the name of a switch about checkpoints that are files.
var ofFiles = lazy.Regexp(`(?i)save|load|resum|keep|from|best|last|final|overwrite|delete|all_|every`)

// checkpointing is the switch under which activations are computed again.
func (s *Analysis) checkpointing() *FoundKnob {
	const k = strategy.ActivationCheckpointing
	var found *FoundKnob
	for _, u := range s.facts.Checkpoints {
		var targets []target
		u.Value.holds(func(v value) bool {
			if t, ok := s.facts.single(v); ok && t.speaks(k) {
				targets = append(targets, t)
			}
			return false
		})
		for _, t := range targets {
			switch {
			case found == nil:
				found = &FoundKnob{Knob: k, target: t, Why: []string{evidence(t, "decides over "+u.Text, u.location)}, Doubt: s.flagDoubt(t, u)}
			case found.target.key != t.key:
				found.Doubt = fmt.Sprintf("%s and %s both decide over it", found.Name(), t.name())
			}
		}
	}
	if found != nil {
		return found
	}
	flags := slices.DeleteFunc(s.named(k), func(one Argument) bool { return one.switched() == nil || ofFiles().MatchString(one.Dest) })
	if draft := s.only(k, flags, "nothing that recomputes activations was seen to depend on it"); draft != nil {
		return draft
	}
	return s.miss(k, "")
}

// flagDoubt is the reason why a switch may not do what its name suggests.
func (s *Analysis) flagDoubt(t target, u use) string {
	if strings.HasPrefix(t.word(), "no_") || strings.Contains(t.word(), "disable") || u.Value.holds(func(v value) bool { return v.Op == "not" || v.Op == "compare" }) {
		return fmt.Sprintf("%s turns it off (%s)", t.name(), u.location)
	}
	for _, one := range t.settings {
		if one.switched() == nil {
			return t.name() + " is not a plain switch"
		}
	}
	return ""
}

// switchWords are the words for a library's truth values, if they are not bare flags.
var switchWords = map[string][2]any{"fire": {"False", "True"}, "absl": {"false", "true"}, "pyrallis": {"false", "true"}}

// switched are the words that turn a switch off and on; nil for an argument that gpurun cannot
// change.
func (s Argument) switched() map[string]any {
	of := strings.ToLower(s.Type)
	words, written := switchWords[s.Kind]
	if !written {
		words = [2]any{false, true}
	}
	switch {
	case s.Kind != "argparse":
		if of != "bool" || s.Kind == "click" && !s.Flag {
			return nil
		}
	case s.Action == "store_true", strings.HasSuffix(s.Action, "BooleanOptionalAction"):
	case s.Action != "" && s.Action != "store":
		return nil
	case of == "int" && (s.Default == 0.0 || s.Default == 1.0):
		words = [2]any{int64(0), int64(1)}
	case strings.Contains(of, "bool") && of != "bool", of == "eval":
		words = [2]any{"False", "True"}
	default:
		return nil
	}
	return map[string]any{"none": words[0], "full": words[1]}
}
