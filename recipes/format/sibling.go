package format

import (
	"slices"
	"strings"
)

// A siblings is a kind of place that knows the places of the other settings of its parser, its call or its
// file: a framework's settings have the same names wherever they are given.
type siblings interface {
	// sibling is the place of a setting, if this is the place of the setting from.
	sibling(from, setting string) (PlaceKind, bool)
	// inside are the places of a key, if the setting is a table or names a file.
	inside(from, setting, key string) []PlaceKind
}

// Sibling is the place of another setting of the framework that is given as the setting from is at this place;
// false if this is not a place of from.
func (p Place) Sibling(from, setting string) (Place, bool) {
	s, ok := p.PlaceKind.(siblings)
	if !ok {
		return Place{}, false
	}
	kind, ok := s.sibling(from, setting)
	return Place{PlaceKind: kind}, ok
}

// Inside lists the places of a key of another setting that is given as the setting from is at this place, and is
// a table, or the path of a file.
func (p Place) Inside(from, setting, key string) []Place {
	s, ok := p.PlaceKind.(siblings)
	if !ok {
		return nil
	}
	var places []Place
	for _, kind := range s.inside(from, setting, key) {
		places = append(places, Place{PlaceKind: kind})
	}
	return places
}

func (a argument) sibling(from, setting string) (PlaceKind, bool) {
	if !slices.Contains(a.names, "--"+from) {
		return nil, false
	}
	return argument{names: spellings{"--" + setting}}, true
}

func (a argument) inside(from, setting, key string) []PlaceKind {
	if _, ok := a.sibling(from, setting); !ok {
		return nil
	}
	return []PlaceKind{fileKey{path: key, InFile: InFile{vias: []Via{{Arg: "--" + setting, Any: true}}, optional: true}}}
}

func (k fileKey) sibling(from, setting string) (PlaceKind, bool) {
	table, is := strings.CutSuffix("."+k.path, "."+from)
	if !is {
		return nil, false
	}
	k.path, k.optional = strings.TrimPrefix(table+"."+setting, "."), true
	return k, true
}

func (k fileKey) inside(from, setting, key string) []PlaceKind {
	kind, ok := k.sibling(from, setting)
	if !ok {
		return nil
	}
	table := kind.(fileKey)
	places := []PlaceKind{fileKey{path: table.path + "." + key, InFile: table.InFile}}
	for _, via := range table.vias {
		named := Via{Path: table.path, In: &via}
		places = append(places, fileKey{path: key, InFile: InFile{vias: []Via{named}, optional: true}})
	}
	return places
}

func (c called) sibling(from, setting string) (PlaceKind, bool) {
	if c.keyword != from {
		return nil, false
	}
	c.keyword, c.where = setting, nil
	return c, true
}

// inside of a call returns nothing: code computes the table.
func (called) inside(string, string, string) []PlaceKind { return nil }
