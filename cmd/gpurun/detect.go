package main

import (
	"context"

	"github.com/gpurun/gpurun/launcher/console"
)

// detected is what a job's recipe was recognised by, in JSON.
type detected struct {
	Recipe     string      `json:"recipe"` // empty: none
	Evidence   []string    `json:"evidence"`
	Candidates []candidate `json:"candidates"`
}

// candidate is a recipe of whose marks the job has some.
type candidate struct {
	Recipe   string   `json:"recipe"`
	Evidence []string `json:"evidence"`
	Matched  bool     `json:"matched"`
	Yields   string   `json:"yields_to,omitempty"`
}

// detectRecipe shows which recipe a job gets, and what else it could have been.
func detectRecipe(ctx context.Context, args []string, s streams) error {
	p, own, err := prepareArgs(ctx, args)
	if err != nil {
		return err
	}
	defer p.close()
	candidates, err := p.Candidates()
	if err != nil {
		return err
	}
	name, evidence := p.Recipe()
	d := detected{Recipe: name, Evidence: append([]string{}, evidence...), Candidates: []candidate{}}
	for _, c := range candidates {
		d.Candidates = append(d.Candidates, candidate{c.Recipe.Name, c.Evidence, c.Matched, c.Yields})
	}
	if own.JSON {
		return console.WriteJSON(s.out, p.secrets(), d)
	}
	page := console.NewPage(s.out, p.secrets())
	page.Printf("recipe: %s\n", p.RecipeName())
	for _, line := range d.Evidence {
		page.Printf("  %s\n", line)
	}
	for _, c := range d.Candidates {
		if c.Recipe == d.Recipe {
			continue
		}
		switch {
		case c.Yields != "":
			page.Printf("not %s: it gives way to %s\n", c.Recipe, c.Yields)
		case c.Matched:
			page.Printf("not %s: more than one recipe fits: name it in job.recipe\n", c.Recipe)
		default:
			page.Printf("not %s: these marks are not enough\n", c.Recipe)
		}
		for _, line := range c.Evidence {
			page.Printf("  %s\n", line)
		}
	}
	return nil
}
