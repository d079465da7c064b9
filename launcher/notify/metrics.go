// These files export the metrics of a run to Prometheus: in a file for node_exporter's
// textfile collector, and over HTTP.
//
//	metrics.go   events and samples in, the file out
//	families.go  the metrics, and their values
//	text.go      Prometheus' text format
//	listen.go    the server
//
// The run never waits for a full disk or a slow scraper.

package notify

import (
	"context"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// An Exporter exports the metrics of one run. Its methods may be called from several goroutines; only
// Close waits for disk and network.
type Exporter struct {
	options strategy.Metrics
	mask    *mask.Masker
	user    func() string // whose run it is; it may wait for a directory service
	note    func(string)  // nil before Start
	begun   sync.Once
	writer  *system.Worker
	warned  bool // that the file cannot be written; the writer's
	server  *server

	mu    sync.Mutex // guards what follows
	state journal.Run
	ended time.Time // when the verdict was seen
}

// NewExporter returns the metrics of a run; nothing is exported before Start. The mask removes the job's
// secrets from them, and may be nil.
func NewExporter(o strategy.Metrics, m *mask.Masker) *Exporter {
	user := func() string { return system.UserName(uint32(os.Getuid())) }
	return &Exporter{
		options: o, mask: m, user: user, writer: system.NewWorker(), state: journal.Run{Most: journal.Recent},
	}
}

// Events returns a function that updates the metrics, and then calls show.
func (m *Exporter) Events(show func(launcher.Event)) func(launcher.Event) {
	return func(e launcher.Event) {
		m.see(e)
		if _, begins := e.(launcher.Began); begins && m.note != nil {
			m.begun.Do(m.begin)
		}
		m.writer.Wake()
		show(e)
	}
}

func (m *Exporter) see(e launcher.Event) {
	m.mu.Lock()
	defer m.mu.Unlock()
	m.state.Add(e)
	if _, ends := e.(launcher.Finished); ends {
		m.ended = time.Now()
	}
}

// Samples returns a function that calls next, and then updates the metrics.
func (m *Exporter) Samples(next func(int, []strategy.Sample)) func(int, []strategy.Sample) {
	return func(attempt int, samples []strategy.Sample) {
		next(attempt, samples)
		m.mu.Lock()
		defer m.mu.Unlock()
		m.state.Sample(attempt, samples, time.Now())
	}
}

// Start exports metrics once this process begins the run, or resumes it after events. note gets
// warnings, and must not block. It returns Close.
func (m *Exporter) Start(events []launcher.Event, note func(text string)) (end func()) {
	for _, e := range events {
		m.see(e)
	}
	m.note = note
	return m.Close
}

func (m *Exporter) begin() {
	if m.options.TextFile != "" {
		system.SweepFolder(filepath.Dir(m.options.TextFile), time.Minute) // of a gpurun that was killed
		m.writer.Start(textPause, m.write)
	}
	if m.options.Listen != "" {
		m.server = listen(m.options.Listen, m.text, m.note)
	}
}

// closeBound bounds the wait for the disk and for scrapers at the end.
const closeBound = 2 * time.Second

// Close writes the file a last time, and closes the listener. The file stays.
func (m *Exporter) Close() {
	m.writer.Wake()
	m.writer.Close()
	m.server.close()
	m.writer.Wait(context.Background(), closeBound)
}

const (
	// textPause is how often the file is written: its age shows that gpurun is alive.
	textPause = 5 * time.Second
	// textMode lets node_exporter read it, which runs as another user.
	textMode fs.FileMode = 0o644
)

// write writes the file, and warns only once if it cannot be written.
func (m *Exporter) write() {
	if err := m.writeFile(); err != nil && !m.warned {
		m.warned = true
		m.note(fmt.Sprintf("warning: the metrics cannot be written; gpurun keeps trying: %v", err))
	}
}

// writeFile replaces the file; a link in its place is replaced, too.
func (m *Exporter) writeFile() error {
	return system.WriteCopy(m.options.TextFile, m.text(), textMode)
}

// longestLabel is the largest length of a label's value, in characters.
const longestLabel = 128

// label is the value of a label.
func (m *Exporter) label(text string) string { return m.mask.Line(text, longestLabel) }
