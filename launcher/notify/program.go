package notify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// An eventCommand gets each event on its stdin, and is tried once.
type eventCommand struct {
	argv    []string
	dir     string
	timeout time.Duration
}

func (p *eventCommand) send(ctx context.Context, _ Notification, event []byte) error {
	late := fmt.Errorf("it took longer than %v and was ended", p.timeout)
	timed, cancel := context.WithTimeoutCause(ctx, p.timeout, late)
	defer cancel()
	words, err := p.run(timed, event)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	var missing *fs.PathError // with a path that may be all of a command line
	if errors.As(err, &missing) {
		err = missing.Err
	}
	why := fmt.Sprintf("%s: %v", p.name(), err)
	if line := strings.TrimSpace(words); line != "" {
		why += ": " + mask.CutText(mask.TerminalLine(line[strings.LastIndexByte(line, '\n')+1:]), mostShown)
	}
	return &refusal{why}
}

// run runs the program, and returns what it wrote to stderr.
func (p *eventCommand) run(ctx context.Context, event []byte) (words string, err error) {
	stdin, err := ranks.InMemory(append(event, '\n'))
	if err != nil {
		return "", err
	}
	defer stdin.Close()
	all, err := ranks.RunBeside(ctx, []ranks.Rank{{Argv: p.argv, Env: os.Environ(), Dir: p.dir, Stdin: stdin}})
	if err != nil {
		return "", err
	}
	switch one := all[0]; {
	case one.Signal != 0:
		return one.Err, fmt.Errorf("signal: %v", syscall.Signal(one.Signal))
	case one.Code != 0:
		return one.Err, fmt.Errorf("exit status %d", one.Code)
	}
	return "", nil
}

// plainName is the path of a program that has no argument in it.
var plainName = lazy.Regexp(`^[\w./+-]+$`)

// name is the program for messages. A whole command line in its place may hold a secret.
func (p *eventCommand) name() string {
	if !plainName().MatchString(p.argv[0]) {
		return "the program of notify.command"
	}
	return p.argv[0]
}

// mostShown bounds what is shown of the last line of a program's stderr, in characters.
const mostShown = 120
