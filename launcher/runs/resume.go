package runs

import (
	"errors"
	"io/fs"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
)

// ResumeDescription is the help of the verb resume.
const ResumeDescription = `Starts a run again where it stopped, with the command and in the directory that it was started with: it goes on after
the plans that ran out of memory, from its newest checkpoint. A RUN is a run directory, job/run, a run's name or how it
begins, or a job's name, which means its newest run; without one it is the newest below the working directory.
A run that is done, that still runs, or whose train.toml has changed since is refused.`

// Start is how to start the run again. An error says why that cannot be, with a hint.
func (r Run) Start() (journal.Start, error) {
	switch {
	case r.Locked:
		return journal.Start{}, errext.Errorf("gpurun logs -f "+r.Path+" shows what it does", "the run %s still runs (host %s, pid %d)", r.short(), r.Host, r.PID)
	case r.Outcome.Done():
		return journal.Start{}, errext.Errorf("start the job itself again, for a new run", "the run %s is done: %s", r.short(), r.Outcome)
	case r.Broken != "":
		return journal.Start{}, errext.Errorf("start the job itself again, for a new run", "the run %s cannot be gone on with: %s", r.short(), r.Broken)
	}
	start, err := journal.ReadStart(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		err = errext.Errorf("start the same command again with --run-dir "+r.Path, "nobody wrote down how the run %s was started", r.short())
	}
	return start, err
}

// Refused gives the error of a run that was started again the hint that fits it.
func (r Run) Refused(err error) error {
	if errors.Is(err, launcher.ErrOtherJob) {
		return errext.WithHint(err, "put it back as it was for this run, or start the job itself again for a new one")
	}
	return err
}

// short is what people can call the run.
func (r Run) short() string { return r.folder() + "/" + r.Name }
