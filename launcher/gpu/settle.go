package gpu

import (
	"context"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

const (
	// settleStep is how often Settle looks in the end, and firstStep is its first pause,
	// each longer than the one before: what ended ranks held comes back within
	// milliseconds, or not soon. NVML announces no change of memory.
	settleStep = 100 * time.Millisecond
	firstStep  = 2 * time.Millisecond
	// idleLevel is what a GPU may hold that counts as free in any case: contexts
	// of monitoring, and the driver's own growth once it has been woken. NVIDIA's
	// ft_launcher tolerates as much before it relaunches (nvidia-resiliency-ext,
	// docs/source/fault_tolerance/usage_guide.rst).
	idleLevel = 512 << 20
)

// Settle waits until the memory in use on each device is back at its level in
// baseline, which is View.Devices as it was before attempt 0, or at a few hundred
// MiB where that is more. It goes by the level and not by process ids, which a
// container may not see. After the bound, or when ctx ends, it returns a Tenant
// for each device that is still above: Bytes is all that is in use there, PIDs
// are the holders where the driver names them. A device that cannot be asked is a
// gap. A nil result says that all is free again.
func (n *NVML) Settle(ctx context.Context, baseline []Device, bound time.Duration) []strategy.Fact {
	ctx, cancel := context.WithTimeout(ctx, bound)
	defer cancel()
	for pause := firstStep; ; pause = min(pause*3/2, settleStep) {
		facts := n.held(baseline)
		if !waitWorthwhile(facts) || ctx.Err() != nil {
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
				Gap: fmt.Sprintf("cannot read the memory use of cuda:%d: %v", k, err),
			}))
			continue
		}
		if now.Used <= max(before.Used, idleLevel) {
			continue
		}
		tenant := &strategy.Tenant{Device: fmt.Sprintf("cuda:%d", k), Bytes: now.Used}
		// Who it is helps people; the level alone decides.
		processes, _ := n.Processes(before)
		for _, p := range processes {
			tenant.PIDs = append(tenant.PIDs, p.PID)
		}
		facts = append(facts, fact(strategy.Fact{Tenant: tenant}))
	}
	return facts
}

// waitWorthwhile: memory may be given back, a device that does not answer will
// not do so within seconds.
func waitWorthwhile(facts []strategy.Fact) bool {
	for _, f := range facts {
		if f.Tenant != nil {
			return true
		}
	}
	return false
}
