package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Interrupted is the decision after a signal: the run ends, and its state is kept.
func Interrupted(signal int) Decision {
	name := map[int]string{sigHUP: "SIGHUP", sigINT: "SIGINT"}[signal]
	if name == "" {
		signal, name = sigTERM, "SIGTERM"
	}
	return Decision{Rule: "stopped", Outcome: Stopped, Code: 128 + signal, Reason: "stopped by " + name}
}

func interrupted(s *situation) Decision {
	d := Interrupted(s.last.StopSignal)
	d.Reason = s.attempt("%s", d.Reason)
	return d
}

// unkillable ends the run. The process may still hold the devices' memory, and a plan that fits
// next to it would be too small.
func unkillable(s *situation) Decision {
	stuck := s.last.Stuck
	where := ""
	if stuck.Channel != "" {
		where = " in " + stuck.Channel
	}
	return s.stop(Retry, fmt.Sprintf("process %d waits%s and cannot be killed; the node may have to be rebooted",
		stuck.PID, where))
}

func trained(s *situation) Decision {
	again := InPlaceWords(s.last.InPlace)
	if again != "" {
		again = "; " + again
	}
	d := s.end(Trained, "trained%s%s", s.lost(), again)
	d.Headroom, d.Proposal = s.headroom(), s.ascend(s.scouted).summary()
	return d
}

// enoughCalls is the number of calls of a model in training from which they are more than a
// trial.
const enoughCalls = 2

// Unstepped reports whether the job's processes trained without an optimizer step: they called
// the model, and have an optimizer whose steps are counted and that made none.
func (e *Evidence) Unstepped() bool {
	c, counted := e.folded(), false
	for _, r := range c.reports() {
		if r.Stepping {
			return false
		}
		counted = counted || r.Settings[Optimizer] != "" && r.Model != nil && !r.Model.Compiled
	}
	called := false
	for _, i := range c.measured {
		m := c.facts[i].Memory()
		if m.Steps > 0 {
			return false
		}
		called = called || m.Calls >= enoughCalls
	}
	return counted && called
}

// untrained reports whether gpurun changed the batch, and no attempt of the run made an optimizer
// step. A job that resumes at its last step has made the others before.
func (s *situation) untrained() bool {
	stepped := func(a Attempt) bool { return a.Steps > 0 && !a.Unstepped }
	return !s.diagnosis.Fatal && s.last.Unstepped && len(s.batchChanges()) > 0 && !slices.ContainsFunc(s.history, stepped)
}

// batchChanges returns the differences between the last attempt's batch and the job as it is
// written.
func (s *situation) batchChanges() Changes {
	return s.job.Written.Changed(s.last.Plan).only(MicroBatchSize, GradientAccumulationSteps)
}

// madeNoStep ends a run whose job exited with 0 and trained nothing.
func madeNoStep(s *situation) Decision {
	return s.end(Failed,
		"the job ended with 0, but its optimizer made no step with %s: it has not trained; the loop may never come to its step with that accumulation", s.batchChanges())
}

// modelless reports whether the last attempt ended with 0 from the beginning, and no process of it reported a model, as
// those of an attempt before it did that ran out of memory while it trained.
func (s *situation) modelless() bool {
	saw := func(a Attempt) bool {
		return a.Asked && a.Diagnosis.OutOfMemory() && !slices.Contains([]cause.Phase{cause.Eval, cause.Rollout, cause.Save},
			a.Diagnosis.Phase)
	}
	last := s.last
	return !s.diagnosis.Fatal && !last.Asked && last.Steps == 0 && last.From == "" &&
		slices.ContainsFunc(s.history[:len(s.history)-1], saw)
}

func hadNoModel(s *situation) Decision {
	return s.end(Failed,
		"the job ended with 0, but none of its processes had a model, as one of an earlier attempt had: it has not trained; it may end where the outputs of that attempt are")
}

// Unstarted is the reason why the ranks of an attempt could not be started.
type Unstarted struct {
	Reason string `json:"reason"`
	Hint   string `json:"hint,omitempty"` // what the user can do
	// Wait: the missing processes, memory, descriptors or port may be available later.
	Wait   bool `json:"wait,omitempty"`
	RunDir bool `json:"run_dir,omitempty"` // the system refused the run directory
	Bug    bool `json:"bug,omitempty"`     // gpurun failed to write the plan into the job's command
}

func (u Unstarted) diagnosis() Diagnosis {
	code := cause.UserError
	if u.Wait || u.RunDir || u.Bug {
		code = cause.Unknown
	}
	return Diagnosis{
		Cause: code, Fatal: true, Phase: cause.NoPhase, Rank: -1, Symptoms: []cause.Code{}, Because: []int{}, Error: u.Reason,
		Advice: cmp.Or(u.Hint, "restore what the job needs to start, or repair it, and start a new run"),
	}
}

// unstarted ends the run: no other plan would start either. If waiting helps, or the run
// directory is at fault, the run continues when it is started again.
func unstarted(s *situation) Decision {
	u := s.last.Unstarted
	d := Decision{Outcome: Failed, Code: CodeFailed, Reason: fmt.Sprintf("attempt %d could not be started: %s", s.last.N,
		u.Reason)}
	switch {
	case u.RunDir:
		d.Outcome, d.Code = Retry, CodeRunDir
	case u.Wait:
		d.Outcome, d.Code = Retry, CodeRetry
	case u.Bug:
		d.Code = CodeBug
		if n := len(s.history); n > 1 {
			d.Reason += fmt.Sprintf("; %s in attempt %d", s.history[n-2].Diagnosis.Sentence(), s.history[n-2].N)
		}
	}
	return d
}

// unwritable returns the knobs that gpurun failed to write into the job's command because of a
// bug, each with the reason not to change it.
func unwritable(history []Attempt) map[Knob]string {
	doubts := map[Knob]string{}
	var before Plan
	for _, a := range history {
		switch {
		case a.Unstarted == nil:
			before = a.Plan
		case a.Unstarted.Bug:
			for k := range before.Changed(a.Plan) {
				doubts[k] = fmt.Sprintf("gpurun could not set %s in attempt %d: %s", k.Short(), a.N, a.Unstarted.Reason)
			}
		}
	}
	return doubts
}

// unwritten reports whether gpurun failed to write the changes of the last attempt's plan because
// of a bug. Other changes may be possible.
func (s *situation) unwritten() bool {
	n := len(s.history)
	return s.last.Unstarted != nil && s.last.Unstarted.Bug && n > 1 && len(s.history[n-2].Plan.Changed(s.last.Plan)) > 0
}

// ran omits the attempts before the last that could not be started: they show nothing about their
// plans, and use no budget.
func ran(history []Attempt) []Attempt {
	before := slices.DeleteFunc(slices.Clone(history[:len(history)-1]), func(a Attempt) bool { return a.Unstarted != nil })
	return append(before, history[len(history)-1])
}

// A Notice is a signal that announces the end of the allocated time.
type Notice struct {
	// Signal is its name, "SIGUSR1", and Number its number; 0 for a deadline.
	Signal string `json:"signal"`
	Number int    `json:"number,omitempty"`
	Stop   bool   `json:"stop,omitempty"`   // the run has to stop before the end of the time
	Caught bool   `json:"caught,omitempty"` // a rank has a handler for the signal, and received it
}

// CutShort returns why an attempt ended before the job did, if a notice is the reason; else
// empty. A rank that catches the notice saves its state, and often ends with 0 though the
// training is not finished.
func (e *Evidence) CutShort() string {
	n := e.Notice
	if n == nil {
		return ""
	}
	if e.EndedWell() {
		return e.endedAfter(n)
	}
	if rank := e.EndedBy(n.Number); n.Number != 0 && rank >= 0 {
		return fmt.Sprintf("the notice %s ended rank %d, which has no handler for it", n.Signal, rank)
	}
	if n.Stop && e.StopSignal != 0 {
		return fmt.Sprintf("stopped after the notice %s, before the time here ends", n.Signal)
	}
	return ""
}

// EndedBy is the first rank that was ended by a signal which gpurun did not send; -1: none.
func (e *Evidence) EndedBy(signal int) int {
	for _, i := range e.folded().exitFacts() {
		if x := e.folded().exitAt(i); !x.Stopped && signalOf(x) == signal {
			return e.Facts[i].Rank
		}
	}
	return -1
}

// endedAfter judges ranks that all ended with 0 after a notice. If the last step is not known,
// they count as cut short only if the run had to stop. To start a finished job again costs
// little; to abandon an unfinished one costs everything.
func (e *Evidence) endedAfter(n *Notice) string {
	if !n.Caught {
		return ""
	}
	last, total := 0, 0
	for _, i := range e.folded().progress {
		p := As[*Progress](e.Facts[i])
		last, total = max(last, p.Last), max(total, p.Total)
	}
	switch {
	case total > 0 && last < total:
		return fmt.Sprintf("the ranks ended at step %d of %d, after the notice %s", last, total, n.Signal)
	case total == 0 && n.Stop:
		return fmt.Sprintf("the ranks ended after the notice %s, which they caught; whether they trained to the end is not known", n.Signal)
	}
	return ""
}

// Announced is the decision after a notice, a signal such as SIGUSR1 by which a scheduler
// announces the end of the time. No attempt is started; the decision after the last attempt is
// kept for the next start of the run.
func Announced(signal string, next Decision) Decision {
	d := Decision{Rule: "announced", Outcome: Retry, Code: CodeRetry,
		Reason: fmt.Sprintf("after the notice %s no attempt is started", signal)}
	if next.Reason != "" {
		d.Reason = fmt.Sprintf("%s, when this run is started again: %s", next.Reason, d.Reason)
	}
	return d
}

// Postponed is the decision shortly before a deadline: no attempt is started, and the next start
// of the run continues with the decision that was made.
func Postponed(next Decision) Decision {
	return Decision{Rule: "deadline", Outcome: Retry, Code: CodeRetry,
		Reason: next.Reason + ", when this run is started again: " + next.Late}
}

const (
	// lateTimes is the factor on the time to the first step that an attempt needs before the
	// deadline, and lateLeast the least time: stopping ranks takes some.
	lateTimes = 1.5
	lateLeast = 2 * time.Minute
)

// late returns why the decided attempt is not started now: it would hardly make a step before the
// deadline. It is empty if there is time, or no deadline is known.
func (s *situation) late(d Decision) string {
	end := s.inventory.Deadline
	if !d.Relaunch || end.IsZero() {
		return ""
	}
	left := end.Sub(s.inventory.At.Add(d.After.Duration()))
	start := s.timeToFirstStep()
	if left >= max(lateLeast, time.Duration(lateTimes*float64(start))) {
		return ""
	}
	why := fmt.Sprintf("not enough time before the deadline: %s left", max(left, 0).Round(time.Second))
	if start > 0 {
		why += fmt.Sprintf(", and an attempt takes %s to its first step", start.Round(100*time.Millisecond))
	}
	if d.Resume != "" {
		why += "; it continues from " + d.Resume
	}
	return why
}

// timeToFirstStep is the time that the last attempt took to its first step. If it made none, it
// is the time of another attempt of the run, or of this one while it loaded. 0: not known.
func (s *situation) timeToFirstStep() time.Duration {
	if before := s.last.Stepping.Before; before > 0 {
		return before.Duration()
	}
	longest := s.relaunchCost()
	if s.diagnosis.Phase == cause.Load {
		longest = max(longest, s.last.Lasted())
	}
	return longest
}

// Settled reports whether another run of the job on this device would reach the same decision:
// every allowed remedy was tried or is impossible, and the decision did not depend on a bound of
// the run, another process, host memory, a checkpoint or a user's signal.
func Settled(d Decision, last Attempt, inv Inventory) bool {
	alone := inv.Device.Others <= inv.Device.Total/100
	needs := last.Diagnosis.Cause == cause.CUDAOOM && last.Diagnosis.Growth == nil && !last.Diagnosis.Late
	return d.Outcome == Exhausted && len(d.Skipped) > 0 && needs && alone && inv.Checkpoint == "" &&
		last.StopSignal == 0 && last.CutShort == "" &&
		!slices.ContainsFunc(d.Skipped, Skip.passing)
}
