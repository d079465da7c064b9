package detect

import (
	"cmp"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// A knobNames has the patterns of the names of one knob, the most telling first: the order of the candidates.
type knobNames struct {
	knob     strategy.Knob
	patterns []func() *regexp.Regexp
}

const batchWord = `(batch_?size|batch_?sz|batch|bs|bsz|mini_?batch(_?size)?)`

// names are the names that settings of a knob have. A name is never proof: a process has to confirm it.
var names = []knobNames{
	{strategy.MicroBatchSize, []func() *regexp.Regexp{
		lazy.Regexp(`^(train_)?(per_(device|gpu|rank|replica|process)|micro|device|local)_?(train_)?` + batchWord +
			`(_?(per_)?(gpu|device|rank))?$|^(train_)?` + batchWord +
			`_?(per_)?(gpu|device|rank|process|replica)$|^(imgs|samples)_per_gpu$|^samples_per_device$`),
		lazy.Regexp(`^(train|training|tr)_?` + batchWord + `$|^` + batchWord + `_?(train|training)$`),
		lazy.Regexp(`^((data|loader|dataloader)_?)?` + batchWord + `$|^batch_?size_?\d*$|^n_?batch$|^b$`),
		lazy.Regexp(`^ims_per_batch$|^(total|global|effective|overall)_?(train_?)?` + batchWord + `$`),
	}},
	{strategy.GradientAccumulationSteps, []func() *regexp.Regexp{
		lazy.Regexp(`^grad(ient)?s?_?acc(um(ulat(e|ion))?)?(_?(steps?|iters?|every|freq))?$|^acc(um(ulat(e|ion))?)?_?(grad(ient)?s?)?(_?(batches|steps?|iters?|every|freq))?$`),
		lazy.Regexp(`^(grad(ient)?_)?update_freq$|^iter_size$|^gas$|^ga_steps$|^grad_step_freq$|^optim(izer)?_step_every$`),
	}},
	{strategy.EvalBatchSize, []func() *regexp.Regexp{
		lazy.Regexp(`^(per_(device|gpu)_)?(val|valid|validation|eval|evaluation|test|testing|dev|infer|inference)_?` +
			batchWord + `$|^` + batchWord + `_?(val|valid|validation|eval|test)$`),
	}},
	{strategy.ActivationCheckpointing, []func() *regexp.Regexp{
		lazy.Regexp(`^(use_|enable_)?(gradient|grad|activation|act)_?(checkpoint(ing)?|ckpt)$|^(use_)?(remat|recompute)$|^(with|use)_cp$|^use_checkpoint(ing)?$`),
	}},
	{strategy.Precision, []func() *regexp.Regexp{
		lazy.Regexp(`^(use_)?(precision|amp|fp16|bf16|dtype|mixed_precision|autocast|half)$|^amp_dtype$`),
	}},
	{strategy.DataloaderWorkers, []func() *regexp.Regexp{
		lazy.Regexp(`^(train_)?(data_?)?(loader_?)?(num|n|nb)?_?(data_?)?(loader_?)?(load_?)?workers?(_per_(gpu|device|rank))?$|^(num_|n_?)threads$|^j$`),
	}},
	{strategy.SequenceLength, []func() *regexp.Regexp{
		lazy.Regexp(`^(max_)?(train_)?(seq|sequence|context|ctx|block)_?(len|length|size)$|^n_ctx$|^model_max_length$`),
	}},
}

// evaluates matches a part of a configuration for evaluations.
var evaluates = lazy.Regexp(`(?i)^(val|valid|validation|eval|evaluation|test|testing|dev|infer|inference|predict)`)

// A candidate is a setting that may be a knob, before its place is read.
type candidate struct {
	format.LikelyPlace
	knob strategy.Knob
	rank int // of its name's pattern
}

// ofAll matches names of the last pattern of a batch, which counts the samples of all ranks.
var ofAll = lazy.Regexp(`^(ims_per_|total|global|effective|overall)`)

// named is the knob that the parts of a name suggest, the last part most, and the rank of the pattern.
func named(parts []string) (k strategy.Knob, rank int, ok bool) {
	last := strings.ToLower(strings.ReplaceAll(parts[len(parts)-1], "-", "_"))
	for _, n := range names {
		for i, pattern := range n.patterns {
			if !pattern().MatchString(last) {
				continue
			}
			if n.knob == strategy.MicroBatchSize && slices.ContainsFunc(parts[:len(parts)-1], evaluates().MatchString) {
				return strategy.EvalBatchSize, len(n.patterns), true
			}
			return n.knob, i, true
		}
	}
	return "", 0, false
}

// A Job has what Likely reads the settings from.
type Job struct {
	Command format.Command
	// Read returns a file that the job reads, by a path as the job would write it; nil if there is none.
	Read func(path string) []byte
	// Folder is that of the script, as for Read.
	Folder string
}

// Likely lists the settings of a job's command line, parsers and configuration files whose names suggest knobs, in
// the order of the names. Of each knob those come first that the command gives.
func (j Job) Likely() map[strategy.Knob]format.Knob {
	var all []candidate
	all = append(all, j.arguments()...)
	all = append(all, j.words()...)
	all = append(all, j.files()...)
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.rank, b.rank) })
	found := map[strategy.Knob]format.Knob{}
	for _, c := range all {
		knob := found[c.knob]
		if !slices.ContainsFunc(knob.Likely, func(o format.LikelyPlace) bool { return o.Name == c.Name }) {
			knob.Likely = append(knob.Likely, c.LikelyPlace)
			found[c.knob] = knob
		}
	}
	return found
}

// grammars are the ways in which libraries read their command lines.
var grammars = map[string]format.ArgumentGrammar{
	"argparse": {Abbreviations: true},
	"hf":       {Argv: edit.Argv{Dashes: true, Booleans: true}, Abbreviations: true},
	"simple":   {Abbreviations: true},
	"tap":      {Abbreviations: true},
	"pyrallis": {Abbreviations: true},
	"tyro":     {Argv: edit.Argv{Dashes: true}},
	"fire":     {Argv: edit.Argv{Dashes: true, Equals: true}},
	"absl":     {Argv: edit.Argv{Equals: true}},
}

// arguments are the candidates among the arguments that parsers declare.
func (j Job) arguments() (all []candidate) {
	for _, a := range declared(j.Command.Code) {
		k, rank, ok := named(strings.Split(a.Dest, "."))
		if !ok || !fits(k, a) {
			continue
		}
		c := candidate{knob: k, rank: rank, LikelyPlace: format.LikelyPlace{Name: dashed(a.Names)[0], Key: a.Dest,
			Grammar: grammars[a.Kind]}}
		c.All = a.All && (k == strategy.MicroBatchSize || k == strategy.EvalBatchSize)
		if len(a.Choices) > 0 {
			c.Choices = a.Choices
		}
		entry := map[string]any{"arg": argument(dashed(a.Names))}
		if k.Whole() {
			if n, err := strconv.ParseInt(a.Default.Text, 10, 64); err == nil && n >= int64(format.Least(k)) {
				entry["default"] = n
			} else {
				entry["given"] = true // its value is not known otherwise
			}
		} else {
			entry = nil // shown, and never changed: the process changes it without an argument
		}
		if c.complete(entry) {
			all = append(all, c)
		}
	}
	return all
}

// words are the candidates among the options of the command that no parser is known to declare: a shell script passes
// them on, a parser computes its names, or the program is not read. Each has a whole number as its value.
func (j Job) words() (all []candidate) {
	if j.Command.Script != nil && !slices.ContainsFunc(j.Command.Code,
		func(file format.CodeFile) bool { return file.Reads }) {
		return nil
	}
	known := declared(j.Command.Code)
	argv := j.Command.Argv
	for i, word := range argv {
		option, value, cut := strings.Cut(word, "=")
		if !cut && i+1 < len(argv) {
			value = argv[i+1]
		}
		key := strings.TrimLeft(option, "-")
		if i == 0 || key == option || len(key) < 2 {
			continue
		}
		n, err := strconv.Atoi(value)
		k, rank, ok := named(strings.Split(key, "."))
		if err != nil || !ok || !k.Whole() || n < format.Least(k) ||
			slices.ContainsFunc(known, func(a format.DeclaredArgument) bool {
				return slices.ContainsFunc(a.Names, func(name string) bool { return strings.HasPrefix(plain(name), plain(option)) })
			}) {
			continue
		}
		c := candidate{knob: k, rank: rank, LikelyPlace: format.LikelyPlace{Name: option,
			Key: strings.ReplaceAll(key, "-", "_")}}
		if c.complete(map[string]any{"arg": option, "given": true}) {
			all = append(all, c)
		}
	}
	return all
}

// plain is the name of an option with underscores only.
func plain(option string) string { return strings.ReplaceAll(option, "-", "_") }

// complete reads the place of a candidate; false if the entry has no such form.
func (c *candidate) complete(entry map[string]any) bool {
	name := plain(strings.ToLower(c.Key[strings.LastIndexByte(c.Key, '.')+1:]))
	c.All = c.All || c.knob == strategy.MicroBatchSize && ofAll().MatchString(name)
	if entry == nil {
		return true
	}
	parsed, problems := format.FromKnobs(map[string]any{string(c.knob): entry})
	if len(problems) > 0 {
		return false
	}
	c.Knob, c.Entry = parsed.Knobs[c.knob], entry
	return true
}

// fits reports whether an argument's type can be that of a knob: one whole number, or for others any.
func fits(k strategy.Knob, a format.DeclaredArgument) bool {
	if !k.Whole() {
		return true
	}
	of := strings.ToLower(a.Type)
	switch {
	case a.Action != "" && a.Action != "store" && a.Action != "?":
		return false
	case strings.Contains(of, "int") && !strings.Contains(of, "list") && !strings.Contains(of, "tuple") &&
		!strings.Contains(of, "print"):
		return true
	case of == "" && a.Kind != "argparse":
		_, err := strconv.Atoi(a.Default.Text)
		return err == nil
	}
	return false
}

// dashed lists an argument's names, those with two dashes first.
func dashed(options []string) []string {
	options = slices.Clone(options)
	slices.SortStableFunc(options, func(a, b string) int {
		return (len(b) - len(strings.TrimLeft(b, "-"))) - (len(a) - len(strings.TrimLeft(a, "-")))
	})
	return options
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

// declared lists the arguments of a job's parsers, and of the classes that its parsers read.
func declared(code format.ScriptCode) (all []format.DeclaredArgument) {
	forms, read := []string{}, map[string]string{} // by class: the form of its arguments
	for _, file := range code {
		for _, p := range file.Parsed {
			forms = append(forms, p.Form)
			for _, class := range p.Classes {
				read[class] = p.Form
			}
		}
	}
	classes := map[string]format.CodeClass{}
	for _, file := range code {
		all = append(all, file.Declared...)
		for _, class := range file.Classes {
			if classes[class.Name] = class; slices.Contains(class.Bases, "Tap") {
				read[class.Name] = "tap"
			}
		}
	}
	named := slices.ContainsFunc(code, func(file format.CodeFile) bool {
		return slices.ContainsFunc(file.Classes, func(c format.CodeClass) bool { return read[c.Name] != "" })
	})
	for _, file := range code {
		for _, class := range file.Classes {
			form := read[class.Name]
			if !named && class.Data && len(forms) > 0 {
				form = forms[0] // the call names a variable
			}
			if form != "" {
				all = append(all, fields(class, form, "", classes, code, 0)...)
			}
		}
	}
	return all
}

// mostNested bounds how deep classes are fields of others.
const mostNested = 3

// fields are the arguments of a class that a parser reads, and of those that it extends or has as fields.
func fields(class format.CodeClass, form, prefix string, classes map[string]format.CodeClass, code format.ScriptCode,
	depth int) (all []format.DeclaredArgument) {
	if depth > mostNested {
		return nil
	}
	for _, base := range class.Bases {
		if own, is := classes[base]; is && own.Name != class.Name {
			all = append(all, fields(own, form, prefix, classes, code, depth+1)...)
		}
	}
	for name, value := range class.Fields {
		of := class.Types[name]
		if inner, is := classes[of[strings.LastIndexByte(of, '.')+1:]]; is && inner.Data && form != "hf" {
			within := prefix
			if form != "simple" {
				within += name + "."
			}
			all = append(all, fields(inner, form, within, classes, code, depth+1)...)
			continue
		}
		option := "--" + prefix + name
		if form == "tyro" {
			option = strings.ReplaceAll(option, "_", "-")
		}
		all = append(all, format.DeclaredArgument{Kind: form, Names: []string{option}, Dest: prefix + name, Type: of,
			Default: value, Line: class.Line})
	}
	slices.SortFunc(all, func(a, b format.DeclaredArgument) int { return strings.Compare(a.Dest, b.Dest) })
	return all
}
