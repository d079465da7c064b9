package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/fits"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// rememberedAs is the name of the file that the job is remembered in: the same for
// whatever arguments, code and settings it has.
func (r Resolved) rememberedAs() string {
	j := r.job
	what := j.Argv[0]
	if j.Kind == Script {
		what = r.under(what)
	}
	return fits.Name(j.Workdir, string(j.Kind), what, j.Name)
}

// codeDigest is a digest of all that makes the job need what it needs, but the settings
// that gpurun may change: of the job with each of these at the first value that it can
// have. Where one cannot be set to that, what is written counts.
func (p *Prepared) codeDigest() string {
	h := sha256.New()
	part := func(s string) {
		fmt.Fprintf(h, "%d:", len(s))
		_, _ = io.WriteString(h, s) // a hash takes every write
	}
	r, change := p.resolved, p.bare()
	part(string(r.job.Kind))
	for _, word := range change.Argv {
		part(word)
	}
	for _, name := range slices.Sorted(maps.Keys(change.Files)) {
		part(name)
		part(string(change.Files[name]))
	}
	for _, name := range p.unchanged(change) {
		part(name)
		part(string(r.command.Files[name]))
	}
	for _, s := range r.sources() {
		name, err := filepath.Rel(r.job.Workdir, s.Path)
		if err != nil {
			name = s.Path
		}
		part(name)
		part(string(s.Text))
	}
	for _, text := range r.programs() {
		part(string(text))
	}
	return hex.EncodeToString(h.Sum(nil))
}

// bare is the job's command with each setting that can be changed at the first value
// that it can have.
func (p *Prepared) bare() recipes.Change {
	r, first := p.resolved, strategy.Plan{}
	for _, k := range strategy.Knobs {
		switch own, known := p.knobs[k]; {
		case !known || own.Absent != "" || own.By == strategy.ByHook || own.Scope == strategy.ScopeDerived || k == strategy.Allocator:
		case k.Whole():
			first[k] = strategy.Number(max(own.Min, 1))
		case len(own.Values) > 0:
			first[k] = own.Values[0]
		}
	}
	change, err := r.recipe.Apply(r.command, first, r.at, "")
	if err == nil {
		return change
	}
	some := strategy.Plan{}
	change = recipes.Change{Argv: r.command.Argv}
	for _, k := range strategy.Knobs {
		if v, set := first[k]; set {
			if next, err := r.recipe.Apply(r.command, some.With(strategy.Plan{k: v}), r.at, ""); err == nil {
				change, some[k] = next, v
			}
		}
	}
	return change
}

// unchanged are the configuration files of which a change has no copy. A copy has the
// name of its file, in another folder.
func (p *Prepared) unchanged(change recipes.Change) []string {
	r := p.resolved
	names := slices.Sorted(maps.Keys(r.command.Files))
	if r.recipe.Name != "" {
		names = slices.Sorted(slices.Values(r.recipe.FilesNamed(r.command)))
	}
	copies := map[string]int{}
	for name := range change.Files {
		copies[path.Base(name)]++
	}
	for _, name := range names {
		copies[path.Base(name)]--
	}
	return slices.DeleteFunc(names, func(name string) bool { return copies[path.Base(name)] == 0 })
}

// programs are the texts of the files that a command without a Python script of its own
// begins with: "sh train.sh".
func (r Resolved) programs() [][]byte {
	var texts [][]byte
	if r.source != nil {
		return nil
	}
	for _, word := range r.command.Argv {
		if strings.HasPrefix(word, "-") {
			break
		}
		if text, err := readFile(r.under(word), largestModule); err == nil {
			texts = append(texts, text)
		}
	}
	return texts
}

// torchVersion matches what PyTorch's own torch/version.py says.
var torchVersion = regexp.MustCompile(`(?m)^__version__ = ['"](\d+)\.(\d+)`)

// torchMinor is the minor version of the job's PyTorch, "2.11"; empty where it is not known.
func (r Resolved) torchMinor(ctx context.Context) string {
	if v := r.command.Packages["torch"]; v != "" {
		major, minor := majorMinor(v)
		return fmt.Sprintf("%d.%d", major, minor)
	}
	if r.python == nil {
		return ""
	}
	text, err := r.python.ReadFile(ctx, "torch/version.py")
	if err != nil {
		return "" // a job without it, or an interpreter that does not tell
	}
	if m := torchVersion.FindSubmatch(text); m != nil {
		return string(m[1]) + "." + string(m[2])
	}
	return ""
}

// DeviceOf asks what each rank has to train in, by the job's devices.
func (p *Prepared) DeviceOf(devices func(context.Context) []gpu.Device) func(context.Context) memory.DeviceMemory {
	return func(ctx context.Context) memory.DeviceMemory { return p.Device(devices(ctx)) }
}

// Device is what each rank has to train in, given the job's devices as they are: of
// several that differ, the smallest. What is not known is zero.
func (p *Prepared) Device(devices []gpu.Device) memory.DeviceMemory {
	d := memory.DeviceMemory{Name: p.resolved.gpus.Name, Allowed: p.resolved.job.Limits.DeviceMemory, LocalRanks: p.resolved.local}
	if p.Accelerator() == "cpu" {
		d.Name, d.CPU = "cpu", true
	}
	for i, one := range devices {
		if i == 0 || one.Total-one.Used < d.Total-d.Others {
			d.Name, d.Total, d.Others = one.Name, one.Total, one.Used
		}
	}
	return d
}
