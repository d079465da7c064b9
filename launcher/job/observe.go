package job

import (
	"cmp"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/checkpoint"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/strategy"
)

// Observer returns a function that finds a reported setting in a line of the job's output; nil if the recipe
// knows no such line.
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

// FrameworkSettings reads the settings that a job's framework uses, from places other than its output.
type FrameworkSettings struct{ Resolved }

// Settings returns the FrameworkSettings of the job.
func (p *Prepared) Settings() FrameworkSettings { return FrameworkSettings{p.Resolved} }

// Files returns globs of the files with settings, relative to the working directory.
func (s FrameworkSettings) Files() []string { return s.recipe.ProofFiles(s.command) }

// InFile returns the settings in a file that matches one of those globs.
func (s FrameworkSettings) InFile(glob string, text []byte) (seen []strategy.ObservedSetting) {
	_ = guest(settingsInUse, func() error { // the file may be half written
		seen = s.recipe.ProofFile(s.command, glob, text)
		return nil
	})
	return seen
}

// InVariable returns the knobs that the used value of an environment variable sets to other values than the
// asked one.
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

// with returns the plan that the job would have with a variable set.
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

// Checkpoints returns the location of the job's checkpoints.
func (p *Prepared) Checkpoints() checkpoint.Location {
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

func (r Resolved) checkpoints() (search checkpoint.Location, warnings []string) {
	search = checkpoint.Location{Dir: r.Job.Workdir}
	warnings = guest(checkpointPlaces, func() error {
		found := checkpoint.Location{Dir: r.Job.Workdir, Pointer: r.recipe.Pointer(r.command), Only: r.recipe.FollowsPointer(),
			Needs: r.recipe.Resume.Needs, Meant: r.pointedAt}
		if found.Pointer != "" {
			found.Pointer = r.under(found.Pointer)
		}
		if glob, ok := r.recipe.ResumeGlob(r.command); ok && !r.movesCheckpoints() {
			found.Glob = glob
		}
		search = found
		return nil
	})
	return search, warnings
}

// folderArgument matches an argument in the pattern of a recipe's checkpoints: {--output_dir}, {--output_dir|out}.
var folderArgument = lazy.Regexp(`\{--([\w-]+)[|}]`)

// movesCheckpoints reports whether the job's code sets the argument with the folder of its checkpoints again.
func (r Resolved) movesCheckpoints() bool {
	if r.recipe.Resume.Own {
		return false
	}
	return slices.ContainsFunc(folderArgument().FindAllStringSubmatch(r.recipe.Resume.Latest, -1), func(m []string) bool {
		return r.set[strings.ReplaceAll(m[1], "-", "_")] != ""
	})
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
	if at := p.refusesAgain(); at != "" {
		return p.resumption() + "; the script may not start again where its outputs are there already (" + at + ")"
	}
	return p.resumption()
}

// refusesAgain is the place of the job's code that ends a second attempt, as far as it is seen; empty for none.
func (p *Prepared) refusesAgain() string {
	if slices.ContainsFunc(p.Job.Argv, func(word string) bool { return strings.Contains(word, "overwrite") }) {
		return ""
	}
	for _, file := range p.reading.Code {
		if file.Again > 0 && (file.AgainIn == "" || p.uses(file)) {
			return fmt.Sprintf("%s:%d", p.shown(file.Path), file.Again)
		}
	}
	return ""
}

// uses reports whether the job's code calls, or passes on, the function of a file that may end a second attempt.
func (s Inspected) uses(file format.CodeFile) bool {
	module := regexp.QuoteMeta(strings.TrimSuffix(filepath.Base(file.Path), ".py")) + "|" + regexp.QuoteMeta(filepath.Base(filepath.Dir(file.Path)))
	name := regexp.QuoteMeta(file.AgainIn)
	uses := regexp.MustCompile(`(?m)(?:^|[^.\w])(?:(?:` + module + `)\.)?` + name + `\(|[(=,][ \t]*` + name + `[ \t]*[,)]`)
	defines := regexp.MustCompile(`\bdef[ \t]+` + name + `\(`)
	return slices.ContainsFunc(s.sources(), func(f format.Source) bool {
		return len(uses.FindAll(f.Text, -1)) > len(defines.FindAll(f.Text, -1))
	})
}

// resumption describes from where an attempt continues, if the script starts again.
func (p *Prepared) resumption() string {
	c, bound := p.Checkpoints(), p.Policy().RestartFromZero
	ends := fmt.Sprintf("if out of memory ends an attempt after more than %s, the run ends with exit code %d (recovery.restart_from_zero)",
		bound, strategy.CodeExhausted)
	switch {
	case c.Glob != "" && bound > 0:
		return fmt.Sprintf("continues from: the newest complete %s; while there is none, %s", c.Glob, ends)
	case c.Glob != "" || c.Pointer != "":
		return fmt.Sprintf("continues from: the newest complete %s", cmp.Or(c.Glob, c.Pointer))
	case p.loadsNothing() && bound > 0:
		return fmt.Sprintf("continues from: the beginning: no code that was read loads a checkpoint; %s", ends)
	case bound > 0:
		return fmt.Sprintf("continues from: the beginning, unless the script finds a checkpoint by itself or its command names one: gpurun does not know where they are; %s: set [resume] in train.toml", ends)
	}
	return "continues from: the beginning, unless the script finds a checkpoint by itself or its command names one: gpurun does not know where they are: set [resume] in train.toml"
}

// continues matches code that may load a checkpoint.
var continues = lazy.Regexp(`(?i)torch\.load|load_state_dict|load_checkpoint|load_ckpt|from_checkpoint|from_pretrained\(\s*[a-z_]|\b(?:solver|engine|model|net|agent|learner|runner)\.load\w*\(|resum|restor|Trainer\b`)

// loadsNothing reports whether no code of the job that was read loads a checkpoint.
func (r Resolved) loadsNothing() bool {
	runsOthers := script.RunsPrograms(r.sources(), r.reading.Code) != ""
	return len(r.sources()) > 0 && !runsOthers && !r.importsMore() && r.recipe.Resume.Latest == "" && r.first(continues()) == ""
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
