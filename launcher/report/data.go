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
	"github.com/gpurun/gpurun/launcher/runstate"
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

	*runstate.Run
	Attempts []Attempt
	Running  bool // a gpurun is at work, and there is no verdict
	// Hints are what to do next.
	Hints []string

	say words
}

// An Attempt is one of the run, as far as it came.
type Attempt struct {
	*runstate.Attempt
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
	d := Data{Dir: dir, Version: version, Made: time.Now(), Run: runstate.Of(events), say: words{m}}
	d.Running = d.Verdict == nil && journal.Locked(dir)
	d.settle()
	for _, i := range shownInFull(len(d.Attempts), most.full) {
		d.Attempts[i].read(dir)
	}
	d.Hints = d.hints()
	return d
}

// settle works out what follows from all the events.
func (d *Data) settle() {
	for i := range d.Run.Attempts {
		a := Attempt{Attempt: &d.Run.Attempts[i]}
		if a.Phase == runstate.Ended {
			a.Diagnosis = strategy.Diagnose(a.Evidence)
		}
		ran := strategy.Attempt{N: a.N, Plan: a.Plan, Measured: a.Evidence.Measured(), Observed: a.Evidence.Observed(d.Began.Job), World: a.Evidence.World()}
		a.Measured, a.Peak = d.Began.Job.Measured(ran), ran.Peak()
		if d.Verdict != nil {
			for _, s := range d.Verdict.Attempts {
				if s.N == a.N {
					a.Price, a.Peak = s.Price, cmp.Or(s.Peak, a.Peak)
				}
			}
		}
		d.Attempts = append(d.Attempts, a)
	}
}

// read takes in what the attempt's folder has beside the journal.
func (a *Attempt) read(dir string) {
	folder := filepath.Join(dir, fmt.Sprintf("attempt-%d", a.N))
	if diff, err := private.ReadHead(filepath.Join(folder, "diff.patch"), 64<<10); err == nil {
		a.Diff = string(diff)
	}
	from, to := a.Begin(), a.end()
	if to.IsZero() {
		to = time.Now()
	}
	a.Series = readSamples(filepath.Join(folder, model.SamplesFile), from, to)
}

// ended reports whether the attempt has ended, and its evidence is whole.
func (a *Attempt) ended() bool { return a.Phase >= runstate.Ended }

// stopped reports whether it was decided that the run ends with the attempt.
func (a *Attempt) stopped() bool { return a.Phase == runstate.Decided && !a.Decision.Relaunch }

// end is when the attempt ended, or was last heard of; the zero time where that is not known.
func (a *Attempt) end() time.Time {
	if a.ended() {
		return a.Evidence.Ended
	}
	return latest(a.Series).Time // of one that was cut off, or goes on
}

// lasted is how long the attempt ran, 0 where that is not known.
func (a *Attempt) lasted() time.Duration {
	if a.end().IsZero() || a.Begin().IsZero() {
		return 0
	}
	return max(a.end().Sub(a.Begin()), 0)
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
