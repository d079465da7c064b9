package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/fits"
	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A RememberedPlans is what is remembered of the job across runs: package fits, joined with the
// job. Its methods are called from one goroutine.
type RememberedPlans struct {
	// Fits says that a plan is predicted to fit, as fits.Today has it; nil where nobody
	// predicts.
	Fits func(past []strategy.Past, plan strategy.Plan, device memory.DeviceMemory) bool

	job     *Prepared
	store   fits.JobStore
	nowhere error // why nothing is remembered
	fresh   bool
	key     fits.Conditions // empty code: not known yet
}

// Memory is that of the job as it is written. fresh: nothing is recalled. variable gives
// those of gpurun's own environment.
func (p *Prepared) Memory(variable func(name string) string, fresh bool) *RememberedPlans {
	if p.unpinned != nil {
		p = p.unpinned // those words name the run
	}
	j := p.Job
	m := &RememberedPlans{job: p, fresh: fresh}
	m.Fits = func(past []strategy.Past, plan strategy.Plan, device memory.DeviceMemory) bool {
		return strategy.Fitting(p.StrategyJob(), past, plan, device)
	}
	m.store = fits.JobStore{Name: p.rememberedAs(), Copy: filepath.Join(j.Workdir, ".gpurun", j.Name+".fits.json")}
	m.store.Dir, m.nowhere = fits.Folder(variable)
	return m
}

// Recall puts into a job what is remembered of it, as far as it holds now. The inventory
// is asked for only where something is remembered. The words tell people what is
// remembered and not used.
func (m *RememberedPlans) Recall(ctx context.Context, p strategy.Policy, j strategy.Job, inventory func() strategy.Inventory) (known strategy.Job, words []string) {
	known = j
	warnings := guest(rememberedPlans, func() error {
		known, words = m.recall(ctx, p, j, inventory)
		return nil
	})
	for _, text := range warnings {
		words = append(words, "warning: "+text)
	}
	return known, words
}

func (m *RememberedPlans) recall(ctx context.Context, p strategy.Policy, j strategy.Job, inventory func() strategy.Inventory) (strategy.Job, []string) {
	if m.nowhere != nil {
		return j, []string{fmt.Sprintf("what this job needs is not remembered: %v", m.nowhere)}
	}
	if m.fresh {
		return j, nil
	}
	var words []string
	own, err := m.store.Load()
	if err != nil {
		words = append(words, notUsed("what is remembered of this job", err))
	}
	beside, err := m.store.LoadCopy()
	if err != nil {
		words = append(words, notUsed("the copy beside the job", err))
	}
	if len(own)+len(beside) == 0 {
		return j, words
	}
	inv := inventory()
	found := fits.Judge(own, beside, fits.Today{Conditions: m.keyOf(ctx, j, inv), Policy: p, Job: j, Inventory: inv, Room: roomOf(j, inv), Fits: m.Fits})
	j.Recalled, j.Remembered, j.Unsure = found.Recalled, found.Sure, found.Unsure
	if j.Recalled != nil {
		j.Recalled.Fit = strings.TrimSuffix(m.store.Name, ".json")
	}
	if found.Unused != "" && p.Mode != strategy.Off {
		words = append(words, "a plan that fitted before is not started with: "+found.Unused)
	}
	return j, words
}

// startsWith reports whether what was remembered last has the next run begin with a plan.
func (m *RememberedPlans) startsWith(plan strategy.Plan) bool {
	if m.nowhere != nil {
		return false
	}
	known, err := m.store.Load()
	return err == nil && len(known) > 0 && known[0].Begins(m.job.Plan(), plan)
}

// notUsed explains why something remembered is not used.
func notUsed(what string, err error) string {
	return fmt.Sprintf("warning: %s is not used: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// Keep remembers the last attempt of a history, after which d was decided.
func (m *RememberedPlans) Keep(ctx context.Context, j strategy.Job, history []strategy.Attempt, d strategy.Decision, inv strategy.Inventory) error {
	if m.nowhere != nil {
		return nil // reported before
	}
	seen := fits.Observation{Job: j, Attempt: history[len(history)-1], Trained: !d.Relaunch && d.Outcome == strategy.Trained, Room: roomOf(j, inv)}
	seen.Training, _ = j.Training(seen.Attempt.Plan, history)
	wrong := misremembered(j, history, d)
	if !wrong && (!seen.Telling() || m.uneventful(seen)) {
		return nil
	}
	err := errext.Recovered(func() error {
		beforeReading(rememberedPlans)
		seen.Conditions = m.keyOf(ctx, j, inv)
		return m.store.Update(func(known []fits.Fit) []fits.Fit {
			if wrong {
				known = fits.Unlearn(known, seen.Conditions, j.Recalled.Plan)
			}
			return fits.Learn(known, seen)
		})
	})
	if err != nil {
		return fmt.Errorf("what this job needs is not remembered: %w", err)
	}
	return nil
}

// uneventful reports whether a job of which nothing is remembered trained as it is
// written, and nothing was measured: it would start the same way without a memory.
func (m *RememberedPlans) uneventful(s fits.Observation) bool {
	if !s.Trained || len(s.Attempt.Measured) > 0 || len(s.Job.Written.Changed(s.Attempt.Plan)) > 0 {
		return false
	}
	known, err := m.store.Load()
	return err == nil && len(known) == 0
}

// misremembered reports whether attempt 0 may have failed for a reason of the plan that was
// recalled: the job as written, which came after it, did not end like it, or had no turn,
// since too much would have been repeated. The next night then starts as written.
func misremembered(j strategy.Job, history []strategy.Attempt, d strategy.Decision) bool {
	if j.Recalled != nil && len(history) == 1 {
		only := history[0].Diagnosis
		return only.Fatal && !only.OutOfMemory() && !d.Relaunch && d.Outcome == strategy.Failed
	}
	if j.Recalled == nil || len(history) != 2 {
		return false
	}
	first, second := history[0].Diagnosis, history[1].Diagnosis
	asWritten := len(j.Written.Changed(history[1].Plan)) == 0 && len(history[1].Plan.Changed(j.Written)) == 0
	return asWritten && !first.OutOfMemory() && (!second.Fatal || second.Error != first.Error) && history[1].StopSignal == 0
}

// keyOf says under which conditions the job runs.
func (m *RememberedPlans) keyOf(ctx context.Context, j strategy.Job, inv strategy.Inventory) fits.Conditions {
	if m.key.Code == "" {
		m.key = fits.Conditions{
			Code: m.job.codeDigest(), Recipe: m.job.RecipeName(), Torch: m.job.torchMinor(ctx), DataParallel: j.DataParallel,
			Device: inv.Device.Name, DeviceBytes: inv.Device.Total,
		}
	}
	return m.key
}

// roomOf is the memory that each rank has on its device, in bytes; 0 where it is not known.
func roomOf(j strategy.Job, inv strategy.Inventory) int64 {
	room := max(inv.Device.Total-inv.Device.Others, 0)
	if j.Ceiling > 0 && (room == 0 || j.Ceiling < room) {
		room = j.Ceiling
	}
	return room
}

// rememberedAs is the name of the file that the job is remembered in: the same for
// whatever arguments, code and settings it has.
func (r Resolved) rememberedAs() string {
	j := r.Job
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
	r, change := p.Resolved, p.bare()
	part(string(r.Job.Kind))
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
		name, err := filepath.Rel(r.Job.Workdir, s.Path)
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
	r, first := p.Resolved, strategy.Plan{}
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
	r := p.Resolved
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
		if text, err := ReadFile(r.under(word), largestModule); err == nil {
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
	if r.Interpreter == nil {
		return ""
	}
	text, err := r.Interpreter.ReadFile(ctx, "torch/version.py")
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
	d := memory.DeviceMemory{Name: p.GPUs.Name, Allowed: p.Job.DeviceMemory, LocalRanks: p.Ranks}
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

// Conditions is a digest of what decides whether the job fits into memory: its code and
// settings, the versions of gpurun and of packages, the policy and the device. It is empty
// where not all of it can be known, as what a shell script runs.
func (p *Prepared) Conditions(version string) func(context.Context, strategy.Inventory) string {
	return func(ctx context.Context, inv strategy.Inventory) string { return p.conditions(ctx, version, inv) }
}

// Unchanged reports whether the conditions are those of a run before, with no more room on
// the device than there was then.
func (p *Prepared) Unchanged(ctx context.Context, version, digest string, then strategy.Inventory, device func(context.Context) memory.DeviceMemory) bool {
	now := strategy.Inventory{Accelerator: p.Accelerator(), Device: device(ctx)}
	room, had := now.Device.Total-now.Device.Others, then.Device.Total-then.Device.Others
	return room <= had/100*101 && p.conditions(ctx, version, now) == digest
}

func (p *Prepared) conditions(ctx context.Context, version string, inv strategy.Inventory) (digest string) {
	if p.unpinned != nil {
		p = p.unpinned // those words name the run
	}
	if p.Comparable() != nil {
		return ""
	}
	err := errext.Recovered(func() error {
		job, device := p.StrategyJob(), inv.Device
		device.Others, device.Host, device.NVMe = 0, 0, 0 // what others hold changes
		text, err := json.Marshal([]any{
			version, p.codeDigest(), p.torchMinor(ctx), p.command.Packages, p.RecipeName(), p.Python(),
			p.Policy(), job, p.Plan(), inv.Accelerator, device, memoryVariables(p.env),
		})
		digest = short(text)
		return err
	})
	if err != nil {
		return ""
	}
	return digest
}

// memoryVariables are those by which the libraries below a job take more memory or less.
func memoryVariables(env environ.Vars) map[string]string {
	found := map[string]string{}
	for name, value := range env {
		if strings.HasPrefix(name, "PYTORCH_") || strings.HasPrefix(name, "NCCL_") || name == "CUDA_MODULE_LOADING" {
			found[name] = value
		}
	}
	return found
}
