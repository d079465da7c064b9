package recipes

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"

	"github.com/BurntSushi/toml"
)

//go:embed catalog/*.toml catalog/verified
var catalog embed.FS

// Catalog returns the recipes that come with gpurun, sorted by name.
func Catalog() ([]Recipe, error) {
	entries, err := catalog.ReadDir("catalog")
	if err != nil {
		return nil, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	var all []Recipe
	var faults []error
	for _, entry := range entries {
		if entry.IsDir() {
			continue
		}
		text, err := catalog.ReadFile("catalog/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the catalog of recipes: %w", err)
		}
		r, problems := Parse(entry.Name(), text)
		for _, p := range problems {
			faults = append(faults, fmt.Errorf("recipe %s: %s", entry.Name(), p))
		}
		if r.Verified, err = verified(r.Name); err != nil {
			faults = append(faults, err)
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Recipe) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(faults...)
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
