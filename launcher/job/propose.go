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
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// An origin is the place where the user wrote the words of a job's command.
type origin struct {
	key string // key of [job]; empty for a command line
	// words are all typed words, including those before the job's Argv: gpurun's flags, a launcher.
	words []string
	line  *commandline.TorchrunCommand // the typed line; nil for a train.toml
	env   map[string]string            // variables before the words of job.command
	// sources are the words as written, by index, as in Proposal. envSources are the same for env.
	sources    map[int]string
	envSources map[string]string
	own        int // number of job.program's words that are not from job.args
}

// Propose returns the words that start a plan from the beginning, without the ceiling, which only gpurun can
// apply. Changed files are those of attempt n of the run in dir. variable returns variables of gpurun's
// environment.
func (p *Prepared) Propose(plan strategy.Plan, by strategy.Arguments, dir string, n int,
	variable func(name string) string) (strategy.Proposal, error) {
	r := p.using(by).Resolved
	written, turned := p.split(plan)
	change, err := r.recipe.Apply(r.command, written, r.at, filepath.Join(dir, fmt.Sprintf("attempt-%d", n), "files"))
	if err != nil {
		return strategy.Proposal{}, err
	}
	own := func(words []string) []string { // without the word that the launcher adds
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
	proposal.Code = inPython(change.Calls, r.reading.Code)
	proposal.Turned, proposal.Unchanged = turned, len(change.Env) == 0 && slices.Equal(change.Argv, r.Job.Argv)
	proposal.OwnModel = len(turned) > 0 && len(r.command.Script) > 0 &&
		!slices.ContainsFunc(r.command.Sources(), func(text []byte) bool {
			return bytes.Contains(text, []byte("transformers")) || bytes.Contains(text, []byte("diffusers"))
		})
	memory := p.Memory(variable, false)
	proposal.Remembered, proposal.Armed = memory.startsWith(plan), memory.arms()
	if r.Job.Path != "" {
		proposal.File = filepath.Base(r.Job.Path)
	}
	return proposal, nil
}

// inPython writes calls as Python code, one for each called function, as they are written in the job's code.
func inPython(calls []strategy.Call, code format.ScriptCode) []string {
	var names, places, all []string
	arguments := map[string][]string{}
	for _, c := range calls {
		name, place := asInCode(c, code)
		if key := name + place; arguments[key] == nil {
			names = append(names, name)
			places = append(places, place)
		}
		arguments[name+place] = append(arguments[name+place], c.Keyword+"="+format.Literal(c.To))
	}
	for i, name := range names {
		all = append(all, fmt.Sprintf("%s(…, %s)%s", name, strings.Join(arguments[name+places[i]], ", "), places[i]))
	}
	return all
}

// asInCode is the call's name as the code writes it, and its place; the full name if there are several such
// calls, or none. An argument that a class of the job passes on is named in the call of the class.
func asInCode(c strategy.Call, code format.ScriptCode) (written, place string) {
	written, place, value := onlyCall(code, c.Keyword,
		func(call format.CodeCall) bool { return call.Means(c.Name) && call.Gives(c.Where) })
	if written == "" {
		return c.Name, ""
	}
	if value.Code == c.Keyword || strings.HasSuffix(value.Code, "."+c.Keyword) {
		own, at, _ := onlyCall(code, c.Keyword, func(call format.CodeCall) bool {
			v, given := call.Given(c.Keyword)
			return given && v.Known && code.Defines(call.Name)
		})
		if own != "" {
			return own, at
		}
	}
	return written, place
}

// onlyCall is the only wanted call of the code with its place, and the argument that it gives for a keyword.
func onlyCall(code format.ScriptCode, keyword string, wanted func(format.CodeCall) bool) (name, place string,
	value format.Expression) {
	for _, file := range code {
		for _, call := range file.Calls {
			switch {
			case !wanted(call):
			case name != "":
				return "", "", format.Expression{}
			default:
				name, place = call.Name, fmt.Sprintf(" (%s:%d)", file.Path, call.Line)
				value, _ = call.Given(keyword)
			}
		}
	}
	return name, place, value
}

// with replaces the old words of the job with new ones.
func (t origin) with(old, argv []string) strategy.Proposal {
	if t.key == "args" {
		return strategy.Proposal{Key: t.key, Words: argv[1:]}
	}
	at := len(t.words) - len(old)
	if at < 0 || !slices.Equal(t.words[at:], old) {
		return strategy.Proposal{Key: "argv", Words: argv} // a launcher passes on other words than it got
	}
	words := slices.Concat(t.words[:at], argv)
	switch {
	case t.key != "program" || t.own == len(t.words):
		return strategy.Proposal{Key: t.key, Words: words, Sources: t.sourcesIn(words)}
	case t.own <= len(words) && slices.Equal(t.words[:t.own], words[:t.own]):
		return strategy.Proposal{Key: "args", Words: words[t.own:]}
	}
	return strategy.Proposal{Key: t.key, Words: words, NoArgs: true}
}

// originOfLine returns the origin of the words of job.command.
func originOfLine(line string, lookup func(string) (string, bool)) origin {
	t := origin{key: "command"}
	words, _, err := commandline.Expand(line, lookup)
	if err != nil {
		return t // the reader of the command reports it
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

// sourcesIn returns the sources of words, some of which were changed, or added at the end.
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

// An experimentTracker is a service that shows curves of trainings.
type experimentTracker struct {
	// prefix is the prefix of its variables. packages are Python packages of which it needs one.
	prefix   string
	packages []string
	// own matches a script that uses the tracker itself in such a way that a continued run would mean
	// something else.
	own func() *regexp.Regexp
}

// trackers are the trackers for which recipes have variables.
//
// A script that begins runs itself may begin several, or one on each rank. A script that writes its settings
// into the run may fail: W&B (wandb 0.31, sdk/wandb_config.py, _sanitize) and MLflow (3.17,
// store/tracking/sqlalchemy_store.py, _log_params) raise an error if a setting of a continued run gets
// another value, such as the micro batch after a rescue. Frameworks are safe: transformers 5.23, accelerate
// 1.15 and Lightning 2.6 begin one run on rank 0, and pass allow_val_change to W&B.
var trackers = []experimentTracker{
	{"WANDB_", []string{"wandb"}, lazy.Regexp(`\bwandb\.(init|config|finish|agent|setup)\b|\bfrom wandb\b`)},
	{"TENSORBOARD_", []string{"tensorboard", "tensorboardx"}, nil},
}

// mlflowTags makes MLflow tag every run that the job begins (mlflow 3.17,
// tracking/context/system_environment_context.py).
const mlflowTags = "MLFLOW_RUN_CONTEXT"

// Tracked returns the job with variables that make experiment trackers treat its attempts as one run of that
// name.
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
		return slices.ContainsFunc(trackers, func(t experimentTracker) bool {
			return strings.HasPrefix(variable, t.prefix) && !r.tracks(t)
		})
	})
	if _, set := r.env.Lookup(mlflowTags); !set && r.installed("mlflow", "mlflow-skinny") {
		tags, err := json.Marshal(map[string]string{"gpurun.run": name})
		if err == nil { // texts can always be encoded
			tracked[mlflowTags] = string(tags)
		}
	}
	return tracked
}

// tracks reports whether only the job's framework uses a tracker.
func (r Resolved) tracks(t experimentTracker) bool {
	if !r.installed(t.packages...) {
		return false
	}
	for _, s := range r.sources() {
		if t.own != nil && t.own().Match(s.Text) {
			return false
		}
	}
	return true
}

// installed reports whether the job's interpreter has one of the packages. For jobs without a framework, the
// interpreter is not queried: then the name of the first package in the script counts.
func (r Resolved) installed(packages ...string) bool {
	if r.command.Packages != nil {
		return slices.ContainsFunc(packages, func(name string) bool { return r.command.Packages[name] != "" })
	}
	return slices.ContainsFunc(r.sources(),
		func(s format.Source) bool { return bytes.Contains(s.Text, []byte(packages[0])) })
}
