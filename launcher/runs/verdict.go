package runs

import (
	"fmt"
	"io"
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
	return "gpurun resume " + r.Path + " goes on with it"
}
