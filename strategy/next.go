package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"math"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// A NextKind is the kind of a NextStep.
type NextKind string

// The kinds of next steps.
const (
	NextRun      NextKind = "run"      // start the job, often with other arguments
	NextPatch    NextKind = "patch"    // change a file of the job
	NextPolicy   NextKind = "policy"   // change a limit that the user has set
	NextResume   NextKind = "resume"   // continue the run, or start from a checkpoint
	NextInspect  NextKind = "inspect"  // read the log
	NextHardware NextKind = "hardware" // use other hardware
)

// The settings of the user that a NextStep changes, by their keys in train.toml.
const (
	SettingMode        = "recovery.mode"
	SettingNumerics    = "recovery.numerics"
	SettingNever       = "recovery.never"
	SettingMaxAttempts = "recovery.max_attempts"
	SettingCeiling     = "limits.device_memory"
	SettingLeastBatch  = "knobs.micro_batch_size.min"
)

// A NextStep is one action of the user after a run that ended without training. It has the facts;
// the launcher writes the command or the diff.
type NextStep struct {
	Kind   NextKind
	Reason string
	// Setting is the key that a step of kind NextPolicy changes, and Value its new value: a list
	// joined by commas for SettingNever; empty removes the setting.
	Setting, Value string
	// Plan is the plan with which the job starts in a step of kind NextRun or NextPatch; nil: that
	// of the job as written.
	Plan Plan
	// Arguments are the settings by which the plan changes likely knobs.
	Arguments Arguments
	// Init: gpurun init shows what the job lacks; for NextInspect.
	Init bool
	// Missing are arguments that the job requires and did not get.
	Missing []string
	// Module: the job's interpreter lacks a module.
	Module bool
	// Checkpoint is the one to start from, for NextResume; empty: gpurun continues the run.
	Checkpoint string
	// Expected is the need of the plan; nil: not known.
	Expected *memory.Prediction

	preference int // the lowest comes first
}

// The preferences: first the steps that keep the training, then those that cost the user least.
const (
	preferSame     = iota // another setting, the same training
	preferPatch           // other source, the same training
	preferNumerics        // other numerics
	preferOther           // another global batch
	preferMemory          // more memory of the same device
	preferHardware
	preferReading
)

// An Ending is a run that ended without training, with all facts on which its next steps depend.
type Ending struct {
	Policy    Policy
	Job       Job
	History   []Attempt
	Inventory Inventory
	Decision  Decision
	// Advice is one sentence about the failure.
	Advice string
}

// NextSteps returns what the user can do, the best step first. Plans are predicted to fit as far
// as anything was measured.
func (e Ending) NextSteps() []NextStep {
	if len(e.History) == 0 || e.Decision.Outcome == Trained {
		return nil
	}
	var steps []NextStep
	switch {
	case !e.Decision.Outcome.Final():
		steps = e.continued()
	case e.last().Diagnosis.OutOfMemory():
		steps = e.lessMemory()
	default:
		return e.repaired()
	}
	for i, step := range steps {
		steps[i].Arguments = e.Job.Arguments(step.Plan, e.History)
	}
	slices.SortStableFunc(steps, func(a, b NextStep) int { return cmp.Compare(a.preference, b.preference) })
	return steps
}

func (e Ending) last() *Attempt { return &e.History[len(e.History)-1] }

// continued resumes a run that is not finished.
func (e Ending) continued() []NextStep {
	reason := "continues the run"
	if c := e.Inventory.Checkpoint; c != "" {
		reason += " from " + c
	} else if e.last().Stepping.Last > 0 {
		reason += ", from its beginning: no checkpoint is known"
	}
	if e.Advice != "" && e.Decision.Outcome != Stopped {
		reason = e.Advice + "; then this " + reason
	}
	return []NextStep{{Kind: NextResume, Reason: reason}}
}

// repaired are the steps after an error of the job.
func (e Ending) repaired() []NextStep {
	d := e.last().Diagnosis
	inspect := e.inspect()
	again := NextStep{Kind: NextRun, Reason: "starts the job again, when that is fixed"}
	if again.Missing = cause.MissingArguments(d.Error); len(again.Missing) > 0 {
		again.Reason = "the job requires " + strings.Join(again.Missing, ", ")
		return []NextStep{again, inspect}
	}
	steps := []NextStep{inspect}
	if e.Decision.Rule == "failed-relaunch" {
		steps = append(e.withoutRemedy(), inspect)
	}
	if c := e.Inventory.Checkpoint; c != "" {
		steps = append(steps, NextStep{Kind: NextResume, Checkpoint: c, Plan: e.last().Plan,
			Reason: "starts from " + c + ", when that is fixed"})
	}
	return append(steps, again)
}

// withoutRemedy bars the remedy whose relaunch failed, if another one may help.
func (e Ending) withoutRemedy() []NextStep {
	remedy := e.last().Remedy
	e.History = e.History[:len(e.History)-1]
	d, words, fits := e.whatIf(func(p *Policy, _ *Job) { p.Never = append(p.Never, string(remedy)) })
	if !fits {
		return nil
	}
	never := append(slices.Clone(e.Policy.Never), string(remedy))
	return []NextStep{{
		Kind: NextPolicy, Setting: SettingNever, Value: strings.Join(never, ","), Expected: d.Expected,
		Reason: fmt.Sprintf("bars %s, after which the job failed; next would be %s%s", remedy, d.Changed, words),
	}}
}

func (e Ending) inspect() NextStep {
	return NextStep{Kind: NextInspect, Reason: e.Advice, Module: cause.LacksModule(e.last().Diagnosis.Error),
		preference: preferReading}
}

// lessMemory are the steps after memory ran out and no plan was left.
func (e Ending) lessMemory() []NextStep {
	a := e.last()
	if lost := e.Decision.Ineffective; len(lost) > 0 {
		inspect := e.inspect()
		inspect.Reason = fmt.Sprintf("the job overrides %s itself: look for it in the script and its configuration",
			lost.Names())
		return []NextStep{inspect}
	}
	var steps []NextStep
	if c := e.Inventory.Checkpoint; c != "" && (a.Diagnosis.Late || a.Diagnosis.Growth != nil) {
		steps = append(steps, NextStep{Kind: NextResume, Checkpoint: c, Plan: a.Plan,
			Reason: "starts from " + c + ": memory ran out only late"})
	}
	if a.Diagnosis.Growth != nil {
		return append(steps, e.inspect())
	}
	steps = append(steps, e.bounds()...)
	steps = append(steps, e.permissions()...)
	steps = append(steps, e.drafted()...)
	steps = append(steps, e.batches()...)
	steps = append(steps, e.moreMemory()...)
	if len(steps) == 0 {
		steps = append(steps, e.inspect())
	}
	return steps
}

// whatIf decides again as if a new run with a changed policy or job had come to the end of the history. The
// words are a clause about the prediction. fits is false if there is no plan, or none that fits.
func (e Ending) whatIf(change func(*Policy, *Job)) (d Decision, words string, fits bool) {
	s := e.supposing(change)
	d = s.decide()
	switch {
	case !d.Relaunch || d.Rule != "out-of-memory":
		return d, "", false
	case d.Expected == nil || s.weighing == nil:
		return d, "; whether it fits is not known", true
	}
	room := s.weighing.room(d.Next)
	words = "; predicted " + span(*d.Expected, s.weighing.fit.Capacity(s.weighing.memory(d.Next)))
	return d, words, d.ByMean || room == 0 || d.Expected.Bound <= room
}

// supposing is the situation of a new run with a changed policy or job, at the end of the history.
func (e Ending) supposing(change func(*Policy, *Job)) *situation {
	p, j, inv := e.Policy, e.Job, e.Inventory
	p.Never, j.Knobs, j.Written = slices.Clone(p.Never), maps.Clone(j.Knobs), maps.Clone(j.Written)
	p.MaxAttempts, p.RestartFromZero = math.MaxInt, 0
	inv.Checkpoint, inv.NoCheckpoint = "", ""
	change(&p, &j)
	return situationOf(p, j, e.History, inv)
}

// anotherBatch is whatIf for a run that starts as the job is written, but with another batch: with that alone if it
// fits, else with what gpurun changes in its process, too. changed is relative to the job as written.
func (e Ending) anotherBatch(change func(*Policy, *Job)) (d Decision, changed Changes, words string, fits bool) {
	origin := e.supposing(change).origin()
	fromWritten := func(d Decision) Changes {
		changed, free := origin.Changed(origin.With(d.Next)), freeKnobs()
		maps.DeleteFunc(changed, func(k Knob, _ [2]Value) bool { return slices.Contains(free, k) })
		return changed
	}
	d, words, fits = e.whatIf(func(p *Policy, j *Job) {
		change(p, j)
		for _, row := range remedyRows {
			if !row.free && row.remedy != RemedyMicroBatch {
				p.Never = append(p.Never, string(row.remedy))
			}
		}
	})
	if changed = fromWritten(d); fits &&
		len(changed) == len(maps.Clone(changed).only(MicroBatchSize, GradientAccumulationSteps)) {
		return d, changed, words, fits
	}
	d, words, fits = e.whatIf(change)
	return d, fromWritten(d), words, fits
}

// bounds are the steps where a limit of the run ended it, not the lack of plans.
func (e Ending) bounds() []NextStep {
	step := NextStep{Kind: NextPolicy}
	var loosen func(*Policy, *Job)
	switch e.Decision.Rule {
	case "recovery-off":
		step.Setting, step.Value = SettingMode, string(Predict)
		loosen = func(p *Policy, _ *Job) { p.Mode = Predict }
	case "max-attempts":
		step.Setting, step.Value = SettingMaxAttempts, fmt.Sprint(2*e.Policy.MaxAttempts)
		loosen = func(*Policy, *Job) {}
	case "restart-from-zero":
		step.Kind, loosen = NextRun, func(*Policy, *Job) {}
	default:
		return nil
	}
	d, words, fits := e.whatIf(loosen)
	if !fits {
		return nil
	}
	step.Expected, step.preference = d.Expected, preferenceOf(d.Training)
	if step.Reason = fmt.Sprintf("allows the next plan: %s%s", d.Changed, words); step.Kind == NextRun {
		step.Plan, step.Reason = d.Next, fmt.Sprintf("starts with the next plan: %s%s", d.Changed, words)
	}
	return []NextStep{step}
}

func preferenceOf(t Training) int {
	if t == Changed {
		return preferNumerics
	}
	return preferSame
}

// permissions are the steps that allow a remedy which only the policy bars.
func (e Ending) permissions() []NextStep {
	if !slices.ContainsFunc(e.Decision.Skipped, func(k Skip) bool { return k.Refused }) {
		return nil
	}
	var steps []NextStep
	try := func(setting, value string, change func(*Policy, *Job)) bool {
		d, words, fits := e.whatIf(change)
		if !fits {
			return false
		}
		effect := ""
		if d.Training == Changed {
			effect = ", which changes the numerics"
		}
		steps = append(steps, NextStep{
			Kind: NextPolicy, Setting: setting, Value: value, Expected: d.Expected, preference: preferenceOf(d.Training),
			Reason: fmt.Sprintf("allows %s%s%s", d.Changed, effect, words),
		})
		return true
	}
	for i, name := range e.Policy.Never {
		left := slices.Delete(slices.Clone(e.Policy.Never), i, i+1)
		if try(SettingNever, strings.Join(left, ","), func(p *Policy, _ *Job) { p.Never = left }) {
			steps[len(steps)-1].Reason += fmt.Sprintf(" (without %q in recovery.never)", name)
		}
	}
	for _, n := range []Numerics{MixedPrecision, Any} {
		looser := e.Policy.Numerics != Any && (e.Policy.Numerics != n || !e.Policy.NumericsSaid)
		if looser && try(SettingNumerics, string(n), func(p *Policy, _ *Job) { p.Numerics, p.NumericsSaid = n, true }) {
			break
		}
	}
	return steps
}

// drafted is the step that shows the settings which the job lacks.
func (e Ending) drafted() []NextStep {
	micro, known := e.Job.Knobs[MicroBatchSize]
	if actsOnCalls[e.last().Diagnosis.Phase] != "" || e.last().Diagnosis.Phase == cause.Eval {
		return nil
	}
	_, _, unconfirmed := e.Job.confirmed(MicroBatchSize, e.History)
	if !known || micro.Absent != "" || len(micro.Likely) > 0 && unconfirmed != "" {
		if e.Decision.UnpredictedCode == UnpredictedNothing {
			return nil
		}
		return []NextStep{{Kind: NextInspect, Init: true, preference: preferOther,
			Reason: "shows which settings of the job gpurun knows, and which it lacks"}}
	}
	return nil
}

// batches are the steps that lower the micro batch where the job or the user forbids that: below
// the minimum, or without accumulation, so that the global batch changes.
func (e Ending) batches() []NextStep {
	r, known := e.Job.Knobs[MicroBatchSize]
	if !known || r.Absent != "" {
		return nil
	}
	if _, stops := e.Job.Floored(e.last().Plan); stops {
		d, words, fits := e.whatIf(func(_ *Policy, j *Job) {
			r.Min = 1
			j.Knobs[MicroBatchSize] = r
		})
		micro, _ := d.Next.Number(MicroBatchSize)
		if !fits || micro < 1 {
			return nil
		}
		return []NextStep{{
			Kind: NextPolicy, Setting: SettingLeastBatch, Value: fmt.Sprint(micro), Expected: d.Expected,
			Reason: fmt.Sprintf("allows %s, if the job can train with so small a micro batch%s", d.Changed, words),
		}}
	}
	if a, known := e.Job.Knobs[GradientAccumulationSteps]; known && a.Absent == "" {
		return nil
	}
	return e.smallerGlobal()
}

// smallerGlobal is the step that trains with a smaller global batch.
func (e Ending) smallerGlobal() []NextStep {
	d, changes, words, fits := e.anotherBatch(func(_ *Policy, j *Job) {
		j.Knobs = maps.Clone(j.Knobs)
		j.Knobs[GradientAccumulationSteps] = Range{Scope: ScopeDerived}
	})
	pair, changed := changes[MicroBatchSize]
	if !fits || !changed {
		return nil
	}
	delete(changes, MicroBatchSize)
	delete(changes, GradientAccumulationSteps)
	if len(changes) > 0 {
		words = fmt.Sprintf(", with %s%s", changes, words)
	}
	return []NextStep{{
		Kind: NextRun, Plan: e.Job.Written.With(Plan{MicroBatchSize: pair[1]}), Expected: d.Expected, preference: preferOther,
		Reason: fmt.Sprintf("trains with another global batch, and other results: micro batch %s→%s without accumulation%s",
			pair[0], pair[1], words),
	}}
}

// moreMemory are the steps that give each rank more memory: up to that of the device, or another
// device.
func (e Ending) moreMemory() []NextStep {
	s := situationOf(e.Policy, e.Job, e.History, e.Inventory)
	var short shortage
	if w, why := s.weigh(); why == "" && e.Decision.UnpredictedCode == UnpredictedNothing {
		s.weighing = w
		short, _ = s.shortage()
	}
	need := short.need
	total := s.inventory.Device.Total
	if s.inventory.Accelerator == "cpu" {
		total = s.inventory.HostAvailable / int64(max(e.Job.LocalRanks, 1))
	}
	var steps []NextStep
	raise := NextStep{Kind: NextPolicy, Setting: SettingCeiling, Expected: short.expected, preference: preferMemory}
	switch ceiling := e.Job.Ceiling; {
	case ceiling == 0:
	case need > ceiling && (total == 0 || need <= total):
		raise.Value, raise.Reason = enoughMemory(need, ceiling)
		if short.words != "" {
			raise.Reason += ": " + short.words
		}
		return append(steps, raise)
	case need == 0 && total > ceiling:
		raise.Value = mebibytes(min(2*ceiling, total))
		raise.Reason = fmt.Sprintf("raises the limit of %s for each rank, of %s that are there; how much the job needs is not known", GiB(ceiling), GiB(total))
		steps = append(steps, raise)
	}
	if short.words != "" {
		steps = append(steps, NextStep{Kind: NextHardware, Reason: short.words + short.enough, Expected: short.expected,
			preference: preferHardware})
	}
	return steps
}

// enoughMemory is a ceiling for a need, as flags take it, and the reason for it; both have one rounded size.
func enoughMemory(need, ceiling int64) (value, reason string) {
	need = (need + 1<<20 - 1) >> 20 << 20
	return mebibytes(need), fmt.Sprintf("gives each rank %s in place of %s, which is predicted to be enough", GiB(need),
		GiB(ceiling))
}

// mebibytes is a size as flags take it, rounded up.
func mebibytes(n int64) string { return fmt.Sprintf("%dMiB", (n+1<<20-1)>>20) }
