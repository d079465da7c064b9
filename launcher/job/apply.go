package job

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
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

// Apply returns the command for a plan, which changes knobs that only names suggest by the given settings. It always
// starts from the job as written, and resumes from checkpoint unless that is empty. Changed files belong into a
// folder below dir, the attempt's folder. Apply writes nothing.
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
		fmt.Sprintf("the job gets %s, so that all attempts use one folder and the next one finds the checkpoints",
			strings.Join(words, " ")))
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

// Observer returns a function that finds in a line of the job's output that it starts from scratch, or that it did
// nothing; nil if the recipe knows no such line.
func (p *Prepared) Observer() func(line string) (strategy.ObservedSetting, bool) {
	return p.recipe.Observer()
}

// UsedVariable returns the knobs that the used value of an environment variable sets to other values than the
// asked one.
func (r Resolved) UsedVariable(name, asked, used string) strategy.Plan {
	before, err := r.withVariable(name, asked)
	if err != nil {
		return nil
	}
	after, err := r.withVariable(name, used)
	if err != nil {
		return nil
	}
	other := strategy.Plan{}
	for k, pair := range before.Changed(after) {
		other[k] = pair[1]
	}
	return other
}

// withVariable returns the plan that the job would have with a variable set.
func (r Resolved) withVariable(name, value string) (strategy.Plan, error) {
	command := r.command
	command.Env = r.env.With(map[string]string{name: value})
	var plan strategy.Plan
	err := errext.Recovered(func() (err error) {
		plan, _, err = r.recipe.Read(command, r.at)
		return err
	})
	return plan, err
}

// Checkpoints returns the location of the job's checkpoints.
func (p *Prepared) Checkpoints() CheckpointLocation {
	c, _ := p.checkpoints() // its warnings are in Warnings since the job was prepared
	return c
}

// pointedAt returns the checkpoint that the text of the framework's pointer file names.
func (r Resolved) pointedAt(text string) (path string, ok bool) {
	if len(guest(checkpointPlaces, func() error { path, ok = r.recipe.PointedAt(r.command, text); return nil })) > 0 {
		return "", false
	}
	return path, ok
}

func (r Resolved) checkpoints() (search CheckpointLocation, warnings []string) {
	search = CheckpointLocation{Dir: r.Job.Workdir}
	warnings = guest(checkpointPlaces, func() error {
		found := CheckpointLocation{Dir: r.Job.Workdir, Pointer: r.recipe.Pointer(r.command), Only: r.recipe.FollowsPointer(),
			Needs: r.recipe.Resume.Needs, Meant: r.pointedAt}
		if found.Pointer != "" {
			found.Pointer = r.under(found.Pointer)
		}
		if glob, ok := r.recipe.ResumeGlob(r.command); ok {
			found.Glob = glob
		}
		search = found
		return nil
	})
	return search, warnings
}

// NewestCheckpoint returns the newest complete checkpoint of a run that began at the given time, and when it
// was written. If [resume] names a place and there is no checkpoint, none explains why.
func (p *Prepared) NewestCheckpoint(began time.Time) (path string, written time.Time, none string) {
	c := p.Checkpoints()
	switch path = c.Newest(began); {
	case path != "":
		return path, c.Written(path), ""
	case p.Job.Resume.Latest != "":
		return "", time.Time{}, c.None(began)
	}
	return "", time.Time{}, ""
}

// FoundCheckpoints returns a function that finds the checkpoints from which a restarted run can continue,
// given the decided one.
func (p *Prepared) FoundCheckpoints(began time.Time) func(decided string) strategy.Checkpoints {
	return func(decided string) strategy.Checkpoints {
		f := strategy.Checkpoints{Decided: decided != "" && p.Checkpoints().Complete(decided, began)}
		f.Newest, f.Written, _ = p.NewestCheckpoint(began)
		return f
	}
}

// Resumption describes to the user from where an attempt continues, or that it starts from the beginning.
func (p *Prepared) Resumption() string {
	c, bound := p.Checkpoints(), p.Policy().RestartFromZero
	ends := fmt.Sprintf(
		"if out of memory ends an attempt after more than %s, the run ends with exit code %d (recovery.restart_from_zero)",
		bound, strategy.CodeExhausted)
	switch {
	case c.Glob != "" && bound > 0:
		return fmt.Sprintf("continues from: the newest complete %s; while there is none, %s", c.Glob, ends)
	case c.Glob != "" || c.Pointer != "":
		return fmt.Sprintf("continues from: the newest complete %s", cmp.Or(c.Glob, c.Pointer))
	case bound > 0:
		return fmt.Sprintf("continues from: the beginning, unless the script finds a checkpoint by itself or its command names one: gpurun does not know where they are; %s: set [resume] in train.toml", ends)
	}
	return "continues from: the beginning, unless the script finds a checkpoint by itself or its command names one: gpurun does not know where they are: set [resume] in train.toml"
}

var anyNumber = lazy.Regexp(`\d+`)

// sharedCheckpoints warns about a job array whose elements look for checkpoints in the same place: one would
// continue from another's checkpoint. A place with the element's number in its name belongs to that element.
func (s Inspected) sharedCheckpoints() []string {
	element, latest := s.Where.Element, s.Job.Resume.Latest
	if element == "" || latest == "" || slices.Contains(anyNumber().FindAllString(latest, -1), element) {
		return nil
	}
	return []string{fmt.Sprintf("this is element %s of an array, and every element looks for checkpoints in %s: one may continue from another's; give each a separate folder",
		element, latest)}
}
