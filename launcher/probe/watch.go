package probe

import (
	"errors"
	"fmt"
	"path/filepath"
	"reflect"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A watcher sees the files that ranks write about their own end.
type watcher struct {
	dir   string
	ranks []int
	emit  func(strategy.Fact)
	told  map[string]cause.Finding // by path, what was emitted last

	notify *fsnotify.Watcher // nil where there is none
	rankOf map[string]int    // by folder
	done   chan struct{}     // closed when the goroutine has ended
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
	w := &watcher{dir: dir, ranks: ranks, emit: emit, told: map[string]cause.Finding{}, rankOf: map[string]int{}, done: make(chan struct{})}
	err := w.open()
	go w.run(err)
	return sync.OnceFunc(func() {
		if w.notify != nil {
			w.notify.Close()
		}
		<-w.done
		w.lookAtAll()
	})
}

func (w *watcher) gap(err error) {
	w.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: fmt.Sprintf("error reports of the ranks are read only after they have ended: %v", err)})
}

// open asks the kernel for events of the ranks' folders, and of the folder that
// they are in: one that is removed may be made again. Network file systems tell of
// what is written on this node, and the ranks are.
func (w *watcher) open() (err error) {
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		return fmt.Errorf("watch the ranks' folders: %w", err)
	}
	for _, rank := range w.ranks {
		folder := rankFolder(w.dir, rank)
		if err := private.Mkdir(folder); err != nil {
			return err
		}
		if err := w.notify.Add(folder); err != nil {
			return fmt.Errorf("watch %s: %w", folder, err)
		}
		w.rankOf[filepath.Clean(folder)] = rank
	}
	if err := w.notify.Add(w.dir); err != nil {
		return fmt.Errorf("watch %s: %w", w.dir, err)
	}
	return nil
}

// run looks at what has been there already, and then at what the events name,
// until stop ends them. An error says that the kernel does not watch all of them.
func (w *watcher) run(err error) {
	defer close(w.done)
	if err != nil {
		w.gap(err)
	}
	w.lookAtAll()
	if w.notify == nil {
		return
	}
	for {
		select {
		case event, open := <-w.notify.Events:
			if !open {
				return
			}
			w.event(event)
		case err, open := <-w.notify.Errors:
			switch {
			case !open:
				return
			case errors.Is(err, fsnotify.ErrEventOverflow):
				w.lookAtAll() // some events are lost
			default:
				w.gap(err)
			}
		}
	}
}

// event looks at the file that an event names, if it is one of ours. There is one
// for each write, and the last comes when all is written.
func (w *watcher) event(e fsnotify.Event) {
	if !e.Has(fsnotify.Create) && !e.Has(fsnotify.Write) {
		return
	}
	folder, name := filepath.Split(e.Name)
	if name == probeFile || name == errorFile {
		if rank, ok := w.rankOf[filepath.Clean(folder)]; ok {
			w.look(rank, name)
		}
		return
	}
	if rank, ok := w.rankOf[filepath.Clean(e.Name)]; ok && e.Has(fsnotify.Create) {
		if err := w.notify.Add(e.Name); err != nil {
			w.gap(fmt.Errorf("watch %s: %w", e.Name, err))
		}
		w.look(rank, errorFile)
		w.look(rank, probeFile)
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
