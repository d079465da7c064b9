package node

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// samplePause is the sampling interval.
const samplePause = time.Second

// stepped takes in an optimizer step that a rank's process reports.
func (a *attempt) stepped(rank int, s hook.OptimizerStep) {
	reported := s.At
	s.At = onClock(reported, time.Now())
	a.mu.Lock()
	again := a.steps[rank].N == s.N && a.reported[rank].Equal(reported)
	if again {
		s.At = a.steps[rank].At
	}
	a.steps[rank], a.reported[rank] = s, reported
	a.mu.Unlock()
	if again { // a new phase of the same step is no step
		return
	}
	a.out.Stepped(rank, s.N, s.At)
}

// lateReport bounds how long a step's report may be on its way.
const lateReport = time.Minute

// onClock returns a moment that a process reported by the wall clock as one of this process's monotonic clock: if the
// wall clock is set later, the ranks have been neither silent for an hour nor ahead of time. A report that cannot be of
// the last minute is of now.
func onClock(reported, now time.Time) time.Time {
	if age := now.Round(0).Sub(reported); age >= 0 && age <= lateReport {
		return now.Add(-age)
	}
	return now
}

// repeats wraps an emit to remember the steps that each rank did again in place.
func (a *attempt) repeats(emit func(strategy.Fact)) func(strategy.Fact) {
	return func(f strategy.Fact) {
		if r := strategy.As[*strategy.ProcessReport](f); r != nil && len(r.InPlace) > 0 {
			now, _ := strategy.CountInPlace(r.InPlace)
			a.mu.Lock()
			before, _ := strategy.CountInPlace(a.again[f.Rank])
			a.again[f.Rank] = r.InPlace
			a.mu.Unlock()
			if now > before {
				a.out.Repeated(f.Rank)
			}
		}
		emit(f)
	}
}

// startSampling samples the ranks until stopSampling, which takes a last sample.
func (a *attempt) startSampling() {
	a.stopSampling = func() {}
	take := a.node.opts.Samples
	if take == nil {
		return
	}
	over := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		memory, _ := ranks.ThisMachine().Memory() // zero if not known
		share := memory.Whole() / int64(a.local)  // each rank's part
		devices, stop := a.followDevices()
		defer stop()
		tick := time.NewTicker(samplePause)
		defer tick.Stop()
		for running := true; running; {
			take(a.n, a.samples(time.Now().UTC(), devices(), share))
			select {
			case <-tick.C:
			case <-over:
				running = false
			}
		}
		take(a.n, a.samples(time.Now().UTC(), devices(), share))
	})
	a.stopSampling = sync.OnceFunc(func() { close(over); sampling.Wait() })
}

func (a *attempt) followDevices() (now func() []ranks.Device, stop func()) {
	if a.node.opts.Devices == nil {
		return func() []ranks.Device { return nil }, func() {}
	}
	return a.node.opts.Devices(a.lingering)
}

// samples returns one reading of each rank's state. share is each rank's part of the host's memory.
func (a *attempt) samples(now time.Time, devices []ranks.Device, share int64) []strategy.Sample {
	var all []strategy.Sample
	for _, rank := range a.ranks() {
		step, known := a.latest(rank)
		a.mu.Lock()
		times, held := strategy.CountInPlace(a.again[rank])
		a.mu.Unlock()
		s := strategy.Sample{Time: now, Rank: rank, Phase: "load", InPlace: times > 0}
		addSteps(&s, a.out.Shown(rank), step)
		if s.Step > 0 {
			s.Phase = cmp.Or(step.Phase, "train")
		}
		if !a.gone(rank) {
			s.Counted, s.CountedAt = step.N, step.At
			s.Data, s.Forward = strategy.Seconds(step.Data), strategy.Seconds(step.Forward)
		}
		device := rank - a.meeting.Offset // unless the rank reports another
		if known && step.Held.Peak > 0 {
			device = step.Held.Device
			addHeld(&s, step.Held)
			s.Peak = max(s.Peak, held)
		}
		if device >= 0 && device < len(devices) {
			s.Device = fmt.Sprintf("cuda:%d", device)
			s.Used, s.Capacity, s.Allowed = devices[device].Used, devices[device].Total, devices[device].Total
		}
		if s.Device == "cpu" {
			s.Allowed = cmp.Or(a.node.opts.DataLimit, share)
		}
		all = append(all, s)
	}
	return all
}

func (a *attempt) gone(rank int) bool {
	a.mu.Lock()
	defer a.mu.Unlock()
	return a.ended[rank]
}

// latest returns the last report of a rank's process. A process that trains on the CPU is measured from
// outside before its first step, or if no hook counts its steps.
func (a *attempt) latest(rank int) (step hook.OptimizerStep, known bool) {
	a.mu.Lock()
	step, known = a.steps[rank]
	a.mu.Unlock()
	if step.N > 0 || a.node.opts.Accelerator != "cpu" {
		return step, known
	}
	seen := a.group.Held(rank)
	a.mu.Lock()
	defer a.mu.Unlock()
	if step = a.steps[rank]; step.N == 0 && seen.Now > 0 { // a process that is gone keeps its last figures
		step.Held = hook.HeldMemory{Device: -1, Allocated: seen.Now, Peak: max(seen.Peak, step.Held.Peak)}
		a.steps[rank] = step
	}
	return step, true
}

// addSteps adds a rank's progress as its process reports it, or as its output shows it if only the output has
// the total number of steps: the two may count different things.
func addSteps(s *strategy.Sample, lines ranks.Shown, step hook.OptimizerStep) {
	s.Step, s.Total, s.Loss = step.N, step.Total, lines.Loss
	if step.N == 0 || lines.Total > 0 && step.Total == 0 {
		s.Step, s.Total, s.Batches = lines.Step, lines.Total, step.N > 0
	}
	if s.Loss == nil && step.N > 0 && !math.IsNaN(step.Loss) && !math.IsInf(step.Loss, 0) {
		s.Loss = &step.Loss
	}
}

// addHeld adds the memory of a rank's process.
func addHeld(s *strategy.Sample, h hook.HeldMemory) {
	s.Device = "cpu"
	if h.Device >= 0 {
		s.Device = fmt.Sprintf("cuda:%d", h.Device)
	}
	s.Allocated, s.Reserved, s.Retries = h.Allocated, h.Reserved, h.Retries
	s.Peak = cmp.Or(h.Peak, h.Allocated)
}

// compareEnvironments compares the variables that gpurun set with those of a failed rank: a script may have set
// them itself.
func (a *attempt) compareEnvironments() {
	if a.node.opts.UsedVariable == nil {
		return
	}
	for _, rank := range a.ranks() {
		for name, value := range hook.Environ(a.dir, rank) {
			if value == a.asked[name] {
				continue
			}
			for k, v := range a.node.opts.UsedVariable(name, a.asked[name], value) {
				a.emit(strategy.Fact{Time: time.Now(), Rank: rank, Source: "probe", Content: &strategy.ObservedSetting{
					Knob: k, Value: v, Text: fmt.Sprintf("%s=%s in the environment of rank %d", name, value, rank)}})
			}
		}
	}
}
