package python

import (
	"context"
	"fmt"
)

// Within runs a program as a script of the job's would run, with some variables more: the
// job's packages are there, its working directory is not among the folders that it imports
// from. It returns what the program prints, up to 4 MiB. The error says why it does not
// tell: it cannot be run, fails, or takes longer than half a minute; or ctx is done.
func (i *Interpreter) Within(ctx context.Context, program string, set map[string]string) (string, error) {
	limited, cancel := context.WithTimeout(ctx, i.bound)
	defer cancel()
	inside := &Interpreter{command: i.command, dir: i.dir, env: i.env.With(set)}
	said, err := inside.output(limited, nil, "-c", i.program("import sys; sys.path[:] = [p for p in sys.path if p]\n"+program))
	if err != nil {
		return "", fmt.Errorf("ask %s: %w", i.Path(), err)
	}
	return said, nil
}
