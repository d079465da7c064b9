package script

import (
	"fmt"
	"path"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/patch"
)

// hydraNumber is the value of a key in Hydra's configuration that no word of the command sets: in
// the files that its list of defaults names, and in its own file.
func (s *Analysis) hydraNumber(key []string) (int64, bool) { return s.hydraValue(key, 0) }

// referenced matches a value that is another key: ${train.batch_size}.
var referenced = lazy.Regexp(`^\$\{(\w+(?:\.\w+)*)\}$`)

func (s *Analysis) hydraValue(key []string, depth int) (int64, bool) {
	h := s.facts.Hydra
	if h == nil || h.Name == nil || s.read == nil || depth > 5 {
		return 0, false
	}
	folder, name := path.Dir(h.File), *h.Name
	if h.Folder != nil {
		folder = path.Join(folder, *h.Folder)
	}
	if word, given := s.word([]string{"--config-name", "-cn"}); given {
		name = word
	}
	if extension := path.Ext(name); extension != ".yaml" && extension != ".yml" { // hydra/_internal/config_repository.py keeps both
		name += ".yaml"
	}
	primary := s.read(path.Join(folder, name))
	groups, known := defaults(primary)
	if primary == nil || !known || s.elsewhere() {
		return 0, false
	}
	var found []any
	look := func(text []byte, at []string) {
		if value, there, err := patch.Get(patch.YAML, text, patch.Join(at)); err == nil && there {
			found = append(found, value)
		}
	}
	for _, g := range s.chosen(groups) {
		text := s.read(path.Join(folder, g.name, g.option+".yaml"))
		below, inside := strings.CutPrefix(strings.Join(key, "/"), g.name+"/")
		has := func(word string) bool { return strings.Contains(string(text), word) }
		switch packaged := has("@package"); {
		case text == nil:
		case packaged && !has("@package _global_") && !has("@package _group_"):
			return 0, false
		case has("@package _global_"), !packaged && g.name == "":
			look(text, key)
		case inside:
			look(text, strings.Split(below, "/"))
		}
	}
	look(primary, key)
	if len(found) != 1 {
		return 0, false
	}
	if text, isText := found[0].(string); isText && referenced().MatchString(text) {
		other := referenced().FindStringSubmatch(text)[1]
		if word, given := s.override(other); given {
			n, err := strconv.ParseInt(word, 10, 64)
			return n, err == nil
		}
		return s.hydraValue(strings.Split(other, "."), depth+1)
	}
	return whole(found[0])
}

// override is the value of a word a.b=c of the command.
func (s *Analysis) override(key string) (value string, given bool) {
	for _, word := range s.argv {
		if name, after, cut := strings.Cut(strings.TrimLeft(word, "+~"), "="); cut && name == key {
			value, given = after, true
		}
	}
	return value, given
}

// elsewhere reports whether the command chooses another folder of configurations, or one that
// changes the list of defaults.
func (s *Analysis) elsewhere() bool {
	for _, word := range s.argv {
		switch name, _, _ := strings.Cut(strings.TrimLeft(word, "+~"), "="); name {
		case "--config-path", "-cp", "--config-dir", "-cd", "experiment":
			return true
		}
	}
	return false
}

// chosen replaces the options of groups by those that the command chooses.
func (s *Analysis) chosen(groups []defaultsGroup) []defaultsGroup {
	groups = slices.Clone(groups)
	for i, g := range groups {
		if word, given := s.override(g.name); given && g.name != "" {
			groups[i].option = strings.TrimSuffix(word, ".yaml")
		}
	}
	return groups
}

// A defaultsGroup is an entry of Hydra's list of defaults.
type defaultsGroup struct{ name, option string }

// defaults reads that list; false for one with an entry that is not understood.
func defaults(text []byte) ([]defaultsGroup, bool) {
	list, there, err := patch.Get(patch.YAML, text, "defaults")
	if err != nil {
		return nil, false
	}
	if !there {
		return nil, true
	}
	entries, ok := list.([]any)
	if !ok {
		return nil, false
	}
	var groups []defaultsGroup
	for _, entry := range entries {
		switch e := entry.(type) {
		case string:
			if e != "_self_" {
				groups = append(groups, defaultsGroup{"", e})
			}
		case map[string]any:
			for name, option := range e {
				name = strings.TrimPrefix(strings.TrimPrefix(name, "optional "), "/")
				if strings.HasPrefix(name, "override ") || strings.Contains(name, "@") {
					continue
				}
				if option == nil {
					option = "null" // no file, unless the command chooses one
				}
				groups = append(groups, defaultsGroup{name, fmt.Sprint(option)})
			}
		default:
			return nil, false
		}
	}
	return groups, true
}
