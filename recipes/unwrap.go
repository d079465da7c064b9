package recipes

import (
	"fmt"
	"maps"
	"path"
	"slices"
	"strings"

	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/recipes/patch"
)

// An Inner is what a launcher starts on each rank.
type Inner struct {
	// Wrapper is the launcher's name: "accelerate launch".
	Wrapper string
	// Kind says what Argv[0] is.
	Kind InnerKind
	Argv []string
	// Env are the variables that the launcher sets for the ranks.
	Env map[string]string
	// Ranks is how many the command line asks for on this node, in torchrun's
	// words; empty where it does not say.
	Ranks string
}

// An InnerKind is how the inner command is started.
type InnerKind string

const (
	InnerScript  InnerKind = "script"
	InnerModule  InnerKind = "module"
	InnerProgram InnerKind = "program"
)

// Site is the beginning of words of Inner.Argv that name a file which the
// framework brings with it: the rest is its path in the interpreter's packages.
const Site = "{site}/"

// modules are launchers as "python -m" starts them.
var launcherModules = map[string][]string{
	"accelerate.commands.launch":         {"accelerate", "launch"},
	"accelerate.commands.accelerate_cli": {"accelerate"},
	"deepspeed":                          {"deepspeed"},
	"deepspeed.launcher.runner":          {"deepspeed"},
	"composer.cli.launcher":              {"composer"},
}

// A ReadFile reads a file as the job would find it.
type ReadFile func(path string) ([]byte, error)

// Unwrap takes a framework's launcher off a command. It is false where the
// command starts with none that a recipe knows; the error says what gpurun cannot
// take over from it.
func Unwrap(words []string, env map[string]string, read ReadFile, among []Recipe) (inner Inner, known bool, err error) {
	if len(words) == 0 {
		return Inner{}, false, nil
	}
	words = append([]string{path.Base(words[0])}, words[1:]...)
	if strings.HasPrefix(words[0], "python") && len(words) > 2 && words[1] == "-m" && launcherModules[words[2]] != nil {
		words = slices.Concat(launcherModules[words[2]], words[3:])
	}
	switch {
	case words[0] == "accelerate" && len(words) > 1 && words[1] == "launch":
		inner, err = unwrapAccelerate(words[2:], env, read)
	case words[0] == "accelerate-launch":
		inner, err = unwrapAccelerate(words[1:], env, read)
	case words[0] == "deepspeed":
		inner, err = unwrapDeepSpeed(words[1:])
	default:
		w, found := wrapperOf(words, among)
		if !found {
			return Inner{}, false, nil
		}
		inner, err = w.unwrap(words[len(w.Command):], env, read)
		inner.Wrapper = strings.Join(w.Command, " ")
	}
	if err != nil {
		return Inner{}, true, fmt.Errorf("%s: %w", strings.Join(words[:min(2, len(words))], " "), err)
	}
	return inner, true, nil
}

// wrapperOf is the wrapper with the longest command that the words start with.
func wrapperOf(words []string, among []Recipe) (best Wrapper, found bool) {
	for _, r := range among {
		for _, w := range wrappers[r.Name] {
			n := len(w.Command)
			if n <= len(words) && n > len(best.Command) && slices.Equal(w.Command, words[:n]) {
				best, found = w, true
			}
		}
	}
	return best, found
}

// launchOptions are the options of a launcher: true for those with a value. All
// names count with dashes, too.
type launchOptions map[string]bool

// take reads a launcher's own options, up to the first word that is none.
func (o launchOptions) take(words []string) (values map[string]string, rest []string, err error) {
	values = map[string]string{}
	for len(words) > 0 {
		word := words[0]
		if word == "--" {
			return values, words[1:], nil
		}
		if !strings.HasPrefix(word, "-") {
			return values, words, nil
		}
		head, value, equals := strings.Cut(word, "=")
		name, valued, known := o.find(head)
		switch {
		case !known:
			return nil, nil, fmt.Errorf("gpurun does not know the option %s: set launch.ranks = \"self\"", head)
		case !valued && equals:
			return nil, nil, fmt.Errorf("%s takes no value", head)
		case !valued:
			values[name] = "true"
		case equals:
			values[name] = value
		case len(words) == 1:
			return nil, nil, fmt.Errorf("no value follows %s", head)
		default:
			values[name] = words[1]
			words = words[1:]
		}
		words = words[1:]
	}
	return values, nil, nil
}

// find is the option that a word means, which may be cut short.
func (o launchOptions) find(word string) (name string, valued, known bool) {
	word = strings.ReplaceAll(strings.TrimLeft(word, "-"), "-", "_")
	if valued, known := o[word]; known {
		return word, valued, true
	}
	var meant []string
	for _, name := range slices.Sorted(maps.Keys(o)) {
		if len(word) > 1 && strings.HasPrefix(name, word) {
			meant = append(meant, name)
		}
	}
	if len(meant) != 1 {
		return "", false, false
	}
	return meant[0], o[meant[0]], true
}

// unwrap takes a wrapper that a recipe describes off; args is what follows its
// command.
func (w Wrapper) unwrap(args []string, env map[string]string, read ReadFile) (Inner, error) {
	inner := Inner{Env: map[string]string{}}
	for name, value := range w.Env {
		if _, set := env[name]; !set {
			inner.Env[name] = value
		}
	}
	if w.Accelerate != nil {
		return w.throughAccelerate(args, inner.Env, env, read)
	}
	module := false
	args, err := w.own(args, &inner, &module)
	if err != nil {
		return Inner{}, err
	}
	if w.Expand && len(args) > 0 && isConfig(args[0]) {
		words, err := expand(args[0], read, inner.Env, env)
		if err != nil {
			return Inner{}, err
		}
		args = append(words, args[1:]...)
	}
	switch {
	case w.Module != "":
		inner.Kind, inner.Argv = InnerModule, append([]string{w.Module}, args...)
	case len(args) == 0:
		return Inner{}, fmt.Errorf("it names nothing to start")
	case w.Site != "" && !strings.HasSuffix(args[0], ".py"):
		inner.Kind, inner.Argv = InnerScript, append([]string{Site + strings.ReplaceAll(w.Site, "{1}", args[0])}, args[1:]...)
	case module:
		inner.Kind, inner.Argv = InnerModule, args
	default: // of a site, the user's own copy
		inner.Kind, inner.Argv = InnerScript, args
	}
	if err := w.count(&inner, env); err != nil {
		return Inner{}, err
	}
	return inner, w.name(&inner, read)
}

// own takes the wrapper's own options off: up to the script where there is one,
// else anywhere.
func (w Wrapper) own(args []string, inner *Inner, module *bool) ([]string, error) {
	var rest []string
	scripted := w.Script || w.Site != ""
	for i := 0; i < len(args); i++ {
		head, value, equals := strings.Cut(args[i], "=")
		valued := slices.Contains(w.Ranks, head) || slices.Contains(w.Takes, head)
		if valued && !equals {
			if i+1 == len(args) {
				return nil, fmt.Errorf("no value follows %s", head)
			}
			i++
			value = args[i]
		}
		switch {
		case slices.Contains(w.Refuse, head) && !(valued && value == "1"):
			return nil, fmt.Errorf("gpurun cannot take %s over: set launch.ranks = \"self\", or leave it out", head)
		case slices.Contains(w.Ranks, head):
			inner.Ranks = value
		case slices.Contains(w.Modules, head):
			*module = true
		case valued, slices.Contains(w.Flags, head):
		case scripted && !strings.HasPrefix(head, "-"):
			return append(rest, args[i:]...), nil
		case scripted:
			return nil, fmt.Errorf("gpurun does not know the option %s: set launch.ranks = \"self\"", head)
		default:
			rest = append(rest, args[i])
		}
	}
	return rest, nil
}

// count finds the number of ranks, and what else of the wrapper's variables
// matters. Those of the user are stronger than those of an expanded file.
func (w Wrapper) count(inner *Inner, env map[string]string) error {
	variable := func(name string) string {
		if value, set := env[name]; set {
			return value
		}
		return inner.Env[name]
	}
	for _, word := range w.Refuse {
		name, isVariable := strings.CutPrefix(word, "$")
		if value := variable(name); isVariable && value != "" && value != "1" {
			return fmt.Errorf("%s is %s: start gpurun on each node, with launch.nnodes", name, value)
		}
	}
	for _, word := range w.Ranks {
		if name, isVariable := strings.CutPrefix(word, "$"); isVariable && inner.Ranks == "" {
			inner.Ranks = variable(name)
		}
	}
	if inner.Ranks == "" && w.One {
		inner.Ranks = "1"
	}
	return nil
}

// name replaces arguments that name a file of the framework by its path.
func (w Wrapper) name(inner *Inner, read ReadFile) error {
	for _, option := range slices.Sorted(maps.Keys(w.Files)) {
		value, found, err := patch.Argv{}.Get(inner.Argv, option)
		if err != nil || !found || isConfig(value) {
			continue
		}
		if _, err := read(value); err == nil {
			continue
		}
		inner.Argv = patch.Argv{}.Set(inner.Argv, option, Site+strings.ReplaceAll(w.Files[option], "{}", value))
	}
	return nil
}

func isConfig(word string) bool {
	_, known := patch.FormatOf(word, nil)
	return known
}

// expand turns the keys of a file into arguments, in their order; its ENV becomes
// variables, where they are not set.
func expand(file string, read ReadFile, into, env map[string]string) ([]string, error) {
	text, err := read(file)
	if err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	var doc yaml.Node
	if err := yaml.Unmarshal(text, &doc); err != nil {
		return nil, fmt.Errorf("read %s: %w", file, err)
	}
	if len(doc.Content) != 1 || doc.Content[0].Kind != yaml.MappingNode {
		return nil, fmt.Errorf("%s is no table of arguments", file)
	}
	var words []string
	for _, pair := range pairsOf(doc.Content[0]) {
		key, value := pair.key, pair.value
		switch {
		case key == "ENV" && value.Kind == yaml.MappingNode:
			for _, variable := range pairsOf(value) {
				if _, set := env[variable.key]; !set {
					into[variable.key] = variable.value.Value
				}
			}
		case value.Kind == yaml.ScalarNode && value.Tag == "!!null":
		case value.Kind == yaml.ScalarNode:
			words = append(words, "--"+key, value.Value)
		case value.Kind == yaml.SequenceNode:
			words = append(words, "--"+key)
			for _, item := range value.Content {
				words = append(words, meant(item).Value)
			}
		default:
			return nil, fmt.Errorf("%s: %s is a table, which gpurun cannot turn into an argument", file, key)
		}
	}
	return words, nil
}
