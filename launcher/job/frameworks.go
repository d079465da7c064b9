package job

import (
	"context"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes"
)

// pythonExec is torchrun's variable for the interpreter of the ranks.
const pythonExec = "PYTHON_EXEC"

// A typed command is one that may start with a framework's launcher.
type typed struct {
	words []string // behind wrappers
	// ask starts the interpreter of wrappers that find one; nil for none.
	ask      []string
	installs bool
	// contained: the launcher is where gpurun sees no files.
	contained bool
	dir       string       // its working directory
	env       environ.Vars // what it inherits, with the variables before it and the job's own
}

// frameworkLaunchers lets the recipes take a framework's launcher off a command. The
// ranks run on the interpreter that the launcher itself would have run on. own is
// gpurun's own environment.
func frameworkLaunchers(ctx context.Context, own environ.Vars) Unwrap {
	return func(words []string, env map[string]string, dir string) (Inner, bool, error) {
		seen := commandline.Known.SeeThrough(words)
		t := typed{words: seen.Inner, dir: dir, env: own.With(env), contained: seen.Contained()}
		if seen.Environment() && !t.contained {
			t.ask, t.installs = append(slices.Clone(seen.Ask), "python"), seen.Installs()
		}
		return t.unwrap(ctx)
	}
}

func (t typed) unwrap(ctx context.Context) (Inner, bool, error) {
	inner, known, err := recipes.Unwrap(t.words, t.env, func(name string) ([]byte, error) { return t.read(ctx, name) })
	if err != nil || !known {
		return Inner{}, known, err
	}
	inner.Env = environ.Vars(inner.Env).With()
	if python := t.launcherPython(); python != "" && t.env[pythonExec] == "" && inner.Kind != recipes.InnerProgram {
		inner.Env[pythonExec] = python
	}
	argv, err := t.fillSite(ctx, inner)
	if err != nil {
		return Inner{}, true, err
	}
	return Inner{Kind: inner.Kind, Argv: argv, Env: inner.Env, Ranks: inner.Ranks, Nodes: inner.Nodes,
		Launcher: Launcher{Name: inner.Wrapper, Alone: inner.Alone, NUMA: inner.NUMA, Vars: inner.Vars}}, true, nil
}

// read reads a file as the launcher would: one that the framework brings with it is
// among the packages of the launcher's interpreter.
func (t typed) read(ctx context.Context, name string) ([]byte, error) {
	file, isSite := strings.CutPrefix(name, recipes.Site)
	if !isSite {
		return readFile(under(t.dir, name), largestFile)
	}
	path := t.launcherPython()
	if path != "" && t.env[pythonExec] == "" {
		return python.At(path, t.dir, inherited(t.env.Words())).ReadFile(ctx, file)
	}
	interpreter, err := t.interpreter(t.env)
	if err != nil {
		return nil, err
	}
	return interpreter.ReadFile(ctx, file)
}

// interpreter is the one that the ranks will run on, so that what it says now need not
// be asked again for them.
func (t typed) interpreter(env environ.Vars) (*python.Interpreter, error) {
	if t.ask != nil {
		return python.Through(t.ask, t.dir, inherited(env.Words()), t.installs), nil
	}
	if t.contained {
		return nil, errext.Errorf("name a file of your own", "gpurun does not see the files in the container that the launcher is in")
	}
	path, _, err := find(python.Finder{Dir: t.dir, Env: env})
	if err != nil {
		return nil, err
	}
	return python.At(path, t.dir, inherited(env.Words())), nil
}

// launcherPython is the interpreter in the first line of the launcher's script; empty
// where it has none.
func (t typed) launcherPython() string {
	if t.ask != nil || t.contained {
		return "" // the launcher is in an environment that gpurun does not see
	}
	path, _, err := python.Finder{Launcher: t.words[0], Dir: t.dir}.OfLauncher()
	if err != nil {
		return ""
	}
	return path
}

// fillSite replaces the words that name files which the framework brings with it.
func (t typed) fillSite(ctx context.Context, inner recipes.Inner) ([]string, error) {
	argv := slices.Clone(inner.Argv)
	var files []string
	for _, word := range argv {
		if file, isSite := strings.CutPrefix(word, recipes.Site); isSite {
			files = append(files, file)
		}
	}
	if len(files) == 0 {
		return argv, nil
	}
	interpreter, err := t.interpreter(t.env.With(inner.Env))
	if err != nil {
		return nil, err
	}
	// The job of a known framework will need the packages, too: one start tells both.
	_, _ = interpreter.Packages(ctx)
	paths, err := interpreter.Files(ctx, files...)
	if err != nil {
		return nil, err
	}
	if i := slices.Index(paths, ""); i >= 0 {
		return nil, errext.Errorf("name an existing file, or the launcher of the environment that has the framework",
			"%s means %s, which %s does not have in its packages", inner.Wrapper, files[i], interpreter.Path())
	}
	for i, word := range argv {
		if strings.HasPrefix(word, recipes.Site) {
			argv[i], paths = paths[0], paths[1:]
		}
	}
	return argv, nil
}
