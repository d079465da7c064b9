package python

import (
	"bytes"
	"context"
	"encoding/base64"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"runtime"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher/environ"
)

const (
	// largest is how much an interpreter may say, in bytes; a thousand packages are
	// some 50 kB.
	largest = 4 << 20
	// holdBound is how long to wait for its output after it is gone, where something
	// that it started holds it open.
	holdBound = time.Second
)

// errTooMuch ends an interpreter that prints without end.
var errTooMuch = errors.New("it prints more than an answer")

// alone runs a command in a process group of its own, which ends with ctx. The command
// itself ends with this process, too, however that ends.
func alone(cmd *exec.Cmd) error {
	runtime.LockOSThread() // the kernel tells the end of the thread that has started it
	defer runtime.UnlockOSThread()
	cmd.SysProcAttr = &syscall.SysProcAttr{Setpgid: true, Pdeathsig: syscall.SIGKILL}
	cmd.Cancel = func() error { return killGroup(cmd.Process.Pid) }
	cmd.WaitDelay = holdBound
	return cmd.Run()
}

// output runs the interpreter with some words and returns what it prints. When ctx is
// done, the interpreter and what it started are killed.
func (i *Interpreter) output(ctx context.Context, in []byte, words ...string) (string, error) {
	first, err := Finder{Dir: i.dir, Env: i.env}.InPath(i.command[0])
	if err != nil {
		return "", err
	}
	argv := slices.Concat([]string{first}, i.command[1:], words)
	if guarded(ctx) {
		return i.outputGuarded(ctx, in, argv)
	}
	out, errs := &limitedBuffer{limit: largest}, &limitedBuffer{limit: largest}
	cmd := exec.CommandContext(ctx, first, argv[1:]...)
	cmd.Dir, cmd.Env, cmd.Stdout, cmd.Stderr = i.dir, i.env.Words(), out, errs
	if in != nil {
		cmd.Stdin = bytes.NewReader(in)
	}
	err = alone(cmd)
	switch {
	case out.full || errs.full:
		return "", errTooMuch
	case errors.Is(err, exec.ErrWaitDelay): // it has ended well, and said all that it will
	case err != nil:
		return "", withReason(err, errs.text.String())
	}
	return out.text.String(), nil
}

// Command is what runs a program in the interpreter with some words as its arguments: the
// command, its working directory and its environment.
func (i *Interpreter) Command(program string, words ...string) (argv []string, dir string, env environ.Vars) {
	return slices.Concat(i.command, []string{"-c", i.program(program)}, words), i.dir, i.env.With()
}

// program is a program as the interpreter is given it. conda run refuses words with line
// breaks, and others read words once more as a shell does: for wrappers it has letters
// and digits in place of them.
func (i *Interpreter) program(text string) string {
	if len(i.command) == 1 {
		return text
	}
	return "import base64;exec(base64.b64decode('" + base64.StdEncoding.EncodeToString([]byte(text)) + "'))"
}

// withReason adds the last line that a program wrote about its failure.
func withReason(err error, said string) error {
	lines := strings.Split(strings.TrimSpace(said), "\n")
	if last := strings.TrimSpace(lines[len(lines)-1]); last != "" {
		return fmt.Errorf("%w: %s", err, last)
	}
	return err
}

// killGroup ends a group of processes.
func killGroup(leader int) error {
	err := syscall.Kill(-leader, syscall.SIGKILL)
	if errors.Is(err, syscall.ESRCH) {
		return os.ErrProcessDone
	}
	return err
}

// A limitedBuffer keeps what is written to it, up to a limit. It embeds nothing: a
// bytes.Buffer would read to the end by itself.
type limitedBuffer struct {
	text  bytes.Buffer
	limit int
	full  bool
}

// Write fails once the limit is reached: the writer at the other end of the pipe is
// then ended by SIGPIPE.
func (b *limitedBuffer) Write(p []byte) (int, error) {
	if b.text.Len()+len(p) > b.limit {
		b.full = true
		return 0, errTooMuch
	}
	return b.text.Write(p)
}
