package notify

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"strings"
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
	errs := &firstBytes{}
	err := ranks.RunBeside(timed, ranks.SideCommand{Argv: p.argv, Dir: p.dir, Stdin: append(event, '\n'), Stderr: errs})
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
	words := fmt.Sprintf("%s: %v", p.name(), err)
	if line := strings.TrimSpace(string(errs.text)); line != "" {
		words += ": " + mask.CutText(mask.TerminalLine(line[strings.LastIndexByte(line, '\n')+1:]), mostShown)
	}
	return &refusal{words}
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

// Bounds of what is shown of a program's stderr: its bytes, and the characters of its last line.
const (
	mostRead  = 4 << 10
	mostShown = 120
)

// A firstBytes keeps only the first bytes written to it.
type firstBytes struct{ text []byte }

func (h *firstBytes) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), mostRead-len(h.text))]...)
	return len(p), nil
}
