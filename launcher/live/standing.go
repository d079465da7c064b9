package live

import (
	"cmp"
	"os"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// A standing is where a run stands by its events and samples.
type standing struct {
	launcher.Status
	ceiling int64
	began   time.Time // the attempt
	pace    pace
}

func newStanding() standing {
	host, _ := os.Hostname() // one without a name has none
	return standing{Status: launcher.Status{Host: host, PID: os.Getpid()}}
}

// see takes an event, and reports whether the run stands elsewhere now.
func (s *standing) see(e launcher.Event, now time.Time) bool {
	if _, begins := e.(launcher.Began); s.Run == "" && !begins {
		return false // of a run that is over, and shown once more
	}
	switch e := e.(type) {
	case launcher.Began:
		s.Run, s.Job, s.MaxAttempts, s.ceiling = e.Run, e.Name, e.Policy.MaxAttempts, e.Job.Ceiling
	case launcher.Started:
		s.Status = launcher.Status{Run: s.Run, Job: s.Job, MaxAttempts: s.MaxAttempts, Attempt: e.N, Running: true, Host: s.Host, PID: s.PID}
		s.began, s.pace = now, pace{}
	case launcher.Ended:
		s.Running, s.ETA = false, nil
	case launcher.Finished:
		s.Running, s.ETA, s.Outcome = false, nil, e.Verdict.Outcome
	default:
		return false
	}
	s.Time = now.UTC()
	return true
}

// take takes samples of the attempt that runs, and reports whether it is that one.
func (s *standing) take(attempt int, samples []model.Sample, now time.Time) bool {
	if !s.Running || attempt != s.Attempt || len(samples) == 0 {
		return false
	}
	s.Time, s.Seconds = now.UTC(), strategy.Seconds(now.Sub(s.began))
	lead := samples[0]
	s.Memory, s.Ranks = nil, nil
	for i := range samples {
		samples[i].Allowed = s.allowed(samples[i])
		if leads(samples[i], lead) {
			lead = samples[i]
		}
		m := memoryOf(samples[i])
		if m != nil && (s.Memory == nil || share(*m) > share(*s.Memory)) {
			s.Memory = m
		}
		if len(samples) > 1 {
			s.Ranks = append(s.Ranks, rankOf(samples[i], m))
		}
	}
	if lead.Total != s.Total {
		s.pace = pace{} // by another count
	}
	s.Step, s.Total, s.Loss = lead.Step, lead.Total, lead.Loss
	s.pace.add(now, s.Step)
	s.Rate, s.ETA = s.pace.rate(now), nil
	if left, known := s.pace.left(s.Total); known {
		eta := strategy.Seconds(left.Round(time.Second))
		s.ETA = &eta
	}
	return true
}

// leads reports whether a sample tells more of the training than another: of how many steps,
// which one rank alone may print, else a later step.
func leads(s, other model.Sample) bool {
	if (s.Total > 0) != (other.Total > 0) {
		return s.Total > 0
	}
	return s.Step > other.Step
}

// allowed is what a rank may hold.
func (s *standing) allowed(sample model.Sample) int64 {
	if s.ceiling > 0 && (sample.Allowed == 0 || s.ceiling < sample.Allowed) {
		return s.ceiling
	}
	return sample.Allowed
}

func rankOf(s model.Sample, m *launcher.StatusMemory) launcher.StatusRank {
	if m == nil {
		m = &launcher.StatusMemory{Rank: s.Rank, Device: s.Device}
	}
	return launcher.StatusRank{StatusMemory: *m, Step: s.Step}
}

// memoryOf is what a sample knows of memory, nil for nothing.
func memoryOf(s model.Sample) *launcher.StatusMemory {
	m := launcher.StatusMemory{
		Rank: s.Rank, Device: s.Device, Used: cmp.Or(s.Allocated, s.Used), Reserved: s.Reserved, Peak: s.Peak, Allowed: s.Allowed, Retries: s.Retries,
	}
	if m.Used == 0 && m.Peak == 0 {
		return nil
	}
	return &m
}
