// These files show a running run: as a line below the job's output, once a minute where
// there is no terminal, and in files that gpurun status reads.
//
//	live.go    events and samples in, the line and the files out
//	status.go  the status of a run
//	line.go    a status in one line
//	run.go     the status of the runs below a folder
//	statuspage.go  gpurun status
//
// The run never waits for it: what cannot be shown or written in time is lost.

package show

import (
	"context"
	"fmt"
	"os"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

const (
	statusPause = 5 * time.Second // between two status.json of a running attempt
	linePause   = time.Minute     // between two lines where there is no terminal
	// sampleShare spreads the samples that are kept over an attempt: the pause between two is
	// this part of its age, but at least a second. A day has 3,600 a rank.
	sampleShare = 600
	// mostWaiting is how many samples may wait for a disk; more are lost.
	mostWaiting = 8
	// closePatience bounds the wait for a disk at the end.
	closePatience = 2 * time.Second
)

// A Display says where a run is shown.
type Display struct {
	// Stdout and Stderr are gpurun's own. Where both are one terminal, or stdout a file, the
	// line is shown there; else stderr gets one a minute.
	Stdout, Stderr *os.File
	Silent         bool         // show nothing; the files are written anyway
	Dir            string       // the run directory
	Mask           *mask.Masker // takes the job's secrets out of the files
}

// A Monitor shows one run. Its methods may be called from several goroutines, and do not wait
// for a disk or a terminal.
type Monitor struct {
	Screen *ranks.Screen   // owns the terminal; nil where there is no line
	Words  *ranks.Messages // gpurun's messages, through the screen to stderr

	silent bool
	colour bool
	record *journal.RunRecord
	writer *system.Worker

	mu      sync.Mutex // guards what follows
	state   journal.Run
	status  launcher.Status
	unsaved bool // status.json is to be written
	saved   time.Time
	kept    time.Time     // when samples were last kept
	printed time.Time     // when the last line was printed
	latest  sampleBatch   // kept only if it is the last of the attempt
	samples []sampleBatch // that wait to be written
	line    string        // that waits to be printed
}

// A sampleBatch are the samples of all ranks at one time.
type sampleBatch struct {
	attempt int
	samples []strategy.Sample
}

// OpenMonitor begins to show a run, until Close.
func OpenMonitor(o Display) *Monitor {
	m := &Monitor{
		silent: o.Silent, colour: os.Getenv("NO_COLOR") == "", record: journal.NewRecord(o.Dir, o.Mask),
		writer: system.NewWorker(),
		state:  journal.Run{Most: journal.Recent},
	}
	if !o.Silent {
		m.Screen = ranks.NewScreen(o.Stdout, o.Stderr)
	}
	m.Words = ranks.NewMessages(m.Screen.On(o.Stderr))
	m.writer.Start(0, m.write)
	return m
}

// Events returns show with the monitor in front of it, so that the line is up to date before
// the event is shown.
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
		m.kept, m.printed = time.Time{}, time.Now()
	case launcher.Ended:
		m.keep(m.latest)
	default:
		return
	}
	if m.state.Began.Run == "" {
		return // a run that is over, shown again
	}
	m.status, m.unsaved = statusOf(&m.state, time.Now()), true
	if !m.status.Running {
		m.Screen.Show(nil)
	}
	m.writer.Wake()
}

// Sample shows the latest samples of an attempt.
func (m *Monitor) Sample(attempt int, samples []strategy.Sample) {
	now := time.Now()
	m.mu.Lock()
	defer m.mu.Unlock()
	if !m.state.Sample(attempt, samples, now) {
		return
	}
	before, status := m.status, statusOf(&m.state, now)
	m.status, m.latest = status, sampleBatch{attempt, m.state.Progress.Samples}
	if age := status.Seconds.Duration(); now.Sub(m.kept) >= max(time.Second, age/sampleShare)-samplesJitter {
		m.kept = now
		m.keep(m.latest)
	}
	if now.Sub(m.saved) >= statusPause || before.Step == 0 && status.Step > 0 || len(before.Ranks) < len(status.Ranks) {
		m.unsaved = true
	}
	if m.Screen == nil && !m.silent && now.Sub(m.printed) >= linePause {
		m.printed, m.line = now, StatusLine(status, longestLine, false)
	}
	m.writer.Wake()
	m.Screen.Show(func(columns int) (line, title string) {
		return StatusLine(status, columns-1, m.colour), StatusLine(status, longestTitle, false)
	})
}

// keep queues samples to be written, unless the disk is too slow. The caller holds mu.
func (m *Monitor) keep(b sampleBatch) {
	if m.latest = (sampleBatch{}); len(b.samples) > 0 && len(m.samples) < mostWaiting {
		m.samples = append(m.samples, b)
	}
}

const (
	// samplesJitter is how much too early a sample may come and still be kept.
	samplesJitter = 100 * time.Millisecond
	longestLine   = 200 // characters
	longestTitle  = 100
)

// Close writes and prints the rest, unless disk or terminal block, and restores the terminal.
func (m *Monitor) Close() {
	defer m.Screen.Close()
	defer m.Words.Close()
	m.Screen.Show(nil)
	m.writer.Close()
	m.writer.Wait(context.Background(), closePatience)
}

// write writes the files and lines that wait, which may take a while. It ignores errors: the journal reports those of
// the disk.
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
