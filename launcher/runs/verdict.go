package runs

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/strategy"
)

// VerdictDescription is the help of the verb verdict.
const VerdictDescription = `Prints how a run ended, as the last lines of its gpurun did, and ends with its exit code: for scripts that a scheduler has
killed together with gpurun, or that srun tells the highest code of all tasks. A run that still runs, or whose gpurun is
gone without a verdict, ends it with 75; no run, or one that cannot be read, with 2. A RUN is named as for gpurun resume.
With --json: the document of verdict.json.`

// TellVerdict shows how the run of a name ended, or stands, and gives what it has shown. An
// error has a hint.
func TellVerdict(w io.Writer, name string, asJSON bool) (launcher.Verdict, error) {
	r, err := Find(".", name)
	if err != nil {
		return launcher.Verdict{}, err
	}
	v, err := r.Verdict()
	switch {
	case err != nil:
	case asJSON:
		err = console.WriteJSON(w, nil, v)
	default:
		err = r.tell(w, v)
	}
	return v, err
}

// Verdict is how the run ended, or, of one that has not, why there is no verdict yet, with
// exit code 75. An error says that it cannot be read.
func (r Run) Verdict() (launcher.Verdict, error) {
	open := launcher.Verdict{Outcome: strategy.Retry, Code: strategy.CodeRetry, Run: r.Name, Attempts: []launcher.AttemptSummary{}}
	switch r.Outcome {
	case Broken:
		return open, errext.Errorf("gpurun diagnose reads the ranks' output without the journal: name an attempt's folder", "the run %s cannot be read: %s", r.short(), r.Broken)
	case Running:
		open.Reason = fmt.Sprintf("the run still runs (host %s, pid %d)", r.Host, r.PID)
		return open, nil
	case CutOff:
		open.Reason = "gpurun ended without a verdict: it was killed, or its node was lost"
		if r.Attempts > 0 {
			open.Reason = fmt.Sprintf("gpurun ended without a verdict, in attempt %d: it was killed, or its node was lost", r.Attempts-1)
		}
		return open, nil
	}
	v, _, err := journal.ReadVerdict(r.Path)
	if err == nil && Outcome(v.Outcome) == r.Outcome && v.Code == r.Code {
		return v, nil
	}
	events, err := journal.Read(r.Path) // gpurun was killed before it could write the file
	if err != nil {
		return open, err
	}
	s, _ := launcher.Resume(nil, r.Name, events)
	s.Verdict.Outcome, s.Verdict.Code, s.Verdict.Reason = strategy.Outcome(r.Outcome), r.Code, r.Reason
	return s.Verdict, nil
}

// tell shows people how the run ended, or stands.
func (r Run) tell(w io.Writer, v launcher.Verdict) error {
	if r.Outcome == Running || r.Outcome == CutOff {
		page := console.NewPage(w, nil)
		page.Printf("gpurun: %s\n", v.Reason)
		page.Printf("gpurun: hint: %s\n", r.next())
		return nil
	}
	events, err := journal.Read(r.Path)
	if err != nil {
		return err
	}
	report := filepath.Join(r.Path, "report.html")
	if _, err := os.Lstat(report); err != nil {
		report = ""
	}
	console.Verdict(w, r.Path, runstate.Of(events), v, report)
	return nil
}

// next is what there is to do with a run that has no verdict.
func (r Run) next() string {
	if r.Outcome == Running {
		return "gpurun status " + r.Path + " says where it stands"
	}
	return "gpurun resume " + r.Path + " continues the run"
}

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
