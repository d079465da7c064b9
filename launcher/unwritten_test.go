package launcher

import (
	"context"
	"encoding/json"
	"errors"
	"slices"
	"strings"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// filling is a store whose disk is full after some writes.
type filling struct {
	*stage
	room int
}

func (f *filling) Append(e Event) error {
	if f.room--; f.room < 0 {
		return syscall.ENOSPC
	}
	return f.stage.Append(e)
}

func (f *filling) Finish(v Verdict) error { return f.Append(Finished{Verdict: v}) }

// A disk that fills up ends the run with 74, and the error says how the job ended. Decisions stay: the next
// start does not repeat an attempt that has ended.
func TestADiskThatFillsUp(t *testing.T) {
	// started, ended, decided; started, ended, decided; finished
	for room, want := range []struct {
		said    string
		next    int // number of attempts of the next start
		trained bool
	}{
		{"", 2, false}, // nothing was started
		{"attempt 0: CUDA out of memory in backward on rank 0; no further attempt is started; this could not be recorded: no space left", 2, false},
		{"attempt 0: CUDA out of memory in backward on rank 0; no further attempt is started", 1, false},
		{"attempt 1 could not be started", 1, false},
		{"attempt 1: trained; this could not be recorded: no space left", 1, true}, // a later start cannot know it
		{"attempt 1: trained; this could not be recorded: no space left", 0, true},
		{"attempt 1: trained; this could not be recorded: no space left", 0, true},
		{"attempt 1: trained; this could not be recorded: no space left", 0, true},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, scripts: outOfMemoryOnce()}
			l := newLauncher(s)
			l.Store = &filling{s, room}
			_, err := l.Run(t.Context(), first())
			if !errors.Is(err, syscall.ENOSPC) || !strings.Contains(err.Error(), want.said) {
				t.Errorf("room for %d: %v", room, err)
			}
			if code := errext.Code(err, 74); room > 0 && code != strategy.CodeRunDir {
				t.Errorf("room for %d: code %d", room, code)
			}
			if says := strings.Contains(errext.Hint(err), "has trained"); says != want.trained {
				t.Errorf("room for %d: hint %q", room, errext.Hint(err))
			}
			if room == 0 {
				return
			}
			again := &stage{t: t, scripts: outOfMemoryOnce()}
			state, done := Resume(plan0, "r", s.events)
			if done != (room == 7) {
				t.Errorf("room for %d: done %v", room, done)
			}
			v := state.Verdict
			if done {
				err = Finish(again, v)
			} else {
				again.scripts[1] = script{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}}
				if room > 1 {
					again.scripts[1] = again.scripts[2]
				}
				v, err = newLauncher(again).Run(t.Context(), state)
			}
			if err != nil || v.Outcome != strategy.Trained || len(again.applied) != want.next {
				t.Errorf("room for %d: %d attempts, %s, %v", room, len(again.applied), v.Outcome, err)
			}
		})
	}
}

// If the disk is full for a notice, only the notice is lost, if there is space again for later events.
func TestLostNoticeDoesNotEndTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{
			{acts: []act{told(time.Minute, 0, cause.CUDAOOM, "probe")}},
			{acts: []act{exit(time.Hour, 0, 0), exit(time.Hour, 1, 0)}},
		}}
		l := newLauncher(s)
		l.Store = deafToNotices{s}
		if v, err := l.Run(t.Context(), first()); err != nil || v.Outcome != strategy.Trained {
			t.Errorf("%+v, %v", v, err)
		}
	})
}

type deafToNotices struct{ *stage }

func (d deafToNotices) Append(e Event) error {
	if _, notice := e.(Noticed); notice {
		return syscall.ENOSPC
	}
	return d.stage.Append(e)
}

// The decision sets the wait before a relaunch. A signal or a notice ends it early.
func TestTheWaitBeforeARelaunch(t *testing.T) {
	lost := script{acts: []act{raised(time.Minute, 0, cause.NCCLError), exit(time.Minute, 0, 1), exit(time.Minute, 1, 1)}}
	trained := script{acts: []act{exit(time.Minute, 0, 0), exit(time.Minute, 1, 0)}}
	for name, test := range map[string]struct {
		signal, notice time.Duration // after the third attempt's end
		outcome        strategy.Outcome
		took           time.Duration
	}{
		"nothing":  {0, 0, strategy.Trained, 40*time.Second + time.Minute},
		"a signal": {20 * time.Second, 0, strategy.Stopped, 30 * time.Second},
		"a notice": {0, 20 * time.Second, strategy.Retry, 30*time.Second + noticeInterval},
	} {
		synctest.Test(t, func(t *testing.T) {
			s := &stage{t: t, scripts: []script{lost, lost, lost, trained}}
			l := newLauncher(s)
			ctx, cancel := context.WithCancelCause(t.Context())
			defer cancel(nil)
			if test.signal > 0 {
				time.AfterFunc(3*time.Minute+10*time.Second+test.signal, func() { cancel(&Signal{Number: syscall.SIGTERM}) })
			}
			if test.notice > 0 {
				time.AfterFunc(3*time.Minute+10*time.Second+test.notice, func() { s.announce("SIGUSR1") })
			}
			v, err := l.Run(ctx, first())
			if took := time.Since(s.begin) - 3*time.Minute; err != nil || v.Outcome != test.outcome || took > test.took || took < test.took-noticeInterval {
				t.Errorf("%s: %s after %s, want %s; %v", name, v.Outcome, took, test.took, err)
			}
		})
	}
}

// A restart uses the decided checkpoint, and checks again that it exists.
func TestRestart(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: outOfMemoryOnce(), inv: strategy.Inventory{Checkpoint: "ckpt-5"}}
		l := newLauncher(s)
		if _, err := l.Run(t.Context(), first()); err != nil {
			t.Fatal(err)
		}
		for name, test := range map[string]struct {
			events int
			found  strategy.Checkpoints
			bound  time.Duration
			from   string
			code   int
			notice bool
		}{
			"decided":               {3, strategy.Checkpoints{Decided: true, Newest: "ckpt-9"}, time.Hour, "ckpt-5", 0, false},
			"decided, and lost":     {3, strategy.Checkpoints{}, time.Hour, "", 0, true},
			"too much would be":     {3, strategy.Checkpoints{}, time.Second, "ckpt-5", strategy.CodeExhausted, false},
			"cut off":               {4, strategy.Checkpoints{Decided: true, Newest: "ckpt-9"}, time.Hour, "ckpt-9", 0, false},
			"not decided yet":       {2, strategy.Checkpoints{Newest: "ckpt-9"}, time.Second, "", 0, false},
			"before all attempts":   {0, strategy.Checkpoints{Newest: "ckpt-9"}, time.Second, "", 0, false},
			"cut off in attempt 0 ": {1, strategy.Checkpoints{Newest: "ckpt-2"}, time.Second, "ckpt-2", 0, false},
		} {
			state, _ := Resume(plan0, "r", s.events[:test.events])
			state.Policy.RestartFromZero = strategy.Seconds(test.bound)
			asked := false
			next, notice, err := state.Restart(l.Job, func(string) strategy.Checkpoints { asked = true; return test.found })
			if next.Next.Checkpoint != test.from || errext.Code(err, 0) != test.code || (notice != "") != test.notice || (err != nil) != (errext.Hint(err) != "") {
				t.Errorf("%s: from %q, notice %q, %v", name, next.Next.Checkpoint, notice, err)
			}
			if want := test.events != 2 && test.events != 0; asked != want {
				t.Errorf("%s: asked for checkpoints %v", name, asked)
			}
		}
	})
}

// A decision that is made again has no verdict yet, even if the earlier one had.
func TestNewDecisionIsNotClosed(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1), exit(time.Hour, 1, 1)}}}}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute+time.Second, func() { cancel(&Signal{Number: syscall.SIGINT}) })
		if v, err := newLauncher(s).Run(ctx, first()); err != nil || v.Outcome != strategy.Stopped {
			t.Fatalf("%+v, %v", v, err)
		}
		exhausted := Decided{Decision: strategy.Decision{Outcome: strategy.Exhausted, Code: strategy.CodeExhausted}}
		state, done := Resume(plan0, "r", slices.Concat([]Event{Began{}}, s.events, []Event{Began{}, exhausted}))
		if !done || state.Closed || state.Verdict.Outcome != strategy.Exhausted {
			t.Errorf("done %v, closed %v, %+v", done, state.Closed, state.Verdict)
		}
	})
}

// A plan that ran out of memory does not run again, even if the user stopped gpurun at that moment.
func TestStoppedWhileOutOfMemory(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1), exit(time.Hour, 1, 1)}}}}
		l := newLauncher(s)
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute+time.Second, func() { cancel(&Signal{Number: syscall.SIGINT}) })
		if v, err := l.Run(ctx, first()); err != nil || v.Outcome != strategy.Stopped {
			t.Fatalf("%+v, %v", v, err)
		}
		s.events = append([]Event{Began{}}, s.events...)
		for range 2 { // the second time from the journal with the new decision in it
			state, done := Resume(plan0, "r", s.events)
			state, _, err := state.Restart(l.Job, func(string) strategy.Checkpoints { return strategy.Checkpoints{} })
			if done || err != nil {
				t.Fatal(done, err)
			}
			again := &stage{t: t, scripts: outOfMemoryOnce()}
			v, err := newLauncher(again).Run(t.Context(), state)
			if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 2 || len(again.applied) != 1 || cmp.Equal(again.applied[0], plan0) {
				t.Errorf("%+v, %v with %v", v, err, again.applied)
			}
			all := slices.Concat(s.events, []Event{Began{}}, again.events)
			if err := CheckOrder(all); err != nil {
				t.Error(err)
			}
			if n := len(Replay(all, "")); n != 3 {
				t.Errorf("%d decisions", n)
			}
			i := slices.IndexFunc(again.events, func(e Event) bool { _, ok := e.(Decided); return ok })
			s.events = slices.Concat(s.events, []Event{Began{}}, again.events[:i+1])
		}
	})
}

// The exit codes in a verdict are the ranks' own, even if no rank caused the failure.
func TestTheVerdictHasTheRealExitCodes(t *testing.T) {
	stopped := func(rank, code int) act {
		a := exit(time.Second, rank, code)
		a.fact.Exit().Stopped = true
		return a
	}
	for name, test := range map[string]struct {
		acts []act
		want string
	}{
		"failed":               {[]act{exit(time.Second, 0, 0), exit(time.Second, 1, 7)}, "7"},
		"by a signal":          {[]act{killed(time.Second, 1), exit(time.Second, 0, 1)}, "137"},
		"stopped":              {[]act{stopped(0, 0), stopped(1, 9)}, "9"},
		"hung, and was killed": {[]act{told(0, 1, cause.UserError, "probe"), stopped(0, 143), stopped(1, 137)}, "137"},
		"trained":              {[]act{exit(time.Second, 0, 0), exit(time.Second, 1, 0)}, "0"},
		"nobody knows":         {nil, "0"},
	} {
		e := strategy.Evidence{Ranks: 2}
		for _, a := range test.acts {
			e.Add(a.fact)
		}
		var s State
		s.End(e, strategy.Diagnose(e))
		s.decide(Decided{Decision: strategy.Decision{Outcome: strategy.Failed, Code: 1}})
		if text, err := json.Marshal(s.Verdict.Attempts[0].ExitCode); err != nil || string(text) != test.want {
			t.Errorf("%s: exit code %s, want %s; %v", name, text, test.want, err)
		}
	}
}
