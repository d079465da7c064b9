package ranks

import (
	"context"
	"errors"
	"fmt"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// DeviceFindings describe the health of a job's devices.
type DeviceFindings struct {
	// Unfit are the devices that nothing should be trained on.
	Unfit []cause.DriverEvent
	// Notable are sentences about the others, for people.
	Notable []string
}

// Findings waits until the devices' health was read, or for ctx. There are none without NVML.
func (b *DeviceBaseline) Findings(ctx context.Context) DeviceFindings {
	select {
	case <-b.examined:
		return b.findings
	case <-ctx.Done():
		return DeviceFindings{}
	}
}

// report emits the findings once, and warns of the notable ones.
func (b *DeviceBaseline) report(ctx context.Context, emit func(strategy.Fact)) {
	found := b.Findings(ctx)
	b.mu.Lock()
	first := !b.reported && ctx.Err() == nil
	b.reported = b.reported || first
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
		emit(fact(strategy.Fact{Content: (*strategy.DriverEvent)(&event)}))
	}
}

// examine reads the health of each device. A fault of one that the job may not use is notable.
func (b *DeviceBaseline) examine(used int) DeviceFindings {
	var found DeviceFindings
	if b.lost != nil {
		found.add(len(b.devices) < used, b.unlisted())
	}
	healths, links := map[int]strategy.Health{}, map[string]int{}
	for k, d := range b.devices {
		h, err := b.nvml.driver.health(d.UUID)
		if err != nil && !errors.Is(err, errLost) {
			found.Notable = append(found.Notable, fmt.Sprintf("%s does not report its health: %v", named(k, d), err))
			continue
		}
		if event := b.judge(k, h, err); event.Fault != "" {
			found.add(k < used, event)
		}
		if err == nil {
			healths[k], links[d.Name] = h, max(links[d.Name], h.Links)
		}
	}
	for k, d := range b.devices {
		if h, known := healths[k]; known {
			for _, text := range h.Notable(links[d.Name]) {
				found.Notable = append(found.Notable, named(k, d)+": "+text)
			}
		}
	}
	return found
}

// add adds the fault of a device.
func (f *DeviceFindings) add(used bool, event cause.DriverEvent) {
	if used {
		f.Unfit = append(f.Unfit, event)
	} else {
		f.Notable = append(f.Notable, event.Text())
	}
}

// unlisted is the event of a GPU that does not answer.
func (b *DeviceBaseline) unlisted() cause.DriverEvent {
	return cause.DriverEvent{
		Kind: cause.UnfitEvent, Index: b.lost.index, Recovery: cause.RecoverByReboot,
		Fault: fmt.Sprintf("the driver lists GPU %d and gets no answer from it: %v", b.lost.index, b.lost.err),
	}
}

// judge is the event of device k, without a fault where it is fit to train on. err: the driver
// has lost it.
func (b *DeviceBaseline) judge(k int, h strategy.Health, err error) cause.DriverEvent {
	event := b.unfit(k, h.Unfit())
	event.Bus, event.Recovery = h.Bus, h.Recovery
	switch {
	case err != nil:
		event.Fault, event.Recovery = "the driver has lost it", cause.RecoverByReboot
	case h.Pending && h.Recovery == "" && !h.Failed:
		event.Recovery = cause.RecoverByReset
	}
	return event
}

// unfit is the event of device k with a fault. It is called once the level is read.
func (b *DeviceBaseline) unfit(k int, fault string) cause.DriverEvent {
	e := cause.DriverEvent{Kind: cause.UnfitEvent, Device: deviceName(k), Fault: fault}
	if k < len(b.devices) {
		e.UUID, e.Index = b.devices[k].UUID, b.devices[k].Index
	}
	return e
}

func named(k int, d Device) string { return fmt.Sprintf("%s (%s)", deviceName(k), d.UUID) }
