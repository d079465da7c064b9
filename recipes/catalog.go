package recipes

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
	"sync"

	"github.com/BurntSushi/toml"
)

//go:embed catalog/*.toml catalog/verified
var catalog embed.FS

// Catalog returns the recipes that come with gpurun, sorted by name.
func Catalog() ([]Recipe, error) {
	files, err := catalogFiles()
	if err != nil {
		return nil, err
	}
	all, faults := make([]Recipe, len(files)), make([]error, len(files))
	var reading sync.WaitGroup
	for i, file := range files {
		reading.Go(func() { all[i], faults[i] = embedded(file) })
	}
	reading.Wait()
	slices.SortFunc(all, func(a, b Recipe) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(faults...)
}

// catalogFiles lists the recipes' files.
func catalogFiles() ([]string, error) {
	entries, err := catalog.ReadDir("catalog")
	if err != nil {
		return nil, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	var files []string
	for _, e := range entries {
		if !e.IsDir() {
			files = append(files, e.Name())
		}
	}
	return files, nil
}

// embedded parses one recipe of the catalog.
func embedded(file string) (Recipe, error) {
	text, err := catalog.ReadFile("catalog/" + file)
	if err != nil {
		return Recipe{}, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	r, problems := Parse(file, text)
	var faults []error
	for _, p := range problems {
		faults = append(faults, fmt.Errorf("recipe %s: %s", file, p))
	}
	if r.Verified, err = verified(r.Name); err != nil {
		faults = append(faults, err)
	}
	return r, errors.Join(faults...)
}

// verified reads the report of make conformance on a recipe, nil where there is none.
func verified(name string) (*Verified, error) {
	text, err := catalog.ReadFile("catalog/verified/" + name + ".toml")
	if err != nil {
		return nil, nil // embedded files are there or are not
	}
	var v Verified
	if _, err := toml.Decode(string(text), &v); err != nil {
		return nil, fmt.Errorf("read the conformance report of %s: %w", name, err)
	}
	return &v, nil
}
