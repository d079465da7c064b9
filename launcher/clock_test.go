package launcher

import (
	"bytes"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// reread returns events as a reader of their journal gets them.
func reread(t *testing.T, events []Event) (read []Event) {
	t.Helper()
	for _, e := range events {
		line, err := Encode(e, time.Now())
		if err != nil {
			t.Fatal(err)
		}
		again, _, err := Decode(bytes.TrimSuffix(line, []byte("\n")))
		if err != nil {
			t.Fatal(err)
		}
		read = append(read, again)
	}
	return read
}

// TestClockSetWithinAnAttemptChangesNoDuration: neither in this process nor for a reader of its journal.
func TestClockSetWithinAnAttemptChangesNoDuration(t *testing.T) {
	for _, jump := range []time.Duration{0, 24 * time.Hour, -time.Hour} {
		e := strategy.Evidence{Ranks: 1, Started: time.Now()}
		for n := range 3 {
			at := testenv.SetClock(t, e.Started.Add(time.Duration(n+1)*time.Minute), jump)
			e.Add(strategy.Fact{Time: e.Clock(at), Source: "stdout", Content: &strategy.Progress{Steps: n + 1, First: 1, Last: n + 1, For: strategy.Seconds(time.Duration(n) * time.Minute)}})
		}
		e.Ended = e.Clock(testenv.SetClock(t, e.Started.Add(4*time.Minute), jump))
		for who, e := range map[string]strategy.Evidence{"this process": e, "a reader": reread(t, []Event{Ended{Evidence: e}})[0].(Ended).Evidence} {
			lasted, stepping := strategy.Attempt{Started: e.Started, Ended: e.Ended}.Lasted(), e.Stepping()
			if lasted != 4*time.Minute || stepping.For.Duration() != 2*time.Minute || stepping.Before.Duration() != time.Minute {
				t.Errorf("put forward by %s: for %s it lasted %s, %+v", jump, who, lasted, stepping)
			}
		}
		file := time.Now().Round(0).Add(time.Hour) // no monotonic clock
		if e.Clock(file) != file {
			t.Errorf("the time of a file became %s, want %s", e.Clock(file), file)
		}
	}
}

// TestClockSetDuringARunChangesNoDecision: the facts of the first attempt have the time of a clock that was set.
func TestClockSetDuringARunChangesNoDecision(t *testing.T) {
	const bound = time.Minute // real time: the clock of a synctest is not monotonic
	for _, jump := range []time.Duration{0, 24 * time.Hour, -time.Hour} {
		s := &stage{t: t, begin: time.Now(), scripts: []script{
			{jump: jump, acts: []act{raised(0, 0, cause.CUDAOOM), exit(0, 0, 1), exit(0, 1, 1)}},
			{acts: []act{exit(0, 0, 0), exit(0, 1, 0)}},
		}}
		l := newLauncher(s)
		v, err := l.Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained || len(v.Attempts) != 2 || v.Attempts[0].Seconds.Duration() > bound {
			t.Fatalf("put forward by %s: %+v, %v", jump, v, err)
		}
		events := reread(t, append([]Event{Began{Policy: l.Policy, Job: l.Job}}, s.events...))
		for _, e := range events {
			e, ended := e.(Ended)
			for _, f := range e.Evidence.Facts {
				if since := f.Time.Sub(e.Evidence.Started); ended && (since < 0 || since > bound) {
					t.Errorf("put forward by %s: the journal has a fact %s after the start of attempt %d", jump, since, e.Evidence.Attempt)
				}
			}
		}
		for _, d := range Replay(events, "") {
			if !d.Same || d.Stopped != nil {
				t.Errorf("put forward by %s: replayed as %+v", jump, d)
			}
		}
	}
}
