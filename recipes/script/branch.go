package script

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// taken omits the loaders, the optimizer's steps and the values of branches that this command does not take.
func (s *Analysis) taken() {
	s.facts.Loaders = slices.DeleteFunc(slices.Clone(s.facts.Loaders), func(l loader) bool {
		b, omitted := s.refuted(l.Branches)
		if omitted && s.omitted == "" {
			s.omitted = fmt.Sprintf("%s (%s) makes no batches with this command: %s is %t", l.maker(), l.location, b.Text, !b.Holds)
		}
		return omitted
	})
	for _, uses := range []*[]use{&s.facts.Overlays, &s.facts.Made, &s.facts.Steps, &s.facts.Unlike} {
		*uses = slices.DeleteFunc(slices.Clone(*uses), func(u use) bool {
			_, omitted := s.refuted(u.Branches)
			return omitted
		})
	}
	for i, l := range s.facts.Loaders {
		s.facts.Loaders[i].Batch, s.facts.Loaders[i].Workers = s.possible(l.Batch), s.possible(l.Workers)
	}
}

// refuted returns a condition that this command does not fulfil.
func (s *Analysis) refuted(branches []branch) (branch, bool) {
	i := slices.IndexFunc(branches, func(b branch) bool {
		is, known := s.isTrue(b.Test)
		return known && is != b.Holds
	})
	if i < 0 {
		return branch{}, false
	}
	return branches[i], true
}

// asksFor reports whether a condition asks if an argument was given whose value it is, as in if args.workers:
// config.workers = args.workers.
func (s *Analysis) asksFor(b branch, v value) bool {
	t, ok := s.facts.single(v)
	return ok && s.facts.uses(b.Test, t)
}

// possible omits those of several values that the code gives only in branches that this command does not take.
func (s *Analysis) possible(v value) value {
	var left []value
	for _, one := range v.Any {
		if b, out := s.refuted(one.When); !out || s.asksFor(b, one) {
			left = append(left, s.possible(one))
		}
	}
	switch {
	case len(left) == 1:
		return left[0]
	case left != nil:
		v.Any = left
	}
	if v.Of != nil {
		v.Of = slices.Clone(v.Of)
		for i, part := range v.Of {
			v.Of[i] = s.possible(part)
		}
	}
	return v
}

// where describes the conditions of a loader of which it is not known if they hold; empty: it is certainly made.
func (s *Analysis) where(l loader) string {
	for _, b := range l.Branches {
		if b.Before {
			continue
		}
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
	case "true":
		if len(test.Of) == 0 {
			return false, false
		}
		set, known := s.literal(test.Of[0])
		return known && set != nil && set != false && set != 0.0 && set != "", known
	}
	is, known = test.Const.value.(bool)
	return is, known
}

// literal is the value of an argument, or of a key of a file, with this command. Of several alternatives those that are
// None, as arguments that are not given, are left out.
func (s *Analysis) literal(v value) (found any, known bool) {
	for _, one := range v.alternatives() {
		if _, out := s.refuted(one.When); out {
			continue
		}
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
	case v.Set != nil && *v.Set >= 0 && *v.Set < len(s.facts.Settings) && !s.inFiles(s.facts.Settings[*v.Set]):
		return s.given(s.facts.setting(*v.Set))
	case v.File != nil && s.read != nil && len(v.Path) > 0 && !s.mentioned(v.Path) && s.replaced(target{path: v.Path}) == "":
		name, via := s.pathOf(*v.File)
		c := s.configuration(name, via)
		switch {
		case c == nil || c.extends():
		case c.at(v.Path) != nil:
			return c.scalar(v.Path)
		case v.Default != nil:
			return v.Default, true
		}
	}
	return nil, false
}

// inFiles reports whether a file may give an argument another value than the command.
func (s *Analysis) inFiles(one Argument) bool {
	return slices.ContainsFunc(s.facts.Overlays, func(o use) bool {
		if o.Of != nil && !slices.Contains(o.Of, one.ID) {
			return false
		}
		found, unknown := s.overlay(o.Value, strings.Split(one.Dest, "."))
		return found != nil || unknown
	})
}

// mentioned reports whether a word of the command contains the last part of a key, and so may set it.
func (s *Analysis) mentioned(key []string) bool {
	return slices.ContainsFunc(s.argv[min(1, len(s.argv)):], func(word string) bool { return strings.Contains(word, key[len(key)-1]) })
}

// given is the value of an argument with this command. An abbreviation of it leaves it unknown.
func (s *Analysis) given(t target) (is any, known bool) {
	first, words := t.settings[0], 0
	for i, word := range s.argv {
		if head := bare(word); i > 0 && strings.HasPrefix(word, "--") && !s.isOther(word, first) && slices.ContainsFunc(first.Options, func(o string) bool { return strings.HasPrefix(bare(o), head) }) {
			words++
		}
	}
	text, found := s.word(first.Options)
	flag := words == 1 || slices.ContainsFunc(first.Options, func(o string) bool { return slices.Contains(s.argv[min(1, len(s.argv)):], o) })
	switch {
	case first.Action == "store_true" && words < 2:
		return flag || first.Default == true, true
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

// isOther reports whether a word is the whole name of another argument.
func (s *Analysis) isOther(word string, than Argument) bool {
	head, _, _ := strings.Cut(word, "=")
	return slices.ContainsFunc(s.facts.Settings, func(one Argument) bool {
		return slices.Contains(one.Options, head) && !slices.Contains(than.Options, head)
	})
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
