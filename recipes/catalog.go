package recipes

import (
	"embed"
	"errors"
	"fmt"
	"io/fs"
	"slices"
	"strings"
	"sync"

	"github.com/pelletier/go-toml/v2"

	"github.com/gpurun/gpurun/recipes/format"
)

// catalog has the recipes that come with gpurun, one TOML file for each framework, and the results of make
// conformance for each.
//
//go:embed catalog
var catalog embed.FS

// Catalog returns the recipes that come with gpurun, sorted by name.
func Catalog() ([]Recipe, error) {
	read, err := Embedded()
	all := make([]Recipe, len(read))
	for i, r := range read {
		all[i] = Recipe{r}
	}
	return all, err
}

// Embedded returns the recipes of Catalog, for callers that look for the recipe of a command. Each file is read once;
// the recipes are not changed.
var Embedded = sync.OnceValues(func() ([]format.Recipe, error) {
	entries, err := catalog.ReadDir("catalog")
	if err != nil {
		return nil, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	entries = slices.DeleteFunc(entries, fs.DirEntry.IsDir)
	all, faults := make([]format.Recipe, len(entries)), make([]error, len(entries))
	var reading sync.WaitGroup
	for i, e := range entries {
		reading.Go(func() { all[i], faults[i] = readEmbedded(e.Name()) })
	}
	reading.Wait()
	slices.SortStableFunc(all, func(a, b format.Recipe) int { return strings.Compare(a.Name, b.Name) })
	return all, errors.Join(faults...)
})

// readEmbedded reads one recipe, and the report of make conformance on it, if there is one.
func readEmbedded(file string) (format.Recipe, error) {
	text, err := catalog.ReadFile("catalog/" + file)
	if err != nil {
		return format.Recipe{}, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	r, err := format.Parse(file, text, rules)
	if err != nil {
		return r, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	if report, err := catalog.ReadFile("catalog/verified/" + file); err == nil {
		r.Verified = &format.Verified{}
		if err := toml.Unmarshal(report, r.Verified); err != nil {
			return r, fmt.Errorf("read the conformance report of %s: %w", r.Name, err)
		}
	}
	return r, nil
}
