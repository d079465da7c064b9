package format

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"

	"github.com/gpurun/gpurun/recipes/document"
	"github.com/gpurun/gpurun/strategy"
)

// Parse reads a recipe file, which may name these rules; file is its name, for
// messages. The error has all its faults, each at its place.
func Parse(file string, text []byte, rules Rules) (Recipe, error) {
	r, problems, fault := parse(text, rules)
	switch {
	case fault != nil:
		return r, &document.Error{File: file, Kind: "recipe that can be used", Faults: []document.Fault{*fault}}
	case len(problems) > 0:
		return r, &document.Error{File: file, Kind: "recipe that can be used", Faults: document.Faults(text, problems)}
	}
	return r, nil
}

// Problems reads a recipe file as Parse does, and returns its faults without their
// places.
func Problems(name string, text []byte, rules Rules) (Recipe, []Problem) {
	r, problems, fault := parse(text, rules)
	if fault != nil {
		return r, []Problem{{Message: fmt.Sprintf("%s:%d:%d: %s", name, fault.Line, fault.Column, fault.Message)}}
	}
	return r, problems
}

func parse(text []byte, rules Rules) (Recipe, []Problem, *document.Fault) {
	values, fault := document.Decode(text, "a recipe")
	if fault != nil {
		return Recipe{}, nil, fault
	}
	var problems []Problem
	n := (&table{}).of(document.NewTable(values, &problems), inRecipe)
	var r Recipe
	r.Name, r.Title = n.text("name"), n.text("title")
	if !n.Has("name") {
		n.fault("name", "a recipe needs a name")
	}
	r.Rules = n.texts("rules")
	if n.text("parser") != "" {
		r.Grammar = parsers[n.Choice("parser", "argparse", parserNames()...)]
	}
	r.Definitions, r.OwnArguments = n.texts("arguments"), n.Has("arguments")
	r.Detection = parseDetection(n.child("detect", inDetect))
	r.Resume = parseResume(n.child("resume", inResume))
	r.Progress = parseProgress(n.child("progress", inProgress))
	r.Knobs = parseKnobs(n.of(n.child("knobs", inWords).Table))
	r.Creation = parseCreation(n)
	r.Versions = parseVersions(n)
	r.Model = parseModel(n)
	r.OwnOOM = parseSettings(n, "own_oom", "")
	r.Relaunch = parseSettings(n, "also", "")
	r.Checkpoint = parseCheckpoint(n)
	r.Proofs = parseProofs(n)
	r.Losses = parseLosses(n)
	n.done()
	for _, name := range r.Rules {
		rule, known := rules[name]
		if !known {
			n.report(Problem{Key: n.Path("rules"), Message: "there is no rule \"" + name + "\"", Suggest: document.Nearest(name, slices.Sorted(maps.Keys(rules)))})
		}
		if known && rule.Shape != nil && len(problems) == 0 {
			rule.Shape(&r)
		}
	}
	return r, sorted(problems), nil
}

// FromKnobs reads the [knobs] table of a train.toml, as a TOML decoder returns
// it. The recipe has no name.
func FromKnobs(values map[string]any) (Recipe, []Problem) {
	var problems []Problem
	n := (&table{}).of(document.NewTable(document.Plain(values), &problems, "knobs"))
	r := Recipe{Knobs: parseKnobs(n)}
	for k, knob := range r.Knobs {
		knob.Own = true
		r.Knobs[k] = knob
	}
	return r, sorted(problems)
}

// sorted are problems in the order of their keys.
func sorted(problems []Problem) []Problem {
	slices.SortStableFunc(problems, func(a, b Problem) int { return slices.Compare(a.Key, b.Key) })
	return problems
}

// Marks reads the [detect] table of a recipe, or of its beginning, alone.
func Marks(head []byte) (Detection, error) {
	var file struct{ Detect map[string]any }
	if err := toml.Unmarshal(head, &file); err != nil {
		return Detection{}, fmt.Errorf("read the marks of a recipe: %w", err)
	}
	var problems []Problem
	d := parseDetection((&table{}).of(document.NewTable(document.Plain(file.Detect), &problems, "detect"), inDetect))
	if len(problems) > 0 {
		return d, fmt.Errorf("read the marks of a recipe: %s", problems[0])
	}
	return d, nil
}

// parseDetection reads the marks. A mark in args that ends with an equals sign is
// a word train.batch=8; a list inside source holds pieces that have to be there
// together, and need no other mark.
func parseDetection(n *table) Detection {
	defer n.done()
	d := Detection{Imports: n.texts("imports"), Unless: n.texts("unless"), Keys: n.texts("keys"), Over: n.texts("over"), Programs: n.texts("programs"), Env: n.texts("env")}
	for _, mark := range n.texts("args") {
		if key, word := strings.CutSuffix(mark, "="); word {
			d.Overrides = append(d.Overrides, key)
		} else {
			d.Args = append(d.Args, mark)
		}
	}
	d.Text, d.Source = parseSource(n)
	return d
}

func parseSource(n *table) (text, together []string) {
	n.known("source")
	value, there := n.Get("source")
	list, ok := value.([]any)
	for _, item := range list {
		switch item := item.(type) {
		case string:
			text = append(text, item)
		case []any:
			for _, piece := range item {
				words, isText := piece.(string)
				ok = ok && isText
				together = append(together, words)
			}
		default:
			ok = false
		}
	}
	if there && !ok {
		n.fault("source", `want an array of texts, or of arrays of texts: ["SFTConfig("], or [["configurator.py", "batch_size ="]]`)
	}
	return text, together
}

// kept is what data says where a job that resumes is known to go on with the next sample.
const kept = "kept"

// ReadData takes the text that says what becomes of the data: what is not kept, empty
// where nothing is said, or that all is.
func ReadData(text string) (lost string, exact bool) {
	if text == kept {
		return "", true
	}
	return text, false
}

// inLatest is where the text of the pointer goes in latest.
var inLatest = regexp.MustCompile(`\{pointer(?::\d+)?\}`)

func parseResume(n *table) Resume {
	defer n.done()
	resume := Resume{
		Latest: n.text("latest"), Args: n.texts("args"), Pointer: n.text("pointer"), Needs: n.texts("needs"), Pin: n.texts("pin"),
		Lost: n.expression("lost"), Shifts: parseShifts(n), Env: parseVariables(n),
	}
	resume.Data, resume.Exact = ReadData(n.text("data"))
	if inLatest.MatchString(resume.Latest) {
		if resume.Pointer == "" {
			n.fault("latest", "{pointer} is the text of a file: name it with pointer")
		}
		resume.Latest, resume.Pointed = inLatest.ReplaceAllString(resume.Latest, "*"), resume.Latest
	}
	resume.Values, resume.Defaults = parseValues(n)
	resume.Also = parseSettings(n, "also", "")
	return resume
}

// parseShifts reads what a changed knob does to the place in the data.
func parseShifts(n *table) map[strategy.Knob]string {
	var shifts map[strategy.Knob]string
	inner := n.child("shifts", inWords)
	for _, name := range inner.Keys() {
		if !slices.Contains(knobNames(), name) {
			inner.Unknown(name, knobNames())
			continue
		}
		if shifts == nil {
			shifts = map[strategy.Knob]string{}
		}
		shifts[strategy.Knob(name)] = inner.text(name)
	}
	return shifts
}

// variableName is how variables of trackers are called: the part before the first underscore
// says whose they are.
var variableName = regexp.MustCompile(`^[A-Z]+_[A-Z0-9_]+$`)

// parseVariables reads [resume] env.
func parseVariables(n *table) map[string]string {
	if n.known("env"); !n.Has("env") {
		return nil
	}
	variables := map[string]string{}
	inner := n.child("env", inWords)
	for _, name := range inner.Keys() {
		if !variableName.MatchString(name) {
			inner.fault(name, "want a variable of a tracker's, such as WANDB_RUN_ID")
		}
		variables[name] = inner.text(name)
	}
	return variables
}

// parseValues reads [resume.values]: places, and defaults as plain texts in a list's end.
func parseValues(n *table) (map[string][]Place, map[string]string) {
	if n.known("values"); !n.Has("values") {
		return nil, nil
	}
	inner := n.child("values", inWords)
	values, defaults := map[string][]Place{}, map[string]string{}
	for _, name := range inner.Keys() {
		value, _ := inner.Get(name)
		list, isList := value.([]any)
		if last := len(list) - 1; isList && last >= 0 {
			if text, isText := list[last].(string); isText {
				defaults[name], value = text, list[:last]
			}
		}
		places := inner.of(inner.Inner(map[string]any{name: value}), inWords)
		values[name] = optionalPlaces(places, name)
	}
	return values, defaults
}

// expression reads a regular expression, as text.
func (n *table) expression(key string) string {
	n.known(key)
	if e := n.Expression(key); e != nil {
		return e.String()
	}
	return ""
}

func parseProgress(n *table) Progress {
	defer n.done()
	n.known("step")
	p := Progress{Nothing: n.expression("nothing")}
	if step := n.Expression("step"); step != nil {
		p.Step = step.String()
		if pattern, unknown := strategy.StepPatternOf(step.SubexpNames()); pattern.Step == 0 || len(unknown) > 0 {
			n.fault("step", "the expression needs a group around the number of the step; groups with names are step, total and loss")
		}
	}
	return p
}

// parseCreation reads how a new DeepSpeed configuration is told to the job.
func parseCreation(n *table) *Creation {
	inner := n.child("deepspeed", inDeepSpeed)
	if !n.Has("deepspeed") {
		return nil
	}
	defer inner.done()
	c := &Creation{Auto: inner.truth("auto")}
	arg, env := inner.text("arg"), inner.text("env")
	switch {
	case (arg == "") == (env == ""):
		inner.fault("", `want { arg = "--deepspeed" } or { env = "NAME" }`)
	case arg != "":
		c.Via = Via{namer: held{argument{names: []string{arg}}, arg}}
	default:
		c.Via = Via{namer: held{variable{name: env}, env}}
	}
	return c
}

// parseModel reads parallel, the sizes that divide the ranks.
func parseModel(n *table) [][]Place {
	var sizes [][]Place
	for _, inner := range n.list("parallel", inPlace, inParallel) {
		inner.optional = true
		if inner.Has("alternatives") {
			sizes = append(sizes, optionalPlaces(inner, "alternatives"))
		} else {
			sizes = append(sizes, []Place{parsePlace(inner, "")})
		}
		inner.done()
	}
	return sizes
}

func parseVersions(n *table) Versions {
	if n.known("versions"); !n.Has("versions") {
		return nil
	}
	versions := Versions{}
	inner := n.child("versions", inWords)
	for _, name := range inner.Keys() {
		versions[name] = inner.text(name)
	}
	if err := versions.check(); err != nil {
		n.fault("versions", "%s", err)
	}
	return versions
}

func parseCheckpoint(n *table) []Survival {
	var all []Survival
	for _, inner := range n.list("checkpoint", inCheckpoint) {
		s := Survival{Knob: inner.knob("knob"), Reason: inner.text("reason")}
		inner.known("survives")
		value, _ := inner.Get("survives")
		families, ok := value.([]any)
		for _, family := range families {
			words, isList := family.([]any)
			ok = ok && isList
			var values []strategy.Value
			for _, word := range words {
				text, _ := word.(string)
				inner.knobValue(s.Knob, "survives", text)
				values = append(values, strategy.Value(text))
			}
			s.Families = append(s.Families, values)
		}
		if !ok {
			inner.fault("survives", `want a list of lists of values: [["zero1", "zero2"], ["zero3"]]`)
		}
		inner.done()
		all = append(all, s)
	}
	return all
}

func parseProofs(n *table) []Proof {
	var all []Proof
	for _, inner := range n.list("proof", inProof) {
		inner.known("line")
		p := Proof{Knob: inner.knob("knob"), Line: inner.Expression("line"), File: inner.text("file"), Path: inner.text("path")}
		p.Words = parseWords(inner, p.Knob, "values")
		switch {
		case (p.Line == nil) == (p.File == ""):
			inner.fault("", "want a line, or a file with a path")
		case p.Line != nil && p.Line.NumSubexp() < 1:
			inner.fault("line", "the expression needs a group around the value")
		}
		inner.done()
		all = append(all, p)
	}
	return all
}
