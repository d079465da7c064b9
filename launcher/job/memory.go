package job

import (
	"context"
	"fmt"
	"path/filepath"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/fits"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A Memory is what is remembered of the job across runs: package fits, joined with the
// job. Its methods are called from one goroutine.
type Memory struct {
	// Fits says that a plan is predicted to fit, as fits.Today has it; nil where nobody
	// predicts.
	Fits func(past []strategy.Past, plan strategy.Plan, device memory.DeviceMemory) bool

	job     *Prepared
	store   fits.Store
	nowhere error // why nothing is remembered
	fresh   bool
	key     fits.Key // empty code: not known yet
}

// Memory is that of the job as it is written. fresh: nothing is recalled. variable gives
// those of gpurun's own environment.
func (p *Prepared) Memory(variable func(name string) string, fresh bool) *Memory {
	if p.unpinned != nil {
		p = p.unpinned // those words name the run
	}
	j := p.resolved.job
	m := &Memory{job: p, fresh: fresh}
	m.Fits = func(past []strategy.Past, plan strategy.Plan, device memory.DeviceMemory) bool {
		return strategy.Fitting(p.StrategyJob(), past, plan, device)
	}
	m.store = fits.Store{Name: p.resolved.rememberedAs(), Copy: filepath.Join(j.Workdir, ".gpurun", j.Name+".fits.json")}
	m.store.Dir, m.nowhere = fits.Folder(variable)
	return m
}

// Recall puts into a job what is remembered of it, as far as it holds now. The inventory
// is asked for only where something is remembered. The words tell people what is
// remembered and not used.
func (m *Memory) Recall(ctx context.Context, p strategy.Policy, j strategy.Job, inventory func() strategy.Inventory) (known strategy.Job, words []string) {
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

func (m *Memory) recall(ctx context.Context, p strategy.Policy, j strategy.Job, inventory func() strategy.Inventory) (strategy.Job, []string) {
	if m.nowhere != nil {
		return j, []string{fmt.Sprintf("what this job needs is not remembered: %v", m.nowhere)}
	}
	if m.fresh {
		return j, nil
	}
	var words []string
	own, err := m.store.Load()
	if err != nil {
		words = append(words, told("what is remembered of this job", err))
	}
	beside, err := m.store.LoadCopy()
	if err != nil {
		words = append(words, told("the copy beside the job", err))
	}
	if len(own)+len(beside) == 0 {
		return j, words
	}
	inv := inventory()
	found := fits.Judge(own, beside, fits.Today{Key: m.keyOf(ctx, j, inv), Policy: p, Job: j, Inventory: inv, Room: roomOf(j, inv), Fits: m.Fits})
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
func (m *Memory) startsWith(plan strategy.Plan) bool {
	if m.nowhere != nil {
		return false
	}
	known, err := m.store.Load()
	return err == nil && len(known) > 0 && known[0].Begins(m.job.Plan(), plan)
}

// told says why something remembered is not used.
func told(what string, err error) string {
	return fmt.Sprintf("warning: %s is not used: %s", what, strings.ReplaceAll(err.Error(), "\n", "; "))
}

// Keep remembers the last attempt of a history, after which d was decided.
func (m *Memory) Keep(ctx context.Context, j strategy.Job, history []strategy.Attempt, d strategy.Decision, inv strategy.Inventory) error {
	if m.nowhere != nil {
		return nil // said before
	}
	seen := fits.Seen{Job: j, Attempt: history[len(history)-1], Trained: !d.Relaunch && d.Outcome == strategy.Trained, Room: roomOf(j, inv)}
	seen.Training, _ = j.Training(seen.Attempt.Plan, history)
	wrong := misremembered(j, history, d)
	if !wrong && (!seen.Telling() || m.uneventful(seen)) {
		return nil
	}
	err := errext.Recovered(func() error {
		beforeReading(rememberedPlans)
		seen.Key = m.keyOf(ctx, j, inv)
		return m.store.Update(func(known []fits.Fit) []fits.Fit {
			if wrong {
				known = fits.Unlearn(known, seen.Key, j.Recalled.Plan)
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
func (m *Memory) uneventful(s fits.Seen) bool {
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
func (m *Memory) keyOf(ctx context.Context, j strategy.Job, inv strategy.Inventory) fits.Key {
	if m.key.Code == "" {
		m.key = fits.Key{
			Code: m.job.codeDigest(), Recipe: m.job.RecipeName(), Torch: m.job.resolved.torchMinor(ctx), DataParallel: j.DataParallel,
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
