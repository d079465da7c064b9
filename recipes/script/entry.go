package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/strategy"
)

// RecipeName is the name of a recipe that was made from a script.
const RecipeName = "own-script"

// Entry describes the knob as an entry of [knobs]; nil for a place without such a form.
func (f FoundKnob) Entry() map[string]any {
	if f.Derived || len(f.target.settings) == 0 && (f.target.path == nil || !f.target.hydra && !f.target.dotted && f.target.nth == 0 && f.target.via == nil) {
		return nil
	}
	entry := f.target.entry()
	if f.Knob == strategy.ActivationCheckpointing {
		return f.switchEntry(entry)
	}
	if n, known := f.target.number(); known && n >= int64(format.Least(f.Knob)) {
		entry["default"] = n
	} else if f.target.settings != nil || f.target.hydra {
		entry["given"] = true // its value is not known otherwise
	}
	return entry
}

// entry describes the place alone.
func (t target) entry() map[string]any {
	switch {
	case t.settings != nil:
		return map[string]any{"arg": argument(t.settings[0].long())}
	case t.hydra, t.dotted && t.via == nil && t.nth == 0:
		return map[string]any{"override": strings.Join(t.path, ".")}
	}
	var vias []any
	if t.via == nil {
		vias = []any{map[string]any{"word": int64(t.nth)}}
	} else {
		for _, name := range t.via.long() {
			vias = append(vias, map[string]any{"arg": name, "any": len(t.via.Options) > 1})
		}
	}
	entry := map[string]any{"path": patch.Join(t.path), "via": vias}
	if t.pairs || t.dotted {
		return map[string]any{"alternatives": []any{map[string]any{"override": strings.Join(t.path, ".")}, entry}}
	}
	if t.via == nil {
		return entry
	}
	if file, ok := t.via.Default.(string); ok && file != "" {
		entry["file"] = file
	}
	return entry
}

// argument is one name, or all of them.
func argument(options []string) any {
	if len(options) == 1 {
		return options[0]
	}
	list := make([]any, len(options))
	for i, o := range options {
		list[i] = o
	}
	return list
}

// long lists an argument's names, those with two dashes first.
func (s Argument) long() []string {
	options := slices.Clone(s.Options)
	slices.SortStableFunc(options, func(a, b string) int { return dashes(b) - dashes(a) })
	if s.Kind == "click" && s.Flag && len(options) == 2 && strings.HasPrefix(options[1], "--no") {
		return options[:1]
	}
	return options
}

// dashes counts the dashes before a name, up to two.
func dashes(option string) int { return len(option) - len(strings.TrimLeft(option, "-")) }

// number is the argument's value if the command does not give it.
func (t target) number() (int64, bool) {
	var value any
	switch {
	case t.settings == nil:
		value = t.fallback
	case len(t.constants) > 0:
		return 0, false
	default:
		value = t.settings[0].Default
		for _, s := range t.settings {
			if !s.Known || s.Default != value {
				return 0, false
			}
		}
	}
	n, ok := value.(float64)
	return int64(n), ok && n == float64(int64(n))
}

// switchEntry adds the words for the two states of a switch.
func (f FoundKnob) switchEntry(entry map[string]any) map[string]any {
	if f.target.settings == nil {
		entry["values"] = map[string]any{"none": false, "full": true}
		return entry
	}
	s := f.target.settings[0]
	words := s.switched()
	if words == nil {
		return entry
	}
	entry["values"] = words
	switch {
	case s.Kind == "tyro", s.Kind == "typer", strings.HasSuffix(s.Action, "BooleanOptionalAction"):
		entry["no"] = "--no-" + strings.TrimLeft(s.long()[0], "-")
	case s.Kind == "click" && len(s.Options) == 2:
		entry["no"] = s.Options[1]
	}
	switch {
	case !s.Known:
		entry["given"] = true // its value is not known otherwise
	case s.Default == true, s.Default == 1.0:
		entry["default"] = "full"
	case s.Default == false, s.Default == 0.0:
		entry["default"] = "none"
	}
	return entry
}

// grammars are the ways in which libraries read their command lines.
var grammars = map[string]format.ArgumentGrammar{
	"argparse": {Abbreviations: true},
	"hf":       {Dashes: true, Booleans: true, Abbreviations: true},
	"simple":   {Abbreviations: true},
	"tap":      {Abbreviations: true},
	"pyrallis": {Abbreviations: true},
	"tyro":     {Dashes: true},
	"fire":     {Dashes: true, Equals: true},
	"absl":     {Equals: true},
}

// Recipe returns the certain findings as a recipe: its knobs, each of which the process has to
// confirm before a change, and for every other knob the names that were searched for. unsuited is
// the reason why an entry cannot be used, empty if it can.
func (s *Analysis) Recipe(unsuited func(format.Recipe) string) format.Recipe {
	r := format.Recipe{Name: RecipeName, Title: "a script of one's own", Knobs: map[strategy.Knob]format.Knob{}, Resume: s.Resume.recipe()}
	for _, k := range strategy.Knobs {
		if why, looked := s.Missing[k]; looked {
			r.Knobs[k] = format.Knob{Absent: why + s.advice(k, why, target{}), Reported: s.Reported && k == strategy.MicroBatchSize}
		} else if k != strategy.Allocator {
			r.Knobs[k] = format.Knob{Absent: "no [knobs] entry for it"}
		}
	}
	for i, found := range s.Found {
		if found.Doubt == "" && !found.Derived && r.Grammar == (format.ArgumentGrammar{}) && found.target.settings != nil {
			r.Grammar = grammars[found.target.settings[0].Kind]
		}
		r.Grammar.Pairs = r.Grammar.Pairs || found.target.pairs
		knob, doubt := s.knob(found)
		if doubt == "" && found.Doubt == "" && !found.Derived {
			doubt = unsuited(format.Recipe{Name: RecipeName, Grammar: r.Grammar, Knobs: map[strategy.Knob]format.Knob{found.Knob: knob}})
		}
		if doubt != "" && found.Doubt == "" {
			s.Found[i].Doubt = doubt
			knob = format.Knob{Absent: s.uncertain(s.Found[i]), Reported: found.Knob == strategy.MicroBatchSize}
		}
		r.Knobs[found.Knob] = knob
	}
	return r
}

// knob converts a finding to its form in a recipe.
func (s *Analysis) knob(found FoundKnob) (knob format.Knob, doubt string) {
	if found.Doubt != "" {
		reported := found.Knob == strategy.MicroBatchSize && (s.Reported || !strings.Contains(found.Doubt, constantText))
		return format.Knob{Absent: s.uncertain(found), Reported: reported}, ""
	}
	if found.Derived {
		return format.Knob{Scope: strategy.ScopeDerived}, ""
	}
	if found.Entry() == nil {
		return format.Knob{Absent: fmt.Sprintf("which argument names the file is not known, so that gpurun cannot replace %s", found.target.name()) + s.advice(found.Knob, "", found.target), Fixed: strategy.Number(int(found.target.fixed))}, ""
	}
	parsed, problems := format.FromKnobs(map[string]any{string(found.Knob): found.Entry()})
	if len(problems) > 0 {
		return format.Knob{}, problems[0].Message
	}
	knob = parsed.Knobs[found.Knob]
	knob.Confirm = true
	knob.Given = knob.Given || slices.Contains(s.facts.Counted, len(s.argv)) // no word may be added
	knob.Reported = knob.Given && found.Knob == strategy.MicroBatchSize
	if found.Refusal != "" {
		knob.Unless = append(knob.Unless, Against(found.Refusal))
	}
	return knob, ""
}

// uncertain is the reason why a likely knob must not change.
func (s *Analysis) uncertain(f FoundKnob) string {
	switch {
	case f.Derived: // it has no name
		return fmt.Sprintf("%s, but it is not certain: %s", strings.Join(f.Why, ", "), f.Doubt) + s.advice(f.Knob, f.Doubt, target{})
	case followed(f.Doubt):
		return f.Doubt + s.advice(f.Knob, f.Doubt, f.target)
	}
	return fmt.Sprintf("%s may be the %s, but it is not certain: %s", f.target.name(), called[f.Knob], f.Doubt) + s.advice(f.Knob, f.Doubt, f.target)
}

// advice is what a user can do about a setting that is not certain. An entry in [knobs] names it, but for a constant, and
// for a number from which the setting is computed: the entry would mean another number.
func (s *Analysis) advice(k strategy.Knob, why string, likely target) string {
	switch {
	case k == strategy.MicroBatchSize && strings.HasSuffix(why, constantText+"1"): // it cannot be smaller
		return ""
	case !(FoundKnob{Doubt: why}).IsGuess():
		return ""
	case likely.settings == nil && likely.path != nil && likely.place != "":
		file, _, _ := strings.Cut(likely.place, ":")
		return fmt.Sprintf("; if it is the %s, name it in train.toml: [knobs] %s = { file = %q, path = %q }", ofRank(k), k, file, patch.Join(likely.path))
	}
	name := "--…"
	switch {
	case likely.settings != nil:
		name = likely.name()
	case s.facts.Hydra != nil:
		return fmt.Sprintf("; if a key is the %s, name it in train.toml: [knobs] %s = { override = \"…\" }", ofRank(k), k)
	case len(s.facts.Settings) == 0:
		return ""
	}
	return fmt.Sprintf("; if an argument is the %s, name it in train.toml: [knobs] %s = { arg = %q }", ofRank(k), k, name)
}

// IsGuess reports whether an entry in [knobs] for an uncertain finding might be right: the setting may be the knob, and
// not a number from which the code computes another one.
func (f FoundKnob) IsGuess() bool {
	return !slices.ContainsFunc([]string{constantText, computedText, countsMore, codeGives, dividedBy, noInteger}, func(why string) bool { return strings.Contains(f.Doubt, why) })
}

// ofRank is a knob's name for people, who may have a number for all ranks.
func ofRank(k strategy.Knob) string {
	if k == strategy.MicroBatchSize || k == strategy.DataloaderWorkers {
		return called[k] + " of one rank"
	}
	return called[k]
}

// Evidence has a sentence for each certain knob.
func (s *Analysis) Evidence() []string {
	var all []string
	for _, found := range s.Found {
		if found.Doubt == "" {
			all = append(all, fmt.Sprintf("%s: %s", found.Knob, strings.Join(found.Why, ", ")))
		}
	}
	return all
}

// Certain returns a knob that the source shows without doubt; false if there is none.
func (s *Analysis) Certain(k strategy.Knob) (FoundKnob, bool) {
	i := slices.IndexFunc(s.Found, func(f FoundKnob) bool { return f.Knob == k && f.Doubt == "" })
	if i < 0 {
		return FoundKnob{}, false
	}
	return s.Found[i], true
}
