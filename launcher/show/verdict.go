package show

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// VerdictDescription is the help of the verb verdict.
const VerdictDescription = `Prints the summary of a run again, and exits with its exit code: for scripts that a scheduler has killed together with
gpurun, or that get the highest code of all tasks from srun. The exit code is 75 for a run that still runs, or whose
gpurun was killed without a verdict, and 2 for no run, or one that cannot be read. A RUN is named as for gpurun resume.
With --json: the document of verdict.json.`

// ShowVerdict prints the verdict of a run, or its state, and returns it. An error has a hint.
func ShowVerdict(w io.Writer, name string, asJSON bool) (launcher.Verdict, error) {
	r, err := FindRun(".", name)
	if err != nil {
		return launcher.Verdict{}, err
	}
	v, err := r.Verdict()
	switch {
	case err != nil:
	case asJSON:
		err = WriteJSON(w, nil, v)
	default:
		err = r.show(w, v)
	}
	return v, err
}

// Verdict is the verdict, or, of a run without one, the reason for that with exit code 75. An
// error means that the run cannot be read.
func (r Entry) Verdict() (launcher.Verdict, error) {
	open := launcher.Verdict{Outcome: strategy.Retry, Code: strategy.CodeRetry, Run: r.Name,
		Attempts: []launcher.AttemptSummary{}}
	switch r.Outcome {
	case Broken:
		return open, errext.Errorf("gpurun diagnose reads the ranks' output without the journal: name an attempt's folder",
			"the run %s cannot be read: %s", r.short(), r.Broken)
	case Running:
		open.Reason = fmt.Sprintf("the run still runs (host %s, pid %d)", r.Host, r.PID)
		return open, nil
	case CutOff:
		open.Reason = "gpurun ended without a verdict: it was killed, or its node was lost"
		if r.Attempts > 0 {
			open.Reason = fmt.Sprintf("gpurun ended without a verdict, in attempt %d: it was killed, or its node was lost",
				r.Attempts-1)
		}
		return open, nil
	}
	v, _, err := journal.ReadVerdict(r.Path)
	if err == nil && RunState(v.Outcome) == r.Outcome && v.Code == r.Code {
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

// show prints the verdict for people.
func (r Entry) show(w io.Writer, v launcher.Verdict) error {
	if r.Outcome == Running || r.Outcome == CutOff {
		page := NewPage(w, nil)
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
	WriteVerdict(w, r.Path, journal.RunOf(events), v, report)
	return nil
}

// ContinueHint names the command that continues the run.
func (r Entry) ContinueHint() string { return launcher.ContinueHint(r.Scheduler, r.Path) }

// next is what to do with a run that has no verdict.
func (r Entry) next() string {
	if r.Outcome == Running {
		return "gpurun status " + commandline.PastePath(r.Path) + " shows its progress"
	}
	return r.ContinueHint()
}

// ResumeDescription is the help of the verb resume.
const ResumeDescription = `Starts a run again where it stopped, with its original command and directory: it continues after the plans that ran out
of memory, from its newest checkpoint. A RUN is a run directory, job/run, a run's name or the beginning of one, or a job's
name, which means its newest run; without one it is the newest below the working directory.
A run that is done, that still runs, or whose train.toml has changed since is refused. With --fresh the command is
started again from the beginning, as a new run; the other options then replace those of the command, and arguments after
-- are added to it.`

// policyOptions are the options that replace those of a command that is started again.
var policyOptions = []string{"mode", "numerics", "never", "max-attempts", "device-memory"}

// StartOf is how to start the run again that the first of some arguments names, with fresh its command in a new run
// with the given options and the other arguments. An error says why that is not possible, with a hint.
func StartOf(
	args []string, fresh bool, given func(option string) string,
) (r Entry, start journal.CommandLine, err error) {
	name, more := "", args
	if len(args) > 0 {
		name, more = args[0], args[1:]
	}
	if len(more) > 0 && (!fresh || !strings.HasPrefix(more[0], "-") && !strings.Contains(more[0], "=")) {
		return r, start, errext.Errorf("gpurun help resume shows its usage", "unexpected argument %q for gpurun resume",
			more[0])
	}
	if r, err = FindRun(".", name); err != nil {
		return r, start, err
	}
	start, err = r.start(fresh, given)
	start.Args = append(start.Args, more...)
	return r, start, err
}

func (r Entry) start(fresh bool, given func(option string) string) (journal.CommandLine, error) {
	options := slices.DeleteFunc(slices.Clone(policyOptions), func(name string) bool { return given(name) == "" })
	switch {
	case len(options) > 0 && !fresh:
		return journal.CommandLine{}, errext.Errorf("add --fresh to start the job again",
			"--%s goes with --fresh: a run keeps its policy", options[0])
	case r.Locked:
		return journal.CommandLine{}, errext.Errorf("gpurun logs -f "+commandline.PastePath(r.Path)+" follows its output",
			"the run %s still runs (host %s, pid %d)", r.short(), r.Host, r.PID)
	case r.Outcome.Done() && !fresh:
		return journal.CommandLine{},
			errext.Errorf("gpurun resume --fresh "+commandline.PastePath(r.Path)+" starts its command again, in a new run",
				"the run %s is done: %s", r.short(), r.Outcome)
	case r.Broken != "":
		return journal.CommandLine{}, errext.Errorf("start the job itself again, for a new run",
			"the run %s cannot be continued: %s", r.short(), r.Broken)
	}
	start, err := journal.ReadStart(r.Path)
	if errors.Is(err, fs.ErrNotExist) {
		err = errext.Errorf("start the same command again with --run-dir "+commandline.PastePath(r.Path),
			"the command of the run %s was not recorded", r.short())
	}
	for _, name := range options {
		start.Args = commandline.WithOption(start.Args, name, given(name))
	}
	return start, err
}

// Refused adds the hint for a resumed run to its error.
func (r Entry) Refused(err error) error {
	if errors.Is(err, launcher.ErrOtherJob) {
		return errext.WithHint(err, "restore it for this run, or start the job itself again for a new one")
	}
	return err
}

// short is the run's name with its job.
func (r Entry) short() string { return r.folder() + "/" + r.Name }
