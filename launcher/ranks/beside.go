package ranks

import (
	"bytes"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"io"
	"os"
	"sync"
	"time"

	"golang.org/x/sys/unix"
)

const (
	// peerBound is how long the others may continue after one process has failed: they wait for
	// it, or have the better reason.
	peerBound = time.Second
	// besideBound is how long processes may take to die.
	besideBound = 3 * time.Second
	// drainBound is how long the output may take to be read, where a process still holds a pipe.
	drainBound = 10 * time.Second
	// mostOutput is how much of a process's output is read, in bytes.
	mostOutput = 4 << 20
)

// A ProcessResult is the output of a process, and how it ended.
type ProcessResult struct {
	Out, Err string
	Code     int // Unknown where it had to be ended
	Signal   int // 0 for none
}

// RunBeside runs processes besides the ranks, as ranks are run, until all have ended, one has failed, or
// ctx is done; none is left, nor what they started.
func RunBeside(ctx context.Context, processes []Rank) ([]ProcessResult, error) {
	if err := CheckProcesses(); err != nil {
		return nil, err
	}
	streams := &outputPipes{}
	for i := range processes {
		processes[i].Rank, processes[i].LocalRank = i, i
		var err error
		if processes[i].Stdout, err = streams.open(); err == nil {
			processes[i].Stderr, err = streams.open()
		}
		if err != nil {
			streams.close()
			return nil, fmt.Errorf("open a pipe: %w", err)
		}
	}
	group, err := Start(ctx, processes, StartOptions{Marker: "beside-" + rand.Text(), KillTimeout: besideBound})
	streams.close()
	if err != nil {
		streams.wait()
		return nil, err
	}
	all := make([]ProcessResult, len(processes))
	group.await(ctx, all)
	group.Stop(0)
	texts := streams.wait()
	for i := range all {
		all[i].Out, all[i].Err = texts[2*i], texts[2*i+1]
	}
	if ctx.Err() != nil {
		return all, context.Cause(ctx)
	}
	return all, nil
}

// await records how the processes end.
func (g *Group) await(ctx context.Context, all []ProcessResult) {
	for i := range all {
		all[i].Code = Unknown
	}
	var failed <-chan time.Time
	for {
		select {
		case f, more := <-g.Exits():
			if !more {
				return
			}
			exit := f.Exit()
			all[f.Rank].Code, all[f.Rank].Signal = exit.Code, exit.Signal
			if exit.Code != 0 && failed == nil {
				failed = time.After(peerBound)
			}
		case <-failed:
			return
		case <-ctx.Done():
			return
		}
	}
}

// outputPipes are the pipes that processes write to.
type outputPipes struct {
	reading sync.WaitGroup
	ours    []*os.File
	theirs  []*os.File
	texts   []*bytes.Buffer
}

// open makes a pipe, whose beginning is kept.
func (s *outputPipes) open() (*os.File, error) {
	r, w, err := os.Pipe()
	if err != nil {
		return nil, err
	}
	text := &bytes.Buffer{}
	s.ours, s.theirs, s.texts = append(s.ours, r), append(s.theirs, w), append(s.texts, text)
	s.reading.Go(func() {
		_, err := io.CopyN(text, r, mostOutput)
		if err == nil {
			_, _ = io.Copy(io.Discard, r) // more than an answer
		}
	})
	return w, nil
}

// close closes the processes' ends.
func (s *outputPipes) close() {
	for _, w := range s.theirs {
		w.Close()
	}
}

// wait returns what was written. A process that still holds a pipe cannot be killed, and is
// not waited for.
func (s *outputPipes) wait() []string {
	for _, r := range s.ours {
		_ = r.SetReadDeadline(time.Now().Add(drainBound))
	}
	s.reading.Wait()
	var texts []string
	for i, r := range s.ours {
		r.Close()
		texts = append(texts, s.texts[i].String())
	}
	return texts
}

// Unknown is the code of a process that had to be ended.
const Unknown = -1

// InMemory is a file without a name with a text, to be read from its beginning.
func InMemory(text []byte) (*os.File, error) {
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
