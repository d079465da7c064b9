package commandline

import (
	"fmt"
	"regexp"
	"strings"

	"mvdan.cc/sh/v3/syntax"
)

// A variable has a name, not a number or a sign.
var variableName = regexp.MustCompile(`^[A-Za-z_][A-Za-z0-9_]*$`)

// variable puts a variable's value into the word: $NAME, ${NAME}, ${NAME:-word}.
func (w *literal) variable(p *syntax.ParamExp, inQuotes bool) error {
	at := int(p.Pos().Offset())
	if p.Param == nil || !variableName.MatchString(p.Param.Value) || !isPlain(p) {
		return w.operator(at)
	}
	name := p.Param.Value
	value, set := w.valueOf(name)
	w.used[name] = true
	switch {
	case p.Exp != nil && value == "":
		return w.otherwise(p.Exp.Word, inQuotes)
	case !set:
		return w.fail(at, "$"+name+" is not set", fmt.Sprintf("set it in job.env or in gpurun's environment, or write ${%s:-value}", name))
	}
	w.put(value, inQuotes)
	return nil
}

// isPlain reports whether nothing is done with a variable's value, but for a word in its place
// where it is empty or not set.
func isPlain(p *syntax.ParamExp) bool {
	return !p.Excl && !p.Length && !p.Width && !p.IsSet && p.Flags == nil && p.NestedParam == nil && p.Index == nil && p.Slice == nil && p.Repl == nil &&
		p.Names == 0 && len(p.Modifiers) == 0 && (p.Exp == nil || p.Exp.Op == syntax.DefaultUnsetOrNull)
}

// valueOf looks a variable up; before the command, those that stand in the line count.
func (s *splitter) valueOf(name string) (string, bool) {
	if value, set := s.assigned[name]; set {
		return value, true
	}
	return s.lookup(name)
}

// otherwise takes the word of ${NAME:-word}.
func (w *literal) otherwise(word *syntax.Word, inQuotes bool) error {
	if word == nil {
		return nil
	}
	before := w.inDefault
	w.inDefault, w.quoted = true, true
	defer func() { w.inDefault = before }()
	for i, part := range word.Parts {
		if l, literal := part.(*syntax.Lit); i == 0 && literal && !inQuotes && strings.HasPrefix(l.Value, "~") {
			return w.refuse(int(l.Pos().Offset()), "~ stands for a home directory", "write the path out, or quote the ~")
		}
		if err := w.part(part, inQuotes); err != nil {
			return err
		}
	}
	return nil
}

// put adds a value to the word. Outside of quotes blanks cut it, also off what stands
// before and behind it.
func (w *literal) put(value string, inQuotes bool) {
	w.quoted = true // what follows names no variable of the command
	if inQuotes || w.assigning {
		w.begun = true
		w.text.WriteString(value)
		return
	}
	for value != "" {
		end := strings.IndexFunc(value, func(r rune) bool { return r < 0x80 && isBlank(byte(r)) })
		if end < 0 {
			end = len(value)
		}
		if end > 0 {
			w.begun = true
			w.text.WriteString(value[:end])
			value = value[end:]
			continue
		}
		w.flush()
		w.quoted = true
		value = strings.TrimLeft(value, " \t\n")
	}
}

func isBlank(c byte) bool { return c == ' ' || c == '\t' || c == '\n' }

// assigns reports whether a word begins with NAME= that is not quoted.
func assigns(w *syntax.Word) bool {
	if len(w.Parts) == 0 {
		return false
	}
	first, literal := w.Parts[0].(*syntax.Lit)
	return literal && assignment.MatchString(first.Value)
}
