package job

import (
	"bytes"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/patch"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/strategy"
)

// leastBatch is the diff by which the user allows a smaller micro batch: it sets the minimum in the job's train.toml,
// or adds a train.toml, which command then starts. Both are empty if there is no such diff.
func (w *NextWriter) leastBatch(p *Prepared, value string) (command, diff string) {
	if p == nil || p.knobs[strategy.MicroBatchSize].Absent != "" && !p.knobs[strategy.MicroBatchSize].Floor {
		return "", ""
	}
	if w.Job.Path != "" {
		return "", w.changed(func(text []byte) ([]byte, error) { return withLeast(text, p.script, value) })
	}
	const name = "train.toml"
	least, err := strconv.Atoi(value)
	if err != nil || p.script == nil || exists(filepath.Join(w.From, name)) || !w.shown(w.Typed) {
		return "", ""
	}
	if micro, certain := p.script.Certain(strategy.MicroBatchSize); !certain || micro.Entry() == nil {
		return "", ""
	}
	text, err := p.draft(least)
	if err != nil || w.Mask.Config(text) != text {
		return "", ""
	}
	added := format.Unified(name, nil, name, []byte(text))
	return w.gpurun([]string{name}), "--- /dev/null\n+++ b/" + name + string(added[bytes.Index(added, []byte("\n@@")):])
}

// withLeast sets the minimum of the micro batch in a train.toml, and its argument by the script if the file does not
// name it.
func withLeast(text []byte, own *script.Analysis, value string) ([]byte, error) {
	at := patch.Join([]string{"knobs", string(strategy.MicroBatchSize)})
	_, found, err := patch.Get(patch.TOML, text, at)
	if err != nil {
		return nil, err
	}
	if !found && own != nil {
		micro, _ := own.Certain(strategy.MicroBatchSize)
		for _, key := range []string{"arg", "override", "default"} {
			v, known := micro.Entry()[key]
			if !known {
				continue
			}
			if text, err = patch.Set(patch.TOML, text, at+"."+key, v); err != nil {
				return nil, err
			}
		}
	}
	least, err := strconv.ParseInt(value, 10, 64)
	if err != nil {
		return nil, err
	}
	return patch.Set(patch.TOML, text, at+".min", least)
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
