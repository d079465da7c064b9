package journal

import (
	"encoding/json"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher/private"
)

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
	text, err := private.ReadHead(filepath.Join(dir, HintsFile), largestHints)
	return hints, err == nil && json.Unmarshal(text, &hints) == nil
}
