package strategy

import (
	"math/rand/v2"
	"slices"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	sec   = time.Second
	min1  = time.Minute
	never = time.Duration(-1)
)

// A seen is a fact that arrives some time after the attempt began.
type seen struct {
	after time.Duration
	fact  Fact
}

// shown is the observable activity of running ranks.
type shown struct {
	// talks is the time until which the ranks write something once a second.
	talks time.Duration
	// step is the end of the last step, of the suspect itself if own is set.
	step    time.Duration
	own     bool
	longest time.Duration
}

// at is the sign of life of a rank at a time. What the rank itself writes counts as output.
func (s shown) at(now, wrote time.Time) Sign {
	sign := Sign{Output: wrote, Longest: Seconds(s.longest)}
	if talked := t0.Add(min(now.Sub(t0), s.talks).Truncate(sec)); s.talks > 0 {
		sign.Output = latest(sign.Output, talked)
	}
	if s.step > 0 && now.Sub(t0) >= s.step {
		sign.Others = t0.Add(s.step)
		if s.own {
			sign.Step = sign.Others
		}
	}
	return sign
}

// watched drives a detector through facts as the launcher does. It returns the evidence, when and
// why all ranks are stopped, and when some were stopped before; never if none.
func watched(facts []seen, ranks shown, end time.Duration) (_ Evidence, _ Stop, peers time.Duration, _ bool) {
	ev := Evidence{Started: t0, Ranks: 3, HangTimeout: Seconds(30 * sec), Questions: Seconds(10 * sec)}
	d := NewDetector(&ev)
	wrote := map[int]time.Time{}
	peers = never
	ask := func(now time.Time) (Stop, bool) {
		for _, rank := range d.Watched() {
			sign := ranks.at(now, wrote[rank])
			d.Add(Fact{Time: now, Rank: rank, Source: "gpurun", Content: &sign}, now)
		}
		stop, ok := d.Verdict(now)
		if ok && stop.Reason == StopPeers {
			peers = now.Sub(t0)
			return d.Verdict(now)
		}
		return stop, ok
	}
	until := func(to time.Time) (Stop, bool) {
		for next := d.Next(); !next.IsZero() && !next.After(to); next = d.Next() {
			if stop, ok := ask(next); ok {
				return stop, true
			}
		}
		return Stop{}, false
	}
	for _, s := range facts {
		now := t0.Add(s.after)
		if stop, ok := until(now.Add(-1)); ok {
			ev.Ended = stop.At
			return ev, stop, peers, true
		}
		s.fact.Time = now
		if s.fact.Source == "stderr" {
			wrote[s.fact.Rank] = now
		}
		if d.Add(s.fact, now) {
			if stop, ok := ask(now); ok {
				ev.Ended = stop.At
				return ev, stop, peers, true
			}
		}
	}
	stop, ok := until(t0.Add(end))
	if ev.Ended = t0.Add(end); ok {
		ev.Ended = stop.At
	}
	return ev, stop, peers, ok
}

func left(after time.Duration, rank, code int) seen {
	e := &Exit{Code: code}
	if code > 128 {
		e.Signal = code - 128
	}
	return seen{after, Fact{Rank: rank, Source: "exit", Content: e}}
}

// printed is a traceback in a rank's output.
func printed(after time.Duration, rank int, code cause.Code, w cause.Weight) seen {
	return seen{after, Fact{Rank: rank, Source: "stderr", Content: &Finding{Code: code, Weight: w, Raised: true, Rank: -1}}}
}

// numbered is the n-th finding of a rank's stream, or a later state of it.
func numbered(s seen, n int) seen {
	s.fact.Finding().Stream, s.fact.Finding().Seq = s.fact.Source, n
	return s
}

// own is a rank's own report of its end.
func own(after time.Duration, rank int, code cause.Code, w cause.Weight, source string) seen {
	s := printed(after, rank, code, w)
	s.fact.Source = source
	return numbered(s, 1)
}

const (
	asCause, asSymptom, asWarning = cause.WeightCause, cause.WeightSymptom, cause.WeightWarning
	asHandled, asOutlived         = cause.WeightHandled, cause.WeightOutlived
)

// detections are running attempts, and when and why their ranks are stopped.
var detections = []struct {
	name   string
	ranks  shown
	facts  []seen
	want   time.Duration
	reason StopReason
}{
	// Strong evidence, a rank's own report of its end: it has 5 s.
	{"the probe's word", shown{}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe")}, min1 + 5*sec, StopLingering},
	{"error.json", shown{}, []seen{own(min1, 0, cause.UserError, asCause, "error.json")}, min1 + 5*sec, StopLingering},
	{"its output is no reason to wait", shown{talks: time.Hour}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe")}, min1 + 5*sec, StopLingering},
	{"long steps are none either", shown{longest: min1}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe")}, min1 + 5*sec, StopLingering},
	{"the first word counts", shown{}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "error.json"), own(min1+2*sec, 0, cause.CUDAOOM, asCause, "probe")}, min1 + 5*sec, StopLingering},
	{"the first rank's word counts", shown{}, []seen{own(min1, 1, cause.CUDAOOM, asCause, "probe"), own(min1+3*sec, 0, cause.CUDAOOM, asCause, "probe")}, min1 + 5*sec, StopLingering},
	{"then it exits", shown{}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), left(min1+sec, 0, 1)}, min1 + sec, StopFailed},
	{"then it exits late", shown{}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "probe"), left(min1+4*sec, 0, 1)}, min1 + 4*sec, StopFailed},
	{"then it ends well: an exit outranks words", shown{}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "error.json"), left(min1+sec/5, 0, 0)}, never, ""},
	{"then it ends well when its peers are stopped", shown{}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "error.json"), left(min1+4*sec, 0, 0)}, min1 + 4*sec, StopFailed},
	{"then another ends well", shown{}, []seen{own(min1, 0, cause.CUDAOOM, asCause, "error.json"), left(min1+4*sec, 1, 0)}, min1 + 5*sec, StopLingering},
	{"a victim's word waits for the cause", shown{}, []seen{own(min1, 0, cause.NCCLError, asSymptom, "probe")}, min1 + 10*sec, StopLingering},
	{"SystemExit is no failure", shown{}, []seen{own(min1, 0, cause.UserError, asSymptom, "error.json")}, never, ""},
	{"nor is KeyboardInterrupt", shown{}, []seen{own(min1, 0, cause.Preempted, asSymptom, "error.json")}, never, ""},

	// Weak evidence, a traceback in the output: silence for the hang timeout, or for
	// five times the longest step.
	{"silence", shown{}, []seen{printed(min1, 0, cause.CUDAOOM, asCause)}, min1 + 30*sec, StopSilent},
	{"silence, with short steps", shown{longest: 2 * sec}, []seen{printed(min1, 0, cause.CUDAOOM, asCause)}, min1 + 30*sec, StopSilent},
	{"silence, with long steps", shown{longest: 20 * sec}, []seen{printed(min1, 0, cause.HostOOM, asCause)}, min1 + 100*sec, StopSilent},
	{"silence after more output", shown{talks: 3 * min1}, []seen{printed(min1, 0, cause.CUDAOOM, asCause)}, 3*min1 + 30*sec, StopSilent},
	{"so much output that it goes on", shown{talks: 9 * min1}, []seen{printed(min1, 0, cause.CUDAOOM, asCause)}, never, ""},
	{"it makes a step", shown{step: min1 + 20*sec, own: true}, []seen{printed(min1, 0, cause.CUDAOOM, asCause)}, never, ""},
	{"a step that was being read", shown{step: min1 + sec, own: true}, []seen{printed(min1, 0, cause.CUDAOOM, asCause)}, min1 + 31*sec, StopSilent},
	{"another makes a step that began after it", shown{step: min1 + 8*sec, longest: 2 * sec}, []seen{printed(min1, 0, cause.CUDAOOM, asCause)}, never, ""},
	{"another ends the step that it was in", shown{step: min1 + 3*sec, longest: 2 * sec}, []seen{printed(min1, 0, cause.CUDAOOM, asCause)}, min1 + 33*sec, StopSilent},
	{"it is handled", shown{}, []seen{printed(min1, 0, cause.CUDAOOM, asHandled)}, never, ""},
	{"it is a warning", shown{}, []seen{printed(min1, 0, cause.CUDAOOM, asWarning)}, never, ""},
	{"it is another error", shown{}, []seen{printed(min1, 0, cause.UserError, asCause)}, never, ""},
	{"it is handled in time", shown{}, []seen{numbered(printed(min1, 0, cause.CUDAOOM, asCause), 1), numbered(printed(min1+29*sec, 0, cause.CUDAOOM, asHandled), 1)}, never, ""},
	{"it is outlived in time", shown{}, []seen{numbered(printed(min1, 0, cause.CUDAOOM, asCause), 1), numbered(printed(min1+29*sec, 0, cause.CUDAOOM, asOutlived), 1)}, never, ""},
	{"it ends well in time", shown{}, []seen{printed(min1, 0, cause.CUDAOOM, asCause), left(min1+20*sec, 0, 0)}, never, ""},
	{"another's is handled", shown{}, []seen{numbered(printed(min1, 0, cause.CUDAOOM, asCause), 1), numbered(printed(min1, 1, cause.CUDAOOM, asCause), 1), numbered(printed(min1, 1, cause.CUDAOOM, asHandled), 1)}, min1 + 30*sec, StopSilent},
	{"its own word follows", shown{}, []seen{printed(min1, 0, cause.CUDAOOM, asCause), own(min1, 0, cause.CUDAOOM, asCause, "probe")}, min1 + 5*sec, StopLingering},

	// Exits: the others have 2 s for their last messages, 10 s while only symptoms are known.
	{"no word", shown{}, []seen{left(min1, 0, 1)}, min1 + 2*sec, StopFailed},
	{"stopped by gpurun", shown{}, []seen{{min1, Fact{Rank: 0, Source: "exit", Content: &Exit{Code: 143, Signal: 15, Stopped: true}}}}, never, ""},
	{"a symptom after its exit", shown{}, []seen{left(min1, 0, 1), printed(min1, 0, cause.NCCLError, asSymptom)}, min1 + 10*sec, StopFailed},
	{"then the cause", shown{}, []seen{printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 1), printed(min1+3*sec, 1, cause.CUDAOOM, asCause)}, min1 + 5*sec, StopFailed},
	{"then the cause, late", shown{}, []seen{printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 1), printed(min1+9*sec, 1, cause.CUDAOOM, asCause)}, min1 + 10*sec, StopFailed},
	{"then a kill", shown{}, []seen{printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 1), left(min1+3*sec, 1, 137)}, min1 + 5*sec, StopFailed},
	{"then the kernel's counter", shown{}, []seen{printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 1), {min1 + 3*sec, Fact{Rank: -1, Source: "cgroup", Content: &Kills{Count: 1}}}}, min1 + 5*sec, StopFailed},
	{"then an abort, which is no cause", shown{}, []seen{printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 1), printed(min1+3*sec, 1, cause.NCCLError, asSymptom), left(min1+3*sec, 1, 134)}, min1 + 10*sec, StopFailed},
	{"then a warning", shown{}, []seen{printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 1), printed(min1+3*sec, 1, cause.CUDAOOM, asWarning)}, min1 + 10*sec, StopFailed},
	{"a cause that was outlived long ago", shown{}, []seen{printed(sec, 1, cause.CUDAOOM, asOutlived), printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 1)}, min1 + 10*sec, StopFailed},
	{"a kill after symptoms", shown{}, []seen{printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 137)}, min1 + 2*sec, StopFailed},
	{"another that says nothing", shown{}, []seen{printed(min1, 0, cause.NCCLError, asSymptom), left(min1, 0, 1), left(min1+3*sec, 1, 1)}, min1 + 5*sec, StopFailed},
}

func TestDetector(t *testing.T) {
	for _, c := range detections {
		t.Run(c.name, func(t *testing.T) {
			ev, stop, _, ok := watched(c.facts, c.ranks, 5*time.Hour)
			if ok != (c.want != never) || ok && (stop.At.Sub(t0) != c.want || stop.Reason != c.reason) {
				t.Errorf("stopped %v after %s (%s), want %s (%s)", ok, stop.At.Sub(t0), stop.Reason, c.want, c.reason)
			}
			if ok && (stop.Notice() == "") != (stop.Reason == StopFailed) {
				t.Errorf("people are told %q", stop.Notice())
			}
			if again, stopped := Replay(ev); stopped != ok || again != stop {
				t.Errorf("replayed %+v, %v, want %+v", again, stopped, stop)
			}
		})
	}
}

// If gpurun was suspended together with its ranks, a suspect gets its whole patience again.
func TestDetectorAfterASuspension(t *testing.T) {
	ev := Evidence{Started: t0, HangTimeout: Seconds(30 * sec)}
	d := NewDetector(&ev)
	d.Add(printed(0, 0, cause.CUDAOOM, asCause).fact, t0)
	for _, step := range []struct {
		now  time.Duration
		stop bool
		next time.Duration
	}{{0, false, 30 * sec}, {10 * min1, false, 10*min1 + 30*sec}, {10*min1 + 30*sec, true, 0}} {
		_, stop := d.Verdict(t0.Add(step.now))
		if stop != step.stop || !stop && d.Next() != t0.Add(step.next) {
			t.Errorf("after %s: stop %v, next after %s", step.now, stop, d.Next().Sub(t0))
		}
	}
}

// For any facts, a replay of the evidence stops the ranks when the detector did.
func TestReplayAgreesWithDetector(t *testing.T) {
	stopped := 0
	for seed := range uint64(2000) {
		r := rand.New(rand.NewPCG(seed, 0))
		facts, ranks := drawFacts(r)
		ev, stop, _, ok := watched(facts, ranks, time.Hour)
		if again, too := Replay(ev); too != ok || again != stop {
			t.Errorf("seed %d: replayed %+v, %v, want %+v, %v", seed, again, too, stop, ok)
		}
		if ok {
			stopped++
		}
	}
	if stopped < 500 {
		t.Errorf("the ranks were stopped in %d of 2000 attempts only", stopped)
	}
}

// drawFacts generates an attempt. Findings that are reported again have a smaller weight.
func drawFacts(r *rand.Rand) ([]seen, shown) {
	codes := []cause.Code{cause.CUDAOOM, cause.CUDAOOM, cause.HostOOM, cause.NCCLError, cause.UserError, cause.Preempted}
	sources := []string{"stderr", "stderr", "stderr", "stdout", "probe", "error.json"}
	var facts []seen
	after := min1
	for range 1 + r.IntN(6) {
		after += time.Duration(1+r.IntN(40)) * 500 * time.Millisecond
		rank := r.IntN(3)
		switch r.IntN(9) {
		case 0:
			facts = append(facts, left(after, rank, []int{0, 1, 134, 137}[r.IntN(4)]))
		case 8:
			facts = append(facts, asks(after, rank, time.Duration(r.IntN(15))*sec))
		case 1:
			facts = append(facts, seen{after, Fact{Rank: -1, Source: "cgroup", Content: &Kills{Count: int64(r.IntN(2))}}})
		default:
			f := printed(after, rank, codes[r.IntN(len(codes))], cause.Weight(r.IntN(3)))
			f.fact.Source = sources[r.IntN(len(sources))]
			f.fact.Finding().Raised = r.IntN(4) > 0
			facts = append(facts, numbered(f, len(facts)+1))
			if r.IntN(3) == 0 && f.fact.Finding().Weight == asCause {
				later := *f.fact.Finding()
				later.Weight = []cause.Weight{asHandled, asOutlived}[r.IntN(2)]
				f.fact.Content = (*Finding)(&later)
				f.after += time.Duration(1+r.IntN(60)) * 500 * time.Millisecond
				facts = append(facts, f)
			}
		}
	}
	slices.SortStableFunc(facts, func(a, b seen) int { return int(a.after - b.after) })
	ranks := shown{longest: time.Duration(r.IntN(12)) * sec}
	if r.IntN(3) == 0 {
		ranks.talks = min1 + time.Duration(r.IntN(400))*sec
	}
	if r.IntN(3) == 0 {
		ranks.step, ranks.own = min1+time.Duration(r.IntN(60))*sec, r.IntN(2) == 0
	}
	return facts, ranks
}
