package job

import (
	"context"
	"encoding/json"
	"strings"

	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Conditions is a digest of what decides whether the job fits into memory: its code and
// settings, the versions of gpurun and of packages, the policy and the device. It is empty
// where not all of it can be known, as what a shell script runs.
func (p *Prepared) Conditions(version string) func(context.Context, strategy.Inventory) string {
	return func(ctx context.Context, inv strategy.Inventory) string { return p.conditions(ctx, version, inv) }
}

// Unchanged reports whether the conditions are those of a run before, with no more room on
// the device than there was then.
func (p *Prepared) Unchanged(ctx context.Context, version, digest string, then strategy.Inventory, device func(context.Context) memory.DeviceMemory) bool {
	now := strategy.Inventory{Accelerator: p.Accelerator(), Device: device(ctx)}
	room, had := now.Device.Total-now.Device.Others, then.Device.Total-then.Device.Others
	return room <= had/100*101 && p.conditions(ctx, version, now) == digest
}

func (p *Prepared) conditions(ctx context.Context, version string, inv strategy.Inventory) (digest string) {
	if p.unpinned != nil {
		p = p.unpinned // those words name the run
	}
	if p.Comparable() != nil {
		return ""
	}
	err := errext.Recovered(func() error {
		job, device := p.StrategyJob(), inv.Device
		device.Others, device.Host, device.NVMe = 0, 0, 0 // what others hold changes
		text, err := json.Marshal([]any{
			version, p.codeDigest(), p.resolved.torchMinor(ctx), p.resolved.command.Packages, p.RecipeName(), p.Python(),
			p.Policy(), job, p.Plan(), inv.Accelerator, device, memoryVariables(p.resolved.env),
		})
		digest = short(text)
		return err
	})
	if err != nil {
		return ""
	}
	return digest
}

// memoryVariables are those by which the libraries below a job take more memory or less.
func memoryVariables(env environ.Vars) map[string]string {
	found := map[string]string{}
	for name, value := range env {
		if strings.HasPrefix(name, "PYTORCH_") || strings.HasPrefix(name, "NCCL_") || name == "CUDA_MODULE_LOADING" {
			found[name] = value
		}
	}
	return found
}
