package recipes

import (
	"embed"
	"errors"
	"fmt"
	"slices"
	"strings"
)

//go:embed catalog/*.toml
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
		text, err := catalog.ReadFile("catalog/" + entry.Name())
		if err != nil {
			return nil, fmt.Errorf("read the catalog of recipes: %w", err)
		}
		r, problems := Parse(entry.Name(), text)
		for _, p := range problems {
			faults = append(faults, fmt.Errorf("recipe %s: %s", entry.Name(), p))
		}
		all = append(all, r)
	}
	slices.SortFunc(all, func(a, b Recipe) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(faults...)
}
