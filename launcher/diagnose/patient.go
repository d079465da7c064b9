package diagnose

import (
	"context"
	"errors"
	"fmt"
	"io"
	"os"

	"golang.org/x/sys/unix"
)

// open opens a file of output. A pipe is opened without waiting for its writer: the reading waits.
func open(name string) (*os.File, error) {
	if info, err := os.Stat(name); err != nil || info.Mode()&os.ModeNamedPipe == 0 {
		return os.Open(name)
	}
	fd, err := unix.Open(name, unix.O_RDONLY|unix.O_NONBLOCK|unix.O_CLOEXEC, 0)
	if err != nil {
		return nil, &os.PathError{Op: "open", Path: name, Err: err}
	}
	return os.NewFile(uintptr(fd), name), nil
}

// untilDone reads what may never end, a pipe or a terminal, until the context is done: then it ends, and what was read
// is the answer so far. Other readers are returned unchanged. close frees what waits for the context.
func untilDone(ctx context.Context, in io.Reader) (reader io.Reader, close func(), err error) {
	f, isFile := in.(*os.File)
	if ctx == nil || !isFile {
		return in, func() {}, nil
	}
	if info, err := f.Stat(); err != nil || info.Mode().IsRegular() {
		return in, func() {}, nil // reading reports the error
	}
	wake, end, err := os.Pipe()
	if err != nil {
		return nil, nil, fmt.Errorf("read the job's output: %w", err)
	}
	stop := context.AfterFunc(ctx, func() { _ = end.Close() }) // its end wakes the reader
	return &patientReader{in: f, wake: wake}, func() {
		if stop() {
			_ = end.Close()
		}
		_ = wake.Close()
	}, nil
}

// A patientReader waits for bytes, or for the end of wake.
type patientReader struct{ in, wake *os.File }

func (r *patientReader) Read(p []byte) (int, error) {
	for {
		waits := []unix.PollFd{{Fd: int32(r.in.Fd()), Events: unix.POLLIN}, {Fd: int32(r.wake.Fd()), Events: unix.POLLIN}}
		switch _, err := unix.Poll(waits, -1); {
		case errors.Is(err, unix.EINTR):
			continue
		case err != nil:
			return 0, fmt.Errorf("wait for the job's output: %w", err)
		case waits[1].Revents != 0:
			return 0, io.EOF
		}
		return r.in.Read(p)
	}
}
