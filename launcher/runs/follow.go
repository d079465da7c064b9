package runs

import (
	"fmt"
	"path/filepath"
	"time"

	"github.com/fsnotify/fsnotify"
)

// lookAgain is how soon a follower looks by itself: a gpurun that is killed writes
// nothing, and some network file systems tell of nothing.
const lookAgain = time.Second

// A Follower shows a rank's logs while they are written.
type Follower struct {
	Run Run
	// Attempt and Rank are numbers, or Any: then it goes on with each attempt that follows.
	Attempt, Rank int
	To            Sink
	// Begins is called before the logs of an attempt are shown; nil: nobody wants to know.
	Begins func(Logs)
}

// Follow shows what is there and what comes, until the run ends, or the attempt where one
// was named. An error has a hint where the run has no such logs.
func (f Follower) Follow() error {
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

// look shows what there is, and goes on with the next attempt where there is one. How the
// run stands is asked first: what was written until then is shown before it is over.
func (f Follower) look(open *tailing) (over bool, err error) {
	run, shown := Look(f.Run.Path), open.logs.Run != ""
	logs, missing := run.Logs(f.Attempt, f.Rank)
	if shown {
		if err := open.copy(f.To); err != nil {
			return false, err
		}
	}
	switch waits := run.Locked && f.Attempt == Any && !shown; {
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
	return !run.Locked || f.Attempt != Any && run.Attempts > f.Attempt+1, err
}

// watch has the watcher tell of what is written. What cannot be watched, or is not there
// yet, is looked at again soon.
func (f Follower) watch(watcher *fsnotify.Watcher, logs Logs) {
	_ = watcher.Add(f.Run.Path)
	if logs.Run != "" {
		rank := filepath.Dir(logs.Stdout)
		_ = watcher.Add(filepath.Dir(rank))
		_ = watcher.Add(rank)
	}
}

// Show shows what is there now.
func (f Follower) Show() error {
	var open tailing
	defer open.close()
	_, err := f.look(&open)
	return err
}
