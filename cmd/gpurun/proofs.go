package main

import (
	"context"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// proofPause is how often the files are looked at in which a framework writes what
// it uses. They may be on a file system that tells of no changes.
const proofPause = 5 * time.Second

// largestProof bounds what is read of one, in bytes.
const largestProof = 4 << 20

// A proofWatch looks at the files in which a framework writes what it uses.
type proofWatch struct {
	recipe  recipes.Recipe
	command recipes.Command
	workdir string
	began   time.Time // what is older was written by another attempt
	seen    map[string]bool
	emit    func(strategy.Fact)
}

func (n *node) proofWatch(a *attempt) *proofWatch {
	return &proofWatch{
		recipe: n.p.recipe, command: n.p.command, workdir: n.p.job.Workdir, seen: map[string]bool{}, emit: a.emit,
		began: a.began.Add(-10 * time.Millisecond), // the kernel's clock for files is that coarse
	}
}

// run looks until ctx is done, and then a last time.
func (w *proofWatch) run(ctx context.Context) {
	globs := w.recipe.ProofFiles(w.command)
	if len(globs) == 0 {
		return
	}
	tick := time.NewTicker(proofPause)
	defer tick.Stop()
	for over := false; !over; {
		select {
		case <-tick.C:
		case <-ctx.Done():
			over = true
		}
		for _, glob := range globs {
			w.look(glob)
		}
	}
}

// look reads what a glob matches and this attempt has written, each file once.
func (w *proofWatch) look(glob string) {
	pattern := glob
	if !filepath.IsAbs(pattern) {
		pattern = filepath.Join(w.workdir, glob)
	}
	files, err := filepath.Glob(pattern)
	if err != nil {
		return // Parse cannot know what the command fills in
	}
	for _, file := range files {
		info, err := os.Stat(file)
		if err != nil || w.seen[file] || !info.Mode().IsRegular() || info.Size() > largestProof || info.ModTime().Before(w.began) {
			continue
		}
		text, err := os.ReadFile(file)
		if err != nil {
			continue // it may be readable later
		}
		proofs := w.recipe.ProofFile(w.command, glob, text)
		w.seen[file] = len(proofs) > 0 // else it is half written, perhaps
		for _, proof := range proofs {
			proof.Text = file + ": " + proof.Text
			w.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "file", Proof: &proof})
		}
	}
}
