package main

import (
	"fmt"
	"slices"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/show"
	"github.com/gpurun/gpurun/recipes"
)

func recipesCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:      "recipes",
		Usage:     "list the frameworks that gpurun knows, or show one",
		UsageText: "gpurun recipes [--json] [NAME]\ngpurun recipes detect [--json] train.toml",
		Description: "A recipe describes where a framework keeps the settings that gpurun may change. With a name, each setting is shown\n" +
			"with its place. With --json: [{\"name\", \"title\", \"knobs\", \"verified\": {\"version\", \"rungs\"} | null}]",
		Flags: []cli.Flag{jsonFlag()},
		Subcommands: []*cli.Command{{
			Name:            "detect",
			Usage:           "show which recipe a job gets, and why",
			UsageText:       "gpurun recipes detect [--json] train.toml\ngpurun recipes detect [torchrun's flags] script.py [arguments …]",
			SkipFlagParsing: true,
			Action: func(c *cli.Context) error {
				return manual.OrHelp(c, detectRecipe(c.Context, c.Args().Slice(), s))
			},
		}},
		Action: func(c *cli.Context) error {
			if err := manual.AtMost(c, 1); err != nil {
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
			return show.Recipes{Catalog: catalog, Whole: c.Args().Present(), JSON: c.Bool("json")}.Write(s.out)
		},
	}
}
