package strategy

import (
	"fmt"
	"maps"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// portRetries bounds how often a busy port is answered with another one. It is
// a race of milliseconds, so that more in a row mean that something else is wrong.
const portRetries = 5

// A rule answers one kind of situation. The first that applies decides.
type rule struct {
	name    string
	applies func(*situation) bool
	answer  func(*situation) Decision
}

// rules are in the order in which they are asked.
func rules() []rule {
	return []rule{
		{"cut-short", func(s *situation) bool { return s.last.CutShort != "" }, cutShort},
		{"stopped", func(s *situation) bool { return s.last.StopSignal != 0 }, interrupted},
		{"climb-back", (*situation).climbFailed, climbBack},
		{"not-written", (*situation).unwritten, decideAgain},
		{"could-not-start", func(s *situation) bool { return s.last.Unstarted != nil }, unstarted},
		{"unkillable", func(s *situation) bool { return s.last.Stuck != nil }, unkillable},
		{"climb", func(s *situation) bool { return s.last.Climb != nil && !s.diagnosis.Fatal }, climb},
		{"remembered-failed", (*situation).rememberedFailed, asWritten},
		{"did-not-take", (*situation).notTaken, decideAgain},
		{"did-nothing", func(s *situation) bool { return !s.diagnosis.Fatal && s.last.Nothing != "" }, didNothing},
		{"no-step", (*situation).untrained, madeNoStep},
		{"trained", func(s *situation) bool { return !s.diagnosis.Fatal }, trained},
		{"another-port", func(s *situation) bool { return s.cause(cause.PortInUse) && s.inARow(cause.PortInUse) <= portRetries }, samePlan("on another port")},
		{"recovery-off", func(s *situation) bool { return s.policy.Mode == Off && s.outOfMemory() }, recoveryOff},
		{"folder-exists", (*situation).ownFolderExists, ownFolderExists},
		{"failed-relaunch", (*situation).relaunchFailed, failedRelaunch},
		{"max-attempts", func(s *situation) bool { return s.outOfMemory() && s.counted() >= s.policy.MaxAttempts }, outOfAttempts},
		{"restart-from-zero", (*situation).losesTooMuch, tooMuchLost},
		{"gpu-occupied", func(s *situation) bool { return s.cause(cause.GPUOccupied) }, occupied},
		{"out-of-memory", (*situation).outOfMemory, relieve},
		{"lost-node", func(s *situation) bool { return s.diagnosis.Lost != nil }, lostNode},
		{"hardware", (*situation).hardwareFailed, notOnThisNode},
		{"transient", func(s *situation) bool { return s.diagnosis.passes() }, transient},
		{"retry-later", func(s *situation) bool { return s.cause(cause.Driver, cause.Preempted) }, retryLater},
		{"deterministic", (*situation).sameAgain, sameAgain},
		{"restart", func(s *situation) bool { return s.restarts() < s.policy.Restarts }, samePlan("again, as --max-restarts asks")},
		{"job-failed", func(*situation) bool { return true }, jobFailed},
	}
}

// Decide says what to do after the last attempt of the history. It depends on
// its arguments only. The history must not be empty.
func Decide(p Policy, j Job, history []Attempt, inv Inventory) Decision {
	s := &situation{policy: p, job: j, inventory: inv, doubts: unwritable(history)}
	history = ran(history)
	last := &history[len(history)-1]
	last.Checkpoint, last.CheckpointWritten = inv.Checkpoint, inv.CheckpointWritten
	s.look(history)
	return s.decide()
}

func (s *situation) decide() Decision {
	for _, r := range rules() {
		if r.applies(s) {
			d := r.answer(s)
			d.Rule, d.Ineffective = r.name, s.job.Ineffective(s.last.Plan, s.last.Observed)
			if d.Caveat = s.caveat(d); d.Caveat != "" && !strings.Contains(d.Reason, d.Caveat) {
				d.Reason += "; on resuming, " + d.Caveat
			}
			if d.Relaunch && d.Resume == "" && s.inventory.NoCheckpoint != "" {
				d.Reason += "; it starts from the beginning: " + s.inventory.NoCheckpoint
			}
			d.Late = s.late(d)
			s.classify(&d)
			return d
		}
	}
	panic("strategy: the last rule applies always")
}

// classify says what the next plan does to the training.
func (s *situation) classify(d *Decision) {
	if !d.Relaunch || d.Training != "" { // it was decided before
		return
	}
	class, why := s.job.Training(d.Next, s.all)
	if class == Average && len(d.Changed) > 0 {
		d.Reason += "; " + class.Words(why)
	}
	d.Training = class
}

func (s *situation) cause(codes ...cause.Code) bool { return slices.Contains(codes, s.diagnosis.Cause) }

func (s *situation) outOfMemory() bool { return s.diagnosis.Cause.OutOfMemory() }

// recoverable: memory, or something that passes. A busy port has a rule of its own,
// which comes before.
func (s *situation) recoverable() bool {
	return s.outOfMemory() || s.cause(cause.GPUOccupied) || s.diagnosis.passes()
}

// counted is the number of attempts that count: a busy port is not one, nor a failure
// that passes and has a budget of its own, nor is an attempt whose change did not take
// effect, nor one that went up to a faster plan or was stopped for that.
func (s *situation) counted() int {
	n := 0
	for i, a := range s.history {
		if a.Climb != nil || a.Diagnosis.Fatal && s.wentUp(i) {
			continue
		}
		passes := a.Diagnosis.Cause == cause.PortInUse || a.Diagnosis.Cause == cause.GPUOccupied || a.Diagnosis.passes()
		if !passes && len(s.job.Ineffective(a.Plan, a.Observed)) == 0 {
			n++
		}
	}
	return n
}

// inARow counts how often the latest attempts ended for this cause without a break.
func (s *situation) inARow(c cause.Code) int {
	n := 0
	for _, a := range slices.Backward(s.history) {
		if a.Diagnosis.Cause != c {
			break
		}
		n++
	}
	return n
}

// restarts counts the relaunches of an unchanged plan after a failure of the job's own; one
// that led back from a faster plan is none of them.
func (s *situation) restarts() int {
	n := 0
	for i, a := range s.history[:len(s.history)-1] {
		if s.wentUp(i) && !maps.Equal(a.Plan, s.history[i+1].Plan) {
			continue // the run went back from there
		}
		own := !a.Diagnosis.Cause.OutOfMemory() && !a.Diagnosis.passes() && a.Diagnosis.Cause != cause.PortInUse && a.Diagnosis.Cause != cause.GPUOccupied
		if a.Diagnosis.Fatal && own {
			n++
		}
	}
	return n
}

// relaunchFailed: gpurun changed the plan, and the attempt then died sooner than
// the one before it, of something that is not memory and was not seen before.
func (s *situation) relaunchFailed() bool {
	return s.last.Rung != "" && s.diesAnew()
}

// diesAnew: the attempt died sooner than the one before it, of something that is not
// memory and was not seen before.
func (s *situation) diesAnew() bool {
	if len(s.history) < 2 || s.recoverable() ||
		!s.cause(cause.UserError, cause.Unknown, cause.Segfault, cause.IllegalAccess, cause.DeviceAssert) {
		return false
	}
	before := s.history[len(s.history)-2]
	sooner := s.last.Steps < before.Steps || (s.last.Steps == before.Steps && s.last.Lasted() <= before.Lasted()) || s.last.Steps == 0
	seen := slices.ContainsFunc(s.history[:len(s.history)-1], func(a Attempt) bool { return a.Diagnosis.Error == s.diagnosis.Error })
	return sooner && !seen
}

// sameAgain: the same plan died the same way twice, and got no further the second
// time. A third time would be no different.
func (s *situation) sameAgain() bool {
	if len(s.history) < 2 || s.diagnosis.Error == "" {
		return false
	}
	before := s.history[len(s.history)-2]
	return maps.Equal(before.Plan, s.without(s.plan, nil)) && before.Diagnosis.Cause == s.diagnosis.Cause &&
		before.Diagnosis.Error == s.diagnosis.Error && s.last.Steps <= before.Steps
}

// losesTooMuch: a relaunch would repeat more work than the user said, since no
// checkpoint of this run is there to resume from.
func (s *situation) losesTooMuch() bool {
	return s.recoverable() && s.inventory.Checkpoint == "" && s.policy.RestartFromZero > 0 &&
		s.last.Lasted() > s.policy.RestartFromZero.Duration()
}

// Interrupted is the decision that a signal makes: the run ends, and its state is kept.
func Interrupted(signal int) Decision {
	name := map[int]string{sigHUP: "SIGHUP", sigINT: "SIGINT"}[signal]
	if name == "" {
		signal, name = sigTERM, "SIGTERM"
	}
	return Decision{Rule: "stopped", Outcome: Stopped, Code: 128 + signal, Reason: "stopped by " + name}
}

func interrupted(s *situation) Decision {
	d := Interrupted(s.last.StopSignal)
	d.Reason = fmt.Sprintf("attempt %d: %s", s.last.N, d.Reason)
	return d
}

// unkillable ends the run: what is still there may hold the devices' memory, and
// a relaunch beside it would be shrunk for nothing.
func unkillable(s *situation) Decision {
	if d := s.last.Stuck.Debugger; d != "" {
		return s.stop(Retry, CodeRetry, fmt.Sprintf("process %d is held by a debugger, %s, and ends when that lets go of it", s.last.Stuck.PID, d))
	}
	where := ""
	if s.last.Stuck.Channel != "" {
		where = " in " + s.last.Stuck.Channel
	}
	return s.stop(Retry, CodeRetry, fmt.Sprintf("process %d waits%s and cannot be killed; the node may have to be rebooted", s.last.Stuck.PID, where))
}

func trained(s *situation) Decision {
	d := Decision{Outcome: Trained, Code: CodeTrained, Reason: fmt.Sprintf("attempt %d: trained%s", s.last.N, s.lost()), Headroom: s.headroom()}
	d.Proposal = s.ascend().summary()
	return d
}

// didNothing: an exit code of 0 after words such as "experiment already exists" is
// no training.
func didNothing(s *situation) Decision {
	return Decision{Outcome: Failed, Code: CodeFailed, Reason: fmt.Sprintf("attempt %d: the job says that it did nothing: %s", s.last.N, s.last.Nothing)}
}

// stop ends the run with a sentence about the last attempt.
func (s *situation) stop(o Outcome, code int, why string) Decision {
	return Decision{Outcome: o, Code: code, Reason: fmt.Sprintf("attempt %d: %s; %s", s.last.N, s.diagnosis.Sentence(), why)}
}

// samePlan relaunches what ran last.
func samePlan(how string) func(*situation) Decision {
	return func(s *situation) Decision {
		return Decision{
			Relaunch: true, Next: s.without(s.plan, nil), Changed: Changes{}, Resume: s.inventory.Checkpoint,
			Reason: fmt.Sprintf("attempt %d: %s → the same plan %s", s.last.N, s.diagnosis.Sentence(), how),
		}
	}
}

func recoveryOff(s *situation) Decision {
	return s.stop(Exhausted, CodeExhausted, `recovery.mode is "off"`)
}

func failedRelaunch(s *situation) Decision {
	return s.stop(Failed, CodeFailed, fmt.Sprintf("the relaunch failed earlier than the attempt before, with a new error: the likely reason is the change (%s), not the job",
		s.history[len(s.history)-2].Plan.Changed(s.without(s.plan, nil))))
}

// ownFolderExists: a relaunch found something that an earlier attempt had made.
func (s *situation) ownFolderExists() bool {
	exists := func(d Diagnosis) bool { return slices.Contains(cause.Remarks(d.Cause, d.Error), cause.SaysExists) }
	return len(s.history) > 1 && exists(s.diagnosis) && !exists(s.history[0].Diagnosis)
}

func ownFolderExists(s *situation) Decision {
	return s.stop(Failed, CodeFailed, "the relaunch found what an earlier attempt had made, which is neither the change nor memory: "+
		"the job cannot be started twice with the same folder until it makes it with exist_ok=True, or resumes in it ([resume])")
}

// bound ends the run because one of its bounds was reached.
func (s *situation) bound(why string) Decision {
	if s.outOfMemory() {
		return s.stop(Exhausted, CodeExhausted, why)
	}
	return s.stop(Retry, CodeRetry, why)
}

func outOfAttempts(s *situation) Decision {
	return s.bound(fmt.Sprintf("%d attempts were made, and recovery.max_attempts = %d", s.counted(), s.policy.MaxAttempts))
}

func tooMuchLost(s *situation) Decision {
	return s.bound(fmt.Sprintf(
		"%s of work would be repeated, since there is no checkpoint of this run to resume from: set [resume] in train.toml, or raise recovery.restart_from_zero (%s)",
		s.last.Lasted().Round(time.Second), s.policy.RestartFromZero))
}

// occupied waits for memory that another process holds: a shrunk job would be
// the wrong answer.
func occupied(s *situation) Decision {
	n := s.spent(func(d Diagnosis) bool { return d.Cause == cause.GPUOccupied })
	if slices.Contains(s.policy.Never, string(RungWait)) || n.counted > s.policy.TransientRetries || n.unproven > unprovenRefills {
		return s.stop(Retry, CodeRetry, "another process holds the device's memory")
	}
	d := samePlan("once the memory is free again")(s)
	d.Rung, d.After = RungWait, Seconds(time.Duration(max(n.counted, 1))*time.Minute)
	return d
}

func retryLater(s *situation) Decision {
	return s.stop(Retry, CodeRetry, "no setting of the job can fix that; try again later, or on another node")
}

func sameAgain(s *situation) Decision {
	return s.stop(Failed, CodeFailed, "it failed in the same way before, with the same plan, and got no further: another try would not help")
}

func jobFailed(s *situation) Decision {
	return s.stop(Failed, CodeFailed, "no change of its settings can fix that")
}

// relieve looks for a plan that needs less memory: by what is predicted, or rung by rung.
func relieve(s *situation) Decision {
	d, unpredicted := s.predict()
	if d.Relaunch {
		return d
	}
	found := s.walk()
	if found.rung == "" {
		d := s.stop(Exhausted, CodeExhausted, exhaustion(found.skipped))
		d.Skipped, d.Unpredicted = found.skipped, unpredicted
		return d
	}
	next := s.plan.With(found.changes)
	changed := s.plan.Changed(next)
	d = Decision{
		Relaunch: true, Rung: found.rung, Riders: found.riders, Rungs: needs(s.plan, next), Next: s.without(next, found.changes),
		Changed: s.learned.With(s.last.Plan).Changed(next), Skipped: found.skipped, Resume: s.inventory.Checkpoint, Expected: s.expected(next), Unpredicted: unpredicted,
	}
	d.Reason = fmt.Sprintf("attempt %d: %s%s → %s%s", s.last.N, s.diagnosis.Sentence(), s.lost(), changed, s.kept(changed))
	if unpredicted == nothingFits {
		d.Reason += "; " + nothingFits + ", and this is the next rung"
	}
	return d
}

// kept says that the global batch stays what it was, where the change touches it.
func (s *situation) kept(changed Changes) string {
	if _, touched := changed[MicroBatchSize]; !touched {
		return ""
	}
	if b, known := batchOf(s.plan, s.job); known && b.global() > 0 {
		return fmt.Sprintf(" (global batch %d kept)", b.global())
	}
	return " (global batch kept)"
}

// exhaustion says why nothing is left, and names the first rung that only the
// policy refused.
func exhaustion(skipped []Skip) string {
	for _, k := range skipped {
		if k.Refused {
			return fmt.Sprintf("every allowed rung was tried or is impossible; the first that only the policy refused is %s: %s", k.Rung, k.Reason)
		}
	}
	return "every rung was tried or is impossible"
}
