package strategy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

const tenth = 100 * time.Millisecond

// saved is a checkpoint that grows.
func saved(after time.Duration) seen {
	return seen{after, Fact{Rank: -1, Source: "gpurun", Content: &Sign{Saved: t0.Add(after)}}}
}

// byGpurun is the end of a rank by gpurun's own signal.
func byGpurun(after time.Duration, rank int) seen {
	s := left(after, rank, 143)
	s.fact.Exit().Stopped = true
	return s
}

// asks is a rank that begins to ask questions for a time; with 0 it ends them.
func asks(after time.Duration, rank int, bound time.Duration) seen {
	return seen{after, Fact{Rank: rank, Source: "probe", Content: &Asking{For: Seconds(bound)}}}
}

// partings are running attempts of three ranks in which one reports the cause of its end: when
// its peers are stopped before it, and when and why all ranks are.
var partings = []struct {
	name   string
	facts  []seen
	peers  time.Duration
	all    time.Duration
	reason StopReason
}{
	{"it exits at once", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), left(min1+tenth, 0, 1)}, never, min1 + 3*tenth, StopFailed},
	{"by error.json", []seen{own(min1, 0, cause.UserError, asCause, "error.json"), left(min1+tenth, 0, 1)}, never, min1 + 3*tenth, StopFailed},
	{"it exits a little later", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), left(min1+sec, 0, 1)}, min1 + 3*tenth, min1 + sec, StopFailed},
	{"its exit is told before its word", []seen{left(min1, 0, 1), own(min1+tenth, 0, cause.CUDAOOM, asCause, "probe")}, never, min1 + 4*tenth, StopFailed},
	{"it hangs", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe")}, min1 + 3*tenth, min1 + 5*sec, StopLingering},
	{"its peers end by the signal", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), byGpurun(min1+4*tenth, 1), byGpurun(min1+5*tenth, 2), left(min1+2*sec, 0, 1)}, min1 + 3*tenth, min1 + 2*sec, StopFailed},
	{"a peer names a cause when it is stopped", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), own(min1+4*tenth, 1, cause.UserError, asCause, "probe"), left(min1+2*sec, 0, 1)}, min1 + 3*tenth, min1 + 2*sec, StopFailed},
	{"a peer names one at the same moment", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), own(min1+2*tenth, 1, cause.CUDAOOM, asCause, "probe"), left(min1+sec, 0, 1)}, min1 + 3*tenth, min1 + 5*sec + 2*tenth, StopLingering},
	{"all name one, and one hangs", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), own(min1, 1, cause.CUDAOOM, asCause, "probe"), own(min1, 2, cause.CUDAOOM, asCause, "probe"), left(min1+tenth, 0, 1), left(min1+tenth, 1, 1)}, never, min1 + 5*sec, StopLingering},
	{"a peer exits without a word", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), left(min1+tenth, 1, 1), left(min1+4*sec, 0, 1)}, min1 + 3*tenth, min1 + 4*sec, StopFailed},
	{"a peer suffers, and aborts", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), printed(min1+tenth, 1, cause.NCCLError, asSymptom), left(min1+tenth, 1, 134), left(min1+4*sec, 0, 1)}, min1 + 3*tenth, min1 + 4*sec, StopFailed},
	{"a peer told that it suffers", []seen{own(min1, 1, cause.NCCLError, asSymptom, "probe"), own(min1+sec, 0, cause.CUDAOOM, asCause, "probe"), left(min1+2*sec, 0, 1)}, min1 + sec + 3*tenth, min1 + 2*sec, StopFailed},
	{"it first told that it suffers", []seen{own(min1, 0, cause.NCCLError, asSymptom, "error.json"), own(min1+tenth, 0, cause.CUDAOOM, asCause, "probe"), left(min1+sec, 0, 1)}, min1 + 4*tenth, min1 + sec, StopFailed},
	{"a peer had failed before", []seen{left(min1, 1, 1), printed(min1, 1, cause.NCCLError, asSymptom), own(min1+3*sec, 0, cause.CUDAOOM, asCause, "probe"), left(min1+3*sec+tenth, 0, 1)}, never, min1 + 3*sec + 3*tenth, StopFailed},
	{"the checkpoint grows", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), saved(min1 + tenth), left(min1+2*tenth, 0, 1)}, never, min1 + 5*sec, StopFailed},
	{"the checkpoint grows, and it hangs", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), saved(min1 + tenth)}, never, min1 + 5*sec, StopLingering},
	{"the checkpoint grew before", []seen{saved(sec), own(min1, 0, cause.CUDAOOM, asCause, "probe"), left(min1+tenth, 0, 1)}, never, min1 + 3*tenth, StopFailed},
	{"the checkpoint grows too late to tell", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), saved(min1 + 4*tenth), left(min1+sec, 0, 1)}, min1 + 3*tenth, min1 + sec, StopFailed},

	// A rank that is asked has the bound of its questions, and then the time of any other. Its peers do not wait for it.
	{"it answers, and exits", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, 10*sec), asks(min1+6*sec, 0, 0), left(min1+7*sec, 0, 1)}, min1 + 3*tenth, min1 + 7*sec, StopFailed},
	{"it exits while it is asked", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, 10*sec), left(min1+8*sec, 0, 1)}, min1 + 3*tenth, min1 + 8*sec, StopFailed},
	{"it hangs in a question", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1+tenth, 0, 10*sec)}, min1 + 3*tenth, min1 + tenth + 15*sec, StopLingering},
	{"it answers, and hangs", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, 10*sec), asks(min1+2*sec, 0, 0)}, min1 + 3*tenth, min1 + 7*sec, StopLingering},
	{"it wants more time than it may have", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, time.Hour)}, min1 + 3*tenth, min1 + 17*sec, StopLingering},
	{"it begins its questions again", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, 10*sec), asks(min1+9*sec, 0, 10*sec)}, min1 + 3*tenth, min1 + 17*sec, StopLingering},
	{"its questions are known before its word", []seen{asks(min1, 0, 10*sec), own(min1+tenth, 0, cause.CUDAOOM, asCause, "probe")}, min1 + 4*tenth, min1 + 15*sec, StopLingering},
	{"one is asked, and another hangs", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, 9*sec), own(min1+tenth, 1, cause.CUDAOOM, asCause, "probe")}, min1 + 3*tenth, min1 + 9*sec, StopLingering},
	{"one is asked, and another answered and hangs", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, 9*sec), own(min1, 1, cause.CUDAOOM, asCause, "probe"), asks(min1, 1, 9*sec), asks(min1+sec, 1, 0)}, min1 + 3*tenth, min1 + 9*sec, StopLingering},
	{"all are asked, and the last exits late", []seen{
		own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, 9*sec), own(min1, 1, cause.CUDAOOM, asCause, "probe"), asks(min1, 1, 9*sec), own(min1, 2, cause.CUDAOOM, asCause, "probe"), asks(min1, 2, 9*sec),
		left(min1+6*sec, 0, 1), left(min1+6*sec, 1, 1), left(min1+8*sec, 2, 1),
	}, never, min1 + 8*sec, StopFailed},
	{"a rank that named no cause is asked", []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 1, 9*sec)}, min1 + 3*tenth, min1 + 5*sec, StopLingering},
	{"a rank that suffers is asked", []seen{own(min1, 0, cause.NCCLError, asSymptom, "probe"), asks(min1, 0, 20*sec)}, never, min1 + 10*sec, StopLingering},

	// No other evidence is certain.
	{"a symptom", []seen{own(min1, 0, cause.NCCLError, asSymptom, "probe"), left(min1+tenth, 0, 1)}, never, min1 + 10*sec, StopFailed},
	{"SystemExit", []seen{own(min1, 0, cause.UserError, asSymptom, "probe"), left(min1+tenth, 0, 1)}, never, min1 + tenth + 2*sec, StopFailed},
	{"words", []seen{printed(min1, 0, cause.CUDAOOM, asCause), left(min1+tenth, 0, 1)}, never, min1 + tenth + 2*sec, StopFailed},
	{"a kill", []seen{left(min1, 0, 137)}, never, min1 + 2*sec, StopFailed},
}

func TestPeersOfARankThatNamedItsCause(t *testing.T) {
	for _, c := range partings {
		t.Run(c.name, func(t *testing.T) {
			ev, stop, peers, ok := watched(c.facts, shown{}, 5*time.Hour)
			if !ok || peers != c.peers || stop.At.Sub(t0) != c.all || stop.Reason != c.reason {
				t.Errorf("its peers are stopped after %s, all ranks after %s (%v, %s), want %s and %s (%s)",
					peers, stop.At.Sub(t0), ok, stop.Reason, c.peers, c.all, c.reason)
			}
			if again, stopped := Replay(ev); stopped != ok || again != stop {
				t.Errorf("replayed %+v, %v, want %+v", again, stopped, stop)
			}
		})
	}
}

// Without recovery.questions, and where the journal of an earlier version does not have it, what a process writes about
// questions is no reason to wait.
func TestQuestionsThatAreOff(t *testing.T) {
	ev := Evidence{Started: t0, Ranks: 1}
	d := NewDetector(&ev)
	for _, s := range []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), asks(min1, 0, 10*sec)} {
		d.Add(s.fact, t0.Add(s.after))
	}
	if got := d.Next().Sub(t0); got != min1+5*sec {
		t.Errorf("the rank is stopped after %s", got)
	}
}

// A rank that is asked neither hangs nor stalls, however short the timeouts are.
func TestQuestionsAreNoSilence(t *testing.T) {
	for name, ev := range map[string]Evidence{
		"hang_timeout":  {HangTimeout: Seconds(sec)},
		"stall_timeout": {HangTimeout: Seconds(min1), Stalls: &StallRule{After: Seconds(2 * sec)}},
	} {
		ev.Started, ev.Ranks, ev.Questions = t0, 1, Seconds(10*sec)
		d := NewDetector(&ev)
		for _, s := range []seen{printed(sec, 0, cause.CUDAOOM, asCause), own(sec, 0, cause.CUDAOOM, asCause, "probe"), asks(sec, 0, 8*sec)} {
			d.Add(s.fact, t0.Add(s.after))
		}
		for next := d.Next(); next.Before(t0.Add(9 * sec)); next = d.Next() {
			if stop, ok := d.Verdict(next); ok {
				t.Fatalf("%s: the rank is stopped after %s: %s", name, next.Sub(t0), stop.Reason)
			}
		}
	}
}

// A symptom never shortens the wait: whatever the facts in which a rank has named its cause, no
// rank is stopped sooner if a peer suffers from it, reports it, or dies of it.
func TestSymptomNeverShortensTheWait(t *testing.T) {
	named, parted := 0, 0
	for seed := range uint64(5000) {
		r := rand.New(rand.NewPCG(seed, 1))
		facts, ranks := drawFacts(r)
		first := slices.IndexFunc(facts, func(s seen) bool { return s.fact.NamesCause() })
		if first < 0 {
			continue
		}
		named++
		facts = facts[first:]
		ev, stop, peers, ok := watched(facts, ranks, time.Hour)
		after := facts[0].after + time.Duration(r.IntN(60))*tenth
		rank := (facts[0].fact.Rank + 1) % 3
		symptom := own(after, rank, cause.NCCLError, asSymptom, []string{"probe", "error.json", "stderr"}[r.IntN(3)])
		symptom.fact.Finding().Seq = 1000
		more := []seen{symptom}
		if slices.IndexFunc(facts, func(s seen) bool { return s.fact.Exit() != nil && s.fact.Rank == rank }) < 0 && r.IntN(2) == 0 {
			more = append(more, left(after, rank, 134))
		}
		with := append(slices.Clone(facts), more...)
		slices.SortStableFunc(with, func(a, b seen) int { return int(a.after - b.after) })
		_, later, peersLater, still := watched(with, ranks, time.Hour)
		if peersLater != never {
			parted++
		}
		if still && (!ok || later.At.Before(stop.At)) {
			t.Errorf("seed %d: with a symptom all ranks are stopped %s after the start (%s), without it %v %s", seed, later.At.Sub(t0), later.Reason, ok, stop.At.Sub(ev.Started))
		}
		if peersLater != never && peers != never && peersLater < peers {
			t.Errorf("seed %d: with a symptom its peers are stopped after %s, without it after %s", seed, peersLater, peers)
		}
	}
	if named < 500 || parted < 100 {
		t.Errorf("a cause was named in %d attempts, and peers were stopped in %d", named, parted)
	}
}
