package job

import (
	"slices"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
)

// offVariable, set to "off", makes gpurun run nothing but what stands behind it.
const offVariable = "GPURUN"

// An Exec is a program that is to be executed in gpurun's place.
type Exec struct {
	Path string
	Argv []string
}

// Off is what to execute where the environment says that gpurun is off: the words
// behind gpurun and its flags, as they are; for a script, torchrun with the same
// flags. It is nil where gpurun is on. env is gpurun's environment in the form of
// os.Environ, dir its working directory. The error has a hint.
func Off(args, env []string, dir string) (*Exec, error) {
	vars := environ.Parse(env)
	if vars[offVariable] != "off" {
		return nil, nil
	}
	t, err := readTyped(args, vars, dir)
	if err == nil {
		err = t.verb()
	}
	if err != nil {
		return nil, err
	}
	if t.line.Kind == Script && isTOML(t.words[0]) {
		return nil, errext.Errorf("put gpurun in front of the job's command, or leave the variable out", "%s=off: %s is a file of gpurun's, and no command", offVariable, t.words[0])
	}
	argv := t.words
	if !t.command() {
		if argv, err = t.torchrun(); err != nil {
			return nil, err
		}
	}
	path, err := python.Finder{Dir: dir, Env: vars}.InPath(argv[0])
	if err != nil {
		return nil, errext.Errorf("name a program that exists and is executable", "%s=off: %w", offVariable, err)
	}
	return &Exec{Path: path, Argv: argv}, nil
}

// torchrun is the command that a script with torchrun's flags stands for.
func (t typedLine) torchrun() ([]string, error) {
	rest := slices.Concat(t.line.Torchrun, t.words)
	search := python.Finder{Named: t.line.Python, Dir: t.dir, Env: t.env, Look: python.Finder{Dir: t.dir, Env: t.env}.InPath}
	if t.line.Python == "" {
		if _, err := search.InPath("torchrun"); err == nil {
			return append([]string{"torchrun"}, rest...), nil
		}
	}
	path, _, err := search.Find()
	if err != nil {
		return nil, err
	}
	return append([]string{path, "-m", "torch.distributed.run"}, rest...), nil
}
