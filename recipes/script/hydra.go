package script

import (
	"fmt"
	"path"
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
)

// hydraNumber is the value of a key in Hydra's configuration that no word of the command sets: in
// the files that its list of defaults names, and in its own file.
func (s *Analysis) hydraNumber(key []string) (int64, bool) {
	h := s.facts.Hydra
	if h == nil || h.Name == nil || s.read == nil {
		return 0, false
	}
	folder := path.Dir(h.File)
	if h.Folder != nil {
		folder = path.Join(folder, *h.Folder)
	}
	primary := s.read(path.Join(folder, strings.TrimSuffix(strings.TrimSuffix(*h.Name, ".yaml"), ".yml")+".yaml"))
	groups, known := defaults(primary)
	if primary == nil || !known {
		return 0, false
	}
	var found []any
	look := func(text []byte, at []string) {
		if value, there, err := patch.Get(patch.YAML, text, patch.Join(at)); err == nil && there {
			found = append(found, value)
		}
	}
	for _, g := range groups {
		if s.overridden(g.name) {
			return 0, false
		}
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
	switch n := found[0].(type) {
	case int:
		return int64(n), true
	case int64:
		return n, true
	}
	return 0, false
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
