package main

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// Apply makes p the launcher's Recipe: it gives the command for a plan, always
// from the job as the user wrote it.
func (p *prepared) Apply(plan strategy.Plan, checkpoint, dir string) (launcher.Command, error) {
	files := filepath.Join(dir, "files")
	at := p.at
	at.NVMePath = host.SwapDir(p.job.Recovery.NVMePath, dir)
	change, err := p.recipe.Apply(p.command, plan, at, files)
	if err != nil {
		return launcher.Command{}, err
	}
	if checkpoint != "" {
		command := p.command
		if command.Files, err = p.withFiles(p.recipe.ResumeFiles(checkpoint)); err != nil {
			return launcher.Command{}, err
		}
		if change, err = p.recipe.ResumeFrom(change, command, plan, checkpoint, files); err != nil {
			return launcher.Command{}, err
		}
	}
	c := launcher.Command{Argv: change.Argv, Env: map[string]string{}, Files: map[string][]byte{}, Siblings: map[string]string{}, Diff: change.Diff}
	for k, v := range change.Env {
		c.Env[k] = v
	}
	p.ceiling.withAllocator(p.command.Env, c.Env)
	for k, v := range p.ceiling.env {
		c.Env[k] = v
	}
	for name, content := range change.Files {
		c.Files[filepath.Join(files, filepath.FromSlash(name))] = content
	}
	for copies, original := range change.Siblings {
		c.Siblings[filepath.Join(files, filepath.FromSlash(copies))] = p.under(original)
	}
	return c, nil
}

// withFiles adds files to those that the command names; one that is not there is
// left out.
func (p *prepared) withFiles(names []string) (map[string][]byte, error) {
	files := map[string][]byte{}
	for name, text := range p.command.Files {
		files[name] = text
	}
	for _, name := range names {
		text, err := os.ReadFile(p.under(name))
		if errors.Is(err, fs.ErrNotExist) {
			continue
		}
		if err != nil {
			return nil, fmt.Errorf("read a file of the checkpoint: %w", err)
		}
		files[name] = text
	}
	return files, nil
}

// pin puts the words on the command that keep all attempts of a run in one folder,
// where the recipe knows some and the user has none, and tells people of it.
func (p *prepared) pin(run string) {
	words := p.recipe.Pinned(p.command, run)
	if len(words) == 0 {
		return
	}
	p.command.Argv = append(slices.Clone(p.command.Argv), words...)
	p.warnings = append(p.warnings, fmt.Sprintf("the job gets %s, so that all attempts use one folder and the next one finds the checkpoints", strings.Join(words, " ")))
}

// propose gives the command that starts a plan from the beginning, without the
// ceiling that only gpurun puts on; changed files are those of attempt n.
func (p *prepared) propose(dir string) func(strategy.Plan, int) (launcher.Command, error) {
	return func(plan strategy.Plan, n int) (launcher.Command, error) {
		change, err := p.recipe.Apply(p.command, plan, p.at, filepath.Join(dir, fmt.Sprintf("attempt-%d", n), "files"))
		argv := slices.DeleteFunc(slices.Clone(change.Argv), func(w string) bool { return w == recipes.LocalRank }) // the launcher's own word
		return launcher.Command{Argv: argv, Env: change.Env}, err
	}
}
