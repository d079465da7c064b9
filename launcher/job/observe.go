package job

import (
	"github.com/gpurun/gpurun/launcher/checkpoint"
	"github.com/gpurun/gpurun/strategy"
)

// Observer finds in a line of the job's output what the job says of the settings
// that it was given; nil where the recipe knows no such line.
func (p *Prepared) Observer() func(line string) (strategy.ObservedSetting, bool) {
	return p.resolved.recipe.Prover()
}

// Settings knows where a job's framework writes which settings it uses, apart from
// its output.
type Settings struct{ resolved Resolved }

// Settings tells where the job's framework writes which settings it uses.
func (p *Prepared) Settings() Settings { return Settings{p.resolved} }

// Files are globs of files in which it does, relative to the working directory.
func (s Settings) Files() []string { return s.resolved.recipe.ProofFiles(s.resolved.command) }

// InFile gives the settings that a file shows which one of those globs matched.
func (s Settings) InFile(glob string, text []byte) []strategy.ObservedSetting {
	return s.resolved.recipe.ProofFile(s.resolved.command, glob, text)
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
	plan, _, err := s.resolved.recipe.Read(command, s.resolved.at)
	return plan, err
}

// Checkpoints says where the checkpoints of the job are.
func (p *Prepared) Checkpoints() checkpoint.Search {
	r := p.resolved
	c := checkpoint.Search{Dir: r.job.Workdir, Pointer: r.recipe.Pointer(r.command), Only: r.recipe.FollowsPointer(), Needs: r.recipe.Resume.Needs,
		Meant: func(text string) (string, bool) { return r.recipe.PointedAt(r.command, text) }}
	if c.Pointer != "" {
		c.Pointer = r.under(c.Pointer)
	}
	if glob, ok := r.recipe.ResumeGlob(r.command); ok {
		c.Glob = glob
	}
	return c
}
