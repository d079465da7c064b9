package main

import (
	"context"
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/probe"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// proofPause is how often the files are looked at in which a framework writes what
// it uses. They may be on a file system that tells of no changes.
const proofPause = 5 * time.Second

// largestProof bounds what is read of one, in bytes.
const largestProof = 4 << 20

// A proofWatch looks for what a job says of its settings where it is not in its
// output: in files that the framework writes, and in the environment that a rank
// had in the end.
type proofWatch struct {
	recipe  recipes.Recipe
	command recipes.Command // as the user wrote it
	at      recipes.Topology
	asked   map[string]string // variables that gpurun set
	dir     string            // of the attempt
	ranks   []int
	workdir string
	began   time.Time // what is older was written by another attempt
	seen    map[string]bool
	emit    func(strategy.Fact)
}

func (n *node) proofWatch(a *attempt, l launcher.Launch) *proofWatch {
	return &proofWatch{
		recipe: n.p.recipe, command: n.p.command, at: n.p.at, asked: l.Command.Env, dir: l.Dir, ranks: a.ranks(),
		workdir: n.p.job.Workdir, seen: map[string]bool{}, emit: a.emit,
		began: a.began.Add(-10 * time.Millisecond), // the kernel's clock for files is that coarse
	}
}

// run looks until ctx is done, when the ranks are gone, and then a last time.
func (w *proofWatch) run(ctx context.Context) {
	defer w.lookAtEnvironments()
	globs := w.recipe.ProofFiles(w.command)
	if len(globs) == 0 {
		<-ctx.Done()
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
			w.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "file", Observed: &proof})
		}
	}
}

// lookAtEnvironments compares the variables that gpurun set with what they were
// when a rank failed: a script that sets them by itself has the last word.
func (w *proofWatch) lookAtEnvironments() {
	for _, rank := range w.ranks {
		used := probe.Environ(w.dir, rank)
		for name, value := range used {
			if value == w.asked[name] {
				continue
			}
			for k, v := range w.knobsOf(name, value) {
				w.emit(strategy.Fact{Time: time.Now(), Rank: rank, Source: "probe", Observed: &strategy.ObservedSetting{
					Knob: k, Value: v, Text: fmt.Sprintf("%s=%s in the environment of rank %d", name, value, rank)}})
			}
		}
	}
}

// knobsOf are the knobs that a variable's value sets otherwise than gpurun did.
func (w *proofWatch) knobsOf(name, value string) strategy.Plan {
	asked, used := w.command, w.command
	asked.Env, used.Env = overlaid(w.command.Env, name, w.asked[name]), overlaid(w.command.Env, name, value)
	before, _, err := w.recipe.Read(asked, w.at)
	if err != nil {
		return nil
	}
	after, _, err := w.recipe.Read(used, w.at)
	if err != nil {
		return nil
	}
	other := strategy.Plan{}
	for k, pair := range before.Changed(after) {
		other[k] = pair[1]
	}
	return other
}

func overlaid(env map[string]string, name, value string) map[string]string {
	env = maps.Clone(env)
	if env == nil {
		env = map[string]string{}
	}
	env[name] = value
	return env
}
