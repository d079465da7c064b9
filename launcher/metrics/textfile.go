package metrics

import (
	"bytes"
	"fmt"
	"io/fs"
	"time"

	"github.com/prometheus/common/expfmt"

	"github.com/gpurun/gpurun/launcher/private"
)

const (
	// textPause is how often the file is written: its age tells that gpurun is there.
	textPause = 5 * time.Second
	// textMode lets node_exporter read it, which is another user.
	textMode fs.FileMode = 0o644
)

// write writes the file after each event and every textPause, until Close and once more. A
// file that cannot be written is one warning, however often that is tried again.
func (m *Metrics) write() {
	tick := time.NewTicker(textPause)
	defer tick.Stop()
	warned := false
	for running := true; running; {
		select {
		case <-m.wake:
		case <-tick.C:
		case <-m.over:
			running = false
		}
		if err := m.writeFile(); err != nil && !warned {
			warned = true
			m.note(fmt.Sprintf("warning: the metrics are not written, and tried again: %v", err))
		}
	}
}

// writeFile replaces the file, never what a link in its place leads to.
func (m *Metrics) writeFile() error {
	gathered, err := m.registry.Gather()
	if err != nil {
		return fmt.Errorf("gather the metrics: %w", err)
	}
	var text bytes.Buffer
	for _, f := range gathered {
		if _, err := expfmt.MetricFamilyToText(&text, f); err != nil {
			return fmt.Errorf("encode %s: %w", f.GetName(), err)
		}
	}
	return private.WriteCopy(m.options.TextFile, text.Bytes(), textMode)
}
