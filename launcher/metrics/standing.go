package metrics

import (
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A standing is where a run stands by its events and samples.
type standing struct {
	began   launcher.Began
	first   time.Time         // when the run began
	attempt *launcher.Started // the latest; nil: there is none
	running bool
	ended   map[int]end // attempts by number
	verdict *launcher.Verdict
	over    time.Time // when the verdict was seen

	samples []model.Sample // of the latest attempt, by rank
	step    int            // the furthest
	total   int            // steps in all, 0 where nobody says so
	stepped time.Time      // when that was seen first
	peak    int64          // bytes of the rank that held most in the attempt
}

// An end is what was made of an attempt.
type end struct {
	cause cause.Code
	rungs []strategy.Rung
}

func newStanding() standing { return standing{ended: map[int]end{}} }

// see takes an event.
func (s *standing) see(e launcher.Event, now time.Time) {
	switch e := e.(type) {
	case launcher.Began:
		s.began, s.running, s.verdict = e, false, nil
		if s.first.IsZero() {
			s.first = e.At
		}
	case launcher.Started:
		s.attempt, s.running, s.verdict = &e, true, nil
		s.samples, s.step, s.total, s.stepped, s.peak = nil, 0, 0, e.At, 0
	case launcher.Ended:
		s.running = false
		for i := range s.samples { // what was held is free
			s.samples[i].Allocated, s.samples[i].Reserved, s.samples[i].Used = 0, 0, 0
		}
	case launcher.Decided:
		if s.attempt != nil {
			s.ended[s.attempt.N] = end{e.Diagnosis.Cause, rungsOf(e.Decision)}
		}
	case launcher.Finished:
		s.running, s.verdict, s.over = false, &e.Verdict, now
	}
}

func rungsOf(d strategy.Decision) []strategy.Rung {
	if len(d.Rungs) == 0 && d.Rung != "" {
		return []strategy.Rung{d.Rung} // of a journal that named one only
	}
	return d.Rungs
}

// take takes samples of the attempt that runs.
func (s *standing) take(attempt int, samples []model.Sample, now time.Time) {
	if !s.running || s.attempt.N != attempt {
		return
	}
	s.samples = slices.Clone(samples)
	step := 0
	s.total = 0
	for i := range s.samples {
		sample := &s.samples[i]
		if ceiling := s.began.Job.Ceiling; ceiling > 0 && (sample.Allowed == 0 || ceiling < sample.Allowed) {
			sample.Allowed = ceiling
		}
		step, s.total, s.peak = max(step, sample.Step), max(s.total, sample.Total), max(s.peak, sample.Peak)
	}
	if step != s.step {
		s.step, s.stepped = step, now
	}
}

// attempts is how many attempts were started.
func (s *standing) attempts() int {
	if s.attempt == nil {
		return 0
	}
	return s.attempt.N + 1
}
