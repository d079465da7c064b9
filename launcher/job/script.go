package job

import (
	"bytes"
	"context"
	"path/filepath"
	"strings"
	"time"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
)

// trainers are words of which a source that trains with PyTorch has one.
var trainers = [][]byte{[]byte("torch"), []byte("transformers"), []byte("accelerate"), []byte("lightning"), []byte("deepspeed"), []byte("fabric")}

// mostSource bounds, in bytes, what is taken apart of a job's own code: the script comes
// first, then the modules in the order in which they are imported.
const mostSource = 4 << 20

// readingBudget is the processor time in which the settings of a script are looked for before
// it starts, once its interpreter runs. What is not found by then is unknown.
var readingBudget = 300 * time.Millisecond

// own reads the settings of a script that no recipe knows out of its source.
func (s Inspected) own(ctx context.Context, c choice) (choice, error) {
	found, err := s.script(ctx)
	if found == nil {
		return c, err
	}
	r := found.Recipe(func(r format.Recipe) string { return s.unsuited(c.command, r) })
	c.script, c.recipe = found, recipes.Recipe{Recipe: r}
	if c.evidence = found.Evidence(); len(c.evidence) == 0 && r.Resume.Latest == "" {
		c.recipe.Name = "" // which only says what is missing
	}
	c.warnings = append(c.warnings, found.Warnings()...)
	return c, nil
}

// script is what is said by a script's source and its modules; nil where there is
// none, or where nothing in it trains.
func (s Inspected) script(ctx context.Context) (*script.Analysis, error) {
	if s.python == nil || s.source == nil {
		return nil, nil
	}
	var sources []format.Source
	trains, size := false, 0
	for _, one := range s.sources() {
		if installed(one.Path) {
			continue
		}
		if size += len(one.Text); size > mostSource {
			break
		}
		sources = append(sources, format.Source{Path: s.shown(one.Path), Text: one.Text})
		for _, word := range trainers {
			trains = trains || bytes.Contains(one.Text, word)
		}
	}
	if !trains || installed(s.sourcePath) {
		return nil, nil
	}
	input, err := script.Input(sources, readingBudget.Seconds())
	if err != nil {
		return nil, err
	}
	printed, err := s.python.Output(ctx, script.Program, input)
	if err != nil {
		return nil, err
	}
	facts, err := script.Read(printed)
	if err != nil {
		return nil, err
	}
	found := script.Decide(facts, s.shown(s.sourcePath), s.job.Argv, s.beside)
	return &found, nil
}

// shown is a path as a person would write it in the job's working directory.
func (s Inspected) shown(path string) string {
	if rel, err := filepath.Rel(s.job.Workdir, path); err == nil && !strings.HasPrefix(rel, "..") {
		return rel
	}
	return path
}

// beside reads a configuration file of the job by a path as shown gives it; nil where
// there is none.
func (s Inspected) beside(path string) []byte {
	text, err := readFile(s.under(path), largestFile)
	if err != nil {
		return nil
	}
	return text
}

// unsuited is why a knob cannot be read where the source says that it is kept, such as
// in a file that is not there.
func (s Inspected) unsuited(command recipes.Command, r format.Recipe) string {
	loaded, err := s.load(command, r)
	if err == nil {
		_, _, err = recipes.Recipe{Recipe: r}.Read(loaded, recipes.Topology{Ranks: 1})
	}
	if err != nil {
		return strings.Join(strings.Fields(err.Error()), " ")
	}
	return ""
}
