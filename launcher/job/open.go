package job

import (
	"context"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher/environ"
)

// Open reads a command line: gpurun's own flags, then a train.toml or what torchrun
// would be given. env is gpurun's environment in the form of os.Environ, dir its
// working directory. Errors have hints, or are an *Error; ErrHelp where help is asked for.
func Open(ctx context.Context, args, env []string, dir string) (*Job, Own, error) {
	file, own, err := TrainFile(args, env)
	if err != nil {
		return nil, own, err
	}
	if file == "" {
		j, err := FromArgs(args, env, dir)
		return j, own, err
	}
	j, err := Load(file, frameworkLaunchers(ctx, environ.Parse(env)), checkKnobs, checkRecipe(filepath.Dir(file)))
	return j, own, err
}
