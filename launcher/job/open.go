package job

import (
	"context"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher/environ"
)

// Open reads a command line: gpurun's own flags, then a train.toml, a command as it
// would be typed without gpurun, or what torchrun would be given. env is gpurun's
// environment in the form of os.Environ, dir its working directory. What flags say of the
// policy is stronger than the train.toml, and that than the user's own configuration.
// Errors have hints, or are an *Error; ErrHelp where help is asked for.
func Open(ctx context.Context, args, env []string, dir string) (*Job, Own, error) {
	vars := environ.Parse(env)
	t, err := readTyped(args, vars, dir)
	if err != nil {
		return nil, Own{}, err
	}
	file, own, err := t.trainFile()
	if err == nil {
		err = t.verb()
	}
	if err == nil {
		err = checkPipeline(own, t.line.Set)
	}
	if err != nil {
		return nil, own, err
	}
	j, err := configured(vars)
	if err != nil {
		return nil, own, err
	}
	switch {
	case file != "":
		j, err = load(file, base{job: j, env: vars, unwrap: frameworkLaunchers(ctx, vars)}, checkKnobs, checkRecipe(filepath.Dir(file)))
	case t.command():
		j, err = t.job(ctx, j)
	default:
		j, err = fromArgs(args, vars, dir, j)
	}
	if err != nil {
		return nil, own, err
	}
	if err := j.takePolicy(own); err != nil {
		return nil, own, err
	}
	j.takeNotify(vars)
	return j, own, nil
}
