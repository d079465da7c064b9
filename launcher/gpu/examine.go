package gpu

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// Findings are what the driver says of the health of a job's devices.
type Findings struct {
	// Unfit are the devices that nothing should be trained on.
	Unfit []cause.DriverEvent
	// Notable is what people should know of the others, a sentence each.
	Notable []string
}

// Findings waits until the devices were looked at, or for ctx. There are none without NVML,
// and where nobody asked for them.
func (b *Baseline) Findings(ctx context.Context) Findings {
	select {
	case <-b.examined:
		return b.findings
	case <-ctx.Done():
		return Findings{}
	}
}

// tell emits the findings once, and warns of what is notable.
func (b *Baseline) tell(ctx context.Context, emit func(strategy.Fact)) {
	found := b.Findings(ctx)
	b.mu.Lock()
	first := !b.heard && ctx.Err() == nil
	b.heard = b.heard || first
	b.mu.Unlock()
	if !first {
		return
	}
	for _, text := range found.Notable {
		if b.Warn != nil {
			b.Warn(text)
		}
	}
	for _, event := range found.Unfit {
		emit(fact(strategy.Fact{DriverEvent: &event}))
	}
}

// examine looks at each device.
func (b *Baseline) examine() Findings {
	var found Findings
	if b.lost != nil {
		found.Unfit = append(found.Unfit, cause.DriverEvent{
			Kind: cause.UnfitEvent, Index: b.lost.index, Recovery: cause.RecoverByReboot, Fault: fmt.Sprintf("the driver lists GPU %d and gets no answer from it: %v", b.lost.index, b.lost.err),
		})
	}
	healths := map[int]strategy.Health{}
	links := map[string]int{}
	for k, d := range b.devices {
		h, err := b.nvml.driver.health(d.UUID)
		unfit := b.Unfit(k, h.Unfit())
		unfit.Bus, unfit.Recovery = h.Bus, h.Recovery
		switch {
		case errors.Is(err, errLost):
			unfit.Fault, unfit.Recovery = "the driver has lost it", cause.RecoverByReboot
		case err != nil:
			found.Notable = append(found.Notable, fmt.Sprintf("%s does not tell of its health: %v", named(k, d), err))
		case h.Pending && h.Recovery == "" && !h.Failed:
			unfit.Recovery = cause.RecoverByReset
		}
		if unfit.Fault != "" {
			found.Unfit = append(found.Unfit, unfit)
		}
		if err == nil {
			healths[k], links[d.Name] = h, max(links[d.Name], h.Links)
		}
	}
	for k, d := range b.devices {
		h, told := healths[k]
		if !told {
			continue
		}
		for _, text := range h.Notable(links[d.Name]) {
			found.Notable = append(found.Notable, named(k, d)+": "+text)
		}
	}
	return found
}

// Unfit is the event of device k that has a fault. It is to be called once the level is read.
func (b *Baseline) Unfit(k int, fault string) cause.DriverEvent {
	e := cause.DriverEvent{Kind: cause.UnfitEvent, Device: deviceName(k), Fault: fault}
	if k < len(b.devices) {
		e.UUID, e.Index = b.devices[k].UUID, b.devices[k].Index
	}
	return e
}

func named(k int, d Device) string { return fmt.Sprintf("%s (%s)", deviceName(k), d.UUID) }
