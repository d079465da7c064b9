package node

import (
	"context"
	"errors"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestEffectOfANotice(t *testing.T) {
	now := time.Unix(1_800_000_000, 0)
	at := func(end time.Time, again bool) func(context.Context) (time.Time, bool) {
		return func(context.Context) (time.Time, bool) { return end, again }
	}
	for name, test := range map[string]struct {
		opts  NoticeOptions
		sig   unix.Signal
		stop  bool
		lasts time.Duration
	}{
		"a plain host":                    {NoticeOptions{Mode: NoticeAuto}, unix.SIGUSR1, false, 0},
		"a known end":                     {NoticeOptions{Mode: NoticeAuto, Scheduler: at(now.Add(5*time.Minute), false)}, unix.SIGUSR1, true, 4 * time.Minute},
		"a requeue":                       {NoticeOptions{Mode: NoticeAuto, Scheduler: at(time.Time{}, true), Grace: 90 * time.Second}, unix.SIGUSR1, true, 90 * time.Second},
		"neither":                         {NoticeOptions{Mode: NoticeAuto, Scheduler: at(time.Time{}, false)}, unix.SIGUSR1, false, 0},
		"a deadline":                      {NoticeOptions{Mode: NoticeAuto, Deadline: now.Add(3 * time.Minute)}, unix.SIGUSR1, true, 2 * time.Minute},
		"a deadline before the end":       {NoticeOptions{Mode: NoticeAuto, Deadline: now.Add(3 * time.Minute), Scheduler: at(now.Add(time.Hour), true)}, unix.SIGUSR1, true, 2 * time.Minute},
		"an end before the deadline":      {NoticeOptions{Mode: NoticeAuto, Deadline: now.Add(time.Hour), Scheduler: at(now.Add(3*time.Minute), true)}, unix.SIGUSR1, true, 2 * time.Minute},
		"go on, whatever ends":            {NoticeOptions{Mode: NoticeGoOn, Scheduler: at(now.Add(time.Minute), true)}, unix.SIGUSR1, false, 0},
		"stop, whatever is known":         {NoticeOptions{Mode: NoticeStop, Grace: time.Minute}, unix.SIGUSR1, true, time.Minute},
		"SIGUSR2":                         {NoticeOptions{Mode: NoticeAuto, Scheduler: at(now.Add(5*time.Minute), true)}, unix.SIGUSR2, false, 0},
		"SIGUSR2, as is told":             {NoticeOptions{Mode: NoticeStop, Scheduler: at(now.Add(5*time.Minute), true)}, unix.SIGUSR2, true, 4 * time.Minute},
		"an end that is near":             {NoticeOptions{Mode: NoticeAuto, Scheduler: at(now.Add(50*time.Second), false)}, unix.SIGUSR1, true, 25 * time.Second},
		"a preemption, its end not known": {NoticeOptions{Mode: NoticeAuto, Scheduler: at(time.Time{}, false), Grace: time.Minute}, unix.SIGTERM, true, time.Minute},
		"an end that is over":             {NoticeOptions{Mode: NoticeAuto, Scheduler: at(now.Add(-time.Second), false)}, unix.SIGUSR1, true, 0},
	} {
		stop, end := test.opts.meaning(t.Context(), test.sig)
		if stop != test.stop {
			t.Errorf("%s: stop %v", name, stop)
		}
		if lasts := test.opts.until(now, end).Sub(now); stop && lasts != test.lasts {
			t.Errorf("%s: for %s, want %s", name, lasts, test.lasts)
		}
	}
}

// The run stops as soon as a checkpoint is complete that was written after the notice,
// at the latest when the time is up, and at once where no ranks run.
func TestANoticeStopsTheRun(t *testing.T) {
	for name, test := range map[string]struct {
		idle    bool
		written time.Duration // when the checkpoint is, 0 for never
		quiet   time.Duration // and until when it grows
		after   time.Duration
	}{
		"a checkpoint":            {written: 20 * time.Second, after: 22 * time.Second},
		"one that is still grows": {written: 20 * time.Second, quiet: 10 * time.Second, after: 32 * time.Second},
		"none":                    {after: 4 * time.Minute},
		"no ranks run":            {idle: true, after: 0},
	} {
		synctest.Test(t, func(t *testing.T) {
			began := time.Now()
			ctx, cancel := context.WithCancelCause(t.Context())
			s := &Signals{cancel: cancel, over: make(chan struct{}), meant: make(chan struct{}), starting: !test.idle}
			s.OnNotice(NoticeOptions{
				Mode:      NoticeAuto,
				Scheduler: func(context.Context) (time.Time, bool) { return began.Add(5 * time.Minute), true },
				Checkpoint: func(since time.Time) string {
					done := began.Add(test.written)
					last := min(time.Since(done), test.quiet)
					if test.written == 0 || time.Now().Before(done) || done.Add(last).Before(since) {
						return ""
					}
					return "ckpt-1"
				},
			})
			s.handle(unix.SIGUSR1, false)
			<-ctx.Done()
			var stop *launcher.Signal
			if !errors.As(context.Cause(ctx), &stop) || stop.Notice != "SIGUSR1" {
				t.Errorf("%s: %v", name, context.Cause(ctx))
			}
			if took := time.Since(began); took < test.after || took > test.after+2*time.Second {
				t.Errorf("%s: stopped after %s, want %s", name, took, test.after)
			}
			if n := s.notice(); n == nil || !n.Stop || n.Number != int(unix.SIGUSR1) {
				t.Errorf("%s: notice %+v", name, n)
			}
			s.Close()
		})
	}
}

// SIGTERM after such a notice is the end that was announced.
func TestTheEndThatWasAnnounced(t *testing.T) {
	for mode, want := range map[string]string{NoticeStop: "SIGUSR1", NoticeGoOn: ""} {
		ctx, cancel := context.WithCancelCause(t.Context())
		s := &Signals{cancel: cancel, over: make(chan struct{}), meant: make(chan struct{}), starting: true}
		s.OnNotice(NoticeOptions{Mode: mode, Grace: time.Hour})
		s.handle(unix.SIGUSR1, false)
		if n := s.notice(); n.Stop != (mode == NoticeStop) {
			t.Errorf("%s: %+v", mode, n)
		}
		s.handle(unix.SIGTERM, false)
		var stop *launcher.Signal
		if !errors.As(context.Cause(ctx), &stop) || stop.Notice != want {
			t.Errorf("%s: %+v", mode, stop)
		}
		s.Close()
	}
}

func TestDeadlineMustBeInTheFuture(t *testing.T) {
	o := NoticeOptions{Grace: time.Minute}
	now := time.Date(2026, 1, 31, 12, 0, 0, 0, time.UTC)
	for text, want := range map[string]time.Time{
		"": {}, "4h": now.Add(4 * time.Hour), "2026-01-31T18:00:00+01:00": now.Add(5 * time.Hour), "1769864400": now.Add(time.Hour),
		"13:30": now.Add(90 * time.Minute), "12:00": now.Add(24 * time.Hour), "7:30": now.Add(19*time.Hour + 30*time.Minute), "2m1s": now.Add(121 * time.Second),
		"2026-01-31T12:00:30Z": now.Add(30 * time.Second), // who starts it again until then is to go on doing so
	} {
		if got, err := o.ReadDeadline(text, now); err != nil || !got.Equal(want) {
			t.Errorf("%q: %s, %v, want %s", text, got, err, want)
		}
	}
	for _, text := range []string{"tomorrow", "-1h", "17", "2025-01-31T18:00:00Z", "0s", "25:00", "2m", "45s", "1769864400000", "9000h"} {
		if _, err := o.ReadDeadline(text, now); errext.Code(err, 0) != strategy.CodeUsage || !strings.Contains(err.Error(), "--deadline") {
			t.Errorf("%q: %v", text, err)
		}
	}
	if _, err := o.ReadDeadline("90s", now); !strings.Contains(errext.Hint(err), "write more than 2m0s") {
		t.Errorf("%v, %s", err, errext.Hint(err))
	}
	if at, err := (NoticeOptions{Mode: NoticeGoOn}).ReadDeadline("5s", now); err != nil || at.IsZero() {
		t.Errorf("where no notice is given: %s, %v", at, err)
	}
	if _, err := o.ReadDeadline("1769864400000", now); err == nil || !strings.Contains(err.Error(), "is in the year 58054") {
		t.Errorf("milliseconds: %v", err)
	}
}

// TestDeadlineStaysAsFarAwayWhenTheClockIsSet: "4h" is four hours, whatever the wall clock shows meanwhile.
func TestDeadlineStaysAsFarAwayWhenTheClockIsSet(t *testing.T) {
	now := time.Now()
	for _, text := range []string{"4h", now.Add(4 * time.Hour).Format(time.RFC3339Nano)} {
		deadline, err := NoticeOptions{}.ReadDeadline(text, now)
		testenv.Check(t, err)
		for _, jump := range []time.Duration{0, 24 * time.Hour, -time.Hour} {
			later := testenv.SetClock(t, now.Add(time.Hour), jump)
			if left := byClock(deadline, later).Sub(later.Round(0)); left != 3*time.Hour {
				t.Errorf("--deadline %s: %s are left an hour later, on a clock put forward by %s", text, left, jump)
			}
		}
	}
	if end := byClock(time.Time{}, now); !end.IsZero() {
		t.Errorf("no deadline is %s", end)
	}
}

// What comes while ranks are being started waits for them: a pause must not stop
// gpurun beside ranks that run, and a notice must not be lost.
func TestSignalsKeepWhatComesWhileRanksStart(t *testing.T) {
	s := &Signals{}
	s.begin(30 * time.Second)
	s.pass(unix.SIGUSR1)
	s.pause() // would stop this test for good
	if !s.paused || len(s.late) != 1 || s.late[0] != unix.SIGUSR1 {
		t.Errorf("paused %v, late %v", s.paused, s.late)
	}
	if s.grace != 30*time.Second {
		t.Errorf("grace %s", s.grace)
	}
	s.resume()
	s.leave()
	if s.starting || s.grace != 0 || s.late != nil {
		t.Errorf("%+v", s)
	}
}
