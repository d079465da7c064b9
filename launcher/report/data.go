package report

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Data is what a report is made of.
type Data struct {
	Dir string
	// From is how a link leads from the report's folder to the run directory; empty for no
	// links, since nobody knows where the report will lie.
	From string
	// Version is of the gpurun that writes the report; Began has that of the run.
	Version string
	Made    time.Time

	Began    launcher.Began
	Start    time.Time // of the run's first process
	Attempts []Attempt
	Notices  []string
	// Verdict is nil for a run that has none; then Running says whether a gpurun is at work.
	Verdict *launcher.Verdict
	Running bool
	// Hints are what to do next.
	Hints []string

	say words
}

// An Attempt is one of the run, as far as it came.
type Attempt struct {
	launcher.Started
	// Ran says that it has ended, and Evidence what was seen of it by then.
	Ran      bool
	Evidence strategy.Evidence
	// Diagnosis and Decision are what was made of it, Decided that there was a decision.
	Diagnosis strategy.Diagnosis
	Decision  strategy.Decision
	Decided   bool
	Inventory strategy.Inventory
	// Climbed is the decision to stop it for a faster plan, nil for none.
	Climbed *strategy.Decision
	// Measured is what its processes measured, the one that ran out first.
	Measured []memory.Measurement
	Peak     int64 // the most that any of them held
	Price    *strategy.Price

	// Diff and Series are read for the attempts that are shown in full.
	Diff   string
	Series []Series
}

// Load reads a run directory, also of a run that goes on. m knows the job's secrets; it may
// be nil: the journal, and the diffs, were written without them.
func Load(dir, version string, m *mask.Masker) (Data, error) {
	events, err := journal.Read(dir)
	if err != nil {
		return Data{}, err
	}
	return loaded(dir, events, version, m), nil
}

// loaded is Load of a run whose events are known.
func loaded(dir string, events []launcher.Event, version string, m *mask.Masker) Data {
	d := Data{Dir: dir, Version: version, Made: time.Now()}
	for _, e := range events {
		d.take(e)
	}
	if d.Verdict == nil {
		d.Running = journal.Locked(dir)
	}
	d.settle()
	for _, i := range shownInFull(len(d.Attempts), most.full) {
		d.Attempts[i].read(dir)
	}
	d.say = words{m}
	d.Hints = d.hints(events)
	return d
}

// take adds an event.
func (d *Data) take(e launcher.Event) {
	var last *Attempt
	if n := len(d.Attempts); n > 0 {
		last = &d.Attempts[n-1]
	}
	switch e := e.(type) {
	case launcher.Began:
		if d.Start.IsZero() {
			d.Start = e.At
		}
		d.Began, d.Verdict = e, nil
	case launcher.Started:
		d.Attempts = append(d.Attempts, Attempt{Started: e})
		if d.Start.IsZero() {
			d.Start = e.At
		}
	case launcher.Noticed:
		d.Notices = append(d.Notices, e.Text)
	case launcher.Finished:
		d.Verdict = &e.Verdict
	}
	if last == nil {
		return
	}
	switch e := e.(type) {
	case launcher.Climbed:
		last.Climbed = &e.Decision
	case launcher.Ended:
		last.Ran, last.Evidence, last.Diagnosis = true, e.Evidence, strategy.Diagnose(e.Evidence)
	case launcher.Decided:
		last.Diagnosis, last.Decision, last.Inventory, last.Decided = e.Diagnosis, e.Decision, e.Inventory, true
	}
}

// settle works out what follows from all the events.
func (d *Data) settle() {
	for i := range d.Attempts {
		a := &d.Attempts[i]
		ran := strategy.Attempt{N: a.N, Plan: a.Plan, Measured: a.Evidence.Measured(), Observed: a.Evidence.Observed(d.Began.Job), World: a.Evidence.World()}
		a.Measured, a.Peak = d.Began.Job.Measured(ran), ran.Peak()
		if d.Verdict == nil {
			continue
		}
		for _, s := range d.Verdict.Attempts {
			if s.N == a.N {
				a.Price, a.Peak = s.Price, cmp.Or(s.Peak, a.Peak)
			}
		}
	}
}

// read takes in what the attempt's folder has beside the journal.
func (a *Attempt) read(dir string) {
	folder := filepath.Join(dir, fmt.Sprintf("attempt-%d", a.N))
	if diff, err := private.ReadHead(filepath.Join(folder, "diff.patch"), 64<<10); err == nil {
		a.Diff = string(diff)
	}
	from, to := a.begin(), a.end()
	if to.IsZero() {
		to = time.Now()
	}
	a.Series = readSamples(filepath.Join(folder, model.SamplesFile), from, to)
}

// begin and end are when the attempt ran; the zero time where that is not known.
func (a *Attempt) begin() time.Time {
	if a.Ran && !a.Evidence.Started.IsZero() {
		return a.Evidence.Started
	}
	return a.At
}

func (a *Attempt) end() time.Time {
	if a.Ran {
		return a.Evidence.Ended
	}
	return latest(a.Series).Time // of one that was cut off, or goes on
}

// lasted is how long the attempt ran, 0 where that is not known.
func (a *Attempt) lasted() time.Duration {
	if a.end().IsZero() || a.begin().IsZero() {
		return 0
	}
	return max(a.end().Sub(a.begin()), 0)
}

// failedAt is when memory ran out or what else failed did, by the first fact with a time
// that the diagnosis rests on; the zero time where nothing failed.
func (a *Attempt) failedAt() time.Time {
	if !a.Diagnosis.Fatal {
		return time.Time{}
	}
	for _, i := range a.Diagnosis.Because {
		if i >= 0 && i < len(a.Evidence.Facts) && !a.Evidence.Facts[i].Time.IsZero() {
			return a.Evidence.Facts[i].Time
		}
	}
	return a.end()
}

// used is the plan that the attempt really ran with, as far as it was seen.
func (a *Attempt) used() strategy.Plan { return a.Plan.Using(a.Decision.Ineffective) }
