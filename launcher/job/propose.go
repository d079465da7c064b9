package job

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// An origin is where the user wrote the words of a job's command.
type origin struct {
	key string // of [job]; empty for a command line
	// words are all that were typed, what is before those of the job's Argv too:
	// gpurun's flags, a launcher.
	words []string
	env   map[string]string // that stood before the words of job.command
	// sources are the words as they were written, by index, as in Proposal, and envSources
	// those of env.
	sources    map[int]string
	envSources map[string]string
	own        int // of job.program's words, those that are not of job.args
}

// Propose gives the words that start a plan from the beginning, without the ceiling
// that only gpurun puts on; changed files are those of attempt n of the run in dir. variable
// gives those of gpurun's own environment.
func (p *Prepared) Propose(plan strategy.Plan, dir string, n int, variable func(name string) string) (model.Proposal, error) {
	r := p.Resolved
	written, turned := p.split(plan)
	change, err := r.recipe.Apply(r.command, written, r.at, filepath.Join(dir, fmt.Sprintf("attempt-%d", n), "files"))
	if err != nil {
		return model.Proposal{}, err
	}
	own := func(words []string) []string { // without the launcher's own word
		return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == commandline.LocalRank })
	}
	proposal := r.Job.origin.with(own(r.Job.Argv), own(change.Argv))
	if proposal.Key == "" {
		proposal.Words = p.WithoutNumber(proposal.Words)
	}
	proposal.Env, proposal.HasEnv = maps.Clone(r.Job.origin.env), len(r.Job.Env) > 0
	if proposal.Env == nil {
		proposal.Env = map[string]string{}
	}
	maps.Copy(proposal.Env, change.Env)
	proposal.EnvSources = maps.Clone(r.Job.origin.envSources)
	maps.DeleteFunc(proposal.EnvSources, func(name, _ string) bool { _, changed := change.Env[name]; return changed })
	proposal.Code = inPython(change.Calls)
	proposal.Turned, proposal.Unchanged = turned, len(change.Env) == 0 && slices.Equal(change.Argv, r.Job.Argv)
	proposal.Remembered = p.Memory(variable, false).startsWith(plan)
	if r.Job.Path != "" {
		proposal.File = filepath.Base(r.Job.Path)
	}
	return proposal, nil
}

// inPython writes calls as the code would have them, one for each thing that is called.
func inPython(calls []strategy.Call) []string {
	var names, all []string
	arguments := map[string][]string{}
	for _, c := range calls {
		if arguments[c.Name] == nil {
			names = append(names, c.Name)
		}
		arguments[c.Name] = append(arguments[c.Name], c.Keyword+"="+format.Literal(c.To))
	}
	for _, name := range names {
		all = append(all, fmt.Sprintf("%s(…, %s)", name, strings.Join(arguments[name], ", ")))
	}
	return all
}

// with puts new words of the job in the place of the old ones.
func (t origin) with(old, argv []string) model.Proposal {
	if t.key == "args" {
		return model.Proposal{Key: t.key, Words: argv[1:]}
	}
	at := len(t.words) - len(old)
	if at < 0 || !slices.Equal(t.words[at:], old) {
		return model.Proposal{Key: "argv", Words: argv} // a launcher hands on other words than it was given
	}
	words := slices.Concat(t.words[:at], argv)
	switch {
	case t.key != "program" || t.own == len(t.words):
		return model.Proposal{Key: t.key, Words: words, Sources: t.sourcesIn(words)}
	case t.own <= len(words) && slices.Equal(t.words[:t.own], words[:t.own]):
		return model.Proposal{Key: "args", Words: words[t.own:]}
	}
	return model.Proposal{Key: t.key, Words: words, NoArgs: true}
}

// originOfLine is where the words of job.command come from.
func originOfLine(line string, lookup func(string) (string, bool)) origin {
	t := origin{key: "command"}
	words, _, err := commandline.Expand(line, lookup)
	if err != nil {
		return t // reported where the command is read
	}
	t.env, t.words = commandline.Assignments(words)
	before := len(words) - len(t.words)
	for i, w := range words {
		switch {
		case w.Source == "":
		case i < before:
			name, _, _ := strings.Cut(w.Text, "=")
			t.envSources = withEntry(t.envSources, name, w.Source)
		case w.More:
			t.sources = withEntry(t.sources, i-before, "")
		default:
			t.sources = withEntry(t.sources, i-before, w.Source)
		}
	}
	return t
}

func withEntry[K comparable](m map[K]string, key K, value string) map[K]string {
	if m == nil {
		m = map[K]string{}
	}
	m[key] = value
	return m
}

// sourcesIn are the sources of words of which some were changed, or added at the end.
func (t origin) sourcesIn(words []string) map[int]string {
	var kept map[int]string
	for i := 0; i < len(t.words); {
		end := i + 1
		for t.sources[i] != "" && end < len(t.words) && isMore(t.sources, end) {
			end++
		}
		if t.sources[i] != "" && end <= len(words) && slices.Equal(t.words[i:end], words[i:end]) {
			for k := i; k < end; k++ {
				kept = withEntry(kept, k, t.sources[k])
			}
		}
		i = end
	}
	return kept
}

func isMore(sources map[int]string, at int) bool {
	source, known := sources[at]
	return known && source == ""
}

// A experimentTracker is a service that draws curves of trainings.
type experimentTracker struct {
	// prefix is that of its variables, packages are the Python packages of which it needs one.
	prefix   string
	packages []string
	// own finds in a script that it speaks to the tracker itself, in a way by which a run that
	// is continued would mean something else.
	own *regexp.Regexp
}

// trackers are those that recipes have variables for.
//
// A script that begins runs itself may begin several, or one in each rank, and one that writes
// its settings into the run may be refused: W&B (wandb 0.31, sdk/wandb_config.py, _sanitize) and
// MLflow (3.17, store/tracking/sqlalchemy_store.py, _log_params) raise where a setting of a run
// that is continued gets another value, such as the micro batch after a rescue. What
// frameworks do is known: transformers 5.23, accelerate 1.15 and Lightning 2.6 begin one run on
// rank 0 and pass allow_val_change to W&B.
var trackers = []experimentTracker{
	{"WANDB_", []string{"wandb"}, regexp.MustCompile(`\bwandb\.(init|config|finish|agent|setup)\b|\bfrom wandb\b`)},
	{"TENSORBOARD_", []string{"tensorboard", "tensorboardx"}, nil},
}

// mlflowTags has MLflow tag every run that the job begins (mlflow 3.17,
// tracking/context/system_environment_context.py).
const mlflowTags = "MLFLOW_RUN_CONTEXT"

// Tracked returns the job with the variables by which experiment trackers know its attempts as
// one run of that name.
func (p *Prepared) Tracked(name string) *Prepared {
	next := *p
	next.Warnings = slices.Concat(p.Warnings, guest(experimentTrackers, func() error {
		next.tracked = p.trackedAs(name)
		return nil
	}))
	return &next
}

func (r Resolved) trackedAs(name string) map[string]string {
	tracked := r.recipe.Tracked(r.command, name)
	maps.DeleteFunc(tracked, func(variable, _ string) bool {
		return slices.ContainsFunc(trackers, func(t experimentTracker) bool { return strings.HasPrefix(variable, t.prefix) && !r.tracks(t) })
	})
	if _, set := r.env.Lookup(mlflowTags); !set && r.installed("mlflow", "mlflow-skinny") {
		tags, err := json.Marshal(map[string]string{"gpurun.run": name})
		if err == nil { // texts are encoded always
			tracked[mlflowTags] = string(tags)
		}
	}
	return tracked
}

// tracks reports whether a tracker is left to the job's framework.
func (r Resolved) tracks(t experimentTracker) bool {
	if !r.installed(t.packages...) {
		return false
	}
	for _, s := range r.sources() {
		if t.own != nil && t.own.Match(s.Text) {
			return false
		}
	}
	return true
}

// installed reports whether the job's interpreter has one of the packages. Where it is not asked,
// which is for jobs of no framework, the first one's name in the script is taken for it.
func (r Resolved) installed(packages ...string) bool {
	if r.command.Packages != nil {
		return slices.ContainsFunc(packages, func(name string) bool { return r.command.Packages[name] != "" })
	}
	return slices.ContainsFunc(r.sources(), func(s format.Source) bool { return bytes.Contains(s.Text, []byte(packages[0])) })
}
