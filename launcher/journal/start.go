package journal

import (
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher/private"
)

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

// ReadStart says how a run was started last. The error is fs.ErrNotExist where that was
// with a gpurun that did not keep it.
func ReadStart(dir string) (s Start, err error) {
	f, err := private.OpenFile(filepath.Join(dir, startFile), os.O_RDONLY)
	if err != nil {
		return s, fmt.Errorf("read how the run was started: %w", err)
	}
	defer f.Close()
	if err := json.NewDecoder(io.LimitReader(f, maxStart)).Decode(&s); err != nil {
		return s, fmt.Errorf("read %s: %w", f.Name(), err)
	}
	return s, nil
}
