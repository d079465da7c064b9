package job

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/recipes"
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
	r := p.resolved
	written, turned := p.split(plan)
	change, err := r.recipe.Apply(r.command, written, r.at, filepath.Join(dir, fmt.Sprintf("attempt-%d", n), "files"))
	if err != nil {
		return model.Proposal{}, err
	}
	own := func(words []string) []string { // without the launcher's own word
		return slices.DeleteFunc(slices.Clone(words), func(w string) bool { return w == recipes.LocalRank })
	}
	proposal := r.job.origin.with(own(r.job.Argv), own(change.Argv))
	if proposal.Key == "" {
		proposal.Words = p.WithoutNumber(proposal.Words)
	}
	proposal.Env, proposal.HasEnv = maps.Clone(r.job.origin.env), len(r.job.Env) > 0
	if proposal.Env == nil {
		proposal.Env = map[string]string{}
	}
	maps.Copy(proposal.Env, change.Env)
	proposal.EnvSources = maps.Clone(r.job.origin.envSources)
	maps.DeleteFunc(proposal.EnvSources, func(name, _ string) bool { _, changed := change.Env[name]; return changed })
	proposal.Code = inPython(change.Calls)
	proposal.Turned, proposal.Unchanged = turned, len(change.Env) == 0 && slices.Equal(change.Argv, r.job.Argv)
	proposal.Remembered = p.Memory(variable, false).startsWith(plan)
	if r.job.Path != "" {
		proposal.File = filepath.Base(r.job.Path)
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
		return t // which is told by whom it keeps from reading the command
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
