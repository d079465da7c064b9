package script

import (
	"fmt"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
)

// A target is a setting that a user can change: an argument, or a key of a configuration. Targets
// with the same key are equal.
type target struct {
	key      string
	settings []Argument // one of them is in force; nil for a key of a file
	via      *Argument  // the argument that names the file
	nth      int        // the word of the command that does, from 1; 0: none
	path     []string
	hydra    bool
	// fallback is the default at the place where the key is read.
	fallback any
	// constants are the values if the setting is not given.
	constants []any
	// pairs: words KEY VALUE of the command override the file.
	pairs bool
	// dotted: words a.b=c of the command override the file, and under is what it is merged into.
	dotted bool
	under  *value
	// fixed is the value in the file, and place its file and line, if they were read.
	fixed int64
	place string
	// origin is where a key has its value from, if not from its file: "a default of the code".
	origin string
	// devices: it is multiplied by the number of the process's own GPUs.
	devices bool
}

// name is its name for people.
func (t target) name() string {
	switch {
	case t.settings != nil:
		return t.settings[0].long()[0]
	case t.hydra:
		return strings.Join(t.path, ".")
	}
	switch {
	case t.origin != "":
		return strings.Join(t.path, ".") + ", " + t.origin + ","
	case t.via == nil:
		return strings.Join(t.path, ".") + " in " + t.place
	}
	return strings.Join(t.path, ".") + " in the file of " + t.via.long()[0]
}

// word is the last part of its name, in the form of a variable's.
func (t target) word() string {
	if t.settings != nil {
		return strings.ToLower(t.settings[0].Dest)
	}
	return strings.ToLower(strings.ReplaceAll(t.path[len(t.path)-1], "-", "_"))
}

// speaks reports whether one of its names is a name of a knob.
func (t target) speaks(k strategy.Knob) bool {
	if names[k]().MatchString(t.word()) {
		return true
	}
	return t.settings != nil && slices.ContainsFunc(t.settings[0].Options, func(o string) bool {
		return names[k]().MatchString(strings.ToLower(strings.ReplaceAll(strings.TrimLeft(o, "-"), "-", "_")))
	})
}

// where is the file and line of its definition; empty for a key.
func (t target) where() string {
	if t.settings == nil || t.settings[0].File == "" {
		return ""
	}
	return t.settings[0].String()
}

// setting is the target of an argument.
func (f Facts) setting(n int) target {
	s := f.Settings[n]
	t := target{key: strings.Join(s.Options, " "), settings: []Argument{s}}
	for i, other := range f.Settings {
		if i != n && slices.Equal(other.Options, s.Options) {
			t.settings = append(t.settings, other)
		}
	}
	return t
}

// single returns the target of a value that is nothing else.
func (f Facts) single(v value) (t target, ok bool) {
	switch {
	case v.found != nil:
		return *v.found, true
	case v.Set != nil && *v.Set >= 0 && *v.Set < len(f.Settings):
		return f.setting(*v.Set), true
	case v.Op == "int" && len(v.Of) > 0:
		return f.single(v.Of[0])
	case len(v.Hydra) > 0:
		return target{key: "hydra " + strings.Join(v.Hydra, "."), path: v.Hydra, hydra: true}, true
	case v.File != nil && len(v.Path) > 0:
		var named *target
		for _, one := range v.File.alternatives() {
			if t, ok := f.single(one); ok && t.settings != nil && (named == nil || named.key == t.key) {
				named = &t
			} else {
				return target{}, false
			}
		}
		return target{key: "file " + named.key + " " + strings.Join(v.Path, "."), via: &named.settings[0], path: v.Path, fallback: v.Default, pairs: v.Pairs, dotted: f.Dotted, under: v.Under}, true
	}
	return target{}, false
}

// ownDevices matches a call that counts the GPUs that one process has. A number, or a list, that an argument or a
// configuration gives is a factor like any other.
var ownDevices = lazy.Regexp(`(?i)(device|gpu)_?count\(\)`)

// byDevices removes the number of the process's own GPUs from a product.
func (f Facts) byDevices(v value) (value, bool) {
	if v.Op != "*" || len(v.Of) != 2 {
		return v, false
	}
	for i, other := range v.Of {
		counts := other.holds(func(p value) bool { return ownDevices().MatchString(p.Name) })
		strange := other.holds(func(p value) bool {
			return p.Set != nil || p.Name != "" && !ownDevices().MatchString(p.Name) || p.File != nil || p.Hydra != nil ||
				p.Const.value != nil && p.Const.value != 0.0 && p.Const.value != 1.0
		})
		if counts && !strange {
			return v.Of[1-i], true
		}
	}
	return v, false
}

// cancelled removes factors by which a value is multiplied and divided again.
func (f Facts) cancelled(v value) value {
	if v.Op != "//" && v.Op != "/" || len(v.Of) != 2 {
		return v
	}
	by, why := f.pure(v.Of[1])
	if why != "" {
		return v
	}
	var left []value
	for _, one := range v.Of[0].alternatives() {
		rest, found := f.without(one, by)
		if !found {
			return v
		}
		left = append(left, rest)
	}
	if len(left) == 1 {
		return left[0]
	}
	return value{Any: left}
}

// without removes a factor from a product.
func (f Facts) without(v value, factor target) (value, bool) {
	if v.Op != "*" || len(v.Of) != 2 {
		return v, false
	}
	for i, part := range v.Of {
		if t, ok := f.single(part); ok && t.key == factor.key {
			return v.Of[1-i], true
		}
	}
	for i, part := range v.Of {
		if rest, found := f.without(part, factor); found {
			both := []value{rest, v.Of[1-i]}
			return value{Op: "*", Of: both}, true
		}
	}
	return v, false
}

// constantText and computedText begin, and notOpened ends, the reasons why a batch is not a setting.
const constantText, computedText, codeGives, notOpened = "it is the constant ", "it is computed", " the code gives it the constant ", " of a configuration that was not followed"

// pure returns the only target whose unchanged value it is; why is the reason if there is none.
func (f Facts) pure(v value) (t target, why string) {
	var found []target
	var constants []any
	defaulted, when := false, "" // a default may be replaced by what calls the function
	for _, one := range v.alternatives() {
		if one.none() {
			continue
		}
		one, devices := f.byDevices(f.cancelled(one))
		for _, inner := range one.alternatives() {
			if inner.Op == "*" && !devices {
				inner, devices = f.byDevices(inner)
			}
			if n, isNumber := inner.Const.value.(float64); inner.Const.known && !devices && isNumber && n >= 0 && n == float64(int64(n)) {
				constants, defaulted, when = append(constants, inner.Const.value), defaulted || inner.Default == true, one.under()
				continue
			}
			t, ok := f.single(inner)
			if !ok {
				return target{}, f.explain(inner, v)
			}
			t.devices = devices
			if !slices.ContainsFunc(found, func(other target) bool { return other.key == t.key }) {
				found = append(found, t)
			}
		}
	}
	switch {
	case len(found) == 0 && len(constants) == 1:
		if defaulted {
			return target{}, fmt.Sprintf("no call was found that passes one, and the default is %v", constants[0])
		}
		return target{}, constantText + fmt.Sprint(constants[0]) + when
	case len(found) == 0:
		return target{}, "it is not known where it comes from"
	case len(found) > 1:
		return target{}, fmt.Sprintf("it may come from %s or from %s", found[0].name(), found[1].name())
	}
	t = found[0]
	t.constants = constants
	if len(constants) > 0 && (t.settings == nil || t.settings[0].Default != nil) {
		return target{}, fmt.Sprintf("besides %s%s%v", t.name(), codeGives, constants[0])
	}
	return t, ""
}

// under describes a condition under which the code gives a value; empty for none.
func (v value) under() string {
	for _, b := range v.When {
		if b.Holds && !b.Before {
			return " if " + b.Text
		}
	}
	return ""
}

// mostText is the length up to which a reason has the text of a value.
const mostText = 120

// explain describes a value that is no target, one of several.
func (f Facts) explain(v, all value) string {
	switch v.Op {
	case "/", "//", "*", "+", "-", "max", "min", "round", "float", "%":
		text := f.texts(all.alternatives(), " or ")
		if t, ok := f.first(v); ok && len(text) > mostText {
			return fmt.Sprintf("%s from %s and other values", computedText, t.name())
		} else if ok {
			return fmt.Sprintf("%s from %s: %s", computedText, t.name(), text)
		}
	}
	switch {
	case v.Name == "absent":
		return "no value was found that is given to it"
	case v.Name != "":
		return fmt.Sprintf("the value of %s is not known", v.Name)
	}
	if v.Const.known {
		return fmt.Sprintf("%v is not a whole number", v.Const.value)
	}
	if v.File != nil && len(v.Path) > 0 {
		return "it is " + strings.Join(v.Path, ".") + notOpened
	}
	if text := f.text(v); len(text) > mostText {
		return computedText + " from several values"
	} else if text != unfollowed {
		return computedText + ": " + text
	}
	return computedText + " from a value that was not followed"
}

// first returns a target inside a value.
func (f Facts) first(v value) (target, bool) {
	if t, ok := f.single(v); ok {
		return t, true
	}
	for _, inner := range slices.Concat(v.Of, v.Any) {
		if t, ok := f.first(inner); ok {
			return t, true
		}
	}
	return target{}, false
}

// unfollowed is the text of a value that the reader did not follow.
const unfollowed = "another value"

// text is a value as a person would write it, shortened.
func (f Facts) text(v value) string {
	switch {
	case v.Const.known:
		return fmt.Sprint(v.Const.value)
	case strings.HasPrefix(v.Name, "**"):
		return "a value of " + v.Name[2:]
	case v.Name != "" && v.Name != "absent":
		if name, _, cut := strings.Cut(v.Name, "("); cut && name != "" && len(v.Name) > 50 {
			return name + "()"
		}
		return v.Name
	case len(v.Any) > 1:
		return "(" + f.texts(v.Any, " or ") + ")"
	case v.Any != nil:
		return f.text(v.Any[0])
	case len(v.Of) == 2 && !regexp.MustCompile(`[a-z]`).MatchString(v.Op):
		return f.operand(v.Of[0]) + " " + v.Op + " " + f.operand(v.Of[1])
	case len(v.Of) > 0:
		if len(v.Of) == 1 && len(v.Of[0].Any) > 1 {
			return v.Op + f.text(v.Of[0])
		}
		return v.Op + "(" + f.texts(v.Of, ", ") + ")"
	}
	if t, ok := f.single(v); ok {
		return t.name()
	}
	if v.File != nil && len(v.Path) > 0 {
		return strings.Join(v.Path, ".") + " of a file"
	}
	return unfollowed
}

// operand is the text of a part of an operation.
func (f Facts) operand(v value) string {
	if text := f.text(v); v.Op == "" || len(v.Of) != 2 || strings.HasPrefix(text, v.Op) {
		return text
	}
	return "(" + f.text(v) + ")"
}

// texts joins the texts of some values, those that were not followed last.
func (f Facts) texts(all []value, by string) string {
	var said []string
	for _, one := range all {
		if text := f.text(one); len(said) < 3 && text != unfollowed && !slices.Contains(said, text) {
			said = append(said, text)
		} else if !slices.Contains(said, text) && !slices.Contains(said, unfollowed) {
			said = append(said, unfollowed)
		}
	}
	return strings.Join(said, by)
}

// uses reports whether a target is part of a value.
func (f Facts) uses(v value, t target) bool {
	return v.holds(func(part value) bool {
		found, ok := f.single(part)
		return ok && found.key == t.key
	})
}
