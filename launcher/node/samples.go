package node

import (
	"cmp"
	"fmt"
	"math"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/gpu"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/probe"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// samplePause is how often ranks are looked at for who looks on.
const samplePause = time.Second

// stepped takes the optimizer steps that a rank's process counts.
func (a *attempt) stepped(rank int, s probe.Step) {
	a.mu.Lock()
	again := a.told[rank].N == s.N && a.told[rank].At.Equal(s.At)
	a.told[rank] = s
	a.mu.Unlock()
	if again { // another phase is no step
		return
	}
	a.out.Stepped(rank, s.N, s.At)
}

// startSampling looks at the ranks until stopSampling, and a last time then.
func (a *attempt) startSampling() {
	a.stopSampling = func() {}
	take := a.node.opts.Samples
	if take == nil {
		return
	}
	over := make(chan struct{})
	var sampling sync.WaitGroup
	sampling.Go(func() {
		memory, _ := host.This().Memory()        // nothing, where it is not known
		share := memory.Whole() / int64(a.local) // a rank's part
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

func (a *attempt) followDevices() (now func() []gpu.Device, stop func()) {
	if a.node.opts.Devices == nil {
		return func() []gpu.Device { return nil }, func() {}
	}
	return a.node.opts.Devices(a.lingering)
}

// samples are what each rank lets see of itself now; share is its part of the host's memory.
func (a *attempt) samples(now time.Time, devices []gpu.Device, share int64) []model.Sample {
	var all []model.Sample
	for _, rank := range a.ranks() {
		told, known := a.latest(rank)
		s := model.Sample{Time: now, Rank: rank, Phase: "load"}
		addSteps(&s, a.out.Shown(rank), told)
		if s.Step > 0 {
			s.Phase = cmp.Or(told.Phase, "train")
		}
		if !a.gone(rank) {
			s.Counted, s.CountedAt = told.N, told.At
			s.Data, s.Forward = strategy.Seconds(told.Data), strategy.Seconds(told.Forward)
		}
		device := rank - a.meeting.Offset // of ranks that have not said theirs
		if known && told.Held.Peak > 0 {
			device = told.Held.Device
			addHeld(&s, told.Held)
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

// latest is what a rank's process told last. Before its first step, or without a hook that
// counts them, one that trains on the CPU is seen from outside.
func (a *attempt) latest(rank int) (told probe.Step, known bool) {
	a.mu.Lock()
	told, known = a.told[rank]
	a.mu.Unlock()
	if told.N > 0 || a.node.opts.Accelerator != "cpu" {
		return told, known
	}
	seen := a.group.Held(rank)
	a.mu.Lock()
	defer a.mu.Unlock()
	if told = a.told[rank]; told.N == 0 && seen.Now > 0 { // of one that is gone, what was seen last
		told.Held = probe.Held{Device: -1, Allocated: seen.Now, Peak: max(seen.Peak, told.Held.Peak)}
		a.told[rank] = told
	}
	return told, true
}

// addSteps adds how far a rank has come: by its lines where they alone say how many steps
// there are, since the two may count different things, else by its process.
func addSteps(s *model.Sample, lines output.Shown, told probe.Step) {
	s.Step, s.Total, s.Loss = told.N, told.Total, lines.Loss
	if told.N == 0 || lines.Total > 0 && told.Total == 0 {
		s.Step, s.Total, s.Batches = lines.Step, lines.Total, told.N > 0
	}
	if s.Loss == nil && told.N > 0 && !math.IsNaN(told.Loss) && !math.IsInf(told.Loss, 0) {
		s.Loss = &told.Loss
	}
}

// addHeld adds what a rank's process holds.
func addHeld(s *model.Sample, h probe.Held) {
	s.Device = "cpu"
	if h.Device >= 0 {
		s.Device = fmt.Sprintf("cuda:%d", h.Device)
	}
	s.Allocated, s.Reserved, s.Retries = h.Allocated, h.Reserved, h.Retries
	s.Peak = cmp.Or(h.Peak, h.Allocated)
}
