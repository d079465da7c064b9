package script

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
)

// A Continuation describes how the script continues from one of its checkpoints.
type Continuation struct {
	Latest string // a glob, as in a recipe; empty: not certain
	Args   []string
	Why    []string
	// Doubt is the missing part; empty if it is certain.
	Doubt string
}

func (r Continuation) recipe() format.Resume {
	if r.Doubt != "" {
		return format.Resume{}
	}
	return format.Resume{Latest: r.Latest, Args: r.Args}
}

var (
	resumes  = lazy.Regexp(`^(resume|resume_(from|path|file|ckpt|checkpoint|model|training|from_checkpoint|from_ckpt|checkpoint_path)|(load|restore|from|continue_from|continue)_?(checkpoint|ckpt)?(_path)?|checkpoint(_path)?|ckpt(_path)?|load_dir|init_from)$`)
	complete = lazy.Regexp(`(?i)optim|^opt$`)
	besides  = lazy.Regexp(`(?i)optim|^opt$|sched|scaler|epoch|step|iter|loss|best|arg|conf|cfg|hparam|rng|random|^lr|seed|metric|acc|time|hist`) // what a checkpoint has beside the weights
	best     = lazy.Regexp(`(?i)best|final`)
)

// resumption returns the argument from which a checkpoint is loaded, and the pattern of the files
// that the script saves.
func (s *Analysis) resumption() Continuation {
	argument, at, ok := s.resumeArgument()
	if !ok {
		if own, found := s.resumesItself(); found {
			return own
		}
		return Continuation{Doubt: "how the script continues from a checkpoint was not recognised in " + s.lookedIn()}
	}
	r := Continuation{Args: []string{argument.Options[0], "{latest}"}, Why: []string{argument.Options[0] + " (" + argument.String() + ") is loaded (" + at.String() + ")"}}
	if !s.facts.Restores {
		r.Doubt = argument.Options[0] + " was found, but no code was recognised that loads an optimizer's state"
		return r
	}
	if i := slices.IndexFunc(s.argv, func(word string) bool { return strings.HasPrefix(word, "-") && strings.Contains(word, "deepspeed") }); i >= 0 {
		r.Doubt = argument.Options[0] + " was found, but with " + s.argv[i] + " the checkpoints may be DeepSpeed's own folders"
		return r
	}
	if why := s.notLoaded(argument); why != "" {
		r.Doubt = why
		return r
	}
	var globs []string
	for _, save := range s.facts.Saves {
		if !slices.ContainsFunc(save.Keys, complete().MatchString) {
			continue // weights alone are not a checkpoint for further training
		}
		switch counted, known := save.counts(); {
		case known && !counted:
			r.Doubt = fmt.Sprintf("%s was found, but the checkpoint has neither an epoch nor a step (%s): the training would begin again with its weights", argument.Options[0], save.location)
			return r
		case known && !slices.ContainsFunc(save.Keys, func(key string) bool { return !besides().MatchString(key) }):
			r.Doubt = fmt.Sprintf("%s was found, but the checkpoint has no weights of the model (%s)", argument.Options[0], save.location)
			return r
		}
		glob, known := s.glob(save.Path)
		if !known || best().MatchString(glob) {
			continue
		}
		if !slices.Contains(globs, glob) {
			globs = append(globs, glob)
			r.Why = append(r.Why, glob+" is saved ("+save.location.String()+")")
		}
	}
	switch len(globs) {
	case 0:
		r.Doubt = argument.Options[0] + " was found, but where the script saves an optimizer's state was not recognised"
	case 1:
		r.Latest = globs[0]
	default:
		r.Doubt = argument.Options[0] + " was found, but the script saves to several places: " + strings.Join(globs, ", ")
	}
	return r
}

// counts reports whether a checkpoint says how far the training was, if its keys are known.
func (u use) counts() (is, known bool) {
	return slices.ContainsFunc(u.Keys, counters().MatchString), len(u.Keys) > 1 && !slices.Contains(u.Keys, "state")
}

var counters = lazy.Regexp(`(?i)epoch|step|iter|round|batch|progress|state`)

// notLoaded is the reason why this command does not load what an argument for resuming names; empty if it may.
func (s *Analysis) notLoaded(argument Argument) string {
	why := ""
	for _, l := range s.facts.Loads {
		t, named := s.resumed(l.Value)
		if !named || t.settings[0].Dest != argument.Dest {
			continue
		}
		b, out := s.refuted(slices.DeleteFunc(slices.Clone(l.Branches), func(b branch) bool { return s.facts.uses(b.Test, t) }))
		if !out {
			return ""
		}
		why = fmt.Sprintf("%s was found, but what it names is not loaded (%s): %s is %t", argument.Options[0], l.location, b.Text, !b.Holds)
	}
	return why
}

// asksForFiles matches a condition that asks whether there is a file.
var asksForFiles = lazy.Regexp(`exists\(|is_?file\(|is_?dir\(|listdir\(|glob\(`)

// resumesItself finds a checkpoint of one fixed name that the script saves, and loads when it starts, if it is there.
func (s *Analysis) resumesItself() (Continuation, bool) {
	if !s.facts.Restores {
		return Continuation{}, false
	}
	for _, l := range s.facts.Loads {
		glob, known := s.glob(s.possible(l.Value))
		unconditional := !slices.ContainsFunc(l.Branches, func(b branch) bool {
			is, decided := s.isTrue(b.Test)
			return decided && is != b.Holds || !decided && !(b.Holds && asksForFiles().MatchString(b.Text))
		})
		if !known || !unconditional || best().MatchString(glob) || strings.Contains(glob, "*") {
			continue
		}
		for _, save := range s.facts.Saves {
			saved, known := s.glob(s.possible(save.Path))
			if counted, _ := save.counts(); known && saved == glob && counted && slices.ContainsFunc(save.Keys, complete().MatchString) {
				return Continuation{Latest: glob, Why: []string{fmt.Sprintf("%s is saved (%s), and loaded by the script itself (%s)", glob, save.location, l.location)}}, true
			}
		}
	}
	return Continuation{}, false
}

// resumeArgument returns the only argument whose value is loaded, and where.
func (s *Analysis) resumeArgument() (found Argument, at location, ok bool) {
	for _, l := range s.facts.Loads {
		t, named := s.resumed(l.Value)
		if !named {
			continue
		}
		one := t.settings[0]
		if one.Action != "" && one.Action != "store" || one.Nargs != "" || ok && !slices.Equal(one.Options, found.Options) {
			return Argument{}, location{}, false
		}
		one.Options = one.long()
		found, at, ok = one, l.location, true
	}
	return found, at, ok
}

// resumed is the only argument for resuming among the possible values; other values are files
// that the script finds by itself.
func (s *Analysis) resumed(v value) (found target, ok bool) {
	for _, one := range v.alternatives() {
		t, single := s.facts.single(one)
		switch {
		case !single || len(t.settings) != 1 || !resumes().MatchString(t.word()):
		case ok && t.key != found.key:
			return target{}, false
		default:
			found, ok = t, true
		}
	}
	return found, ok
}

// glob makes a pattern of the path that is saved to. It is false if no part of the path is known.
func (s *Analysis) glob(v value) (string, bool) {
	switch {
	case v.Const.known:
		text, ok := v.Const.value.(string)
		return wild(text), ok
	case v.Op == "join", v.Op == "/":
		return s.joined(v.Of, "/")
	case v.Op == "text", v.Op == "+":
		text, known := s.joined(v.Of, "")
		return stars().ReplaceAllString(text, "*"), known
	case v.Op == "%", v.Op == "format":
		return s.glob(v.Of[0])
	}
	t, ok := s.facts.single(v)
	if !ok || t.settings == nil {
		return "", false
	}
	one := t.settings[0]
	name := one.long()[0]
	switch fallback, text := one.Default.(string); {
	case strings.Contains(one.Type, "int") || strings.Contains(one.Type, "float"):
		return "*", true
	case text && fallback != "":
		return "{" + name + "|" + fallback + "}", true
	}
	return "{" + name + "}", true
}

// joined joins the patterns of the parts of a path; an unknown part may be anything but the first.
func (s *Analysis) joined(of []value, separator string) (string, bool) {
	var parts []string
	for i, part := range of {
		text, known := s.glob(part)
		switch {
		case !known && i == 0:
			return "", false
		case !known:
			text = "*"
		case separator != "":
			text = strings.TrimSuffix(text, separator)
		}
		parts = append(parts, text)
	}
	return strings.Join(parts, separator), strings.Join(parts, "") != ""
}

var (
	stars   = lazy.Regexp(`\*+`)
	percent = lazy.Regexp(`%[-0-9.]*[dsfi]|\{[^{}]*\}`)
)

// wild replaces the placeholders of a text.
func wild(text string) string { return percent().ReplaceAllString(text, "*") }

// lasting reports whether a path is the same in each attempt: an argument's value, perhaps with words that are written out.
func (s *Analysis) lasting(path value) bool {
	t, single := s.facts.single(path)
	switch {
	case single && t.settings != nil:
		return t.settings[0].Action == "" || t.settings[0].Action == "store"
	case path.Op == "join" || path.Op == "/" || path.Op == "+":
		return len(path.Of) > 0 && !slices.ContainsFunc(path.Of, func(part value) bool { return !part.Const.known && !s.lasting(part) })
	}
	return false
}

// Warnings lists what prevents a second start of the script: folders that it makes and that must
// not exist.
func (s *Analysis) Warnings() []string {
	var all []string
	for _, m := range s.facts.Made {
		if !s.lasting(m.Value) {
			continue
		}
		text := fmt.Sprintf("the script makes a folder and fails where it is there already (%s), as it is after an attempt: with exist_ok=True a relaunch would work", m.location)
		if !slices.Contains(all, text) {
			all = append(all, text)
		}
	}
	return all
}
