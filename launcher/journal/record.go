package journal

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/model"
)

// StatusFile, in the run directory, shows a run while it goes on, as model.SamplesFile does.
// Nothing is decided by them.
const StatusFile = "status.json"

// A Record writes what a run lets see of itself while it goes on, beside the Journal and
// without its promises: nothing is synced, and an error concerns nobody who trains. Its
// methods are called from one goroutine.
type Record struct {
	dir  string
	mask *mask.Masker
}

// NewRecord writes into a run directory, which somebody else makes; m may be nil.
func NewRecord(dir string, m *mask.Masker) *Record { return &Record{dir, m} }

// Status replaces status.json.
func (r *Record) Status(s launcher.Status) error {
	text, err := json.Marshal(s)
	if err != nil {
		return fmt.Errorf("encode the status: %w", err)
	}
	return private.WriteCopy(filepath.Join(r.dir, StatusFile), append(r.mask.JSON(text), '\n'), private.Mode)
}

// Samples appends to the samples.jsonl of an attempt, whose folder is there. Lines are
// written whole, or where the disk is full not at all.
func (r *Record) Samples(attempt int, samples []model.Sample) error {
	var lines bytes.Buffer
	for _, s := range samples {
		s.Batches, s.Counted, s.CountedAt, s.Data, s.Forward = false, 0, time.Time{}, 0, 0 // they compare ranks while these run
		line, err := json.Marshal(s)
		if err != nil {
			return fmt.Errorf("encode a sample: %w", err)
		}
		lines.Write(append(line, '\n'))
	}
	f, err := private.OpenFile(filepath.Join(r.dir, fmt.Sprintf("attempt-%d", attempt), model.SamplesFile), os.O_CREATE|os.O_WRONLY|os.O_APPEND)
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

// HintsFile keeps what the summary told people to do next: the job's own words for the plan
// that trained are known while the run's gpurun is there, and not afterwards.
const HintsFile = "hints.json"

// largestHints bounds what is read of it, in bytes.
const largestHints = 64 << 10

// KeepHints writes the hints of a run that ends into its directory.
func KeepHints(dir string, hints []string) error {
	text, err := json.Marshal(hints)
	if err != nil {
		return err
	}
	return private.WriteCopy(filepath.Join(dir, HintsFile), append(text, '\n'), private.Mode)
}

// ReadHints reads them; false where there are none.
func ReadHints(dir string) (hints []string, ok bool) {
	_, err := private.ReadJSON(filepath.Join(dir, HintsFile), largestHints, &hints)
	return hints, err == nil
}

// startFile says how the run was started last. It has the words as they were typed,
// secrets and all, as command.json has those of an attempt.
const startFile = "run.json"

// maxStart bounds what is read as one, in bytes: a command line has at most 2 MiB.
const maxStart = 4 << 20

// A Start is how a run is started.
type Start struct {
	Args []string `json:"args"`    // gpurun's, without its own name
	Dir  string   `json:"workdir"` // where it was typed
}

// KeepStart writes down how the run is started, for who wants to start it again.
func (j *Journal) KeepStart(s Start) error {
	return writeJSON(private.WriteFile, filepath.Join(j.dir, startFile), s)
}

// ReadStart says how a run was started last. The error is fs.ErrNotExist where
// that was not kept.
func ReadStart(dir string) (s Start, err error) {
	if _, err := private.ReadJSON(filepath.Join(dir, startFile), maxStart, &s); err != nil {
		return s, fmt.Errorf("read how the run was started: %w", err)
	}
	return s, nil
}
