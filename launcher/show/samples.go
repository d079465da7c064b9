package show

import (
	"bytes"
	"encoding/json"
	"io"
	"os"
	"time"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// lastSampleBytes is how much is read from the end of a file of samples: hundreds of lines.
const lastSampleBytes = 256 << 10

// mostHeld is more bytes than any device has: a larger figure is an error.
const mostHeld = 1 << 50

// readSamples reads the last samples of an attempt that ran between two times, in the order of the file; none where
// there is no file.
func readSamples(path string, from, to time.Time) (samples []strategy.Sample) {
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil
	}
	defer f.Close()
	info, err := f.Stat()
	if err != nil {
		return nil
	}
	text, err := io.ReadAll(io.NewSectionReader(f, max(info.Size()-lastSampleBytes, 0), lastSampleBytes))
	if err != nil {
		return nil
	}
	const slack = time.Minute // clocks of two processes
	for line := range bytes.Lines(text) {
		var s strategy.Sample // a line that begins before the part that was read is not JSON
		if json.Unmarshal(line, &s) != nil || s.Time.Before(from.Add(-slack)) || s.Time.After(to.Add(slack)) {
			continue
		}
		if s.Allowed < 0 || s.Allowed > mostHeld {
			s.Allowed = 0
		}
		samples = append(samples, s)
	}
	return samples
}
