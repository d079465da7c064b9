package show

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// An attemptView is an attempt that the page shows in full.
type attemptView struct {
	*ReportedAttempt
	page *reportPage
	i    int // its index
}

// Open reports whether the attempt is shown unfolded.
func (v attemptView) Open() bool {
	return len(v.page.shown) <= 4 || v.i == 0 || v.i+2 >= len(v.page.Attempts)
}

// Over reports whether the run failed with the attempt: no remedy was left.
func (v attemptView) Over() bool { return v.Diagnosis.Fatal && v.final() }

// ErrorFirst reports whether the attempt's error is more important than its memory.
func (v attemptView) ErrorFirst() bool { return v.failedByItself() }

// Traceback is the end of the failing rank's traceback.
func (v attemptView) Traceback() []string { return v.traceback(v.page.level) }

// A shownDiff is the start of a diff, and says how much more there is.
type shownDiff struct {
	Lines []string
	Left  string
}

// DiffShown is how the attempt's files differ from the user's.
func (v attemptView) DiffShown() (d shownDiff) {
	most, left := v.page.level.lines, 0
	if d.Lines, left = v.page.say.config(v.Diff, most, 120*most); left > 0 {
		d.Left = fmt.Sprintf("%s more in attempt-%d/diff.patch", strategy.Count(left, "line"), v.N)
	}
	return d
}

// Facts are what the attempt ran with, and how far it came.
func (v attemptView) Facts() []fact {
	var all factList
	switch before := v.page.before(v.i); {
	case before == nil && len(v.Plan) == 0:
		all.add("plan", "the job as written")
	case before == nil:
		all.add("plan", v.Plan.String())
	case len(before.Changed(v.Plan)) == 0:
		all.add("plan", "the same as before")
	default:
		all.add("changed", before.Changed(v.Plan).String())
	}
	all.add("from checkpoint", v.Checkpoint)
	all.add("started", at(v.Begin()))
	if v.lasted() > 0 {
		all.add("ran", brief(v.lasted()))
	}
	if s := v.latest(); s.Step > 0 && s.Total > 0 {
		all.add("steps", fmt.Sprintf("to step %d of %d", s.Step, s.Total))
	} else if steps := v.Evidence.Steps(); steps > 0 {
		all.add("steps", fmt.Sprintf("%d seen", steps))
	}
	all.add("in place", strategy.InPlaceWords(v.Again))
	for _, again := range v.Again[:min(len(v.Again), mostListed)] {
		all.add("", again.Sentence())
		for _, trial := range again.Trials {
			all.add("", trial.Words())
		}
	}
	pressed := v.Evidence.Pressure()
	for _, r := range pressed {
		all.add("memory pressure", r.Sentence(""))
	}
	if ran := (strategy.Attempt{Diagnosis: v.Diagnosis, Measured: v.Evidence.Measured()}); len(pressed) == 0 {
		all.add("memory pressure", strategy.RetriesWords(ran.Retries()))
	}
	all.add("command", strings.Join(v.Command.Argv, " "))
	return all
}

// before is the plan that an attempt's plan is compared with, nil for none.
func (d *ReportData) before(i int) strategy.Plan {
	if i > 0 {
		return d.Attempts[i-1].Used()
	}
	if d.Began.Job.Recalled != nil {
		return d.Began.Job.Written
	}
	return nil
}

// Cause says where and in which phase the failure began.
func (v attemptView) Cause() string {
	d := v.Diagnosis
	if !d.Fatal {
		return ""
	}
	words := d.Sentence()
	if n := len(d.Ranks); n > 1 {
		words += fmt.Sprintf("; %s show the same", strategy.Count(n, "rank"))
	}
	if d.Device != "" {
		words += ", on " + d.Device
	}
	if g := d.Growth; g != nil {
		words += fmt.Sprintf("; memory in use rose by %s a step, from step %d to %d", strategy.GiB(g.PerStep), g.FromStep,
			g.ToStep)
	}
	if d.Fragmented {
		words += "; what the allocator had reserved and not allocated would have been enough for the request"
	}
	if why := v.NotInPlace(); why != "" {
		words += "; " + why
	}
	return words
}

// Remedies are those of the decision, or the last of them where it names no other.
func (v attemptView) Remedies() []strategy.Remedy {
	if remedies := v.Decision.Remedies; len(remedies) > 0 || v.Decision.Remedy == "" {
		return remedies
	}
	return []strategy.Remedy{v.Decision.Remedy}
}

// NotChosen are the plans that the decision did not choose, the best first.
func (v attemptView) NotChosen() (plans []string) {
	for n, o := range v.Decision.Outvoted {
		if n == mostListed {
			break
		}
		changed := v.Used().Changed(o.Plan).String()
		if changed == "" {
			changed = "the same plan"
		}
		plans = append(plans, fmt.Sprintf("%s, predicted %s: %s", changed,
			strategy.Interval(o.Expected.Mean, o.Expected.Bound), o.Reason))
	}
	return plans
}

// Skipped are the remedies that could not be applied.
func (v attemptView) Skipped() []strategy.Skip {
	return v.Decision.Skipped[:min(len(v.Decision.Skipped), 2*mostListed)]
}

// Predicted is the predicted peak: mean and bound, zero where nothing was predicted.
func (v attemptView) Predicted() (p [2]int64) {
	if e := v.Expected; e != nil && e.Mean > 0 {
		p = [2]int64{e.Mean, e.Bound}
	}
	return p
}

// PeakWords compare the predicted peak with the measured one. The peak of an attempt that ran
// out of memory is no measure of its plan.
func (v attemptView) PeakWords() string {
	mean, bound, peak := v.Predicted()[0], v.Predicted()[1], v.Peak
	words := strategy.PeakWords(v.Expected, peak, v.Diagnosis.OutOfMemory(), nil)
	if mean > 0 && peak > 0 {
		words += ": " + v.deviation(mean, bound)
	}
	if v.Decision.Headroom != nil {
		words += "; " + v.Decision.Headroom.Words()
	}
	return words
}

// deviation says how far the measured peak is from the prediction.
func (v attemptView) deviation(mean, bound int64) string {
	percent := func(of int64) float64 { return 100 * (float64(v.Peak)/float64(of) - 1) }
	switch {
	case v.Diagnosis.OutOfMemory():
		return "it ran out before it could show its peak"
	case v.Peak > bound:
		return fmt.Sprintf("%.1f %% above the bound", percent(bound))
	case v.Peak < mean:
		return fmt.Sprintf("%.1f %% below the mean, within the bound", math.Abs(percent(mean)))
	}
	return fmt.Sprintf("%.1f %% above the mean, within the bound", percent(mean))
}
