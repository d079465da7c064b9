package hook

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"reflect"
	"slices"
	"strings"
	"sync"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// A watcher reads the files that ranks write.
type watcher struct {
	dir   string
	ranks []int
	emit  func(strategy.Fact)
	step  func(rank int, s OptimizerStep) // may be nil
	last  map[string]any                  // by path, what was emitted last
	steps map[int]stepped                 // by rank

	notify *fsnotify.Watcher // nil where there is none
	rankOf map[string]int    // by folder
	done   chan struct{}     // closed when the goroutine has ended
	ends   *processEnds
	asked  chan chan struct{} // to look at once
}

// stepped is the latest step of a rank, and its file: of a rank's several processes the one that
// is ahead counts.
type stepped struct {
	path string
	OptimizerStep
}

// mostFiles bounds how many files of a rank are followed: a rank may start processes
// without end.
const mostFiles = 512

// Watch emits a fact for each rank that writes probe.json, error.json, process.json or
// memory.json below the attempt's folder, as it happens. A file with new content is emitted
// again; an end with the same Stream and Seq. Step, which may be nil, is called for each change
// of a rank's steps. Emit and step are called by one goroutine at a time, and may block.
//
// Stop ends the watch: it emits what is new, and returns when neither
// will be called any more. It may be called more than once, not from emit or step. Look,
// before stop, emits what is new by now.
//
// Where the kernel cannot watch, a fact reports that, and stop finds the files.
func Watch(dir string, ranks []int, emit func(strategy.Fact), step func(rank int, s OptimizerStep)) (stop,
	look func()) {
	w := &watcher{
		dir: dir, ranks: ranks, emit: emit, step: step, last: map[string]any{}, steps: map[int]stepped{},
		rankOf: map[string]int{}, done: make(chan struct{}), ends: newProcessEnds(), asked: make(chan chan struct{}),
	}
	err := w.open()
	go w.run(err)
	stop = sync.OnceFunc(func() {
		if w.notify != nil {
			w.notify.Close()
		}
		<-w.done
		w.lookAtAll()
		w.ends.stop(emit)
	})
	return stop, w.now
}

// now makes the goroutine read all files, and returns when it has emitted everything new. The goroutine ends
// early if the kernel cannot watch.
func (w *watcher) now() {
	looked := make(chan struct{})
	select {
	case w.asked <- looked:
		<-looked
	case <-w.done:
		w.lookAtAll()
		w.ends.emitAll(w.emit)
	}
}

func (w *watcher) gap(err error) {
	w.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun",
		Content: strategy.Gap(fmt.Sprintf("error reports of the ranks are read only after they have ended: %v", err))})
}

// open watches the ranks' folders, and the folder that they are in: one that is removed may be
// made again. Network file systems report what is written on this node, where the ranks are.
func (w *watcher) open() (err error) {
	if w.notify, err = fsnotify.NewWatcher(); err != nil {
		return fmt.Errorf("watch the ranks' folders: %w", err)
	}
	for _, rank := range w.ranks {
		folder := rankFolder(w.dir, rank)
		if err := system.Mkdir(folder); err != nil {
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

// run reads the files that are there, and then those that events name, until stop ends them. With
// an error the kernel does not watch all of them.
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
		case looked := <-w.asked:
			w.lookAtAll()
			w.ends.emitAll(w.emit)
			close(looked)
		case pid := <-w.ends.gone:
			w.ends.emitOne(pid, w.emit)
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

// event reads the file that an event names, if it is one of ours. There is one
// for each write, and the last comes when all is written.
func (w *watcher) event(e fsnotify.Event) {
	if !e.Has(fsnotify.Create) && !e.Has(fsnotify.Write) {
		return
	}
	folder, name := filepath.Split(e.Name)
	if rank, ok := w.rankOf[filepath.Clean(folder)]; ok {
		w.look(rank, name)
		return
	}
	if rank, ok := w.rankOf[filepath.Clean(e.Name)]; ok && e.Has(fsnotify.Create) {
		if err := w.notify.Add(e.Name); err != nil {
			w.gap(fmt.Errorf("watch %s: %w", e.Name, err))
		}
		w.lookAt(rank)
	}
}

func (w *watcher) lookAtAll() {
	for _, rank := range w.ranks {
		w.lookAt(rank)
	}
}

// lookAt reads all files of a rank: those of its end first.
func (w *watcher) lookAt(rank int) {
	w.look(rank, errorFile)
	w.look(rank, probeFile)
	folder, err := os.Open(rankFolder(w.dir, rank))
	if err != nil {
		return
	}
	defer folder.Close()
	names, _ := folder.Readdirnames(16 * mostFiles) // what there is, if not all of it
	slices.Sort(names)
	for _, name := range names {
		if name != errorFile && name != probeFile {
			w.look(rank, name)
		}
	}
}

// look emits the content of a file, if it is one of ours and new.
func (w *watcher) look(rank int, name string) {
	path := filepath.Join(rankFolder(w.dir, rank), name)
	switch plain, own := unnumbered(name); {
	case own && len(w.last) >= mostFiles*len(w.ranks):
	case plain == probeFile, name == errorFile:
		w.lookAtEnd(rank, name, path)
	case plain == processFile:
		w.lookAtProcess(rank, path)
	case plain == memoryFile:
		w.lookAtMemory(rank, path)
	case plain == stepsFile && w.step != nil:
		w.lookAtSteps(rank, path)
	}
}

// unnumbered gives the name that a file of a rank would have, and whether it is one of a
// process that the job started itself: process-123.json, steps-123.
func unnumbered(name string) (plain string, own bool) {
	stem, end, dotted := strings.Cut(name, ".")
	if base, number, ok := strings.Cut(stem, "-"); ok && number != "" && strings.Trim(number, "0123456789") == "" {
		stem, own = base, true
	}
	if dotted {
		stem += "." + end
	}
	return stem, own
}

func (w *watcher) lookAtEnd(rank int, name, path string) {
	fact, raised := read(path, name, rank)
	if !raised {
		fact = strategy.Fact{Rank: rank}
	}
	end, masked := processEnd(path, name, fact)
	if raised && w.isNews(path, *fact.Finding()) {
		w.emit(fact)
	}
	w.lookAtQuestions(rank, name, path)
	if of := strategy.As[*strategy.ProcessEnd](end); masked && w.isNews(fmt.Sprintf("%s of %d", path, of.PID), *of) {
		w.ends.add(end)
	}
}

// asked is for how long a process may yet be asked, and how often that changed.
type asked struct {
	bound strategy.Seconds
	times int
}

// mostAsked bounds the changes. A process begins with its questions once, and ends them once.
const mostAsked = 16

func (w *watcher) lookAtQuestions(rank int, name, path string) {
	plain, _ := unnumbered(name)
	bound, written, ok := asking(path)
	key := path + ": asked"
	before, _ := w.last[key].(asked)
	if plain != probeFile || !ok || bound == before.bound || before.times == mostAsked {
		return
	}
	w.last[key] = asked{bound, before.times + 1}
	w.emit(strategy.Fact{Time: written, Rank: rank, Source: "probe", Content: &strategy.Asking{For: bound}})
}

func (w *watcher) lookAtProcess(rank int, path string) {
	text, written, err := slurp(path)
	if err != nil {
		return
	}
	said, problems, ok := parseSaid(text)
	for i := range said.InPlace {
		said.InPlace[i].Rank = rank
	}
	if !ok || !w.isNews(path, said) {
		return
	}
	for _, p := range problems {
		if w.isNews(path+": "+p, true) {
			w.emit(strategy.Fact{Time: written, Rank: rank, Source: "probe",
				Content: strategy.Gap("the hook in the training process: " + p)})
		}
	}
	w.emit(strategy.Fact{Time: written, Rank: rank, Source: "probe", Content: &said})
}

func (w *watcher) lookAtMemory(rank int, path string) {
	text, written, err := slurp(path)
	if err != nil {
		return
	}
	if m, ok := parseMeasured(text); ok && w.isNews(path, m) {
		m.Rank = rank
		w.emit(strategy.Fact{Time: written, Rank: rank, Source: "probe", Content: (*strategy.Measurement)(&m)})
	}
}

// lookAtSteps reports the step of the process that is ahead of a rank's others.
func (w *watcher) lookAtSteps(rank int, path string) {
	s, ok := readStep(path)
	before, known := w.steps[rank]
	if !ok || known && (s.N <= before.N && path != before.path || s.N == before.N && s.Total == before.Total &&
		s.At.Equal(before.At) && s.Phase == before.Phase) {
		return
	}
	w.steps[rank] = stepped{path, s}
	w.step(rank, s)
}

// isNews reports whether the content of a path is new, and notes it.
func (w *watcher) isNews(path string, content any) bool {
	if before, ok := w.last[path]; ok && reflect.DeepEqual(before, content) {
		return false
	}
	w.last[path] = content
	return true
}
