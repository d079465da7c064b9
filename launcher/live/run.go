package live

import (
	"cmp"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/private"
	"github.com/gpurun/gpurun/launcher/runs"
	"github.com/gpurun/gpurun/strategy"
)

// largestStatus bounds what is read of a status.json, in bytes.
const largestStatus = 1 << 20

// A Run is where a run stood when it was last heard of.
type Run struct {
	launcher.Status
	Dir string `json:"-"`
	// Reason is how it ended, in the verdict's words; empty while it runs.
	Reason string `json:"-"`
	// Next is what the summary told people to do; nil while it runs.
	Next []string `json:"-"`
	// Gone says that its gpurun is gone, without a last word.
	Gone bool `json:"-"`
}

// Read reads where the run in a directory stands.
func Read(dir string) (Run, error) {
	r := Run{Dir: dir}
	s := lenient{Status: &r.Status}
	if _, err := private.ReadJSON(filepath.Join(dir, journal.StatusFile), largestStatus, &s); err != nil {
		return r, fmt.Errorf("read the status: %w", err)
	}
	r.Seconds = strategy.Seconds(max(s.Seconds, 0))
	if s.ETA != nil && *s.ETA >= 0 {
		r.ETA = (*strategy.Seconds)(s.ETA)
	}
	r.Gone = r.Outcome == "" && !r.alive()
	if r.Outcome != "" || r.Gone {
		if v, _, err := journal.ReadVerdict(dir); err == nil {
			r.Outcome, r.Reason, r.Gone = v.Outcome, v.Reason, false
		}
		r.Running, r.ETA = false, nil
		r.Next, _ = journal.ReadHints(dir)
	}
	return r, nil
}

// lenient reads a status whose durations may be such that no run has.
type lenient struct {
	*launcher.Status
	Seconds span  `json:"seconds"`
	ETA     *span `json:"eta_seconds"`
}

// A span is a duration, negative for a number that none holds.
type span strategy.Seconds

func (s *span) UnmarshalJSON(b []byte) error {
	var number json.Number
	if err := json.Unmarshal(b, &number); err != nil {
		return err
	}
	if (*strategy.Seconds)(s).UnmarshalJSON(b) != nil {
		*s = -1
	}
	return nil
}

// Live reports whether there is more to come.
func (r Run) Live() bool { return r.Outcome == "" && !r.Gone }

// alive reports whether the gpurun of a run is there, by its lock. That of another host may
// not be seen here: figures that are new come from somewhere.
func (r Run) alive() bool {
	if journal.Locked(r.Dir) {
		return true
	}
	host, err := os.Hostname()
	return (err != nil || host != r.Host) && r.Age(time.Now()) < linePause
}

// Find gives the runs that a word means, the newest first: a run's directory or name, or a
// folder with runs in it. Without a word they are those below the folder here.
func Find(here, word string) ([]Run, error) {
	found, err := runs.List(cmp.Or(word, here))
	if err != nil || len(found) == 0 {
		one, err := runs.Find(here, word) // by its name, or an error that says what to name
		if err != nil {
			return nil, errext.WithCode(err, strategy.CodeUsage)
		}
		found = []runs.Run{one}
	}
	var all []Run
	var failed error
	for _, f := range found {
		r, err := Read(f.Path)
		if err != nil { // of a gpurun that kept no status, or before the run began
			failed = err
			continue
		}
		all = append(all, r)
	}
	if len(all) == 0 && errors.Is(failed, fs.ErrNotExist) {
		failed = errext.Errorf("it begins just now, or was of an older gpurun; gpurun runs lists what is there", "%s does not say yet where it stands", found[0].Path)
	}
	if len(all) == 0 {
		return nil, errext.WithCode(failed, strategy.CodeUsage)
	}
	slices.SortStableFunc(all, func(a, b Run) int { return b.Time.Compare(a.Time) })
	return all, nil
}

// Asked are the runs that are meant where none is named: those that run, else the newest.
func Asked(all []Run) []Run {
	running := slices.DeleteFunc(slices.Clone(all), func(r Run) bool { return !r.Live() })
	if len(running) > 0 {
		return running
	}
	return all[:min(1, len(all))]
}

// Age is how old a run's figures are.
func (r Run) Age(now time.Time) time.Duration { return now.Sub(r.Time) }
