package probe

import (
	"bytes"
	"encoding/binary"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A watcher sees the files that ranks write about their own end.
type watcher struct {
	dir   string
	ranks []int
	emit  func(strategy.Fact)
	told  map[string]cause.Finding // by path, what was emitted last

	inotify *os.File      // nil where there is none
	rankOf  map[int32]int // by watch descriptor
	done    chan struct{} // closed when the goroutine has ended
}

// Watch emits a fact for each rank that writes probe.json or error.json below the
// attempt's folder, as it happens. A file that is written again with something else
// to say is emitted again, with the same Stream and Seq. Emit is called by one
// goroutine at a time, and may block.
//
// Stop ends the watch. It emits what has not been seen yet, and returns when emit
// will not be called any more. It may be called more than once, not from emit.
//
// Where the kernel cannot watch, a fact says so, and stop finds the files.
func Watch(dir string, ranks []int, emit func(strategy.Fact)) (stop func()) {
	w := &watcher{dir: dir, ranks: ranks, emit: emit, told: map[string]cause.Finding{}, rankOf: map[int32]int{}, done: make(chan struct{})}
	err := w.open()
	go w.run(err)
	return sync.OnceFunc(func() {
		if w.inotify != nil {
			w.inotify.Close()
		}
		<-w.done
		w.lookAtAll()
	})
}

func (w *watcher) gap(err error) {
	w.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: fmt.Sprintf("what ranks tell of their end is read only when they are gone: %v", err)})
}

// open asks the kernel for events of the ranks' folders. Network file systems tell
// of what is written on this node, and the ranks are.
func (w *watcher) open() error {
	fd, err := unix.InotifyInit1(unix.IN_CLOEXEC | unix.IN_NONBLOCK)
	if err != nil {
		return fmt.Errorf("inotify: %w", err)
	}
	w.inotify = os.NewFile(uintptr(fd), "inotify")
	for _, rank := range w.ranks {
		folder := rankFolder(w.dir, rank)
		if err := os.MkdirAll(folder, 0o755); err != nil {
			return err
		}
		wd, err := unix.InotifyAddWatch(fd, folder, unix.IN_CLOSE_WRITE|unix.IN_MOVED_TO|unix.IN_ONLYDIR)
		if err != nil {
			return fmt.Errorf("inotify: watch %s: %w", folder, err)
		}
		w.rankOf[int32(wd)] = rank
	}
	return nil
}

// run looks at what has been there already, and then at what the events name,
// until stop closes the file that they come from. An error says that the kernel
// does not watch all of them.
func (w *watcher) run(err error) {
	defer close(w.done)
	if err != nil {
		w.gap(err)
	}
	w.lookAtAll()
	if w.inotify == nil {
		return
	}
	buf := make([]byte, 64<<10)
	for {
		n, err := w.inotify.Read(buf)
		if err != nil {
			if !errors.Is(err, os.ErrClosed) {
				w.gap(err)
			}
			return
		}
		w.events(buf[:n])
	}
}

// events reads the records of inotify(7): watch descriptor, mask, cookie and the
// length of the name that follows, padded with zeros.
func (w *watcher) events(p []byte) {
	for len(p) >= unix.SizeofInotifyEvent {
		wd := int32(binary.NativeEndian.Uint32(p))
		mask := binary.NativeEndian.Uint32(p[4:])
		length := int(binary.NativeEndian.Uint32(p[12:]))
		p = p[unix.SizeofInotifyEvent:]
		name := string(bytes.TrimRight(p[:length], "\x00"))
		p = p[length:]
		if mask&unix.IN_Q_OVERFLOW != 0 {
			w.lookAtAll()
		} else if rank, ok := w.rankOf[wd]; ok && (name == probeFile || name == errorFile) {
			w.look(rank, name)
		}
	}
}

func (w *watcher) lookAtAll() {
	for _, rank := range w.ranks {
		w.look(rank, errorFile)
		w.look(rank, probeFile)
	}
}

// look emits what a file says, unless it has been told.
func (w *watcher) look(rank int, name string) {
	path := filepath.Join(rankFolder(w.dir, rank), name)
	fact, ok := read(path, name, rank)
	if !ok {
		return
	}
	if before, ok := w.told[path]; ok && reflect.DeepEqual(before, *fact.Finding) {
		return
	}
	w.told[path] = *fact.Finding
	w.emit(fact)
}
