package journal

import (
	"cmp"
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// A RunSearch finds the run directory of a run.
type RunSearch struct {
	// Named is the one that the user named, empty for none.
	Named string
	// ID is the user's name for the run in the folder of the job's runs; empty for none.
	ID string
	// Root is the folder of the job's runs.
	Root string
	// IfTrained applies where a run of the job has trained: SkipTrained, RunTrained, or empty.
	IfTrained string
	// Fresh begins a new run under the name of a failed one. A scheduler's restart resumes: nothing was corrected.
	Fresh bool
	// Scheduler is the scheduler's name for the job, and Restart counts its restarts. They find the run that was cut
	// off.
	Scheduler string
	Restart   int
	// Digest is the job's; empty: every run of the scheduler's job counts as this job's.
	Digest string
	// Files are the configuration files that the job's command names, as in Began.
	Files map[string]string
	// Refused is the reason why the job must not begin a new run; nil: it may.
	Refused error
	// Settled reports whether a run that was decided under the conditions of d would end the same today; may be nil.
	Settled func(d launcher.Decided) bool
}

// Find returns the path of the run directory, the first of: one that has trained, where that replaces a new run; the
// named one; the one that a scheduler's restart of the same job left behind; the newest, if it had no plan left and
// nothing has changed since; a new one, which is not made.
func (s RunSearch) Find() (string, error) {
	dir, err := s.find()
	if err == nil && s.Refused != nil && written(dir).IsZero() {
		return "", s.Refused
	}
	return dir, err
}

func (s RunSearch) find() (string, error) {
	if dir, err := s.ifTrained(); dir != "" || err != nil {
		return dir, err
	}
	if named := s.named(); named != "" {
		return filepath.Abs(named)
	}
	if s.Scheduler != "" && s.Restart > 0 {
		dir, err := s.left()
		if err != nil || dir != "" {
			return dir, err
		}
	}
	if dir := s.exhausted(); dir != "" {
		return filepath.Abs(dir)
	}
	tail := make([]byte, 2)
	if _, err := rand.Read(tail); err != nil {
		return "", fmt.Errorf("name the run: %w", err)
	}
	return filepath.Join(s.Root, time.Now().UTC().Format("20060102-150405-")+hex.EncodeToString(tail)), nil
}

// named is the run directory that the user named, empty for none.
func (s RunSearch) named() string {
	if s.ID != "" {
		return filepath.Join(s.Root, s.ID)
	}
	return s.Named
}

// Held reports whether a gpurun uses the run directory that the user named.
func (s RunSearch) Held() bool { return s.named() != "" && Locked(s.named()) }

// left is the run that an earlier start of the scheduler's job left behind, empty for none. A batch script may run
// the same command several times, in the same order after a restart: of several runs it is the oldest that this start
// of the job has not resumed yet.
func (s RunSearch) left() (string, error) {
	runs, err := Runs(s.Root)
	if err != nil {
		return "", launcher.RunDirError(s.Root, err)
	}
	for _, dir := range runs {
		events, err := Read(dir)
		if err != nil {
			continue
		}
		run := RunOf(events)
		if run.First.Scheduler == s.Scheduler && max(run.Began.Restart, claimed(dir)) < s.Restart &&
			(s.Digest == "" || run.First.Digest == s.Digest) {
			return dir, nil
		}
	}
	return "", nil
}

// Known reports whether some start of the scheduler's job has begun a run.
func (s RunSearch) Known() bool {
	runs, err := Runs(s.Root)
	if named := s.named(); named != "" {
		runs = []string{named}
	}
	return err != nil || slices.ContainsFunc(runs, func(dir string) bool {
		events, err := Read(dir)
		return err == nil && s.Scheduler != "" && RunOf(events).First.Scheduler == s.Scheduler
	})
}

// TrackerName is a name by which experiment trackers can identify a run. It is unique, and has letters, digits and
// hyphens only.
func TrackerName(run string) string {
	const longest = 40 // of the run's own name, in bytes
	plain := strings.Map(func(r rune) rune {
		if r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9' {
			return r
		}
		return '-'
	}, run)
	return strings.Trim(plain[:min(len(plain), longest)]+"-"+strings.ToLower(rand.Text()[:8]), "-")
}

// claimFile has the restart of the scheduler's job that found a run: a run that is done is not begun again, and must
// not be found a second time either.
const claimFile = "restart"

func (s RunSearch) claim(dir string) error {
	if s.Scheduler == "" || s.Restart == 0 {
		return nil
	}
	return system.WriteFile(filepath.Join(dir, claimFile), []byte(strconv.Itoa(s.Restart)+"\n"), system.PrivateMode)
}

func claimed(dir string) int {
	text, err := system.ReadFile(filepath.Join(dir, claimFile))
	if err != nil {
		return 0
	}
	n, _ := strconv.Atoi(strings.TrimSpace(string(text))) // a torn text counts as none
	return n
}

// A LockWait is the wait of OpenRun for a lock that an earlier start of the same scheduler's job holds: its node may
// not have noticed yet that it is over.
type LockWait struct {
	// Bound is the longest wait, Look the interval of tries, and Tell the interval of messages. Zero values are 240 s, 1 s
	// and a minute.
	Bound, Look, Report time.Duration
	// Note shows people a text; may be nil.
	Note func(text string)
}

// OpenRun is Open for a run, whose journal must be in order: an error has an exit code and a hint. The code is 2
// where the directory is in use, of another user, written by a newer gpurun or changed; 75 where an earlier start of
// the scheduler's job holds it for too long; 74 where the system refuses it.
func (s RunSearch) OpenRun(ctx context.Context, dir string, shown func(launcher.Event), p LockWait) (*Journal,
	[]launcher.Event, error) {
	j, events, err := Open(dir, shown)
	if errors.Is(err, ErrLocked) && (s.heldByEarlierStart(dir) || s.IfTrained == SkipTrained && s.trained(dir)) {
		j, events, err = s.await(ctx, dir, shown, p.withDefaults(), err)
	}
	if err == nil {
		if err = misplaced(dir, events); err == nil {
			err = s.claim(dir)
		}
		if err == nil {
			sweep(dir)
			sweepAround(s.Root)
			return j, events, nil
		}
		err = errors.Join(err, j.Close())
	}
	var unreadable *Unreadable
	var untrusted *system.Untrusted
	switch {
	case errext.Code(err, 0) != 0 || ctx.Err() != nil:
		return nil, nil, err
	case errors.Is(err, ErrLocked):
		err = errext.WithCode(errext.Errorf("wait for it, or name another --run-dir or --run-id",
			"the run directory %s is in use: %w", dir, err), strategy.CodeUsage)
	case errors.As(err, &untrusted):
		err = errext.WithCode(errext.WithHint(err,
			"other users who can write there could change what gpurun starts: chmod or chown it, or name another --run-dir or --run-id"), strategy.CodeUsage)
	case errors.Is(err, system.ErrNotRegular), errors.Is(err, errTooLarge):
		err = errext.WithCode(errext.WithHint(err, "name another --run-dir or --run-id, or none for a new run"),
			strategy.CodeUsage)
	case errors.As(err, &unreadable):
		err = errext.WithCode(errext.WithHint(err, unreadable.Hint()), strategy.CodeUsage)
	}
	return nil, nil, launcher.RunDirError(dir, err)
}

// misplaced is the first event of a journal that is out of order.
func misplaced(dir string, events []launcher.Event) error {
	var wrong *launcher.JournalFault
	if !errors.As(launcher.CheckOrder(events), &wrong) {
		return nil
	}
	return &Unreadable{Path: filepath.Join(dir, File), Line: wrong.Event + 1, Err: wrong.Err}
}

// heldByEarlierStart reports whether an earlier start of this scheduler's job holds a run directory.
func (s RunSearch) heldByEarlierStart(dir string) bool {
	if s.Scheduler == "" || s.Restart == 0 {
		return false
	}
	events, err := Read(dir)
	last := RunOf(events).Began
	return err == nil && last.Scheduler == s.Scheduler && last.Restart < s.Restart
}

func (p LockWait) withDefaults() LockWait {
	p.Bound, p.Look, p.Report = cmp.Or(p.Bound, 240*time.Second), cmp.Or(p.Look, time.Second), cmp.Or(p.Report,
		time.Minute)
	if p.Note == nil {
		p.Note = func(string) {}
	}
	return p
}

// await tries to open a run directory until it is free.
func (s RunSearch) await(ctx context.Context, dir string, shown func(launcher.Event), p LockWait,
	held error) (*Journal, []launcher.Event, error) {
	began := time.Now()
	look, report := time.NewTicker(p.Look), time.NewTicker(p.Report)
	defer look.Stop()
	defer report.Stop()
	say := func() {
		p.Note(fmt.Sprintf("an earlier start of this job still holds the run directory %s: %v; waiting for it, %s of at most %s",
			dir, held, time.Since(began).Round(time.Second), p.Bound))
	}
	say()
	for time.Since(began) < p.Bound {
		select {
		case <-ctx.Done():
			return nil, nil, ctx.Err()
		case <-report.C:
			say()
		case <-look.C:
			j, events, err := Open(dir, shown)
			if !errors.Is(err, ErrLocked) {
				return j, events, err
			}
			held = err
		}
	}
	return nil, nil, errext.WithCode(
		errext.Errorf("start the job again once that process is gone, or name another --run-dir or --run-id",
			"an earlier start of this job has held the run directory %s for %s: %w", dir, p.Bound, held), strategy.CodeRetry)
}
