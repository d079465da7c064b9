package doctor

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"os/exec"
	"slices"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/launcher/tryout"
)

// guarded runs what asks the interpreter as ranks are run: nothing that it starts is left,
// neither when its time is over nor when gpurun is killed.
func guarded(ctx context.Context, cmd *exec.Cmd) error {
	if proc.Usable() != nil {
		return cmd.Run() // nobody can be looked after here, which other checks tell
	}
	rank := proc.Rank{Argv: slices.Concat([]string{cmd.Path}, cmd.Args[1:]), Env: cmd.Env, Dir: cmd.Dir}
	if cmd.Stdin != nil {
		in, err := inMemory(cmd.Stdin)
		if err != nil {
			return err
		}
		defer in.Close()
		rank.Stdin = in
	}
	all, err := tryout.Start(ctx, []proc.Rank{rank})
	if err != nil {
		return err
	}
	_, outErr := io.WriteString(cmd.Stdout, all[0].Out)
	_, errsErr := io.WriteString(cmd.Stderr, all[0].Err)
	if all[0].Signal != 0 {
		return fmt.Errorf("ended by %s", unix.SignalName(unix.Signal(all[0].Signal)))
	}
	if all[0].Code != 0 {
		return fmt.Errorf("ended with code %d", all[0].Code)
	}
	return errors.Join(outErr, errsErr)
}

// inMemory is a file without a name that has what is to be read, from its beginning.
func inMemory(from io.Reader) (*os.File, error) {
	fd, err := unix.MemfdCreate("input", unix.MFD_CLOEXEC)
	if err != nil {
		return nil, os.NewSyscallError("memfd_create", err)
	}
	f := os.NewFile(uintptr(fd), "input")
	if _, err = io.Copy(f, from); err == nil {
		_, err = f.Seek(0, io.SeekStart)
	}
	if err != nil {
		return nil, errors.Join(err, f.Close())
	}
	return f, nil
}
