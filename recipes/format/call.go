package format

import (
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// called is { call = "transformers.TrainingArguments", keyword = "bf16" }: an argument of a call
// in the job's code. The source is read; gpurun's hook changes the argument when the process
// makes the call.
type called struct {
	onCommand
	name    string // whole; its family counts, too
	keyword string
	knob    strategy.Knob
	// where are keywords whose values select some of the calls.
	where map[string]any
}

// Where limits a place to those of its calls that give a keyword a value; another kind of place
// stays unchanged.
func Where(p Place, keyword string, value any) Place {
	if c, ok := p.PlaceKind.(called); ok {
		c.where = map[string]any{keyword: value}
		p.PlaceKind = c
	}
	return p
}

// CallOf is the place of a call in the job's code.
func CallOf(name string) Place { return Place{PlaceKind: called{name: name}} }

func (c called) String() string { return fmt.Sprintf("%s of %s", c.keyword, c.name) }

// spelled is the call's name as the job's code writes it.
func (c called) spelled(d *Draft) string {
	if calls := c.calls(d); len(calls) > 0 {
		return calls[0].Name
	}
	return c.name
}

func (c called) needs() string { return "call of " + c.name }

// calls lists the selected calls in the job's own sources.
func (c called) calls(d *Draft) []CodeCall {
	return slices.DeleteFunc(d.Original.Code.CallsOf(c.name), func(call CodeCall) bool { return !call.Gives(c.where) })
}

// Gives reports whether a call gives keywords these values.
func (c CodeCall) Gives(where map[string]any) bool {
	for keyword, want := range where {
		if v, given := c.Given(keyword); !given || !v.Known || literalOf(v.Text) != want {
			return false
		}
	}
	return true
}

func (c called) Present(d *Draft) bool { return len(c.calls(d)) > 0 }

// Read returns the argument of the only call. A computed value, or one given by several calls, is
// left to the process, which reports it.
func (c called) Read(d *Draft) (any, bool, error) {
	for _, o := range d.Calls {
		if o.Name == c.name && o.Keyword == c.keyword {
			return o.To, true, nil
		}
	}
	calls := c.calls(d)
	if len(calls) != 1 {
		return nil, false, ErrAuto
	}
	v, given := calls[0].Given(c.keyword)
	switch {
	case !given, v.None:
		return nil, false, nil
	case !v.Known:
		return nil, false, ErrAuto
	}
	return literalOf(v.Text), true, nil
}

// set reports whether one of the calls gives the keyword a value other than None and True; without a keyword, whether
// there is a call.
func (c called) set(d *Draft) bool {
	if c.keyword == "" {
		return c.Present(d)
	}
	return slices.ContainsFunc(c.calls(d), func(call CodeCall) bool {
		v, given := call.Given(c.keyword)
		return given && !v.None && !(v.Known && v.Text == "True")
	})
}

// literalOf converts a literal of Python to its JSON form.
func literalOf(text string) any {
	if n, err := strconv.ParseInt(text, 10, 64); err == nil {
		return n
	}
	switch text {
	case "True":
		return true
	case "False":
		return false
	}
	return text
}

func (c called) Write(d *Draft, word any, _ bool) error {
	from, found, err := c.Read(d)
	if err != nil || !found {
		from = nil
	}
	d.Calls = slices.DeleteFunc(d.Calls, func(o strategy.Call) bool { return o.Name == c.name && o.Keyword == c.keyword })
	d.Calls = append(d.Calls, strategy.Call{Name: c.name, Keyword: c.keyword, Knob: c.knob, Where: c.where, From: from,
		To: word})
	return nil
}

func (c called) Unwritable(d *Draft) string {
	switch n := len(c.calls(d)); {
	case n > 1:
		return fmt.Sprintf("the job's code calls %s in several places", c.spelled(d))
	case n == 0:
		return c.Missing(d)
	case d.Original.Closed:
		return "launch.hooks = false keeps gpurun from changing anything in the process"
	}
	return ""
}

func (c called) Missing(d *Draft) string {
	if c.Present(d) {
		return ""
	}
	return "only a process can say where it calls " + c.name
}

// InCode reports whether settings of the recipe are arguments of calls in the job's code.
func (r Recipe) InCode() bool {
	return slices.ContainsFunc(r.Places(), func(p Place) bool { _, is := p.PlaceKind.(called); return is })
}

// CallNames lists the last names of the functions whose arguments are places of the recipe.
func (r Recipe) CallNames() (names []string) {
	for _, p := range r.Places() {
		if c, ok := p.PlaceKind.(called); ok {
			names = append(names, c.name[strings.LastIndexByte(c.name, '.')+1:])
		}
	}
	return names
}

// CalledBy lists the calls in a command's code whose arguments are places of this recipe: the
// signs of a recipe for settings in code.
func (r Recipe) CalledBy(cmd Command) []string {
	var found []string
	d := NewDraft(r, cmd)
	for _, p := range r.Places() {
		c, ok := p.PlaceKind.(called)
		if ok && c.Present(d) && !slices.Contains(found, c.spelled(d)) {
			found = append(found, c.spelled(d))
		}
	}
	slices.Sort(found)
	return found
}
