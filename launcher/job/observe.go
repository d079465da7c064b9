package job

import (
	"cmp"
	"fmt"
	"regexp"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher/checkpoint"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// Observer finds in a line of the job's output what the job says of the settings
// that it was given; nil where the recipe knows no such line.
func (p *Prepared) Observer() func(line string) (strategy.ObservedSetting, bool) {
	prove := p.recipe.Prover(p.at)
	if prove == nil {
		return nil
	}
	return func(line string) (seen strategy.ObservedSetting, found bool) {
		if len(guest(settingsInUse, func() error { seen, found = prove(line); return nil })) > 0 {
			return strategy.ObservedSetting{}, false
		}
		return seen, found
	}
}

// FrameworkSettings knows where a job's framework writes which settings it uses, apart from
// its output.
type FrameworkSettings struct{ Resolved }

// Settings finds where the job's framework writes the settings that it uses.
func (p *Prepared) Settings() FrameworkSettings { return FrameworkSettings{p.Resolved} }

// Files are globs of files in which it does, relative to the working directory.
func (s FrameworkSettings) Files() []string { return s.recipe.ProofFiles(s.command) }

// InFile gives the settings that a file shows which one of those globs matched.
func (s FrameworkSettings) InFile(glob string, text []byte) (seen []strategy.ObservedSetting) {
	_ = guest(settingsInUse, func() error { // the file may be half written
		seen = s.recipe.ProofFile(s.command, glob, text)
		return nil
	})
	return seen
}

// InVariable gives the knobs that a variable of the environment sets otherwise with
// the value used than with the value asked.
func (s FrameworkSettings) InVariable(name, asked, used string) strategy.Plan {
	before, err := s.with(name, asked)
	if err != nil {
		return nil
	}
	after, err := s.with(name, used)
	if err != nil {
		return nil
	}
	other := strategy.Plan{}
	for k, pair := range before.Changed(after) {
		other[k] = pair[1]
	}
	return other
}

// with is the plan that the job would read with a variable.
func (s FrameworkSettings) with(name, value string) (strategy.Plan, error) {
	command := s.command
	command.Env = s.env.With(map[string]string{name: value})
	var plan strategy.Plan
	err := errext.Recovered(func() (err error) {
		plan, _, err = s.recipe.Read(command, s.at)
		return err
	})
	return plan, err
}

// Checkpoints says where the checkpoints of the job are.
func (p *Prepared) Checkpoints() checkpoint.Location {
	c, _ := p.checkpoints() // Warnings has those since the job was prepared
	return c
}

// pointedAt is the checkpoint that the framework's pointer file means by its text.
func (r Resolved) pointedAt(text string) (path string, ok bool) {
	if len(guest(checkpointPlaces, func() error { path, ok = r.recipe.PointedAt(r.command, text); return nil })) > 0 {
		return "", false
	}
	return path, ok
}

func (r Resolved) checkpoints() (search checkpoint.Location, warnings []string) {
	search = checkpoint.Location{Dir: r.Job.Workdir}
	warnings = guest(checkpointPlaces, func() error {
		found := checkpoint.Location{Dir: r.Job.Workdir, Pointer: r.recipe.Pointer(r.command), Only: r.recipe.FollowsPointer(),
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

// NewestCheckpoint is the newest complete checkpoint of a run that began then, and when it was
// written. Where [resume] says where to look and there is none, none explains why.
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

// FoundCheckpoints says what there is to start from when the run is started again, beside the
// checkpoint that was decided.
func (p *Prepared) FoundCheckpoints(began time.Time) func(decided string) strategy.Checkpoints {
	return func(decided string) strategy.Checkpoints {
		f := strategy.Checkpoints{Decided: decided != "" && p.Checkpoints().Complete(decided, began)}
		f.Newest, f.Written, _ = p.NewestCheckpoint(began)
		return f
	}
}

// Resumption says from where an attempt continues, and what becomes of a run that has
// nothing to go on from.
func (p *Prepared) Resumption() string {
	c, bound := p.Checkpoints(), p.Policy().RestartFromZero
	ends := fmt.Sprintf("an attempt that runs out of memory after more than %s ends the run with exit code %d (recovery.restart_from_zero)",
		bound, strategy.CodeExhausted)
	switch {
	case c.Glob != "" && bound > 0:
		return fmt.Sprintf("goes on from: the newest complete %s; while there is none, %s", c.Glob, ends)
	case c.Glob != "" || c.Pointer != "":
		return fmt.Sprintf("goes on from: the newest complete %s", cmp.Or(c.Glob, c.Pointer))
	case bound > 0:
		return fmt.Sprintf("goes on from: the beginning, since nothing is known of the job's checkpoints; %s: set [resume] in train.toml", ends)
	}
	return "goes on from: the beginning, since nothing is known of the job's checkpoints: set [resume] in train.toml"
}

var anyNumber = regexp.MustCompile(`\d+`)

// sharedCheckpoints warns of an array whose elements look for their checkpoints in the
// same place: one would go on from another's. A place that has the element's number
// in its name is its own.
func (s Inspected) sharedCheckpoints() []string {
	element, latest := s.Where.Element, s.Job.Resume.Latest
	if element == "" || latest == "" || slices.Contains(anyNumber.FindAllString(latest, -1), element) {
		return nil
	}
	return []string{fmt.Sprintf("this is element %s of an array, and every element looks for checkpoints in %s: one may go on from another's; give each a folder of its own",
		element, latest)}
}
