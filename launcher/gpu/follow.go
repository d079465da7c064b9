package gpu

import (
	"context"
	"slices"
	"sync"
	"time"
)

// followPause is how often Follow reads the devices' memory.
const followPause = 2 * time.Second

// Follow reads the memory of the job's devices again and again until stop is called. now
// returns the last figures at once, none before NVML is up; those of a device that does not
// answer stay. stop does not wait for the driver.
func (b *Baseline) Follow(ctx context.Context) (now func() []Device, stop func()) {
	var mu sync.Mutex
	var latest []Device
	ctx, cancel := context.WithCancel(ctx)
	var starting sync.WaitGroup
	starting.Go(func() {
		if !b.await(ctx) || b.nvml == nil || len(b.devices) == 0 {
			return
		}
		b.nvml.watching.Go(func() {
			devices := slices.Clone(b.devices)
			for ctx.Err() == nil {
				for i, d := range devices {
					if read, err := b.nvml.driver.device(d.UUID); err == nil {
						devices[i] = read
					}
				}
				mu.Lock()
				latest = slices.Clone(devices)
				mu.Unlock()
				sleep(ctx, followPause)
			}
		})
	})
	now = func() []Device {
		mu.Lock()
		defer mu.Unlock()
		return latest
	}
	return now, func() { cancel(); starting.Wait() }
}
