// Package live shows a run while it goes on: as a line below the job's output, once a minute
// where there is no terminal, and in files by which gpurun status shows it elsewhere.
//
//	live.go    what is seen of the run, and to whom it goes
//	status.go  where the run stands
//	line.go    a status in one line
//	run.go     the runs below a folder, and where each stands
//	page.go    gpurun status
//
// Nothing is decided by any of it, and nothing of the run waits for it: what cannot be shown
// or written in time is lost.
package live

import (
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/model"
)

const (
	statusPause = 5 * time.Second // between two status.json of a running attempt
	linePause   = time.Minute     // between two lines where there is no terminal
	// sampleShare spreads the samples that are kept over an attempt: the pause between two is
	// this part of its age, a second at least. A day has 3,600 a rank.
	sampleShare = 600
	// mostWaiting is how many samples may wait for a disk; what comes then is lost.
	mostWaiting = 8
	// closePatience bounds the wait for a disk at the end.
	closePatience = 2 * time.Second
)

// Options say where a run is shown.
type Options struct {
	// Stdout and Stderr are gpurun's own. Where both are one terminal, or stdout a file, the
	// line stands there; else stderr gets one a minute.
	Stdout, Stderr *os.File
	// Silent shows nothing; the files are written all the same.
	Silent bool
	// Dir is the run directory, and Mask takes the job's secrets out of what is written there.
	Dir  string
	Mask *mask.Masker
}

// A Monitor shows one run. Its methods may be called from several goroutines, and wait for
// no disk and no terminal.
type Monitor struct {
	// Screen owns the terminal; nil where there is no line.
	Screen *output.Screen
	// Words is where gpurun speaks: through the screen to stderr.
	Words *output.Words

	silent bool
	colour bool
	record *journal.Record
	wake   chan struct{}
	over   chan struct{}
	owner  chan struct{} // closed when the goroutine that writes has ended

	mu      sync.Mutex // guards what follows
	state   runstate.Run
	status  launcher.Status
	unsaved bool // the status has changed in a way that is written down
	saved   time.Time
	kept    time.Time // when samples were last kept
	spoke   time.Time // when the last line was said
	latest  batch     // that is not kept, but will be if it is the last
	samples []batch   // that wait to be written
	line    string    // that waits to be said
}

// A batch is the samples of one moment.
type batch struct {
	attempt int
	samples []model.Sample
}

// Open begins to show a run, until Close.
func Open(o Options) *Monitor {
	m := &Monitor{
		silent: o.Silent, colour: os.Getenv("NO_COLOR") == "", record: journal.NewRecord(o.Dir, o.Mask),
		wake: make(chan struct{}, 1), over: make(chan struct{}), owner: make(chan struct{}),
	}
	if !o.Silent {
		m.Screen = output.NewScreen(o.Stdout, o.Stderr)
	}
	m.Words = output.NewWords(m.Screen.On(o.Stderr))
	go m.run()
	return m
}

// Events is show with the monitor's own eyes before it: what is shown of an event stands
// below no line that is not true any more.
func (m *Monitor) Events(show func(launcher.Event)) func(launcher.Event) {
	return func(e launcher.Event) {
		m.see(e)
		show(e)
	}
}

func (m *Monitor) see(e launcher.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Add(e)
	switch e.(type) {
	case launcher.Began, launcher.Finished:
	case launcher.Started:
		m.Screen.Begin()
		m.kept, m.spoke = time.Time{}, time.Now()
	case launcher.Ended:
		m.keep(m.latest)
	default:
		return
	}
	if m.state.Began.Run == "" {
		return // of a run that is over, and shown once more
	}
	m.status, m.unsaved = statusOf(&m.state, time.Now()), true
	if !m.status.Running {
		m.Screen.Show(nil)
	}
	m.signal()
}

// Sample takes what the ranks of an attempt let see of themselves now.
func (m *Monitor) Sample(attempt int, samples []model.Sample) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.Sample(attempt, samples, now) {
		return
	}
	before, status := m.status, statusOf(&m.state, now)
	m.status, m.latest = status, batch{attempt, m.state.Progress.Samples}
	if age := status.Seconds.Duration(); now.Sub(m.kept) >= max(time.Second, age/sampleShare)-samplesJitter {
		m.kept = now
		m.keep(m.latest)
	}
	if now.Sub(m.saved) >= statusPause || before.Step == 0 && status.Step > 0 || len(before.Ranks) < len(status.Ranks) {
		m.unsaved = true
	}
	if m.Screen == nil && !m.silent && now.Sub(m.spoke) >= linePause {
		m.spoke, m.line = now, Line(status, longestLine, false)
	}
	m.signal()
	m.Screen.Show(func(columns int) (line, title string) {
		return Line(status, columns-1, m.colour), Line(status, longestTitle, false)
	})
}

// keep has samples written, unless the disk is too slow for them. The caller holds mu.
func (m *Monitor) keep(b batch) {
	if m.latest = (batch{}); len(b.samples) > 0 && len(m.samples) < mostWaiting {
		m.samples = append(m.samples, b)
	}
}

const (
	// samplesJitter is how much too early a sample may come that is due.
	samplesJitter = 100 * time.Millisecond
	longestLine   = 200 // characters
	longestTitle  = 100
)

func (m *Monitor) signal() {
	select {
	case m.wake <- struct{}{}:
	default:
	}
}

// Close writes and says what is still to be, unless disk or terminal do not move, and leaves
// the terminal as it was.
func (m *Monitor) Close() {
	defer m.Screen.Close()
	defer m.Words.Close()
	m.Screen.Show(nil)
	close(m.over)
	timer := time.NewTimer(closePatience)
	defer timer.Stop()
	select {
	case <-m.owner:
	case <-timer.C:
	}
}

// run writes files and lines, which may take a while.
func (m *Monitor) run() {
	defer close(m.owner)
	for {
		select {
		case <-m.wake:
			m.write()
		case <-m.over:
			m.write()
			return
		}
	}
}

// write writes what waits. That it cannot is no concern of the run: what there is to know
// of the disk, the journal meets.
func (m *Monitor) write() {
	m.mu.Lock()
	samples, line, status, unsaved := m.samples, m.line, m.status, m.unsaved
	m.samples, m.line, m.unsaved = nil, "", false
	if unsaved {
		m.saved = time.Now()
	}
	m.mu.Unlock()
	if line != "" {
		fmt.Fprintf(m.Words, "gpurun: %s\n", line)
	}
	if unsaved {
		_ = m.record.Status(status)
	}
	for _, b := range samples {
		_ = m.record.Samples(b.attempt, b.samples)
	}
}
