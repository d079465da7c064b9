package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// taken omits the loaders of branches that this command does not take.
func (s *Analysis) taken() {
	s.facts.Loaders = slices.DeleteFunc(slices.Clone(s.facts.Loaders), func(l loader) bool {
		for _, b := range l.Branches {
			if is, known := s.isTrue(b.Test); known && is != b.Holds {
				if s.omitted == "" {
					s.omitted = fmt.Sprintf("%s (%s) makes no batches with this command: %s is %t", l.maker(), l.location, b.Text, is)
				}
				return true
			}
		}
		return false
	})
}

// where describes the conditions of a loader of which it is not known if they hold; empty: it is certainly made.
func (s *Analysis) where(l loader) string {
	for _, b := range l.Branches {
		if _, known := s.isTrue(b.Test); !known && b.Holds {
			return " if " + b.Text
		} else if !known {
			return " unless " + b.Text
		}
	}
	return ""
}

// isTrue decides a comparison by the words of the command and the files that it names.
func (s *Analysis) isTrue(test value) (is, known bool) {
	switch test.Op {
	case "not":
		if len(test.Of) == 1 {
			is, known = s.isTrue(test.Of[0])
		}
		return !is, known
	case "and", "or":
		known = true
		for _, part := range test.Of {
			one, decided := s.isTrue(part)
			if decided && one == (test.Op == "or") {
				return one, true
			}
			known = known && decided
		}
		return test.Op == "and", known
	case "in":
		if len(test.Of) == 0 {
			return false, false
		}
		left, known := s.literal(test.Of[0])
		return known && slices.ContainsFunc(test.Of[1:], func(right value) bool { return right.Const.value == left }), known
	}
	is, known = test.Const.value.(bool)
	return is, known
}

// literal is the value of an argument, or of a key of a file, with this command. Of several alternatives those that are
// None, as arguments that are not given, are left out.
func (s *Analysis) literal(v value) (found any, known bool) {
	for _, one := range v.alternatives() {
		is, certain := s.one(one)
		if !certain || found != nil && is != nil && is != found {
			return nil, false
		}
		if is != nil {
			found = is
		}
	}
	return found, true
}

func (s *Analysis) one(v value) (is any, known bool) {
	switch {
	case v.Const.known:
		return v.Const.value, true
	case v.Set != nil && *v.Set >= 0 && *v.Set < len(s.facts.Settings) && len(s.facts.Overlays) == 0:
		return s.given(s.facts.setting(*v.Set))
	case v.File != nil && s.read != nil && !s.facts.Dotted && !v.Pairs && len(v.Path) > 0 && s.replaced(target{path: v.Path}) == "":
		name, via := s.pathOf(*v.File)
		if c := s.configuration(name, via); c != nil {
			return c.scalar(v.Path)
		}
	}
	return nil, false
}

// given is the value of an argument with this command. An abbreviation of it leaves it unknown.
func (s *Analysis) given(t target) (is any, known bool) {
	first, words := t.settings[0], 0
	for i, word := range s.argv {
		if head := bare(word); i > 0 && strings.HasPrefix(word, "--") && slices.ContainsFunc(first.Options, func(o string) bool { return strings.HasPrefix(bare(o), head) }) {
			words++
		}
	}
	switch text, found := s.word(first.Options); {
	case first.Nargs != "" || first.Action != "" && first.Action != "store" || words > 1 || words == 1 && !found:
		return nil, false
	case found && (first.Type == "" && first.Kind == "argparse" || first.Type == "str"):
		return text, true
	case found:
		n, err := strconv.ParseFloat(text, 64)
		return n, err == nil && (first.Type == "int" || first.Type == "float")
	}
	return first.Default, !slices.ContainsFunc(t.settings, func(one Argument) bool { return !one.Known || one.Default != first.Default })
}

// scalar is the text or the number of the file at a key.
func (c configuration) scalar(at []string) (is any, known bool) {
	if n, there := number(c.root, at); there {
		return float64(n), true
	}
	switch is := c.at(at).(type) {
	case string, bool, float64:
		return is, true
	}
	return nil, false
}
