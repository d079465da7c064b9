package format

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/document"
	"github.com/gpurun/gpurun/strategy"
)

var recipeSpecs = []spec[Recipe]{
	{"name", "the recipe's name", func(r *Recipe) any { return &r.Name }, "a recipe needs a name"},
	{"title", "the framework's name, for people", func(r *Recipe) any { return &r.Title }, ""},
	{"rules", "bindings between settings that Go code knows, by their names", func(r *Recipe) any { return &r.Rules }, ""},
	{"parser", "what reads the command line", func(r *Recipe) any { return leaf(r.readParser) }, ""},
	{"arguments", "files in the framework's packages that define its arguments, `[]` where the script does; an argument that they lack is not put on the command", func(r *Recipe) any { return &r.Definitions }, ""},
	{"versions", "versions of Python packages that the recipe is for: `{ torch = \">=2.4, <3\" }`", func(r *Recipe) any { return &r.Versions }, ""},
	{"detect", "how a command of the framework is recognised", func(r *Recipe) any { return &r.Detection }, ""},
	{"resume", "how a job continues from its newest checkpoint", func(r *Recipe) any { return &r.Resume }, ""},
	{"progress", "how a step shows in the output", func(r *Recipe) any { return &r.Progress }, ""},
	{"knobs", "where each knob is kept", func(r *Recipe) any { return &r.Knobs }, ""},
	{"parallel", "numbers of ranks that share one copy of the model", func(r *Recipe) any { return &r.Model }, ""},
	{"deepspeed", "how the job gets a new DeepSpeed configuration", func(r *Recipe) any { return &r.Creation }, ""},
	{"own_oom", "the framework's own handling of out of memory, switched off", func(r *Recipe) any { return &r.OwnOOM }, ""},
	{"also", "settings that are written with every changed command", func(r *Recipe) any { return &r.Relaunch }, ""},
	{"checkpoint", "what a checkpoint does not survive, a table for each knob", func(r *Recipe) any { return &r.Checkpoint }, ""},
	{"proof", "where the value shows that the framework uses", func(r *Recipe) any { return &r.Proofs }, ""},
	{"loss", "what the framework does with the loss when a step has more micro batches", func(r *Recipe) any { return &r.Losses }, ""},
}

func (r *Recipe) readParser(n *keyTable, key string) {
	if n.Filled(key) != "" {
		r.Grammar = parsers[n.Choice(key, "argparse", parserNames()...)]
	}
}

var detectSpecs = []spec[Detection]{
	{"imports", "modules, or names of modules, of which the script imports one", func(d *Detection) any { return &d.Imports }, ""},
	{"unless", "imports that rule the framework out", func(d *Detection) any { return &d.Unless }, ""},
	{"args", "arguments, and words `\"a.b=\"`, of which the command has one", func(d *Detection) any { return &d.Args }, ""},
	{"env", "variables that the framework's launcher sets", func(d *Detection) any { return &d.Env }, ""},
	{"keys", "keys of a configuration file, which has one of them", func(d *Detection) any { return &d.Keys }, ""},
	{"over", "recipes that give way to this one where both match", func(d *Detection) any { return &d.Over }, ""},
	{"source", "pieces of the script's source, of which it has one, or all those of one inner list", func(d *Detection) any { return leaf(d.readSource) }, ""},
	{"programs", "modules and ends of script paths that are the framework's own", func(d *Detection) any { return &d.Programs }, ""},
}

// check separates words from the arguments: "train.batch=" is a word train.batch=8.
func (d *Detection) check(*keyTable) {
	var args []string
	for _, arg := range d.Args {
		if key, word := strings.CutSuffix(arg, "="); word {
			d.Overrides = append(d.Overrides, key)
		} else {
			args = append(args, arg)
		}
	}
	d.Args = args
}

// readSource reads pieces of source. A list inside the list has pieces that must all be there,
// and need no other sign.
func (d *Detection) readSource(n *keyTable, key string) {
	value, _ := n.Get(key)
	list, ok := value.([]any)
	for _, item := range list {
		switch item := item.(type) {
		case string:
			d.Text = append(d.Text, item)
		case []any:
			pieces := make([]string, len(item))
			for i, piece := range item {
				words, isText := piece.(string)
				ok = ok && isText
				pieces[i] = words
			}
			d.Source = append(d.Source, pieces)
		default:
			ok = false
		}
	}
	if !ok {
		n.fault(key, `want an array of texts, or of arrays of texts: ["SFTConfig("], or [["configurator.py", "batch_size ="]]`)
	}
}

var resumeSpecs = []spec[Resume]{
	{"latest", "a glob of complete checkpoints; the pointer's number goes to `{pointer}`", func(r *Resume) any { return &r.Latest }, ""},
	{"args", "the arguments that resume, with `{latest}`", func(r *Resume) any { return &r.Args }, ""},
	{"pointer", "a file whose text names the newest checkpoint", func(r *Resume) any { return &r.Pointer }, ""},
	{"needs", "globs of files that a complete checkpoint has", func(r *Resume) any { return &r.Needs }, ""},
	{"pin", "words put on every command line where they are absent, with `{job}` for a name of the run", func(r *Resume) any { return &r.Pin }, ""},
	{"env", "variables by which an experiment tracker continues one run, with `{job}`", func(r *Resume) any { return leaf(r.readVariables) }, ""},
	{"lost", "a regular expression for the line that reports a start from scratch", func(r *Resume) any { return expression(&r.Lost) }, ""},
	{"data", "what the job does with the samples that it has seen, if it does not continue with the next; `\"kept\"`: it does, whatever the micro batch", func(r *Resume) any { return &r.Data }, ""},
	{"shifts", "what a changed knob does to the place in the data", func(r *Resume) any { return leaf(r.readShifts) }, ""},
	{"values", "places, and a default, for `{name}` in the texts of this table", func(r *Resume) any { return resumeValues{r} }, ""},
	{"unless", "arguments of calls with which the checkpoints are in a folder that the recipe does not know", func(r *Resume) any { return &r.Elsewhere }, ""},
	{"also", "settings that resume, besides `args`, with `{latest}` in a value", func(r *Resume) any { return &r.Also }, ""},
}

// kept is the data value of a job that is known to continue with the next sample.
const kept = "kept"

// ReadData reads the value of data: which samples are lost, or that none are.
func ReadData(text string) (lost string, exact bool) {
	if text == kept {
		return "", true
	}
	return text, false
}

// inLatest matches the place for the text of the pointer in latest.
var inLatest = lazy.Regexp(`\{pointer(?::\d+)?\}`)

func (r *Resume) check(n *keyTable) {
	r.Data, r.Exact = ReadData(r.Data)
	if !inLatest().MatchString(r.Latest) {
		return
	}
	if r.Pointer == "" {
		n.fault("latest", "{pointer} is the text of a file: name it with pointer")
	}
	r.Latest, r.Pointed = inLatest().ReplaceAllString(r.Latest, "*"), r.Latest
}

// readShifts reads the effect of a changed knob on the place in the data.
func (r *Resume) readShifts(n *keyTable, key string) {
	inner := n.open(key)
	for _, name := range inner.Keys() {
		if !slices.Contains(knobNames(), name) {
			inner.Unknown(name, knobNames())
			continue
		}
		if r.Shifts == nil {
			r.Shifts = map[strategy.Knob]string{}
		}
		r.Shifts[strategy.Knob(name)] = inner.Filled(name)
	}
}

// variableName matches variables of trackers: the part before the first underscore names the tracker.
var variableName = lazy.Regexp(`^[A-Z]+_[A-Z0-9_]+$`)

func (r *Resume) readVariables(n *keyTable, key string) {
	r.Env = map[string]string{}
	inner := n.open(key)
	for _, name := range inner.Keys() {
		if !variableName().MatchString(name) {
			inner.fault(name, "want a variable of a tracker's, such as WANDB_RUN_ID")
		}
		r.Env[name] = inner.Filled(name)
	}
}

// resumeValues reads places by their names; a text at the end of a list is the default.
type resumeValues struct{ *Resume }

func (r resumeValues) read(n *keyTable, key string) {
	r.Values, r.Defaults = map[string][]Place{}, map[string]string{}
	inner := n.open(key)
	for _, name := range inner.Keys() {
		value, _ := inner.Get(name)
		list, isList := value.([]any)
		if last := len(list) - 1; isList && last >= 0 {
			if text, isText := list[last].(string); isText {
				r.Defaults[name], value = text, list[:last]
			}
		}
		r.Values[name] = inner.of(inner.Inner(map[string]any{name: value})).optionalPlaces(name)
	}
}

var progressSpecs = []spec[ProgressLines]{
	{"step", "a regular expression whose first group is the number of the step", func(p *ProgressLines) any { return leaf(p.readStep) }, ""},
	{"nothing", "a regular expression for the line that reports that there was nothing to do (for files of your own)", func(p *ProgressLines) any { return expression(&p.Nothing) }, ""},
}

func (p *ProgressLines) readStep(n *keyTable, key string) {
	step := n.Expression(key)
	if step == nil {
		return
	}
	p.Step = step.String()
	if pattern, unknown := strategy.StepPatternOf(step.SubexpNames()); pattern.Step == 0 || len(unknown) > 0 {
		n.fault(key, "the expression needs a group around the number of the step; groups with names are step, total and loss")
	}
}

var creationSpecs = []spec[Creation]{
	{"arg", "the argument that names the file", func(c *Creation) any { return &c.Via.arg }, ""},
	{"env", "or the variable", func(c *Creation) any { return &c.Via.env }, ""},
	{"auto", "the framework replaces `\"auto\"`, and an optimizer that cannot be offloaded", func(c *Creation) any { return &c.Auto }, ""},
}

func (c *Creation) check(n *keyTable) {
	if (c.Via.arg == "") == (c.Via.env == "") {
		n.fault("", `want { arg = "--deepspeed" } or { env = "NAME" }`)
	}
}

var parallelSpecs = []spec[modelSize]{
	{"alternatives", "the places of one number, strongest first", func(m *modelSize) any { return &m.places }, ""},
}

// A modelSize is a number of ranks that share one copy of the model.
type modelSize struct{ places []Place }

func (m *modelSize) check(n *keyTable) {
	if n.optional = true; !n.Has("alternatives") {
		m.places = []Place{n.place()}
	}
}

var survivalSpecs = []spec[CheckpointLimit]{
	{"knob", "the knob that changes", func(s *CheckpointLimit) any { return &s.Knob }, noKnob},
	{"survives", "sets of values between which a checkpoint survives a change", func(s *CheckpointLimit) any { return leaf(s.readFamilies) }, wantFamilies},
	{"reason", "why it does not survive other changes", func(s *CheckpointLimit) any { return &s.Reason }, ""},
}

const (
	noKnob       = `there is no knob ""`
	wantFamilies = `want a list of lists of values: [["zero1", "zero2"], ["zero3"]]`
)

func (s *CheckpointLimit) readFamilies(n *keyTable, key string) {
	value, _ := n.Get(key)
	families, ok := value.([]any)
	for _, family := range families {
		words, isList := family.([]any)
		ok = ok && isList
		var values []strategy.Value
		for _, word := range words {
			text, _ := word.(string)
			n.knobValue(s.Knob, key, text)
			values = append(values, strategy.Value(text))
		}
		s.Families = append(s.Families, values)
	}
	if !ok {
		n.fault(key, wantFamilies)
	}
}

var proofSpecs = []spec[Proof]{
	{"knob", "the knob whose value shows", func(p *Proof) any { return &p.Knob }, noKnob},
	{"line", "a regular expression for a line of the output, whose group is the value", func(p *Proof) any { return &p.Line }, ""},
	{"file", "or a glob of files that the attempt writes", func(p *Proof) any { return &p.File }, ""},
	{"path", "the value's place in the file", func(p *Proof) any { return &p.Path }, ""},
	{"values", "the framework's words for the knob's values", func(p *Proof) any { return leaf(p.readWords) }, ""},
}

func (p *Proof) readWords(n *keyTable, key string) {
	n.k = p.Knob
	p.Words = n.words(key)
}

func (p *Proof) check(n *keyTable) {
	switch {
	case (p.Line == nil) == (p.File == ""):
		n.fault("", "want a line, or a file with a path")
	case p.Line != nil && p.Line.NumSubexp() < 1:
		n.fault("line", "the expression needs a group around the value")
	}
}

var lossSpecs = []spec[LossRule]{
	{"class", "what more micro batches in a step do to the training", func(l *LossRule) any { return leaf(l.readClass) }, "want " + document.Either(lossClasses)},
	{"reason", "why, for people", func(l *LossRule) any { return &l.Reason }, "what the framework does with the loss is missing"},
	{"versions", "versions of Python packages of which it is so", func(l *LossRule) any { return &l.Versions }, ""},
	{"source", "pieces of the script's source, of which it has one", func(l *LossRule) any { return &l.Source }, ""},
	{"unless", "conditions with which it is equal on average only", func(l *LossRule) any { return &l.Unless }, ""},
}

func (l *LossRule) readClass(n *keyTable, key string) { l.Class = n.Choice(key, "", lossClasses...) }
