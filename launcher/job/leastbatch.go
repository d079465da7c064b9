package job

import (
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// leastBatch is the diff by which the user allows a smaller micro batch: it sets the minimum in the job's train.toml;
// empty if there is none.
func (w *NextWriter) leastBatch(value string) (diff string) {
	least, err := strconv.ParseInt(value, 10, 64)
	if err != nil || w.Job.Path == "" || w.knobs[strategy.MicroBatchSize].Absent != "" {
		return ""
	}
	return w.changed(func(text []byte) ([]byte, error) {
		return edit.Set(edit.TOML, text, edit.Join([]string{"knobs", string(strategy.MicroBatchSize)})+".min", least)
	})
}

// changed is the diff of the job's train.toml after a change; empty if it cannot be changed.
func (w *NextWriter) changed(change func(text []byte) ([]byte, error)) string {
	text, err := os.ReadFile(w.Job.Path)
	if err != nil || w.Job.Path == "" {
		return ""
	}
	next, err := change(text)
	if err != nil {
		return ""
	}
	name, err := filepath.Rel(w.From, w.Job.Path)
	if err != nil || strings.HasPrefix(name, "..") {
		return ""
	}
	return string(format.Unified("a/"+name, text, "b/"+name, next))
}
