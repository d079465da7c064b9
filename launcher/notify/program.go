package notify

import (
	"bytes"
	"context"
	"errors"
	"fmt"
	"os/exec"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/launcher/terminal"
)

// A program gets each event on its stdin, and is tried once.
type program struct {
	argv    []string
	dir     string
	timeout time.Duration
}

func (p *program) send(ctx context.Context, _ Message, event []byte) error {
	timed, cancel := context.WithTimeoutCause(ctx, p.timeout, fmt.Errorf("it took longer than %v and was ended", p.timeout))
	defer cancel()
	errs := &head{}
	cmd := exec.Command(p.argv[0], p.argv[1:]...)
	cmd.Dir, cmd.Stdin, cmd.Stderr = p.dir, bytes.NewReader(append(event, '\n')), errs
	err := proc.Beside(timed, cmd)
	switch {
	case err == nil:
		return nil
	case ctx.Err() != nil:
		return ctx.Err()
	}
	var missing *exec.Error
	if errors.As(err, &missing) {
		err = missing.Err
	}
	words := fmt.Sprintf("%s: %v", p.argv[0], err)
	if line := strings.TrimSpace(string(errs.text)); line != "" {
		words += ": " + cut(terminal.Line(line[strings.LastIndexByte(line, '\n')+1:]), mostSaid)
	}
	return &refusal{words}
}

// A head keeps the beginning of what is written to it.
type head struct{ text []byte }

func (h *head) Write(p []byte) (int, error) {
	h.text = append(h.text, p[:min(len(p), mostRead-len(h.text))]...)
	return len(p), nil
}
