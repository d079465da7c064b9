package recipes

import (
	"embed"
	"errors"
	"fmt"
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
	read, err := Embedded(nil)
	all := make([]Recipe, len(read))
	for i, r := range read {
		all[i] = Recipe{r}
	}
	return all, err
}

// CatalogFiles lists the recipes' files.
func CatalogFiles() ([]string, error) {
	entries, err := catalog.ReadDir("catalog")
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

// CatalogText returns the text of one recipe's file.
func CatalogText(file string) ([]byte, error) {
	text, err := catalog.ReadFile("catalog/" + file)
	if err != nil {
		return nil, fmt.Errorf("read the catalog of recipes: %w", err)
	}
	return text, nil
}

// Embedded reads some files of the catalog, nil for all, for callers that look for the recipe of a
// command. They are sorted by name. Each file is parsed once.
func Embedded(files []string) ([]format.Recipe, error) {
	var err error
	if files == nil {
		if files, err = CatalogFiles(); err != nil {
			return nil, err
		}
	}
	all, faults := make([]format.Recipe, len(files)), make([]error, len(files))
	var reading sync.WaitGroup
	for i, file := range files {
		once, _ := embedded.LoadOrStore(file, sync.OnceValues(func() (format.Recipe, error) { return readEmbedded(file) }))
		reading.Go(func() { all[i], faults[i] = once.(func() (format.Recipe, error))() })
	}
	reading.Wait()
	if err := errors.Join(faults...); err != nil {
		return nil, err
	}
	slices.SortStableFunc(all, func(a, b format.Recipe) int { return strings.Compare(a.Name, b.Name) })
	return all, nil
}

// embedded has the readers of the catalog's files, by name. Their recipes are not changed.
var embedded sync.Map

// readEmbedded reads one recipe, and the report of make conformance on it, if there is one.
func readEmbedded(file string) (format.Recipe, error) {
	text, err := CatalogText(file)
	if err != nil {
		return format.Recipe{}, err
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
