package main

import (
	"context"

	"github.com/gpurun/gpurun/launcher/show"
)

// detectRecipe shows which recipe a job gets, and what else it could have been.
func detectRecipe(ctx context.Context, args []string, s stdio) error {
	p, own, err := prepareArgs(ctx, args, false)
	if err != nil {
		return err
	}
	defer p.close()
	d, err := p.Detection()
	if err != nil {
		return err
	}
	if own.JSON {
		return show.WriteJSON(s.out, p.secrets(), d)
	}
	page := show.NewPage(s.out, p.secrets())
	page.Printf("recipe: %s\n", p.RecipeName())
	for _, line := range d.Evidence {
		page.Printf("  %s\n", line)
	}
	for _, c := range d.Candidates {
		if c.Recipe == d.Recipe {
			continue
		}
		page.Printf("%s\n", c.Against())
		for _, line := range c.Evidence {
			page.Printf("  %s\n", line)
		}
	}
	return nil
}
