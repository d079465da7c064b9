package show

import (
	"cmp"
	"fmt"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// ReportData is the content of a report.
type ReportData struct {
	Dir string
	// From is the prefix of links from the report's folder to the run directory; empty for no
	// links, where the report's folder is not known.
	From string
	// Version is that of the gpurun that writes the report; Began has that of the run.
	Version string
	Made    time.Time

	*journal.Run
	Attempts []ReportedAttempt
	Running  bool     // a gpurun holds the run directory, and there is no verdict
	Hints    []string // what to do next

	say text
}

// A ReportedAttempt is an attempt of the run, with what its measurements and its folder add.
type ReportedAttempt struct {
	*journal.AttemptState
	// Words say how it ended, and Class is the colour for that.
	Words, Class string
	// Measured are the measurements of its processes, of the one that ran out of memory first.
	Measured []memory.Measurement
	Peak     int64 // the most that any of them held
	Price    *strategy.Price

	// Diff and Samples, the last ones, are read for the attempts that are shown in full.
	Diff    string
	Samples []strategy.Sample
}

// LoadReport reads a run directory, also of a run that has not ended. m knows the job's secrets; it
// may be nil, since the journal and the diffs were written without them.
func LoadReport(dir, version string, m *mask.Masker) (ReportData, error) {
	events, err := journal.Read(dir)
	if err != nil {
		return ReportData{}, err
	}
	return loaded(dir, journal.RunOf(events), version, m), nil
}

// loaded is Load for a run whose events are known.
func loaded(dir string, run *journal.Run, version string, m *mask.Masker) ReportData {
	d := ReportData{Dir: dir, Version: version, Made: time.Now(), Run: run, say: text{m}}
	d.Running = d.Verdict == nil && journal.Locked(dir)
	summaries := map[int]*launcher.AttemptSummary{}
	if d.Verdict != nil {
		for i := range d.Verdict.Attempts {
			summaries[d.Verdict.Attempts[i].N] = &d.Verdict.Attempts[i]
		}
	}
	for i := range run.Attempts {
		of := &run.Attempts[i]
		d.Attempts = append(d.Attempts, d.attempt(of, summaries[of.N]))
	}
	for _, i := range shownInFull(len(d.Attempts), most.full) {
		d.Attempts[i].read(dir)
	}
	d.Hints = d.hints()
	return d
}

// attempt adds to an attempt what follows from all events. The verdict has a summary of it, or there is none.
func (d *ReportData) attempt(of *journal.AttemptState, summary *launcher.AttemptSummary) ReportedAttempt {
	a := ReportedAttempt{AttemptState: of}
	if a.Phase == journal.Ended {
		a.Diagnosis = strategy.Diagnose(a.Evidence)
	}
	ran := strategy.Attempt{N: a.N, Plan: a.Plan, Measured: a.Evidence.Measured(), InPlace: a.Again,
		Observed: a.Evidence.Observed(d.Began.Job), World: a.Evidence.World()}
	a.Measured, a.Peak = d.Began.Job.Measured(ran), ran.Peak()
	if summary != nil {
		a.Price, a.Peak = summary.Price, cmp.Or(summary.Peak, a.Peak)
	}
	a.Words, a.Class = a.ending(d.Running && of == d.Last())
	return a
}

// read adds what the attempt's folder holds.
func (a *ReportedAttempt) read(dir string) {
	folder := filepath.Join(dir, fmt.Sprintf("attempt-%d", a.N))
	if diff, err := system.ReadHead(filepath.Join(folder, "diff.patch"), 64<<10); err == nil {
		a.Diff = string(diff)
	}
	from, to := a.Begin(), a.end()
	if to.IsZero() {
		to = time.Now()
	}
	a.Samples = readSamples(filepath.Join(folder, strategy.SamplesFile), from, to)
}

// ending says how the attempt ended, and gives the colour for it.
func (a *ReportedAttempt) ending(running bool) (words, class string) {
	switch {
	case !a.ended() && running:
		return "running", "run"
	case !a.ended():
		return "cut off together with gpurun", "stop"
	case a.Decision.Rule == "climb":
		return "stopped for a faster plan", "climb"
	case a.Evidence.Halted:
		return "stopped: a change did not take effect", "stop"
	case a.Evidence.Unstarted != nil:
		return "could not be started", "bad"
	case a.Diagnosis.OutOfMemory():
		return a.Diagnosis.Sentence(), "oom"
	case a.Diagnosis.Fatal:
		return a.Diagnosis.Sentence(), "bad"
	case a.final() && a.Decision.Outcome == strategy.Trained:
		return "trained", "good"
	case a.final():
		return a.Decision.Outcome.Words(), "stop"
	}
	return "nothing fatal", "stop"
}

// ended reports whether the attempt has ended, and its evidence is complete.
func (a *ReportedAttempt) ended() bool { return a.Phase >= journal.Ended }

// final reports whether the decision after the attempt ends the run.
func (a *ReportedAttempt) final() bool { return a.Phase == journal.Decided && !a.Decision.Relaunch }

// failedByItself reports whether the attempt failed for another reason than memory.
func (a *ReportedAttempt) failedByItself() bool {
	return a.Diagnosis.Fatal && !a.Diagnosis.OutOfMemory()
}

// end is when the attempt ended, or the time of its last sample; zero where that is not known.
func (a *ReportedAttempt) end() time.Time {
	if a.ended() {
		return a.Evidence.Ended
	}
	return a.latest().Time
}

// latest is the newest sample of all ranks.
func (a *ReportedAttempt) latest() (newest strategy.Sample) {
	for _, s := range a.Samples {
		if s.Time.After(newest.Time) {
			newest = s
		}
	}
	return newest
}

// lasted is how long the attempt ran, 0 where that is not known.
func (a *ReportedAttempt) lasted() time.Duration {
	if a.end().IsZero() || a.Begin().IsZero() {
		return 0
	}
	return max(a.end().Sub(a.Begin()), 0)
}
