// Package catalog holds the recipes that come with gpurun, one TOML file per framework, and the
// results of make conformance for each.
package catalog

import (
	"embed"
	"errors"
	"fmt"
	"sync"

	"github.com/BurntSushi/toml"

	"github.com/gpurun/gpurun/recipes/format"
)

//go:embed *.toml verified
var files embed.FS

// Read returns the recipes of some files, in their order; rules are the rules that they may name.
func Read(names []string, rules format.Rules) ([]format.Recipe, error) {
	all, faults := make([]format.Recipe, len(names)), make([]error, len(names))
	var reading sync.WaitGroup
	for i, name := range names {
		reading.Go(func() { all[i], faults[i] = read(name, rules) })
	}
	reading.Wait()
	return all, errors.Join(faults...)
}

// Files lists the recipes' files.
func Files() ([]string, error) {
	entries, err := files.ReadDir(".")
	if err != nil {
		return nil, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	var names []string
	for _, e := range entries {
		if !e.IsDir() {
			names = append(names, e.Name())
		}
	}
	return names, nil
}

// Text returns the text of one recipe's file.
func Text(file string) ([]byte, error) {
	text, err := files.ReadFile(file)
	if err != nil {
		return nil, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	return text, nil
}

// read reads one recipe.
func read(file string, rules format.Rules) (format.Recipe, error) {
	text, err := Text(file)
	if err != nil {
		return format.Recipe{}, err
	}
	r, err := format.Parse(file, text, rules)
	if err != nil {
		return r, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	r.Verified, err = verified(r.Name)
	return r, err
}

// verified reads the report of make conformance on a recipe; nil if there is none.
func verified(name string) (*format.Verified, error) {
	text, err := files.ReadFile("verified/" + name + ".toml")
	if err != nil {
		return nil, nil // embedded files exist or do not exist
	}
	var v format.Verified
	if _, err := toml.Decode(string(text), &v); err != nil {
		return nil, fmt.Errorf("read the conformance report of %s: %w", name, err)
	}
	return &v, nil
}
