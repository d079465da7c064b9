package script

import (
	"fmt"
	"path"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// overlaid corrects an argument that a file also gives: a file of defaults counts if the command
// does not have the argument, a later change of the arguments in any case.
func (s *Analysis) overlaid(f *FoundKnob) {
	for _, o := range s.facts.Overlays {
		if f.target.settings == nil {
			return
		}
		first := f.target.settings[0]
		if _, given := s.word(first.Options); given && o.Kind == "default" || o.Of != nil && !slices.Contains(o.Of, first.ID) {
			continue
		}
		found, unknown := s.overlay(o.Value, strings.Split(first.Dest, "."))
		switch {
		case found == nil && !unknown:
			continue
		case o.Kind == "default":
			f.target.settings = slices.Clone(f.target.settings)
			for i := range f.target.settings {
				one := &f.target.settings[i]
				if one.Default, one.Known = nil, found != nil; found != nil {
					one.Default = float64(found.fixed)
				}
			}
		case found != nil:
			f.Why = append(f.Why, fmt.Sprintf("%s replaces it (%s)", found.name(), o.location))
			f.target = *found
		default:
			f.Doubt = fmt.Sprintf("it may be replaced in %s", o.location)
		}
		s.Reported = s.Reported || found == nil && f.Knob == strategy.MicroBatchSize
	}
}

// replaced is the reason why a key of a file may have another value: an option of the command, or its default, is a text
// that sets a key of this name, as --hparams=batch_size=2 or --opts DATA.BATCH_SIZE 2 do, and may be merged over the file. It is empty for a key that
// words of the command override in a known way.
func (s *Analysis) replaced(t target) string {
	if t.settings != nil || t.hydra || t.pairs || t.dotted || len(t.path) == 0 {
		return ""
	}
	sets := regexp.MustCompile(`(^|[^\w-])` + regexp.QuoteMeta(t.path[len(t.path)-1]) + `["']?\s*[=:]`)
	for i, word := range s.argv {
		text := word
		if strings.HasPrefix(word, "-") {
			_, text, _ = strings.Cut(word, "=")
		}
		if i > 0 && (sets.MatchString(text) || len(t.path) > 1 && word == strings.Join(t.path, ".")) {
			return fmt.Sprintf("%s may be replaced by %s", t.name(), word)
		}
	}
	for _, one := range s.facts.Settings {
		if _, given := s.word(one.Options); given {
			continue
		}
		if text, isText := one.Default.(string); isText && sets.MatchString(text) {
			return fmt.Sprintf("%s may be replaced by the default of %s, %s", t.name(), one.long()[0], text)
		}
	}
	return ""
}

// overlay is the number that a file has at a key; unknown: it may have another one.
func (s *Analysis) overlay(v value, key []string) (found *target, unknown bool) {
	if v.File == nil {
		return nil, true
	}
	for _, one := range v.File.alternatives() {
		name, via := s.pathOf(one)
		if strings.HasPrefix(one.Name, "sys.argv") && len(s.argv) > 1 {
			name = s.argv[1]
			if path.Ext(name) == "" || strings.HasPrefix(name, "-") {
				continue // arguments, and no file
			}
		}
		if name == "" && via != nil && via.Known {
			continue // the job reads no file
		}
		c := s.configuration(name, via)
		if c == nil {
			return nil, true
		}
		at := slices.Concat(v.Path, key)
		at[len(at)-1] = c.spelled(at)
		if n, there := number(c.root, at); there {
			t := c.target(at, n)
			found = &t
		} else if c.has(at) {
			return nil, true
		}
	}
	return found, false
}

// configuration is a file that the job reads; nil if it cannot be read.
func (s *Analysis) configuration(name string, via *Argument) *configuration {
	s.configurations()
	s.add(name, via)
	for i, c := range s.files {
		if path.Clean(c.name) == path.Clean(name) {
			return &s.files[i]
		}
	}
	return nil
}

// spelled is the last of some keys as the file has it, with dashes or underscores.
func (c configuration) spelled(at []string) string {
	last := at[len(at)-1]
	if dashed := strings.ReplaceAll(last, "_", "-"); c.has(append(slices.Clone(at[:len(at)-1]), dashed)) {
		return dashed
	}
	return last
}

// has reports whether the file has a key.
func (c configuration) has(at []string) bool {
	inner, _ := c.at(at[:len(at)-1]).(map[string]any)
	_, there := inner[at[len(at)-1]]
	return there
}

// at is the value at a key of the file; nil if it has none.
func (c configuration) at(keys []string) any {
	root := c.root
	for _, key := range keys {
		inner, _ := root.(map[string]any)
		root = inner[key]
	}
	return root
}

// below is the number of a key that the file lacks: of the file or the default that it is merged
// into.
func (s *Analysis) below(v *value) (float64, bool) {
	for ; v != nil; v = v.Under {
		n, isNumber := v.Const.value.(float64)
		if isNumber || v.File == nil {
			return n, isNumber
		}
		name, via := s.pathOf(*v.File)
		c := s.configuration(name, via)
		if c == nil {
			return 0, false
		}
		if n, there := number(c.root, v.Path); there {
			return float64(n), true
		}
	}
	return 0, false
}
