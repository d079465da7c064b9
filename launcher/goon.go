package launcher

import (
	"errors"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// ErrOtherJob is why a run is not gone on with: the job is not the one that it began with.
var ErrOtherJob = errors.New("its command, train.toml or configuration differs")

// otherJob is an ErrOtherJob that knows what differs.
type otherJob struct{ what string }

func (o otherJob) Error() string     { return o.what }
func (o otherJob) Is(err error) bool { return err == ErrOtherJob }

// differing says in what two digests differ whose parts are known, which is so from their
// third version on.
func differing(theirs, ours string) error {
	a, b := strings.Split(theirs, "."), strings.Split(ours, ".")
	parts := []string{"its command, working directory or number of ranks", "its train.toml", "a configuration file that it names", "its index in an array, or a variable that its command names or sets,"}
	if len(a) < 3 || len(a) > len(parts) || len(b) != len(a) {
		return ErrOtherJob
	}
	var what []string
	for i, part := range parts[:len(a)] {
		if a[i] != b[i] {
			what = append(what, part)
		}
	}
	if len(what) == 1 {
		return otherJob{what[0] + " differs"}
	}
	return otherJob{strings.Join(what, ", and ") + " differ"}
}

// errOtherFiles is why the verdict of a run that is done says nothing of the job as it is
// now. One that is not done goes on: its job may have written the file.
var errOtherFiles = errors.New("a configuration file that its command names, or a variable that its source reads, has changed since it began")

// GoOn rebuilds the state of a run whose journal holds events, for the run that
// would begin now in the directory dir; done says that it has been
// decided, whether its verdict was written (State.Closed) or not. A run
// goes on with the policy that it began with, whatever this gpurun's defaults are.
//
// A run of another job is an error with a hint. Jobs are told apart by the digest
// that the run began with, in that digest's own version: digest gives the job's for
// a version, with or without the prefix, and false for one that it does not know.
func GoOn(dir string, now Began, events []Event, digest func(version int) (string, bool)) (s State, done bool, err error) {
	policy, job := now.Policy, now.Job
	var files map[string]string
	first := true
	for _, e := range events {
		b, ok := e.(Began)
		if !ok {
			continue
		}
		version, theirs := splitDigest(b.Digest)
		ours, known := digest(version)
		if !known {
			return State{}, false, refuse("the run directory %s cannot be gone on with: its digest, of version %d, cannot be compared with this job's", dir, version)
		}
		if _, ours = splitDigest(ours); ours != theirs {
			return State{}, false, refuse("the run directory %s is of another job: %w", dir, differing(theirs, ours))
		}
		if first {
			policy, job, files, first = b.Policy, b.Job, b.Files, false
		}
	}
	s, done = Resume(firstPlan(now.Plan, job), now.Run, events)
	if done && now.Restart == 0 && !SameFiles(files, now.Files) {
		return State{}, false, refuse("the run directory %s is of another job: %w", dir, errOtherFiles)
	}
	s.Policy, s.began, s.fresh = policy, job, first
	if !first && s.Verdict.Recalled == nil {
		s.Verdict.Recalled = job.Recalled
	}
	return s, done, nil
}

func refuse(format string, args ...any) error {
	return errext.WithCode(errext.Errorf("name another --run-dir or --run-id, or none for a new run", format, args...), strategy.CodeUsage)
}

// splitDigest takes the version off a digest: "2:…"; without one it is of version 1.
func splitDigest(digest string) (version int, rest string) {
	if number, rest, ok := strings.Cut(digest, ":"); ok {
		if n, err := strconv.Atoi(number); err == nil && n > 1 {
			return n, rest
		}
	}
	return 1, digest
}
