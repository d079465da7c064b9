package show

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// largestStatus bounds what is read of a status.json, in bytes.
const largestStatus = 1 << 20

// A RunStatus is the latest status of a run.
type RunStatus struct {
	launcher.Status
	Dir     string   `json:"-"`
	Reason  string   `json:"-"` // why it ended; empty while it runs
	Trained string   `json:"-"` // the attempt that trained; empty elsewhere
	Next    []string `json:"-"` // the summary's hints; nil while it runs
	Gone    bool     `json:"-"` // its gpurun has ended without a verdict
	// Continue is the hint how to continue the run.
	Continue string `json:"-"`
}

// statusIn reads the status of a run.
func statusIn(run Entry) (RunStatus, error) {
	r := RunStatus{Dir: run.Path, Continue: run.ContinueHint()}
	s := lenient{Status: &r.Status}
	if _, err := system.ReadJSON(filepath.Join(run.Path, journal.StatusFile), largestStatus, &s); err != nil {
		return r, fmt.Errorf("read the status: %w", err)
	}
	r.Seconds = strategy.Seconds(max(s.Seconds, 0))
	if s.ETA != nil && *s.ETA >= 0 {
		r.ETA = (*strategy.Seconds)(s.ETA)
	}
	if r.Outcome == "" && (run.Locked || r.elsewhere()) {
		r.Paused = run.Paused
		return r, nil
	}
	if run.Locked { // it has ended since the run was read
		run = LookAtRun(run.Path)
	}
	r.Gone = r.Outcome == ""
	if run.End != nil {
		r.Outcome, r.Reason, r.Trained, r.Gone = run.End.Outcome, run.End.Reason, trained(run.End), false
	}
	r.Running, r.ETA = false, nil
	r.Next, _ = journal.ReadHints(run.Path)
	return r, nil
}

// trained is a sentence about the attempt of a run that trained; empty for another run.
func trained(v *launcher.Verdict) string {
	if v.Outcome != strategy.Trained || len(v.Attempts) == 0 {
		return ""
	}
	a := v.Attempts[len(v.Attempts)-1]
	words := []string{fmt.Sprintf("trained in attempt %d", a.N), a.Untaken.Lost(), strategy.InPlaceWords(a.InPlace)}
	return strings.Join(slices.DeleteFunc(words, func(part string) bool { return part == "" }), "; ")
}

// lenient reads a status whose durations may be out of range.
type lenient struct {
	*launcher.Status
	Seconds lenientSeconds  `json:"seconds"`
	ETA     *lenientSeconds `json:"eta_seconds"`
}

// A lenientSeconds is a duration, negative for a number out of range.
type lenientSeconds strategy.Seconds

func (s *lenientSeconds) UnmarshalJSON(b []byte) error {
	var number json.Number
	if err := json.Unmarshal(b, &number); err != nil {
		return err
	}
	if (*strategy.Seconds)(s).UnmarshalJSON(b) != nil {
		*s = -1
	}
	return nil
}

// Live reports whether the run has not ended.
func (r RunStatus) Live() bool { return r.Outcome == "" && !r.Gone }

// elsewhere reports whether the run has a gpurun on another host, whose lock may not be visible
// here, by the age of the status.
func (r RunStatus) elsewhere() bool {
	host, err := os.Hostname()
	return (err != nil || host != r.Host) && r.Age(time.Now()) < linePause
}

// FindStatus finds the runs that a word names, the newest first: a run's directory or name, or a
// folder with runs in it. Without a word they are those below the folder here.
func FindStatus(here, word string) ([]RunStatus, error) {
	found, err := ListRuns(cmp.Or(word, here))
	if err != nil || len(found) == 0 {
		one, err := FindRun(here, word) // by its name
		if err != nil {
			return nil, errext.WithCode(err, strategy.CodeUsage)
		}
		found = []Entry{one}
	}
	var all []RunStatus
	var failed error
	for _, f := range found {
		r, err := statusIn(f)
		if err != nil { // before the run began
			failed = err
			continue
		}
		all = append(all, r)
	}
	if len(all) == 0 && errors.Is(failed, fs.ErrNotExist) {
		failed = errext.Errorf("it begins just now; gpurun runs lists all runs", "%s has no status yet", found[0].Path)
	}
	if len(all) == 0 {
		return nil, errext.WithCode(failed, strategy.CodeUsage)
	}
	slices.SortStableFunc(all, func(a, b RunStatus) int { return b.Time.Compare(a.Time) })
	return all, nil
}

// DefaultRuns are the runs to show where none is named: those that run, else the newest.
func DefaultRuns(all []RunStatus) []RunStatus {
	running := slices.DeleteFunc(slices.Clone(all), func(r RunStatus) bool { return !r.Live() })
	if len(running) > 0 {
		return running
	}
	return all[:min(1, len(all))]
}

// Age is how old a run's figures are.
func (r RunStatus) Age(now time.Time) time.Duration { return now.Sub(r.Time) }
