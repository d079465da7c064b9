package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// StatusFile, in the run directory, shows a running run, like model.SamplesFile. Nothing is decided by them.
const StatusFile = "status.json"

// A RunRecord writes samples and the status of a running run next to the Journal and without its promises: nothing is
// synced, and an error does not affect the training. Its methods are called from one goroutine.
type RunRecord struct {
	dir  string
	mask *mask.Masker
}

// NewRecord writes into an existing run directory; m may be nil.
func NewRecord(dir string, m *mask.Masker) *RunRecord { return &RunRecord{dir, m} }

// Status replaces status.json.
func (r *RunRecord) Status(s launcher.Status) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	return system.WriteCopy(filepath.Join(r.dir, StatusFile), append(r.mask.JSON(text), '\n'), system.PrivateMode)
}

// Samples appends to the samples.jsonl of an attempt, whose folder exists. If the disk is full it writes no part of a
// line.
func (r *RunRecord) Samples(attempt int, samples []strategy.Sample) error {
	var lines bytes.Buffer
	for _, s := range samples {
		// they compare ranks while these run
		s.Batches, s.Counted, s.CountedAt, s.Data, s.Forward, s.InPlace = false, 0, time.Time{}, 0, 0, false
		line, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("encode a sample: %w", err)
		}
		lines.Write(append(line, '\n'))
	}
	f, err := system.OpenFile(filepath.Join(r.dir, fmt.Sprintf("attempt-%d", attempt), strategy.SamplesFile),
		os.O_CREATE|os.O_WRONLY|os.O_APPEND)
	if err != nil {
		return fmt.Errorf("write the samples: %w", err)
	}
	info, err := f.Stat()
	if err == nil {
		if _, err = f.Write(lines.Bytes()); err != nil {
			err = errors.Join(err, f.Truncate(info.Size()))
		}
	}
	if err = errors.Join(err, f.Close()); err != nil {
		return fmt.Errorf("write the samples: %w", err)
	}
	return nil
}

// HintsFile keeps the hints of the summary: only the run's own gpurun knows the job's words for the plan that trained.
const HintsFile = "hints.json"

// largestHints bounds how much of it is read, in bytes.
const largestHints = 64 << 10

// KeepHints writes the hints of a run that ends into its directory.
func KeepHints(dir string, hints []string) error {
	text, err := json.Marshal(hints)
	if err != nil {
		return err
	}
	return system.WriteCopy(filepath.Join(dir, HintsFile), append(text, '\n'), system.PrivateMode)
}

// ReadHints reads them; false where there are none.
func ReadHints(dir string) (hints []string, ok bool) {
	_, err := system.ReadJSON(filepath.Join(dir, HintsFile), largestHints, &hints)
	return hints, err == nil
}

// KeepPatch writes the nth diff of the job's files, from 0, into the run directory, and returns its path.
func KeepPatch(dir string, n int, diff string) (string, error) {
	name := "next.patch"
	if n > 0 {
		name = fmt.Sprintf("next-%d.patch", n+1)
	}
	path := filepath.Join(dir, name)
	return path, system.WriteCopy(path, []byte(diff), system.PrivateMode)
}

// startFile has the last command line of the run as it was typed, secrets included.
const startFile = "run.json"

// maxStart bounds it, in bytes: a command line has at most 2 MiB.
const maxStart = 4 << 20

// A CommandLine is the one that started a run.
type CommandLine struct {
	Args []string `json:"args"`    // gpurun's, without its own name
	Dir  string   `json:"workdir"` // where it was typed
}

// KeepStart writes the command line that starts the run, for a later start. A new run does not wait for the disk: it
// has little to lose until the kernel has written the file.
func (j *Journal) KeepStart(s CommandLine) error {
	path, write := filepath.Join(j.dir, startFile), system.WriteFile
	if _, err := os.Lstat(path); errors.Is(err, fs.ErrNotExist) {
		write = system.WriteCopy
	}
	return writeJSON(write, path, s)
}

// ReadStart reads the command line that started a run last. The error is fs.ErrNotExist where there is none.
func ReadStart(dir string) (s CommandLine, err error) {
	if _, err := system.ReadJSON(filepath.Join(dir, startFile), maxStart, &s); err != nil {
		return s, fmt.Errorf("read how the run was started: %w", err)
	}
	return s, nil
}
