package doctor

import (
	"context"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// underWatch makes a check that tries the GPUs while it listens to their driver: where
// that raises an alarm of the hardware, an Xid for example, that is the result.
func underWatch(look func(context.Context, *patient) Result) func(context.Context, *patient) Result {
	return func(ctx context.Context, p *patient) Result {
		c := p.cards()
		var alarm string // written before stop returns
		stop := c.nvml.Watch(ctx, c.view.Devices, func(f strategy.Fact) {
			if f.DriverEvent == nil || alarm != "" {
				return
			}
			if finding, means := f.DriverEvent.Finding(); means && finding.Code == cause.GPUHardware {
				alarm = f.DriverEvent.Text()
			}
		})
		r := look(ctx, p)
		if stop(); alarm != "" {
			return problem("dmesg says more; have the GPU reset or replaced", "%s, as it was tried", alarm)
		}
		return r
	}
}
