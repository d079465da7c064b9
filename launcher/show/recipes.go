package show

import (
	"encoding/json"
	"fmt"
	"io"
	"text/tabwriter"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// Recipes lists recipes, for people or in JSON.
type Recipes struct {
	Catalog []recipes.Recipe
	Whole   bool // with the places of their settings
	JSON    bool
}

// A ListedRecipe is one recipe in JSON.
type ListedRecipe struct {
	Name     string            `json:"name"`
	Title    string            `json:"title"`
	Knobs    []strategy.Knob   `json:"knobs"`
	Verified *recipes.Verified `json:"verified"`
}

// Write writes the list. The error is the writer's.
func (r Recipes) Write(w io.Writer) error {
	if r.JSON {
		list := []ListedRecipe{}
		for _, one := range r.Catalog {
			list = append(list, ListedRecipe{one.Name, one.Title, one.Turned(), one.Verified})
		}
		return json.NewEncoder(w).Encode(list)
	}
	table := tabwriter.NewWriter(w, 0, 0, 2, ' ', 0)
	for _, one := range r.Catalog {
		verified := "not verified"
		if one.Verified != nil {
			verified = "verified with " + one.Verified.Version
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", one.Name, one.Title, verified)
		if r.Whole {
			writeKnobs(table, one)
		}
	}
	return table.Flush()
}

func writeKnobs(w io.Writer, r recipes.Recipe) {
	for _, k := range strategy.Knobs {
		if knob, known := r.Knobs[k]; known {
			fmt.Fprintf(w, "  %s\t%s\t\n", k, knob.Spelling())
		}
	}
}
