package python

import (
	"context"
	"errors"
	"fmt"
	"os"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/proc"
)

type guardedKey struct{}

// Guarded makes all interpreters that are asked with the context run as ranks are: nothing
// that they start is left, neither when their time is over nor when gpurun is killed.
// Otherwise what has left the interpreter's process group lives on.
func Guarded(ctx context.Context) context.Context {
	return context.WithValue(ctx, guardedKey{}, true)
}

// guarded reports whether that is wanted, and can be done here.
func guarded(ctx context.Context) bool { return ctx.Value(guardedKey{}) != nil && proc.Usable() == nil }

// outputGuarded runs the interpreter with some words as a rank, and returns what it prints.
func (i *Interpreter) outputGuarded(ctx context.Context, in []byte, argv []string) (string, error) {
	rank := proc.Rank{Argv: argv, Dir: i.dir, Env: i.env.Words()}
	if in != nil {
		f, err := inMemory(in)
		if err != nil {
			return "", err
		}
		defer f.Close()
		rank.Stdin = f
	}
	all, err := Start(ctx, []proc.Rank{rank})
	switch {
	case err != nil:
		return "", err
	case all[0].Signal != 0:
		return "", withReason(fmt.Errorf("ended by %s", unix.SignalName(unix.Signal(all[0].Signal))), all[0].Err)
	case all[0].Code != 0:
		return "", withReason(fmt.Errorf("ended with code %d", all[0].Code), all[0].Err)
	}
	return all[0].Out, nil
}

// inMemory is a file without a name that has what is to be read, from its beginning.
func inMemory(text []byte) (*os.File, error) {
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "input")
	if _, err = f.Write(text); err == nil {
		_, err = f.Seek(0, 0)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
