package report

import (
	"fmt"
	"math"
	"strings"

	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/strategy"
)

// An attemptView is one attempt in full.
type attemptView struct {
	N               int
	Open            bool
	Over            bool // the run ended with it, and not well: nothing was left to try
	Class, Words    string
	Facts           []fact
	Lost            string // changes that did not take effect
	Cause           string
	Evidence        []string
	Traceback       []string
	Own             bool // it failed, and not for want of memory: its error comes first
	Decision, Rule  string
	RunnerUp        string
	Outvoted        []string
	Skipped         []string
	Unpredicted     string
	Peaks           peaks
	Charts          []memoryChart
	ChartsLeft      string
	Legend          []legend // of what stands behind the charts' lines
	NoCharts        string   // why there are none
	Instants        []instantRow
	InstantsOf      string
	Snapshots       []snapshotView
	Diff            []string
	DiffLeft        string
	Climbed, Caveat string
}

// peaks are what the attempt was predicted to need, and what it needed, in bytes.
type peaks struct {
	Mean, Bound, Peak int64
	Words             string
}

// attempt shows an attempt. charts are those of all attempts, which share the level's points.
func (d *Data) attempt(i int, l level, charts, shown int) attemptView {
	a := &d.Attempts[i]
	say := d.say
	words, class := d.ended(a)
	v := attemptView{N: a.N, Class: class, Words: say.text(words, longLine), Open: shown <= 4 || i == 0 || i+2 >= len(d.Attempts)}
	v.Over = a.Diagnosis.Fatal && a.stopped()
	v.Facts = d.attemptFacts(i)
	v.Lost = say.sentence(a.Decision.Ineffective.Lost())
	v.Cause = d.cause(a)
	v.Evidence = d.evidence(a)
	v.Traceback, v.Own = d.traceback(a, l), a.failedByItself()
	d.decision(a, &v)
	v.Peaks = peaksOf(a)
	v.Charts, v.ChartsLeft = d.memoryCharts(a, min(max(l.points/max(charts, 1)/4, 12), 240))
	if v.Legend = legendOf(v.Charts); len(v.Charts) == 0 {
		v.NoCharts = noCharts(a)
	}
	if len(a.Measured) > 0 {
		v.Instants, v.InstantsOf = instantRows(a.Measured[0]), fmt.Sprintf("rank %d", a.Measured[0].Rank)
	}
	v.Snapshots = d.snapshots(a)
	diff, left := say.config(a.Diff, l.lines, 120*l.lines)
	if v.Diff = diff; left > 0 {
		v.DiffLeft = fmt.Sprintf("%s more in attempt-%d/diff.patch", strategy.Count(left, "line"), a.N)
	}
	return v
}

// noCharts says why memory over time is not shown.
func noCharts(a *Attempt) string {
	switch {
	case a.Evidence.Unstarted != nil:
		return ""
	case len(a.Series) > 0:
		return "Memory over time is not known: no optimizer step ended by which a rank could tell."
	}
	return "How memory went over time is not known: the attempt left no samples."
}

// attemptFacts are what the attempt ran with.
func (d *Data) attemptFacts(i int) []fact {
	a := &d.Attempts[i]
	var facts []fact
	add := func(name, value string) {
		if value != "" {
			facts = append(facts, fact{name, d.say.sentence(value)})
		}
	}
	switch before := d.before(i); {
	case before == nil && len(a.Plan) == 0:
		add("plan", "the job as written")
	case before == nil:
		add("plan", a.Plan.String())
	case len(before.Changed(a.Plan)) == 0:
		add("plan", "the same as before")
	default:
		add("changed", before.Changed(a.Plan).String())
	}
	add("from checkpoint", a.Checkpoint)
	add("started", at(a.Begin()))
	if a.lasted() > 0 {
		add("ran", brief(a.lasted()))
	}
	add("steps", stepsOf(a))
	add("command", strings.Join(a.Command.Argv, " "))
	return facts
}

// before is the plan that an attempt's is compared with, nil for none.
func (d *Data) before(i int) strategy.Plan {
	if i > 0 {
		return d.Attempts[i-1].Used()
	}
	if d.Began.Job.Recalled != nil {
		return d.Began.Job.Written
	}
	return nil
}

// stepsOf says how far the attempt came.
func stepsOf(a *Attempt) string {
	steps := a.Evidence.Steps()
	if s := latest(a.Series); s.Step > 0 && s.Total > 0 {
		return fmt.Sprintf("to step %d of %d", s.Step, s.Total)
	}
	if steps > 0 {
		return fmt.Sprintf("%d seen", steps)
	}
	return ""
}

// cause says where and in which phase it began.
func (d *Data) cause(a *Attempt) string {
	if !a.Diagnosis.Fatal {
		return ""
	}
	said := a.Diagnosis.Sentence()
	if n := len(a.Diagnosis.Ranks); n > 1 {
		said += fmt.Sprintf("; %s show the same", strategy.Count(n, "rank"))
	}
	if a.Diagnosis.Device != "" {
		said += ", on " + a.Diagnosis.Device
	}
	if g := a.Diagnosis.Growth; g != nil {
		said += fmt.Sprintf("; memory in use rose by %s a step, from step %d to %d", strategy.GiB(g.PerStep), g.FromStep, g.ToStep)
	}
	if a.Diagnosis.Fragmented {
		said += "; what the allocator held in no tensor would have served the request"
	}
	return d.say.sentence(said)
}

// decision says what was decided, and against what.
func (d *Data) decision(a *Attempt, v *attemptView) {
	say, decided := d.say, a.Decision
	if a.Climbed != nil {
		v.Climbed = say.sentence(a.Climbed.Reason)
	}
	if a.Phase != runstate.Decided {
		return
	}
	v.Decision, v.Caveat, v.Unpredicted = say.sentence(decided.Reason), say.sentence(decided.Caveat), say.sentence(decided.Unpredicted)
	v.Rule = "rule " + say.short(decided.Rule)
	if len(decided.Rungs) > 0 {
		v.Rule += ", rungs " + say.text(joined(decided.Rungs), longLine)
	} else if decided.Rung != "" {
		v.Rule += ", rung " + say.short(string(decided.Rung))
	}
	for n, o := range decided.Outvoted {
		if n == mostListed {
			break
		}
		words := a.Used().Changed(o.Plan).String()
		if words == "" {
			words = "the same plan"
		}
		words += fmt.Sprintf(", predicted %s GiB: %s", strategy.Interval(o.Expected.Mean, o.Expected.Bound), o.Reason)
		if n == 0 {
			v.RunnerUp = say.sentence(words)
			continue
		}
		v.Outvoted = append(v.Outvoted, say.text(words, longLine))
	}
	for n, k := range decided.Skipped {
		if n < 2*mostListed {
			v.Skipped = append(v.Skipped, say.text(fmt.Sprintf("%s: %s", k.Rung, k.Reason), longLine))
		}
	}
}

func joined(rungs []strategy.Rung) string {
	words := make([]string, len(rungs))
	for i, r := range rungs {
		words[i] = string(r)
	}
	return strings.Join(words, ", ")
}

// peaksOf compares what was predicted with what was measured. The peak of an attempt that
// ran out is what there was, and no measure of its plan.
func peaksOf(a *Attempt) peaks {
	p := peaks{Peak: a.Peak}
	if e := a.Expected; e != nil && e.Mean > 0 {
		p.Mean, p.Bound = e.Mean, e.Bound
	}
	switch {
	case p.Mean == 0 && p.Peak == 0:
		return p
	case p.Mean == 0:
		p.Words = "held at most " + gib(p.Peak)
	default:
		p.Words = "predicted " + strategy.Interval(p.Mean, p.Bound) + " GiB"
		if p.Peak > 0 {
			p.Words += ", measured " + gib(p.Peak)
		}
	}
	switch {
	case p.Peak == 0 || p.Mean == 0:
	case a.Diagnosis.OutOfMemory():
		p.Words += ": it ran out before it could show its peak"
	case p.Peak > p.Bound:
		p.Words += fmt.Sprintf(": %.1f %% above the bound", 100*(float64(p.Peak)/float64(p.Bound)-1))
	default:
		side := "above"
		if p.Peak < p.Mean {
			side = "below"
		}
		p.Words += fmt.Sprintf(": %.1f %% %s the mean, within the bound", 100*math.Abs(float64(p.Peak)/float64(p.Mean)-1), side)
	}
	if a.Decision.Headroom != nil {
		p.Words += "; " + a.Decision.Headroom.Words()
	}
	return p
}
