package show

import (
	"cmp"
	"os"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// statusOf is the status of this process's run at a time.
func statusOf(r *journal.Run, at time.Time) launcher.Status {
	host, _ := os.Hostname() // empty where it has no name
	s := launcher.Status{Run: r.Began.Run, Job: r.Began.Name, MaxAttempts: r.Began.Policy.MaxAttempts,
		Running: r.Running(), Time: at.UTC(), Host: host, PID: os.Getpid()}
	if r.Verdict != nil {
		s.Outcome = r.Verdict.Outcome
	}
	last, p := r.Launched(), r.Progress
	if last == nil {
		return s
	}
	s.Attempt, s.Step, s.Total, s.Loss, s.Rate = last.N, p.Lead.Step, p.Lead.Total, p.Lead.Loss, p.Rate
	s.InPlace, _ = strategy.InPlaceCost(last.Again)
	if s.Running {
		s.ETA = p.Left
	}
	if len(p.Samples) > 0 {
		s.Seconds = strategy.Seconds(p.At.Sub(last.At))
	}
	for _, sample := range p.Samples {
		m := memoryOf(sample)
		if (m.Used > 0 || m.Peak > 0) && (s.Memory == nil || share(m) > share(*s.Memory)) {
			s.Memory = &m
		}
		if len(p.Samples) > 1 {
			s.Ranks = append(s.Ranks, launcher.StatusRank{StatusMemory: m, Step: sample.Step})
		}
	}
	return s
}

// memoryOf is the memory of a sample's rank.
func memoryOf(s strategy.Sample) launcher.StatusMemory {
	m := launcher.StatusMemory{Rank: s.Rank, Device: s.Device}
	if used := cmp.Or(s.Allocated, s.Used); used > 0 || s.Peak > 0 {
		m.Used, m.Reserved, m.Peak, m.Allowed, m.Retries = used, s.Reserved, s.Peak, s.Allowed, s.Retries
	}
	return m
}
