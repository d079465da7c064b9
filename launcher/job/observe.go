package job

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
)

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
	ends := fmt.Sprintf("if out of memory ends an attempt after more than %s, the run ends with exit code %d (recovery.restart_from_zero)",
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
