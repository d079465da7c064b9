package format

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// Lacks is why an argument cannot be put on the command line: the job's parser, all of
// whose arguments are known, has none of these names. It is empty where there is one,
// where nobody knows, and for arguments that the framework itself brings.
func (d *Draft) Lacks(names ...string) string {
	parser := d.Original.Parser
	if d.Recipe.Definitions == nil || !parser.Complete() || d.args.file() != "" {
		return ""
	}
	for _, name := range names {
		if !strings.HasPrefix(name, "-") || parser.Has(name, d.grammar.Dashes) {
			return ""
		}
	}
	return "the script's parser has no argument " + names[0]
}

// Lacking is why the place cannot be made on the command line, empty where it can or
// is there.
func (p Place) Lacking(d *Draft) string {
	if names := p.spellings(); names != nil && !p.Present(d) {
		return d.Lacks(names...)
	}
	return ""
}

// spellings are the names of an argument, its opposite among them; nil for another place.
func (p Place) spellings() []string {
	if a, ok := p.Kind.(interface{ spellings() []string }); ok {
		return a.spellings()
	}
	return nil
}

// Lacking is why one of the settings that come with a value cannot be made.
func (knob Knob) Lacking(d *Draft, places []Place, value strategy.Value) string {
	if knob.Own {
		return ""
	}
	for _, p := range places {
		c, ok := p.Kind.(interface{ optionsOf(strategy.Value) []Option })
		if !ok {
			continue
		}
		for _, o := range c.optionsOf(value) {
			if why := d.Lacks(o.Name); !o.Override && !d.Has(o.Name) && why != "" {
				return why
			}
		}
	}
	for _, s := range knob.Also {
		if s.When != nil && !slices.Contains(s.When, value) || s.Value == false {
			continue
		}
		if why := s.Place.Lacking(d); why != "" {
			return why
		}
	}
	return ""
}

// DefaultOf is what the job does without the knob's places: what its own parser says
// is stronger than the recipe. unknown is why nobody can tell.
func (d *Draft) DefaultOf(k strategy.Knob, knob Knob) (value strategy.Value, unknown string) {
	if knob.Own {
		return knob.Default, ""
	}
	for _, p := range knob.Places {
		if p.Present(d) {
			continue
		}
		for _, name := range p.spellings() {
			v, said := d.saidDefault(name)
			switch {
			case !said:
				continue
			case !v.Known, v.None && k.Whole() && knob.Default != "":
				return "", fmt.Sprintf("the default of %s is computed by the script", name)
			case v.None:
				return knob.Default, ""
			}
			if value, err := p.Understand(k, v.Text); err == nil {
				return value, ""
			}
			return "", fmt.Sprintf("the script's default of %s, %s, is none that the recipe knows", name, v.Text)
		}
	}
	return knob.Default, ""
}

// saidDefault is a default that the job's own sources give to an argument.
func (d *Draft) saidDefault(name string) (Expression, bool) {
	if d.Recipe.Definitions != nil {
		return d.Original.Parser.Default(name)
	}
	return d.Original.Parser.TrainerDefault(name)
}
