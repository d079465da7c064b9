package strategy

import (
	"fmt"
	"maps"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

// portRetries bounds how often gpurun retries a busy port with another one. The race takes
// milliseconds: more failures in a row have another reason.
const portRetries = 5

// A situation is the last attempt with everything that was known when it ended.
type situation struct {
	policy    Policy
	job       Job
	inventory Inventory
	history   []Attempt
	all       []Attempt // of the run; history may end before its last attempt
	onCPU     bool      // remedies that help on a GPU only are skipped

	last      Attempt
	plan      Plan            // the plan of the last attempt, from which the next one is made
	learned   Plan            // values that processes reported for knobs that the job's plan does not have
	inside    map[Knob]string // why the hook cannot change a knob in the process
	diagnosis Diagnosis
	doubts    map[Knob]string // why a knob is not changed
	weighing  *weighing       // predicts; nil if too little is known
	excluding bool            // no plan is predicted to fit: plans that the prediction excludes are not run
}

// A rule handles one kind of situation. The first rule that applies decides.
type rule struct {
	name    string
	applies func(*situation) bool
	answer  func(*situation) Decision
}

// RuleOutOfMemory is the name of the rule that looks for a plan that needs less memory.
const RuleOutOfMemory = "out-of-memory"

// rules are in the order in which they are tried.
func rules() []rule {
	return []rule{
		{"cut-short", func(s *situation) bool { return s.last.CutShort != "" }, func(s *situation) Decision {
			return s.end(Retry, "%s; the run continues when it is started again", s.last.CutShort)
		}},
		{"stopped", func(s *situation) bool { return s.last.StopSignal != 0 }, interrupted},
		{"climb-back", (*situation).speedupFailed, speedupBack},
		{"not-written", (*situation).unwritten, decideAgain},
		{"could-not-start", func(s *situation) bool { return s.last.Unstarted != nil }, unstarted},
		{"unkillable", func(s *situation) bool { return s.last.Stuck != nil }, unkillable},
		{"climb", func(s *situation) bool { return s.last.Speedup != nil && !s.diagnosis.Fatal }, speedup},
		{"remembered-failed", (*situation).rememberedFailed, asWritten},
		{"did-not-take", (*situation).notTaken, decideAgain},
		{"did-nothing", func(s *situation) bool { return !s.diagnosis.Fatal && s.last.Nothing != "" },
			func(s *situation) Decision {
				// it ended with 0, but trained nothing
				return s.end(Failed, "the job reports that it did nothing: %s", s.last.Nothing)
			}},
		{"no-step", (*situation).untrained, madeNoStep},
		{"no-model", (*situation).modelless, hadNoModel},
		{"trained", func(s *situation) bool { return !s.diagnosis.Fatal }, trained},
		{"exit-code", (*situation).asked, answerExit},
		{"another-port", func(s *situation) bool {
			return s.cause(cause.PortInUse) && s.inARow(cause.PortInUse) <= portRetries
		}, samePlan("on another port")},
		{"recovery-off", func(s *situation) bool { return s.policy.Mode == Off && s.outOfMemory() },
			stops(Exhausted, `recovery.mode is "off"`)},
		{"folder-exists", (*situation).ownFolderExists, stops(Failed,
			"the relaunch found files of an earlier attempt; neither the change nor memory is the cause: "+
				"the job cannot start twice in the same folder until it makes it with exist_ok=True, or resumes in it ([resume])")},
		{"failed-relaunch", (*situation).relaunchFailed, failedRelaunch},
		{"max-attempts", func(s *situation) bool { return s.outOfMemory() && s.counted() >= s.policy.MaxAttempts },
			func(s *situation) Decision {
				return s.bound("recovery.max_attempts = %d allows no further attempt", s.policy.MaxAttempts)
			}},
		{"disk-full", func(s *situation) bool { return s.cause(cause.DiskFull) }, diskFull},
		{"restart-from-zero", (*situation).losesTooMuch, tooMuchLost},
		{"gpu-occupied", func(s *situation) bool { return s.cause(cause.GPUOccupied) }, occupied},
		{RuleOutOfMemory, (*situation).outOfMemory, relieve},
		{"lost-node", func(s *situation) bool { return s.diagnosis.Lost != nil }, lostNode},
		{"hardware", (*situation).hardwareFailed, notOnThisNode},
		{"transient", func(s *situation) bool { return s.diagnosis.passes() }, transient},
		{"retry-later", func(s *situation) bool { return s.cause(cause.Driver, cause.Preempted) }, stops(Retry, retryLater)},
		{"hook-failed", (*situation).hookFailed, func(s *situation) Decision {
			d := s.stop(Failed, "this is a bug of gpurun; without its hook the job runs as it is written (--mode off, or launch.hooks = false)")
			d.Code = CodeBug
			return d
		}},
		{"deterministic", (*situation).sameAgain, stops(Failed,
			"it failed in the same way before, with the same plan, and got no further: another try would not help")},
		{"restart", func(s *situation) bool { return s.restarts() < s.policy.Restarts },
			samePlan("again, by --max-restarts")},
		{"job-failed", func(*situation) bool { return true }, stops(Failed, "no change of its settings can fix that")},
	}
}

const retryLater = "no setting of the job can fix that; try again later, or on another node"

// Decide returns what to do after the last attempt of the history, which must not be empty. It
// depends on its arguments only.
func Decide(p Policy, j Job, history []Attempt, inv Inventory) Decision {
	return situationOf(p, j, history, inv).decide()
}

func situationOf(p Policy, j Job, history []Attempt, inv Inventory) *situation {
	s := &situation{policy: p, job: j, inventory: inv, doubts: unwritable(history)}
	history = ran(history)
	last := &history[len(history)-1]
	last.Checkpoint, last.CheckpointWritten = inv.Checkpoint, inv.CheckpointWritten
	s.look(history)
	return s
}

// look makes the last attempt of a history the current one. It keeps the doubts about knobs that
// later attempts raised.
func (s *situation) look(history []Attempt) {
	last := history[len(history)-1]
	if len(history) > len(s.all) {
		s.all = history
	}
	doubts := s.job.doubts(history)
	maps.Copy(doubts, s.doubts)
	s.history, s.last, s.diagnosis, s.doubts = history, last, last.Diagnosis, doubts
	s.learned, s.inside = s.job.learn(history)
	s.job = s.job.seeing(last.World)
	s.plan = s.learned.With(s.job.base(last))
	if undividable(s.all) != "" {
		s.job.restoreBatch(s.plan)
	}
}

func (s *situation) decide() Decision {
	for _, r := range rules() {
		if !r.applies(s) {
			continue
		}
		d := r.answer(s)
		d.Rule, d.Ineffective = r.name, s.job.Ineffective(s.last.Plan, s.last.Observed)
		named := d.Caveat // in the reason of a speed-up that was decided on before
		if d.Caveat = s.caveat(d); d.Caveat != "" && d.Caveat != named {
			d.Reason += "; on resuming, " + d.Caveat
		}
		if d.Relaunch && d.Resume == "" && s.inventory.NoCheckpoint != "" {
			d.Reason += "; it starts from the beginning: " + s.inventory.NoCheckpoint
		}
		d.Late = s.late(d)
		if d.Relaunch && d.Training == "" {
			class, why := s.job.Training(d.Next, s.all)
			if class == Average && len(d.Changed) > 0 {
				d.Reason += "; " + class.Words(why)
			}
			d.Training = class
		}
		return d
	}
	panic("strategy: the last rule applies always")
}

// relieve looks for a plan that needs less memory: by prediction, or else remedy by remedy.
func relieve(s *situation) Decision {
	predicted := s.predict()
	if predicted.Relaunch {
		return predicted
	}
	s.excluding = predicted.UnpredictedCode == UnpredictedNothing
	found := s.walk()
	if found.remedy == "" {
		d := s.stop(Exhausted, s.exhaustion(found.skipped))
		d.UnpredictedCode, d.Unpredicted = predicted.UnpredictedCode, predicted.Unpredicted
		d.Skipped, d.Outvoted = found.skipped, predicted.Outvoted
		return d
	}
	next := s.plan.With(found.changes)
	changed := s.plan.Changed(next)
	d := Decision{
		Relaunch: true, Remedy: found.remedy, Riders: found.riders, Remedies: needs(s.plan, next),
		Next:    s.without(next, found.changes),
		Changed: s.learned.With(s.last.Plan).Changed(next), Skipped: found.skipped, Resume: s.inventory.Checkpoint,
		Expected:        s.expected(next),
		UnpredictedCode: predicted.UnpredictedCode, Unpredicted: predicted.Unpredicted,
		Reason: s.attempt("%s%s → %s%s", s.diagnosis.Sentence(), s.lost(), changed, s.kept(changed)),
	}
	if s.excluding {
		d.Reason += "; " + nothingFits + ", and this is the next remedy"
	}
	return d
}

// exhaustion returns why no plan is left. NextSteps has the arithmetic, and what the policy
// refused.
func (s *situation) exhaustion(skipped []Skip) string {
	if s.excluding {
		if _, known := s.shortage(); known {
			return "no allowed plan fits"
		}
	}
	if slices.ContainsFunc(skipped, func(k Skip) bool { return k.Refused }) {
		return "every allowed remedy was tried or is impossible"
	}
	return "every remedy was tried or is impossible"
}

// attempt formats a sentence about the last attempt.
func (s *situation) attempt(format string, args ...any) string {
	return fmt.Sprintf("attempt %d: ", s.last.N) + fmt.Sprintf(format, args...)
}

// end ends the run with a sentence about the last attempt.
func (s *situation) end(o Outcome, format string, args ...any) Decision {
	return Decision{Outcome: o, Code: o.code(), Reason: s.attempt(format, args...)}
}

// stop ends the run with the diagnosis of the last attempt, and the reason why nothing else is
// done.
func (s *situation) stop(o Outcome, why string) Decision {
	return s.end(o, "%s; %s", s.diagnosis.Sentence(), why)
}

// hookFailed reports whether gpurun's own code in the process raised the error that ended the attempt.
func (s *situation) hookFailed() bool {
	return slices.Contains(cause.Remarks(s.diagnosis.Cause, s.diagnosis.Error), cause.SaysHook)
}

func stops(o Outcome, why string) func(*situation) Decision {
	return func(s *situation) Decision { return s.stop(o, why) }
}

// samePlan relaunches the plan that ran last.
func samePlan(how string) func(*situation) Decision {
	return func(s *situation) Decision {
		return Decision{
			Relaunch: true, Next: s.without(s.plan, nil), Changed: Changes{}, Resume: s.inventory.Checkpoint,
			Reason: s.attempt("%s → the same plan %s", s.diagnosis.Sentence(), how),
		}
	}
}

// kept returns that the global batch stays the same, if a change concerns it.
func (s *situation) kept(changed Changes) string {
	if _, touched := changed[MicroBatchSize]; !touched {
		return ""
	}
	if n := s.job.GlobalBatch(s.plan); n > 0 {
		return fmt.Sprintf(" (global batch %d kept)", n)
	}
	return " (global batch kept)"
}

// lost names the changes to the last plan that had no effect, for the middle of a sentence.
func (s *situation) lost() string {
	if words := s.job.Ineffective(s.last.Plan, s.last.Observed).Lost(); words != "" {
		return "; " + words
	}
	return ""
}

func (s *situation) cause(codes ...cause.Code) bool { return slices.Contains(codes, s.diagnosis.Cause) }

func (s *situation) outOfMemory() bool { return s.diagnosis.Cause.OutOfMemory() }

// recoverable reports whether a relaunch can help, with less memory or because the failure is
// transient. A busy port has a separate rule, which comes before.
func (s *situation) recoverable() bool {
	return s.outOfMemory() || s.cause(cause.GPUOccupied, cause.DiskFull) || s.diagnosis.passes()
}

// blameless reports whether neither the plan nor the job is at fault: the failure is transient,
// a disk is full, or another process had the port or the memory.
func (d Diagnosis) blameless() bool {
	return d.Cause == cause.PortInUse || d.Cause == cause.GPUOccupied || d.Cause == cause.DiskFull || d.passes()
}

// counted is the number of attempts that count towards max_attempts. Not counted are attempts
// that failed without fault, whose change had no effect, that tried a faster plan, or that were
// stopped for one or from outside.
func (s *situation) counted() int {
	n, up := 0, s.speedups()
	for i, a := range s.history {
		if a.Speedup != nil || a.StopSignal != 0 || a.CutShort != "" || a.Diagnosis.Fatal && up[i] >= 0 {
			continue
		}
		if !a.Diagnosis.blameless() && len(s.job.Ineffective(a.Plan, a.Observed)) == 0 {
			n++
		}
	}
	return n
}

// inARow counts how many of the latest attempts in a row ended for this cause.
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

// restarts counts the relaunches of an unchanged plan after a failure of the job itself.
func (s *situation) restarts() int {
	n, up := 0, s.speedups()
	for i, a := range s.history[:len(s.history)-1] {
		wentBack := up[i] >= 0 && !maps.Equal(a.Plan, s.history[i+1].Plan)
		if !wentBack && a.Diagnosis.Fatal && !a.Diagnosis.Cause.OutOfMemory() && !a.Diagnosis.blameless() {
			n++
		}
	}
	return n
}

// relaunchFailed reports whether gpurun changed the plan, and the attempt failed sooner, with a
// new error.
func (s *situation) relaunchFailed() bool { return s.last.Remedy != "" && s.failsSooner() }

// failsSooner reports whether the attempt failed sooner than the one before it, for a new reason
// that is not memory.
func (s *situation) failsSooner() bool {
	if len(s.history) < 2 || s.recoverable() ||
		!s.cause(cause.UserError, cause.Unknown, cause.Segfault, cause.IllegalAccess, cause.DeviceAssert) {
		return false
	}
	before := s.history[len(s.history)-2]
	sooner := s.last.Steps < before.Steps || (s.last.Steps == before.Steps && s.last.Lasted() <= before.Lasted()) ||
		s.last.Steps == 0
	seen := slices.ContainsFunc(s.history[:len(s.history)-1],
		func(a Attempt) bool { return a.Diagnosis.Error == s.diagnosis.Error })
	return sooner && !seen
}

func failedRelaunch(s *situation) Decision {
	return s.stop(Failed,
		fmt.Sprintf("the relaunch failed earlier than the attempt before, with a new error: the likely reason is the change (%s), not the job",
			s.history[len(s.history)-2].Plan.Changed(s.without(s.plan, nil))))
}

// sameAgain reports whether the same plan failed in the same way twice, and got no further the
// second time.
func (s *situation) sameAgain() bool {
	if len(s.history) < 2 || s.diagnosis.Error == "" {
		return false
	}
	before := s.history[len(s.history)-2]
	return maps.Equal(before.Plan, s.without(s.plan, nil)) && before.Diagnosis.Cause == s.diagnosis.Cause &&
		before.Diagnosis.Error == s.diagnosis.Error && s.last.Steps <= before.Steps
}

// ownFolderExists reports whether a relaunch failed on a folder that an earlier attempt had made.
func (s *situation) ownFolderExists() bool {
	exists := func(d Diagnosis) bool { return slices.Contains(cause.Remarks(d.Cause, d.Error), cause.SaysExists) }
	return len(s.history) > 1 && exists(s.diagnosis) && !exists(s.history[0].Diagnosis)
}

// losesTooMuch reports whether a relaunch would repeat more work than the user allows because
// there is no checkpoint.
func (s *situation) losesTooMuch() bool {
	return s.recoverable() && s.repeatsTooMuch()
}

func (s *situation) repeatsTooMuch() bool {
	return s.inventory.Checkpoint == "" && s.policy.RestartFromZero > 0 &&
		s.last.Lasted() > s.policy.RestartFromZero.Duration()
}

// bound ends the run because it reached one of its bounds.
func (s *situation) bound(format string, args ...any) Decision {
	o := Retry
	if s.outOfMemory() {
		o = Exhausted
	}
	return s.stop(o, fmt.Sprintf(format, args...))
}

func tooMuchLost(s *situation) Decision {
	return s.bound("%s of work would be repeated, since there is no checkpoint of this run to resume from: set [resume] in train.toml, or raise recovery.restart_from_zero (%s)",
		s.last.Lasted().Round(time.Second), s.policy.RestartFromZero)
}

// occupied waits for memory that another process holds: a smaller plan would be the wrong
// reaction.
func occupied(s *situation) Decision {
	n := s.spent(func(d Diagnosis) bool { return d.Cause == cause.GPUOccupied })
	if slices.Contains(s.policy.Never, string(RemedyWait)) || n.counted > s.policy.TransientRetries ||
		n.unproven > unprovenRefills {
		return s.stop(Retry, "another process holds the device's memory")
	}
	d := samePlan("once the memory is free again")(s)
	d.Remedy, d.After = RemedyWait, Seconds(time.Duration(max(n.counted, 1))*time.Minute)
	return d
}

// lostNode relaunches the same plan, which is not at fault. A node that could not start its ranks
// may fail again.
func lostNode(s *situation) Decision {
	switch s.diagnosis.Lost.Code {
	case 0, CodeRetry:
		return s.stop(Retry, "started again, the job continues with the same plan")
	case CodeRunDir:
		d := s.stop(Retry, "the job continues with the same plan once the run directory can be written there")
		d.Code = CodeRunDir
		return d
	}
	return s.stop(Failed, "another start would not change that")
}
