package job

import (
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"maps"
	"path"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"

	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// RememberedPlans remember plans of the job across runs: the fits, combined with the job. The methods
// must be called from one goroutine.
type RememberedPlans struct {
	job     *Prepared
	store   JobStore
	shared  SharedStore
	nowhere error // why nothing can be remembered
	fresh   bool
	code    string     // digest of the job's code; empty: not known yet
	key     Conditions // empty code: not known yet
}

// Memory returns the RememberedPlans of the job as written. fresh: nothing is recalled. variable returns
// variables of gpurun's environment.
func (p *Prepared) Memory(variable func(name string) string, fresh bool) *RememberedPlans {
	if p.unpinned != nil {
		p = p.unpinned // the extra arguments name the run
	}
	j := p.Job
	m := &RememberedPlans{job: p, fresh: fresh}
	m.store = JobStore{Name: p.rememberedAs()}
	m.store.Dir, m.nowhere = FitsFolder(variable)
	m.shared = SharedStore{Dir: j.Fits.Shared, Group: j.Fits.Trust == TrustGroup}
	return m
}

// Recall adds the remembered plans to a job, if they still apply. It reads the inventory only if something is
// remembered. The words name remembered plans that are not used, for the user.
func (m *RememberedPlans) Recall(ctx context.Context, p strategy.Policy, j strategy.Job,
	inventory func() strategy.Inventory) (known strategy.Job, words []string) {
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

func (m *RememberedPlans) recall(ctx context.Context, p strategy.Policy, j strategy.Job,
	inventory func() strategy.Inventory) (strategy.Job, []string) {
	var words []string
	if m.nowhere != nil {
		words = []string{fmt.Sprintf("cannot remember the plans of this job: %v", m.nowhere)}
	}
	if m.fresh || m.nowhere != nil && m.shared.Dir == "" {
		return j, words
	}
	own, err := m.store.Load()
	if err != nil {
		words = append(words, notUsed("the remembered plans of this job", err))
	}
	shared, err := m.loadShared()
	if err != nil {
		words = append(words, notUsed("the plans that users share", err))
	}
	known := slices.Concat(own, shared.Beyond(own))
	if len(known)+len(shared.Others) == 0 {
		return j, words
	}
	inv := inventory()
	today := m.today(ctx, p, j, inv)
	found := JudgeFits(known, today)
	found.Propose(shared.Others, today)
	j.Recalled, j.Remembered, j.Armed = found.Recalled, found.Measured, found.Armed
	m.name(j.Recalled, own, today)
	if r := found.Proposed; r != nil {
		words = append(words,
			fmt.Sprintf("for another user this job fitted with %s: it starts as written, since fits.trust is \"own\"",
				r.Changed))
	}
	if found.Unused != "" && p.Mode != strategy.Off {
		words = append(words, "a plan that fitted before is not used: "+found.Unused)
	}
	return j, words
}

// loadShared reads what users share about this job.
func (m *RememberedPlans) loadShared() (FitsOfUsers, error) {
	if m.shared.Dir == "" {
		return FitsOfUsers{}, nil
	}
	return m.shared.Load(m.codeOf())
}

// today has the conditions under which fits are judged.
func (m *RememberedPlans) today(ctx context.Context, p strategy.Policy, j strategy.Job,
	inv strategy.Inventory) FitsToday {
	return FitsToday{Conditions: m.keyOf(ctx, j, inv), Policy: p, Job: j, Inventory: inv, Room: roomOf(j, inv)}
}

// name adds to a plan the name of the file, or of the folder of shared files, that has it.
func (m *RememberedPlans) name(r *strategy.Recalled, own []Fit, today FitsToday) {
	switch {
	case r == nil:
	case slices.ContainsFunc(own, func(f Fit) bool { return f.Conditions == today.Conditions }):
		r.Fit = strings.TrimSuffix(m.store.Name, ".json")
	default:
		r.Fit = "shared/" + today.Code
	}
}

// startsWith reports whether the next run would begin with a plan, by the latest memory.
func (m *RememberedPlans) startsWith(plan strategy.Plan) bool {
	if m.nowhere != nil {
		return false
	}
	known, err := m.store.Load()
	return err == nil && len(known) > 0 && known[0].Begins(m.job.Plan(), plan)
}

// arms reports whether the next run would begin with remedies in place, by the latest memory.
func (m *RememberedPlans) arms() bool {
	if m.nowhere != nil {
		return false
	}
	known, err := m.store.Load()
	return err == nil && len(known) > 0 && len(known[0].Tried) > 0 && len(known[0].Tried[0].InPlace) > 0
}

// notUsed explains why a remembered plan is not used.
func notUsed(what string, err error) string {
	return fmt.Sprintf("warning: cannot use %s: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// Keep remembers the last attempt of a history, and the decision d after it.
func (m *RememberedPlans) Keep(ctx context.Context, j strategy.Job, history []strategy.Attempt, d strategy.Decision,
	inv strategy.Inventory) error {
	if m.nowhere != nil && m.shared.Dir == "" {
		return nil // reported before
	}
	seen := Observation{Job: j, Attempt: history[len(history)-1], Trained: !d.Relaunch &&
		d.Outcome == strategy.Trained, Room: roomOf(j, inv)}
	seen.InPlace = strategy.ArmedFor(j, history, seen.Attempt.Plan)
	seen.Training, _ = j.Training(seen.Attempt.Plan, history)
	wrong := misremembered(j, history, d)
	if !wrong && (!seen.Telling() || m.uneventful(seen)) {
		return nil
	}
	var unshared error
	err := errext.Recovered(func() error {
		beforeReading(rememberedPlans)
		seen.Conditions = m.keyOf(ctx, j, inv)
		var learned []Fit
		err := m.store.Update(func(known []Fit) []Fit {
			if wrong {
				known = UnlearnFits(known, seen.Conditions, j.Recalled.Plan)
			}
			learned = LearnFits(known, seen)
			return learned
		})
		unshared = m.shared.Share(seen.Code, learned, seen)
		return err
	})
	if err != nil {
		err = fmt.Errorf("cannot remember the plans of this job: %w", err)
	}
	if unshared != nil { // the user's own memory may have been written
		err = errors.Join(err, fmt.Errorf("cannot share the plans of this job: %w", unshared))
	}
	return err
}

// codeOf returns the digest of the job's code.
func (m *RememberedPlans) codeOf() string {
	if m.code == "" {
		m.code = m.job.codeDigest()
	}
	return m.code
}

// uneventful reports whether a job with no remembered plan trained as written, and nothing was measured: it
// would start the same way without a memory.
func (m *RememberedPlans) uneventful(s Observation) bool {
	if !s.Trained || len(s.Attempt.Measured) > 0 || len(s.InPlace) > 0 || len(s.Job.Written.Changed(s.Attempt.Plan)) > 0 {
		return false
	}
	known, err := m.store.Load()
	return err == nil && len(known) == 0
}

// misremembered reports whether attempt 0 may have failed because of the recalled plan. Either the job as
// written ran next and did not end the same way, or it did not run because too much work would have been
// repeated. The next run then starts as written.
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
	return asWritten && !first.OutOfMemory() && (!second.Fatal || second.Error != first.Error) &&
		history[1].StopSignal == 0
}

// keyOf returns the conditions under which the job runs.
func (m *RememberedPlans) keyOf(ctx context.Context, j strategy.Job, inv strategy.Inventory) Conditions {
	if m.key.Code == "" {
		m.key = Conditions{
			Code: m.codeOf(), Recipe: m.job.RecipeName(), Torch: m.job.torchMinor(ctx), DataParallel: j.DataParallel,
			Device: inv.Device.Name, DeviceBytes: inv.Device.Total,
		}
	}
	return m.key
}

// roomOf returns the memory that each rank has on its device, in bytes; 0 if not known.
func roomOf(j strategy.Job, inv strategy.Inventory) int64 {
	room := max(inv.Device.Total-inv.Device.Others, 0)
	if j.Ceiling > 0 && (room == 0 || j.Ceiling < room) {
		room = j.Ceiling
	}
	return room
}

// rememberedAs returns the name of the file with the job's remembered plans. It does not depend on arguments,
// code and settings.
func (r Resolved) rememberedAs() string {
	j := r.Job
	what := j.Argv[0]
	if j.Kind == Script {
		what = r.under(what)
	}
	return FitName(j.Workdir, string(j.Kind), what, j.Name)
}

// codeDigest returns a digest of everything that determines the job's memory, except settings that gpurun may
// change: each of these counts with the first value of its range, or as written if it cannot be set to that.
func (p *Prepared) codeDigest() string {
	h := sha256.New()
	part := func(s string) {
		fmt.Fprintf(h, "%d:", len(s))
		_, _ = io.WriteString(h, s) // a hash never returns an error
	}
	r, change := p.Resolved, p.bare()
	part(string(r.Job.Kind))
	for _, word := range withoutNeutral(change.Argv) {
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

// bare returns the job's command with each changeable setting at the first value of its range.
func (p *Prepared) bare() strategy.Command {
	r, first := p.Resolved, strategy.Plan{}
	for _, k := range strategy.Knobs {
		switch own, known := p.knobs[k]; {
		case !known || own.Absent != "" || own.By == strategy.ByHook || own.Scope == strategy.ScopeDerived ||
			k == strategy.Allocator:
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
	change = strategy.Command{Argv: r.command.Argv}
	for _, k := range strategy.Knobs {
		if v, set := first[k]; set {
			if next, err := r.recipe.Apply(r.command, some.With(strategy.Plan{k: v}), r.at, ""); err == nil {
				change, some[k] = next, v
			}
		}
	}
	return change
}

// unchanged returns the configuration files that a change does not copy. A copy has the name of its file, in
// another folder.
func (p *Prepared) unchanged(change strategy.Command) []string {
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

// programs returns the texts of the first files of a command that has no Python script, such as "sh
// train.sh".
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

// torchVersion matches the version in PyTorch's torch/version.py.
var torchVersion = lazy.Regexp(`(?m)^__version__ = ['"](\d+)\.(\d+)`)

// torchMinor returns the minor version of the job's PyTorch, such as "2.11"; empty if not known.
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
		return "" // a job without PyTorch, or an interpreter that fails
	}
	if m := torchVersion().FindSubmatch(text); m != nil {
		return string(m[1]) + "." + string(m[2])
	}
	return ""
}

// DeviceOf returns a function that reads the memory of each rank from the job's devices.
func (p *Prepared) DeviceOf(devices func(context.Context) []ranks.Device) func(context.Context) memory.DeviceMemory {
	return func(ctx context.Context) memory.DeviceMemory { return p.Device(devices(ctx)) }
}

// Device returns the memory of each rank, given the current state of the job's devices: that of the smallest,
// if they differ. Unknown values are zero.
func (p *Prepared) Device(devices []ranks.Device) memory.DeviceMemory {
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

// Conditions returns a function for a digest of everything that decides whether the job fits into memory: its
// code and settings, the versions of gpurun and of packages, the policy and the device. The digest is empty
// if a part is not known, such as the code that a shell script runs.
func (p *Prepared) Conditions(version string) func(context.Context, strategy.Inventory) string {
	return func(ctx context.Context, inv strategy.Inventory) string { return p.conditions(ctx, version, inv) }
}

// Unchanged reports whether the conditions are those of an earlier run, with no more free memory on the
// device than then.
func (p *Prepared) Unchanged(ctx context.Context, version, digest string, then strategy.Inventory,
	device func(context.Context) memory.DeviceMemory) bool {
	now := strategy.Inventory{Accelerator: p.Accelerator(), Device: device(ctx)}
	room, had := now.Device.Total-now.Device.Others, then.Device.Total-then.Device.Others
	return room <= had/100*101 && p.conditions(ctx, version, now) == digest
}

func (p *Prepared) conditions(ctx context.Context, version string, inv strategy.Inventory) (digest string) {
	if p.unpinned != nil {
		p = p.unpinned // the extra arguments name the run
	}
	if p.Comparable() != nil {
		return ""
	}
	err := errext.Recovered(func() error {
		job, device := p.StrategyJob(), inv.Device
		device.Others, device.Host, device.NVMe = 0, 0, 0 // memory of other processes changes
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

// memoryVariables returns the variables that change how much memory a job's libraries need.
func memoryVariables(env commandline.Environ) map[string]string {
	found := map[string]string{}
	for name, value := range env {
		if strings.HasPrefix(name, "PYTORCH_") || strings.HasPrefix(name, "NCCL_") || name == "CUDA_MODULE_LOADING" {
			found[name] = value
		}
	}
	return found
}
