package artifacts

import (
	"bytes"
	"cmp"
	"os"
	"path/filepath"
	"regexp"
	"strconv"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/runstate"
)

// headed is how far into saved output gpurun's first line is looked for.
const headed = 64 << 10

// firstLine is what gpurun says of a job that trains on the CPU under a ceiling.
var firstLine = regexp.MustCompile(`(?m)^gpurun: job .*, CPU, at most (\d+(?:\.\d+)?) ([KMGT])iB in each rank\r?$`)

// A head keeps the first bytes that go through it.
type head struct{ text bytes.Buffer }

func (h *head) Write(p []byte) (int, error) {
	h.text.Write(p[:min(len(p), max(headed-h.text.Len(), 0))])
	return len(p), nil
}

// ceiling is what gpurun held each rank on the CPU to by its own words, 0 for none.
func (h *head) ceiling() int64 {
	m := firstLine.FindSubmatch(h.text.Bytes())
	if m == nil {
		return 0
	}
	number, _ := strconv.ParseFloat(string(m[1]), 64)
	return int64(number * float64(int64(1)<<map[byte]int{'K': 10, 'M': 20, 'G': 30, 'T': 40}[m[2][0]]))
}

// under takes over the ceiling that a file's job had: by the journal of the run directory
// that a rank's log lies in, or by gpurun's own words in saved output.
func (a *Artifacts) under(name string, said *head) {
	if dir := filepath.Join(filepath.Dir(name), "..", ".."); name != "-" && isFile(filepath.Join(dir, journal.File)) {
		events, _ := journal.Read(dir) // without it the file says what it says
		run := runstate.Of(events)
		a.Ceiling = run.Began.Job.Ceiling
		for _, attempt := range run.Attempts {
			a.Evidence.Accelerator = cmp.Or(attempt.Evidence.Accelerator, a.Evidence.Accelerator)
		}
		return
	}
	if a.Ceiling = said.ceiling(); a.Ceiling > 0 {
		a.Evidence.Accelerator = "cpu"
	}
}

func isFile(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.Mode().IsRegular()
}
