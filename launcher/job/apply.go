package job

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// using returns the job with the settings by which a plan changes knobs that only names suggest.
func (p *Prepared) using(by strategy.Arguments) *Prepared {
	next := *p
	var ranks int
	if next.recipe, ranks = p.recipe.Using(by); ranks > 0 {
		next.at.DataParallel = ranks
	}
	return &next
}

// Apply returns the command for a plan, which changes knobs that only names suggest by the given settings. It always starts from the job as written, and resumes from checkpoint
// unless that is empty. Changed files belong into a folder below dir, the attempt's folder. Apply writes
// nothing.
func (p *Prepared) Apply(plan strategy.Plan, by strategy.Arguments, checkpoint, dir string) (strategy.Command, error) {
	r, files := p.using(by).Resolved, filepath.Join(dir, "files")
	at := r.at
	at.NVMePath = ranks.SwapDir(r.Job.Policy.NVMePath, dir)
	written, turned := p.split(plan)
	var change strategy.Command
	err := errext.Recovered(func() (err error) {
		beforeReading(writtenPlan)
		change, err = r.recipe.Apply(r.command, written, at, files)
		return err
	})
	if errext.Panicked(err) && maps.Equal(plan, p.Plan()) {
		change, err = strategy.Command{Argv: r.command.Argv}, nil // the job as written needs no recipe
	}
	if err != nil {
		return strategy.Command{}, err
	}
	if checkpoint != "" {
		command, err := r.withFiles(r.recipe.ResumeFiles(checkpoint))
		if err != nil {
			return strategy.Command{}, err
		}
		if change, err = r.recipe.ResumeFrom(change, command, written, checkpoint, files); err != nil {
			return strategy.Command{}, err
		}
	}
	c := change
	c.Turn, c.Env, c.Files, c.Siblings = turned, map[string]string{}, map[string][]byte{}, map[string]string{}
	maps.Copy(c.Env, p.tracked)
	maps.Copy(c.Env, change.Env)
	p.ceiling.withAllocator(r.env, c.Env)
	maps.Copy(c.Env, p.ceiling.env)
	if _, set := r.env["PYTHONUNBUFFERED"]; r.Job.Through.Direct && !set {
		c.Env["PYTHONUNBUFFERED"] = "1" // same as -u, which the wrapper does not pass on
	}
	for name, content := range change.Files {
		c.Files[filepath.Join(files, filepath.FromSlash(name))] = content
	}
	for copies, original := range change.Siblings {
		folder := filepath.Join(files, filepath.FromSlash(copies))
		c.Siblings[folder] = r.under(original)
		if checkpoint != "" && original == checkpoint {
			c.Whole = folder
		}
	}
	return c, nil
}

// withFiles returns the command with more files, without missing ones.
func (r Resolved) withFiles(names []string) (recipes.Command, error) {
	command := r.command
	command.Files = maps.Clone(command.Files)
	for _, name := range names {
		text, err := ReadFile(r.under(name), largestFile)
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return recipes.Command{}, fmt.Errorf("read a file of the checkpoint: %w", err)
		}
		command.Files[name] = text
	}
	return command, nil
}

// Pinned returns the job with additional arguments that keep all attempts of a run in one folder, and a
// warning about that. It adds them if the recipe has such arguments and the user has set none.
func (p *Prepared) Pinned(run string) *Prepared {
	var words []string
	next := *p
	next.Warnings = slices.Concat(p.Warnings, guest(oneFolder, func() error {
		words = p.recipe.Pinned(p.command, run)
		return nil
	}))
	if len(words) == 0 {
		return &next
	}
	next.unpinned = p
	next.command.Argv = slices.Concat(p.command.Argv, words)
	next.Warnings = append(next.Warnings,
		fmt.Sprintf("the job gets %s, so that all attempts use one folder and the next one finds the checkpoints", strings.Join(words, " ")))
	return &next
}

// Argv returns the command of one rank: the job's words after the interpreter, as under torchrun, or after
// wrappers.
func (p *Prepared) Argv(words []string, localRank int) []string {
	argv := append(p.Job.start(p.Python()), recipes.ForRank(words, localRank)...)
	if p.Job.Launch.LocalRankArg {
		argv = append(argv, "--local-rank="+strconv.Itoa(localRank))
	}
	return argv
}
