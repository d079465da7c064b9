package job

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes"
)

// checkKnobs lets the recipes judge the [knobs] table.
func checkKnobs(root map[string]any) []Problem {
	table, ok := root["knobs"].(map[string]any)
	if !ok {
		return nil
	}
	_, problems := recipes.FromKnobs(table)
	out := make([]Problem, 0, len(problems))
	for _, p := range problems {
		out = append(out, Problem{Key: p.Key, Message: p.Message, Suggest: p.Suggest})
	}
	return out
}

// checkRecipe reports a job.recipe that is neither a recipe nor a file, at its
// place in train.toml. Paths are relative to the file, in dir.
func checkRecipe(dir string) Check {
	return func(root map[string]any) []Problem {
		table, _ := root["job"].(map[string]any)
		name, _ := table["recipe"].(string)
		wrong := Problem{Key: []string{"job", "recipe"}, AtValue: true}
		switch {
		case name == "" || name == "auto" || name == "none" || strings.HasPrefix(name, "~"):
			return nil // job itself knows these
		case strings.Contains(name, "/") || strings.HasSuffix(name, ".toml"):
			if !filepath.IsAbs(name) {
				name = filepath.Join(dir, name)
			}
			if _, err := os.Stat(name); err == nil {
				return nil
			}
			wrong.Message = name + " does not exist"
			return []Problem{wrong}
		}
		catalog, err := recipes.Catalog()
		names := append(RecipeNames(catalog), "auto", "none")
		if err != nil || slices.Contains(names, name) {
			return nil
		}
		wrong.Message = fmt.Sprintf("there is no recipe %q; gpurun recipes lists them, and a path to a recipe file works too", name)
		wrong.Suggest = Nearest(name, names)
		return []Problem{wrong}
	}
}

// RecipeNames are the names of recipes.
func RecipeNames(catalog []recipes.Recipe) []string {
	names := make([]string, 0, len(catalog))
	for _, r := range catalog {
		names = append(names, r.Name)
	}
	return names
}
