package format

import (
	"reflect"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
)

func (r *Recipe) readKey(n *keyTable, key string) bool {
	switch key {
	case "parser":
		if n.Filled(key) != "" {
			r.Grammar = parsers[n.Choice(key, "argparse", parserNames()...)]
		}
	case "knobs":
		inner, _ := n.Table(key)
		n.of(inner, knobNames()).knobs(r.Knobs)
	case "parallel":
		var sizes []modelSize
		n.many(key, reflect.ValueOf(&sizes).Elem())
		for _, size := range sizes {
			r.Model = append(r.Model, size.Alternatives)
		}
	default:
		return false
	}
	return true
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

// readKey reads pieces of source. A list inside the list has pieces that must all be there, and
// need no other sign.
func (d *Detection) readKey(n *keyTable, key string) bool {
	if key != "source" {
		return false
	}
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
		n.fault(key, "want an array of texts, or of arrays of texts: %s",
			`["SFTConfig("], or [["configurator.py", "batch_size ="]]`)
	}
	return true
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

func (r *Resume) readKey(n *keyTable, key string) bool {
	switch key {
	case "env":
		r.readVariables(n, key)
	case "shifts":
		r.readShifts(n, key)
	case "values":
		r.readValues(n, key)
	case "lost":
		r.Lost = n.expression(key)
	default:
		return false
	}
	return true
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

// readValues reads places by their names; a text at the end of a list is the default.
func (r *Resume) readValues(n *keyTable, key string) {
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

func (p *ProgressLines) readKey(n *keyTable, key string) bool {
	text := n.expression(key)
	if key == "nothing" {
		p.Nothing = text
		return true
	}
	if p.Step = text; text == "" {
		return true
	}
	pattern, unknown := strategy.StepPatternOf(regexp.MustCompile(text).SubexpNames())
	if pattern.Step == 0 || len(unknown) > 0 {
		n.fault(key, "the expression needs a group around the number of the step; groups with names are step, total and loss")
	}
	return true
}

func (c *Creation) check(n *keyTable) {
	if c.Via = (Via{Arg: c.Arg, Env: c.Env}); (c.Arg == "") == (c.Env == "") {
		n.fault("", `want { arg = "--deepspeed" } or { env = "NAME" }`)
	}
}

// A modelSize is a number of ranks that share one copy of the model.
type modelSize struct {
	Place        Place   `toml:",place"`
	Alternatives []Place `toml:"alternatives"`
}

func (m *modelSize) check(n *keyTable) {
	if n.optional = true; !n.Has("alternatives") {
		m.Alternatives = []Place{n.place()}
	}
}

func (s *CheckpointLimit) readKey(n *keyTable, key string) bool {
	if key != "survives" {
		return false
	}
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
		n.fault(key, `want a list of lists of values: [["zero1", "zero2"], ["zero3"]]`)
	}
	return true
}

func (l *LossRule) readKey(n *keyTable, key string) bool {
	if key == "class" {
		l.Class = n.Choice(key, "", lossClasses...)
	}
	return key == "class"
}

func (l *LossRule) check(n *keyTable) {
	if !n.Has("class") {
		n.fault("class", "want %s", edit.Either(lossClasses))
	}
}
