package strategy

import (
	"fmt"
	"time"
)

// GPUTime sums up how a run used its GPUs, in GPU-seconds: each rank counts as one GPU, also where
// it trains on the CPU.
type GPUTime struct {
	Total float64 `json:"total_seconds"`
	// Lost is the part that no later attempt continued: it is not behind the checkpoint that was
	// resumed, or that the run left when it ended without success.
	Lost float64 `json:"lost_seconds"`
	// Rescued is what was trained, and not lost, since the first rescue.
	Rescued float64 `json:"rescued_seconds"`
	// Rescues counts the relaunches after a failure, and the attempts in which steps were done
	// again in place.
	Rescues int `json:"rescues"`
	// AtLeast: gpurun was killed during an attempt, so that its end is not known.
	AtLeast bool `json:"at_least,omitempty"`
}

// Words is for the end of a sentence: "used 2.4 GPU-h, 31 GPU-s of it for nothing"; empty for a run that lost less
// than a GPU-second.
func (t *GPUTime) Words() string {
	if t == nil || t.Lost < 1 {
		return ""
	}
	lost := GPUSeconds(t.Lost)
	if t.AtLeast {
		lost = "at least " + lost
	}
	return "used " + GPUSeconds(t.Total) + ", " + lost + " of it for nothing"
}

// GPUSeconds formats GPU time for people: "31 GPU-s", "2.4 GPU-h".
func GPUSeconds(seconds float64) string {
	if seconds < 3600 {
		return fmt.Sprintf("%.0f GPU-s", seconds)
	}
	return fmt.Sprintf("%.1f GPU-h", seconds/3600)
}

// A GPUSpan is the time in which the ranks of an attempt ran.
type GPUSpan struct {
	Started, Ended time.Time // Ended is zero if it is not known
	GPUs           int
	// Resumed is when the checkpoint was written from which the attempt started; zero: it started
	// from the beginning.
	Resumed time.Time
	// Rescued is when the attempt began to train though the job had failed: its start after a
	// relaunch, or its first step in place; zero: never.
	Rescued time.Time
}

// A GPUAccount adds up the spans of a run's attempts, in their order. The zero value has none.
type GPUAccount struct {
	total, lost, rescued int64     // in thousandths of a GPU-second
	kept                 []GPUSpan // whose work was not lost, in order
	rescues              int
	first                time.Time // rescue
	open, atLeast        bool      // the end of the last span, or of any, is not known
}

// Add adds the next attempt. What was done since the checkpoint that it resumed is lost.
func (a *GPUAccount) Add(s GPUSpan) {
	if n := len(a.kept); a.open && n > 0 && s.Resumed.After(a.kept[n-1].Ended) { // it ran at least until then
		a.push(GPUSpan{Started: a.kept[n-1].Ended, Ended: s.Resumed, GPUs: a.kept[n-1].GPUs})
	}
	a.keep(s.Resumed)
	if !s.Rescued.IsZero() {
		a.rescues++
		if a.first.IsZero() {
			a.first = s.Rescued
		}
	}
	if a.open = s.Ended.IsZero(); a.open {
		a.atLeast, s.Ended = true, s.Started
	}
	a.push(s)
}

func (a *GPUAccount) push(s GPUSpan) {
	a.kept = append(a.kept, s)
	a.total += s.since(time.Time{})
	a.rescued += a.afterRescue(s, time.Time{})
}

// keep moves the work that was done after a moment from the kept to the lost.
func (a *GPUAccount) keep(saved time.Time) {
	for n := len(a.kept); n > 0 && a.kept[n-1].Ended.After(saved); n = len(a.kept) {
		last := &a.kept[n-1]
		a.lost += last.since(saved)
		a.rescued -= a.afterRescue(*last, saved)
		if last.Started.Before(saved) {
			last.Ended = saved
			return
		}
		a.kept = a.kept[:n-1]
	}
}

// Trained returns the figures of a run that trained: nothing of the last attempt is lost.
func (a *GPUAccount) Trained() GPUTime {
	const unit = 1000
	return GPUTime{Total: float64(a.total) / unit, Lost: float64(a.lost) / unit,
		Rescued: float64(max(a.rescued, 0)) / unit, Rescues: a.rescues, AtLeast: a.atLeast}
}

// Resumed returns the figures if the run continues from a checkpoint that was written at this time;
// zero: from the beginning.
func (a *GPUAccount) Resumed(saved time.Time) GPUTime {
	after := *a
	for i := len(a.kept) - 1; i >= 0 && a.kept[i].Ended.After(saved); i-- {
		after.lost += a.kept[i].since(saved)
		after.rescued -= a.afterRescue(a.kept[i], saved)
	}
	return after.Trained()
}

// afterRescue is the part of a span after both a moment and the first rescue.
func (a *GPUAccount) afterRescue(s GPUSpan, moment time.Time) int64 {
	if a.first.IsZero() {
		return 0
	}
	return s.since(latest(a.first, moment))
}

// since is the part of a span after a moment, in thousandths of a GPU-second.
func (s GPUSpan) since(moment time.Time) int64 {
	return max(s.Ended.Sub(latest(s.Started, moment)).Milliseconds(), 0) * int64(max(s.GPUs, 1))
}
