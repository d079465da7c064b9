package show

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/fsnotify/fsnotify"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// LogsDescription is the help of the verb logs.
const LogsDescription = `Prints a rank's stdout to stdout, and its stderr to stderr, unchanged. The default attempt is the newest, the default
rank the one that failed in it, else rank 0; a line on stderr names both. With --stdout or --stderr only that stream is
shown, and nothing is added. With -f new output follows, also of later attempts, until the run ends. In a log that was
longer than launch.log_limit a line shows where it was cut, and how much.
A RUN is named as for gpurun resume. With --json: {"run", "attempt", "rank", "stdout", "stderr"}, the paths of the files.`

// AnyRank stands for an attempt or a rank that is not named.
const AnyRank = -1

// Logs are those of one rank in one attempt of a run.
type Logs struct {
	Run     string `json:"run"` // the run directory
	Attempt int    `json:"attempt"`
	Rank    int    `json:"rank"`
	Stdout  string `json:"stdout"`
	Stderr  string `json:"stderr"`
}

// Logs finds the logs of a rank in an attempt; each is a number or Any. An error has a hint.
func (r Entry) Logs(attempt, rank int) (Logs, error) {
	attempts := slices.Sorted(maps.Keys(ranks.NumberedFolders(r.Path, "attempt-")))
	if len(attempts) == 0 {
		return Logs{}, errext.Errorf("gpurun runs shows its state", "the run %s has started nothing yet", r.short())
	}
	if attempt == AnyRank {
		attempt = attempts[len(attempts)-1]
	} else if !slices.Contains(attempts, attempt) {
		return Logs{}, errext.Errorf("it has "+spans(attempts), "the run %s has no attempt %d", r.short(), attempt)
	}
	at := filepath.Join(r.Path, "attempt-"+strconv.Itoa(attempt))
	folders := ranks.LogFolders(at)
	have := slices.Sorted(maps.Keys(folders))
	if rank == AnyRank {
		rank = r.failedRank(attempt)
		if len(have) > 0 && !slices.Contains(have, rank) {
			rank = have[0]
		}
	} else if len(have) > 0 && !slices.Contains(have, rank) {
		return Logs{}, errext.Errorf("it has "+spans(have)+"; nodes that do not share the run directory keep their ranks' logs on their own disks", "attempt %d of the run %s has no rank %d", attempt, r.short(), rank)
	}
	if len(have) == 0 && !r.Locked {
		return Logs{}, errext.Errorf("--attempt names another one",
			"attempt %d of the run %s has no logs: no rank was started", attempt, r.short())
	}
	dir := ranks.LogFolder(at, rank)
	return Logs{r.Path, attempt, rank, filepath.Join(dir, "stdout.log"), filepath.Join(dir, "stderr.log")}, nil
}

// Title names the attempt, the rank and the folder.
func (l Logs) Title() string {
	return fmt.Sprintf("attempt %d, rank %d: %s", l.Attempt, l.Rank, filepath.Dir(l.Stdout))
}

// failedRank returns the rank on which an attempt's failure began, 0 if not known.
func (r Entry) failedRank(attempt int) int {
	events, _, _ := journal.Outline(r.Path) // without the journal, none is known
	for _, a := range journal.RunOf(events).Attempts {
		if a.N == attempt && a.Diagnosis.Fatal && a.Diagnosis.Rank > 0 {
			return a.Diagnosis.Rank
		}
	}
	return 0
}

// spans lists numbers that are in order: "0 to 7", "0, 2 to 4".
func spans(numbers []int) string {
	var words []string
	for i := 0; i < len(numbers); {
		end := i
		for end+1 < len(numbers) && numbers[end+1] == numbers[end]+1 {
			end++
		}
		word := strconv.Itoa(numbers[i])
		if end > i {
			word += " to " + strconv.Itoa(numbers[end])
		}
		words, i = append(words, word), end+1
	}
	return strings.Join(words, ", ")
}

// A Sink receives a rank's output by stream; nil omits a stream.
type Sink struct{ Stdout, Stderr io.Writer }

// A tailing reads a rank's logs while they grow.
type tailing struct {
	logs    Logs
	readers [2]*ranks.LogReader
}

// copy writes what was added since the last call.
func (t *tailing) copy(to Sink) error {
	for i, w := range []io.Writer{to.Stdout, to.Stderr} {
		path := []string{t.logs.Stdout, t.logs.Stderr}[i]
		if w == nil || !ranks.IsLogFolder(filepath.Dir(path)) {
			continue
		}
		if t.readers[i] == nil {
			r, err := ranks.OpenLog(path)
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			if err != nil {
				return fmt.Errorf("read a rank's log: %w", err)
			}
			t.readers[i] = r
		}
		if _, err := io.Copy(w, t.readers[i]); err != nil {
			return fmt.Errorf("show a rank's log: %w", err)
		}
	}
	return nil
}

func (t *tailing) close() {
	for _, r := range t.readers {
		if r != nil {
			_ = r.Close() // it was only read
		}
	}
}

// lookAgain is how often a follower reads without a notification: a killed gpurun writes nothing, and some
// network file systems send no notifications.
const lookAgain = time.Second

// A LogFollower shows a rank's logs while they are written.
type LogFollower struct {
	Run Entry
	// Attempt and Rank are numbers, or Any: then it follows later attempts, too.
	Attempt, Rank int
	To            Sink
	Begins        func(Logs) // called before the logs of an attempt; may be nil
}

// Follow shows the logs until the run ends, or the attempt where one was named. The error for
// logs that do not exist has a hint.
func (f LogFollower) Follow() error {
	watcher, err := fsnotify.NewWatcher()
	if err != nil {
		return fmt.Errorf("follow the logs: %w", err)
	}
	defer watcher.Close()
	look := time.NewTicker(lookAgain)
	defer look.Stop()
	var open tailing
	defer func() { open.close() }()
	for {
		over, err := f.look(&open)
		if over || err != nil {
			return err
		}
		f.watch(watcher, open.logs)
		for looking := false; !looking; {
			select {
			case e := <-watcher.Events:
				if looking = filepath.Dir(e.Name) != filepath.Dir(open.logs.Stdout); looking {
					break
				}
				if err := open.copy(f.To); err != nil {
					return err
				}
			case <-watcher.Errors: // too many events at once
				looking = true
			case <-look.C:
				looking = true
			}
		}
	}
}

// look shows what was written, and moves to the next attempt. It reads the run's state first,
// so that all output is shown before the run is over.
func (f LogFollower) look(open *tailing) (over bool, err error) {
	run, shown := LookAtRun(f.Run.Path), open.logs.Run != ""
	logs, missing := run.Logs(f.Attempt, f.Rank)
	if shown {
		if err := open.copy(f.To); err != nil {
			return false, err
		}
	}
	switch waits := run.Locked && f.Attempt == AnyRank && !shown; {
	case missing != nil && !waits:
		return false, missing
	case missing == nil && (!shown || logs.Attempt != open.logs.Attempt):
		open.close()
		*open = tailing{logs: logs}
		if f.Begins != nil {
			f.Begins(logs)
		}
		err = open.copy(f.To)
	}
	return !run.Locked || f.Attempt != AnyRank && run.Attempts > f.Attempt+1, err
}

// watch watches for changes. A folder that cannot be watched, or does not exist yet, is read
// again soon anyway.
func (f LogFollower) watch(watcher *fsnotify.Watcher, logs Logs) {
	_ = watcher.Add(f.Run.Path)
	if logs.Run != "" {
		rank := filepath.Dir(logs.Stdout)
		_ = watcher.Add(filepath.Dir(rank))
		_ = watcher.Add(rank)
	}
}

// Show shows the logs as they are now.
func (f LogFollower) Show() error {
	var open tailing
	defer open.close()
	_, err := f.look(&open)
	return err
}
