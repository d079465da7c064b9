package gpu

import (
	"context"
	"fmt"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

const (
	// settleStep is the last pause of Settle, and firstStep its first, each longer than the
	// one before: the memory of ended ranks is freed within milliseconds, or not soon. NVML
	// announces no change of memory.
	settleStep = 100 * time.Millisecond
	firstStep  = 2 * time.Millisecond
	// idleLevel is what a free GPU may hold: contexts of monitoring, and the driver's own
	// growth once it is awake. NVIDIA's ft_launcher tolerates as much before it relaunches
	// (nvidia-resiliency-ext, docs/source/fault_tolerance/usage_guide.rst).
	idleLevel = 512 << 20
)

// Settle waits until the memory in use on each device is back at its level in baseline,
// View.Devices before attempt 0, or at a few hundred MiB where that is more. It compares the
// level and not process ids, which a container may not see. After the bound, or when ctx ends,
// it returns a Tenant for each device that is still above: Bytes is all that is in use there,
// PIDs are the holders where the driver names them. A device that does not answer is a gap.
// A nil result: all is free again.
func (n *NVML) Settle(ctx context.Context, baseline []Device, bound time.Duration) []strategy.Fact {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for pause := firstStep; ; pause = min(pause*3/2, settleStep) {
		facts := n.held(baseline)
		held := slices.ContainsFunc(facts, func(f strategy.Fact) bool { return f.Tenant != nil })
		if !held || ctx.Err() != nil { // a device that does not answer will not do so within seconds
			return facts
		}
		sleep(ctx, pause)
	}
}

// held compares the devices with their baseline once.
func (n *NVML) held(baseline []Device) []strategy.Fact {
	var facts []strategy.Fact
	for k, before := range baseline {
		now, err := n.driver.device(before.UUID)
		if err != nil {
			facts = append(facts, fact(strategy.Fact{
				Gap: fmt.Sprintf("cannot read the memory use of %s: %v", deviceName(k), err),
			}))
			continue
		}
		if now.Used <= max(before.Used, idleLevel) {
			continue
		}
		tenant := &strategy.Tenant{Device: deviceName(k), Bytes: now.Used}
		processes, _ := n.Processes(before) // for people; the level alone decides
		for _, p := range processes {
			tenant.PIDs = append(tenant.PIDs, p.PID)
		}
		facts = append(facts, fact(strategy.Fact{Tenant: tenant}))
	}
	return facts
}
