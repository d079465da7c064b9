package launcher

import (
	"errors"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// ErrOtherJob: the run cannot be resumed, because another job began it.
var ErrOtherJob = errors.New("its command, train.toml or configuration differs")

// otherJob is an ErrOtherJob with the differing parts.
type otherJob struct{ what string }

func (o otherJob) Error() string     { return o.what }
func (o otherJob) Is(err error) bool { return err == ErrOtherJob }

// differing names the parts in which two digests differ.
func differing(theirs, ours string) error {
	a, b := digestParts(theirs), digestParts(ours)
	parts := []string{"its command, working directory or number of ranks", "its train.toml",
		"a configuration file that it names", "its index in an array, or a variable that its command names or sets,"}
	if len(a) != len(parts) || len(b) != len(parts) {
		return ErrOtherJob
	}
	var what []string
	for i, part := range parts {
		if a[i] != b[i] {
			what = append(what, part)
		}
	}
	switch len(what) {
	case 0: // another version made the digest
		return ErrOtherJob
	case 1:
		return otherJob{what[0] + " differs"}
	}
	return otherJob{strings.Join(what, ", and ") + " differ"}
}

// errOtherFiles: a configuration file or variable has changed since the run ended, so that its verdict does
// not apply to the job any more. A run that has not ended is resumed anyway: its job may have written the
// file.
var errOtherFiles = errors.New(
	"a configuration file that its command names, or a variable that its source reads, has changed since it began")

// GoOn rebuilds the state of the run in the directory dir from the events of its journal. now is the event
// with which this process would begin. done reports that the end of the run is decided, even if its verdict
// is not written yet (State.Closed). A run keeps the policy that it began with. Where the policy of one of its
// starts is stricter, that counts from then on.
//
// A run of another job is an error with a hint.
func GoOn(dir string, now Began, events []Event) (s State, done bool, err error) {
	policy, job := now.Policy, now.Job
	var files map[string]string
	first := true
	for _, e := range events {
		b, ok := e.(Began)
		if !ok {
			continue
		}
		if b.Digest != now.Digest {
			return State{}, false, refuse("the run directory %s belongs to another job: %w", dir,
				differing(b.Digest, now.Digest))
		}
		if first {
			job, files, first = b.Job, b.Files, false
		}
		policy = b.Policy.Strictest(now.Policy)
	}
	s, done = Resume(firstPlan(now.Plan, job), now.Run, events)
	if done && now.Restart == 0 && !SameFiles(files, now.Files) {
		return State{}, false, refuse("the run directory %s belongs to another job: %w", dir, errOtherFiles)
	}
	s.Job = now.Job
	s.tighten(policy, done)
	if s.relaunch.attempts == 0 && !s.undecided && policy.Forbids(job, s.Next.Plan) != "" {
		s.Next.Plan, job.Recalled = now.Plan, nil
	}
	s.began, s.fresh = job, first
	if !first && s.Verdict.Recalled == nil {
		s.Verdict.Recalled = job.Recalled
	}
	return s, done, nil
}

func refuse(format string, args ...any) error {
	return errext.WithCode(errext.Errorf("name another --run-dir or --run-id, or none for a new run", format, args...),
		strategy.CodeUsage)
}

// digestParts returns the parts of a digest after its version, "4:".
func digestParts(digest string) []string {
	_, parts, _ := strings.Cut(digest, ":")
	return strings.Split(parts, ".")
}

// SameFiles reports whether the configuration files of a run are unchanged. New files do not count.
func SameFiles(began, now map[string]string) bool {
	for name, sum := range began {
		if now[name] != sum {
			return false
		}
	}
	return true
}

// Restart prepares the next attempt when a run is started again. It makes the decision again as far as that
// depends on checkpoints, which may be gone. found looks for checkpoints, given the decided one. The notice
// is for the user; may be empty.
//
// An error, with an exit code and a hint, means that too much work would be lost. The run stays unchanged.
func (s State) Restart(
	job strategy.Job, found func(decided string) strategy.Checkpoints,
) (next State, notice string, err error) {
	s.History = slices.Clone(s.History)
	s.reopen()
	switch {
	case s.undecided: // Run makes the decision
		return s, "", nil
	case s.Next.Checkpoint == "" && !s.Next.ran: // from the beginning, as decided
		return s, "", nil
	}
	at := found(s.Next.Checkpoint)
	again := strategy.Again(s.Policy, job, s.History, strategy.Pending{
		N: s.Next.N, Plan: s.Next.Plan, Checkpoint: s.Next.Checkpoint, Ran: s.Next.ran, Began: s.Next.began,
	}, at)
	if again.Refused != "" {
		return s, "", errext.WithCode(errext.WithHint(errors.New(again.Refused), again.Hint), strategy.CodeExhausted)
	}
	if again.Checkpoint == at.Newest && at.Newest != "" {
		s.Next.Written = at.Written
	} else if again.Checkpoint == "" {
		s.Next.Written = time.Time{}
	}
	s.Next.Checkpoint = again.Checkpoint
	return s, again.Notice, nil
}
