package main

import (
	"encoding/json"
	"fmt"
	"slices"
	"text/tabwriter"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/verb"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

func recipesCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:      "recipes",
		Usage:     "list the frameworks that gpurun knows, or show one",
		UsageText: "gpurun recipes [--json] [NAME]\ngpurun recipes detect [--json] train.toml",
		Description: "A recipe says where a framework keeps the settings that gpurun may change. With a name, each setting is shown\n" +
			"with its place. With --json: [{\"name\", \"title\", \"knobs\", \"verified\": {\"version\", \"rungs\"} | null}]",
		Flags: []cli.Flag{jsonFlag()},
		Subcommands: []*cli.Command{{
			Name:            "detect",
			Usage:           "show which recipe a job gets, and why",
			UsageText:       "gpurun recipes detect [--json] train.toml\ngpurun recipes detect [torchrun's flags] script.py [arguments …]",
			SkipFlagParsing: true,
			Action:          func(c *cli.Context) error { return verb.OrHelp(c, detectRecipe(c.Context, c.Args().Slice(), s)) },
		}},
		Action: func(c *cli.Context) error {
			if err := verb.AtMost(c, 1); err != nil {
				return err
			}
			catalog, err := recipes.Catalog()
			if err != nil {
				return fmt.Errorf("load the recipes: %w", err)
			}
			if name := c.Args().First(); name != "" {
				i := slices.IndexFunc(catalog, func(r recipes.Recipe) bool { return r.Name == name })
				if i < 0 {
					hint := "gpurun recipes lists them"
					if meant := job.Nearest(name, job.RecipeNames(catalog)); meant != "" {
						hint = "did you mean " + meant + "? " + hint
					}
					return errext.Errorf(hint, "there is no recipe %q", name)
				}
				catalog = catalog[i : i+1]
			}
			if c.Bool("json") {
				return json.NewEncoder(s.out).Encode(listRecipes(catalog))
			}
			return printRecipes(s, catalog, c.Args().Present())
		},
	}
}

// listedRecipe is one recipe in JSON.
type listedRecipe struct {
	Name     string            `json:"name"`
	Title    string            `json:"title"`
	Knobs    []strategy.Knob   `json:"knobs"`
	Verified *recipes.Verified `json:"verified"`
}

func listRecipes(catalog []recipes.Recipe) []listedRecipe {
	list := []listedRecipe{}
	for _, r := range catalog {
		list = append(list, listedRecipe{r.Name, r.Title, r.Turned(), r.Verified})
	}
	return list
}

func printRecipes(s streams, catalog []recipes.Recipe, whole bool) error {
	table := tabwriter.NewWriter(s.out, 0, 0, 2, ' ', 0)
	for _, r := range catalog {
		verified := "not verified"
		if r.Verified != nil {
			verified = "verified with " + r.Verified.Version
		}
		fmt.Fprintf(table, "%s\t%s\t%s\n", r.Name, r.Title, verified)
		if !whole {
			continue
		}
		for _, k := range strategy.Knobs {
			if knob, known := r.Knobs[k]; known {
				fmt.Fprintf(table, "  %s\t%s\t\n", k, knob.Spelling())
			}
		}
	}
	return table.Flush()
}
