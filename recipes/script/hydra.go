package script

import (
	"fmt"
	"path"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
)

// hydraNumber is the value of a key in Hydra's configuration that no word of the command sets: the files that its list of defaults names, and its own file.
func (s *Analysis) hydraNumber(key []string) (int64, bool) {
	h := s.facts.Hydra
	if h == nil || h.Name == nil || s.read == nil {
		return 0, false
	}
	folder := path.Dir(h.File)
	if h.Folder != nil {
		folder = path.Join(folder, *h.Folder)
	}
	name := strings.TrimSuffix(strings.TrimSuffix(*h.Name, ".yaml"), ".yml")
	primary := s.read(path.Join(folder, name+".yaml"))
	if primary == nil {
		return 0, false
	}
	var found []any
	groups, known := defaults(primary)
	if !known {
		return 0, false
	}
	for _, g := range groups {
		if s.overridden(g.name) {
			return 0, false
		}
		text := s.read(path.Join(folder, g.name, g.option+".yaml"))
		at := key
		below := strings.Split(g.name, "/")
		switch {
		case text == nil:
			continue
		case strings.Contains(string(text), "@package"):
			global, own := strings.Contains(string(text), "@package _global_"), strings.Contains(string(text), "@package _group_")
			switch {
			case !global && !own:
				return 0, false
			case own && (len(key) <= len(below) || strings.Join(key[:len(below)], "/") != g.name):
				continue
			case own:
				at = key[len(below):]
			}
		case g.name != "" && len(key) > len(below) && strings.Join(key[:len(below)], "/") == g.name:
			at = key[len(below):]
		case g.name != "":
			continue
		}
		if value, there, err := patch.Get(patch.YAML, text, patch.Join(at)); err == nil && there {
			found = append(found, value)
		}
	}
	if value, there, err := patch.Get(patch.YAML, primary, patch.Join(key)); err == nil && there {
		found = append(found, value)
	}
	if len(found) != 1 {
		return 0, false
	}
	n, ok := found[0].(int)
	if wide, is := found[0].(int64); is {
		return wide, true
	}
	return int64(n), ok
}

// overridden reports whether the command chooses another file of a group, or another
// configuration.
func (s *Analysis) overridden(group string) bool {
	for _, word := range s.argv {
		name, _, _ := strings.Cut(strings.TrimLeft(word, "+~"), "=")
		switch name {
		case group, "--config-name", "-cn", "--config-path", "-cp", "--config-dir", "-cd", "experiment":
			return true
		}
	}
	return false
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
				if option != nil {
					groups = append(groups, defaultsGroup{name, fmt.Sprint(option)})
				}
			}
		default:
			return nil, false
		}
	}
	return groups, true
}
