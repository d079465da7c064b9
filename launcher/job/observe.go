package job

import (
	"github.com/gpurun/gpurun/launcher/checkpoint"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// Observer finds in a line of the job's output what the job says of the settings
// that it was given; nil where the recipe knows no such line.
func (p *Prepared) Observer() func(line string) (strategy.ObservedSetting, bool) {
	prove := p.resolved.recipe.Prover(p.resolved.at)
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

// Settings knows where a job's framework writes which settings it uses, apart from
// its output.
type Settings struct{ resolved Resolved }

// Settings tells where the job's framework writes which settings it uses.
func (p *Prepared) Settings() Settings { return Settings{p.resolved} }

// Files are globs of files in which it does, relative to the working directory.
func (s Settings) Files() []string { return s.resolved.recipe.ProofFiles(s.resolved.command) }

// InFile gives the settings that a file shows which one of those globs matched.
func (s Settings) InFile(glob string, text []byte) (seen []strategy.ObservedSetting) {
	_ = guest(settingsInUse, func() error { // the file may be half written
		seen = s.resolved.recipe.ProofFile(s.resolved.command, glob, text)
		return nil
	})
	return seen
}

// InVariable gives the knobs that a variable of the environment sets otherwise with
// the value used than with the value asked.
func (s Settings) InVariable(name, asked, used string) strategy.Plan {
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
func (s Settings) with(name, value string) (strategy.Plan, error) {
	command := s.resolved.command
	command.Env = s.resolved.env.With(map[string]string{name: value})
	var plan strategy.Plan
	err := errext.Recovered(func() (err error) {
		plan, _, err = s.resolved.recipe.Read(command, s.resolved.at)
		return err
	})
	return plan, err
}

// Checkpoints says where the checkpoints of the job are.
func (p *Prepared) Checkpoints() checkpoint.Location {
	c, _ := p.checkpoints() // Warnings has those since the job was prepared
	return c
}

func (p *Prepared) checkpoints() (c checkpoint.Location, warnings []string) {
	warnings = guest(checkpointPlaces, func() error {
		c = p.resolved.checkpoints()
		return nil
	})
	if len(warnings) > 0 {
		c = checkpoint.Location{Dir: p.resolved.job.Workdir}
	}
	return c, warnings
}

// pointedAt is the checkpoint that the framework's pointer file means by its text.
func (r Resolved) pointedAt(text string) (path string, ok bool) {
	if len(guest(checkpointPlaces, func() error { path, ok = r.recipe.PointedAt(r.command, text); return nil })) > 0 {
		return "", false
	}
	return path, ok
}

func (r Resolved) checkpoints() checkpoint.Location {
	c := checkpoint.Location{Dir: r.job.Workdir, Pointer: r.recipe.Pointer(r.command), Only: r.recipe.FollowsPointer(), Needs: r.recipe.Resume.Needs,
		Meant: r.pointedAt}
	if c.Pointer != "" {
		c.Pointer = r.under(c.Pointer)
	}
	if glob, ok := r.recipe.ResumeGlob(r.command); ok {
		c.Glob = glob
	}
	return c
}
