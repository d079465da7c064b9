package doctor

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"path"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// cards are the GPUs that the job would see, as they were before any trial.
type cards struct {
	nvml    *ranks.NVML // nil if the driver does not answer
	err     error       // why not
	view    ranks.DeviceView
	version string                  // of the driver
	cuda    int                     // the newest major version that the driver knows, 0 if unknown
	users   [][]ranks.DeviceProcess // of each of the view's devices
	hidden  bool                    // CUDA_VISIBLE_DEVICES hides all
}

func (p *patient) readCards() cards {
	var c cards
	var failed error
	c.nvml, c.err = p.driver.NVML()
	c.view, failed = ranks.VisibleDevices(p.env.Words(), c.nvml)
	c.err = errors.Join(c.err, failed)
	c.hidden = ranks.HidesDevices(p.env.Words())
	if c.nvml == nil {
		return c
	}
	c.version, c.cuda = c.nvml.Versions()
	for _, d := range c.view.Devices {
		users, _ := c.nvml.Processes(d)
		c.users = append(c.users, users)
	}
	return c
}

// count returns the number of NVIDIA GPUs that the job would see.
func (c cards) count() int {
	if c.view.Accelerator != "" {
		return 0
	}
	return c.view.Count
}

func devices(ctx context.Context, p *patient) Result {
	const reset = "dmesg shows why (Xid); reset the GPU, or restart the node"
	c := p.cards()
	_, chosen := p.env.Lookup("CUDA_VISIBLE_DEVICES")
	listed := fmt.Sprintf("%s (%s)", counted(c.view.Count, "GPU"), c.view.Source)
	switch {
	case c.err != nil && chosen && c.view.Devices != nil: // the job's chosen GPUs exist
		return warn(reset, "%v; the job sees %s of others", c.err, counted(c.view.Count, "GPU"))
	case c.err != nil:
		return problem(reset, "%v", c.err)
	case c.view.Name != "":
		return found("%d × %s (%s), which gpurun does not know: ceilings and health are off", c.view.Count, c.view.Name,
			c.view.Source)
	case c.view.Count == 0:
		return none(ctx, p, c)
	case c.view.Devices == nil && !ranks.HasNVML():
		return warn("install the gpurun of the release page, which has NVML built in",
			"%s; this gpurun is built without NVML, and cannot read their state", listed)
	case c.view.Devices == nil && c.nvml == nil:
		return problem("in a container, set NVIDIA_DRIVER_CAPABILITIES=compute,utility",
			"%s, and the driver's library NVML cannot be loaded", listed)
	case c.view.Devices == nil:
		return warn("set CUDA_DEVICE_ORDER=PCI_BUS_ID: else CUDA orders models by speed",
			"%s of different models, in an order that is not known (%s)", counted(c.view.Count, "GPU"), c.view.Source)
	}
	first := c.view.Devices[0]
	text := fmt.Sprintf("%d × %s, %s", c.view.Count, first.Name, strategy.GiB(first.Total))
	if c.version != "" {
		text += fmt.Sprintf(", driver %s for CUDA %d", c.version, c.cuda)
	}
	return found("%s", text)
}

// none returns the result if there are no GPUs, with the reason if it is visible.
func none(ctx context.Context, p *patient, c cards) Result {
	promise := job.CheckPromise(ctx, p.job, job.Surroundings{Environ: p.environ}, c.view)
	switch {
	case p.forCPU(ctx) && (c.hidden || !onTheBus(p.root)):
		return found("none, and the job trains on the CPU")
	case promise != nil:
		return problem(errext.Hint(promise), "none: %v", promise)
	case c.hidden:
		return warn("unset CUDA_VISIBLE_DEVICES, unless the job is to train on the CPU",
			"none: CUDA_VISIBLE_DEVICES hides all")
	case c.nvml != nil:
		return problem("compare CUDA_VISIBLE_DEVICES with what nvidia-smi -L lists", "none that may be used (%s)",
			c.view.Source)
	case onTheBus(p.root):
		return problem("install the NVIDIA driver, or load it: modprobe nvidia; docker: --gpus all",
			"a GPU of NVIDIA is on the bus, and its driver is not there")
	}
	return warn("Slurm: --gpus=1; docker: --gpus all; Kubernetes: limit nvidia.com/gpu", "none")
}

// forCPU reports whether the job is meant to train on the CPU: it hides the GPUs itself, or its PyTorch is
// built without GPUs. It waits a few seconds for PyTorch's report.
func (p *patient) forCPU(ctx context.Context) bool {
	if p.prepared == nil || p.prepared.Accelerator() != "cpu" {
		return false
	}
	if devices, set := p.job.Env["CUDA_VISIBLE_DEVICES"]; set &&
		ranks.HidesDevices([]string{"CUDA_VISIBLE_DEVICES=" + devices}) {
		return true
	}
	ctx, cancel := context.WithTimeout(ctx, 5*time.Second)
	defer cancel()
	if p.lacksTorch(ctx) != "" {
		return false
	}
	facts, err := p.torch()
	return err == nil && facts.CUDA == "" && facts.HIP == ""
}

// onTheBus reports whether the machine has an NVIDIA display or 3D controller (PCI vendor 0x10de, class
// 0x03).
func onTheBus(root fs.FS) bool {
	vendors, err := fs.Glob(root, "sys/bus/pci/devices/*/vendor")
	if err != nil {
		return false
	}
	for _, name := range vendors {
		vendor, _ := fs.ReadFile(root, name)
		class, _ := fs.ReadFile(root, path.Join(path.Dir(name), "class"))
		if strings.HasPrefix(string(vendor), "0x10de") && strings.HasPrefix(string(class), "0x03") {
			return true
		}
	}
	return false
}

func gpusAnswer(p *patient) string {
	if len(p.cards().view.Devices) == 0 {
		return "there is no GPU whose driver answers"
	}
	return ""
}

func health(_ context.Context, p *patient) Result {
	c := p.cards()
	var bad, slow []string
	fix, hottest := "", 0
	for k, d := range c.view.Devices {
		h, err := c.nvml.Health(d)
		hottest = max(hottest, h.Celsius)
		switch fault, mend := faultOf(h, err); {
		case fault != "":
			bad, fix = append(bad, fmt.Sprintf("GPU %d: %s", k, fault)), mend
		case h.Slowed != "":
			slow = append(slow, fmt.Sprintf("GPU %d: slowed down by %s at %d °C", k, h.Slowed, h.Celsius))
		}
	}
	switch {
	case len(bad) > 0:
		return problem(fix, "%s", strings.Join(bad, "; "))
	case len(slow) > 0:
		return warn("check cooling and power: nvidia-smi -q -d PERFORMANCE", "%s", strings.Join(slow, "; "))
	}
	return found("no memory errors, not slowed down, %d °C at most", hottest)
}

// faultOf returns what is broken in a device, and how to fix it; empty for nothing.
func faultOf(h strategy.Health, err error) (fault, fix string) {
	switch {
	case err != nil:
		return err.Error(), "have the GPU replaced, or the node restarted"
	case h.Failed:
		return h.Unfit(), "have the GPU replaced: its memory is worn out"
	case h.Recovery == cause.RecoverByReboot:
		return h.Unfit(), "have the node restarted"
	case h.Unfit() != "":
		return h.Unfit(), "have the GPU reset when it is not in use: nvidia-smi --gpu-reset"
	case h.Uncorrected > 0:
		return counted(int(h.Uncorrected), "error") + " of its memory that ECC could not correct",
			"have the GPU reset, and watched: nvidia-smi -q -d ECC"
	}
	return "", ""
}

// idleUse is what an idle device may hold: drivers before 510 count their own reserve, and
// some displays hold a little.
const idleUse = 1 << 30

// inUse reports whether other processes use device k.
func (c cards) inUse(k int) bool {
	return k < len(c.view.Devices) && (c.view.Devices[k].Used > idleUse || len(c.users[k]) > 0)
}

func others(_ context.Context, p *patient) Result {
	c := p.cards()
	var busy []string
	for k, d := range c.view.Devices {
		if c.inUse(k) {
			busy = append(busy, fmt.Sprintf("GPU %d: %s in use%s", k, strategy.GiB(d.Used), who(c.users[k])))
		}
	}
	if len(busy) > 0 {
		return warn("end them, or train on other GPUs: CUDA_VISIBLE_DEVICES", "%s", strings.Join(busy, "; "))
	}
	return found("none")
}

// mostUsers is how many processes of a device are named.
const mostUsers = 4

// who names the processes that are visible here: in a container, the driver reports pids of another
// namespace.
func who(users []ranks.DeviceProcess) string {
	if len(users) == 0 {
		return ""
	}
	var names []string
	for _, u := range users[:min(len(users), mostUsers)] {
		name := fmt.Sprintf("process %d", u.PID)
		if stat, err := system.ReadStat(u.PID); err == nil {
			name += " " + stat.Name()
		}
		if u.Bytes > 0 {
			name += ", " + strategy.GiB(u.Bytes)
		}
		names = append(names, name)
	}
	if more := len(users) - mostUsers; more > 0 {
		names = append(names, fmt.Sprintf("%d more", more))
	}
	return " (" + strings.Join(names, "; ") + ")"
}

// free returns the devices that may be tried: all with --busy, else the idle ones.
func (p *patient) free() []int {
	c := p.cards()
	facts, err := p.torch()
	if err != nil {
		return nil
	}
	count := facts.Devices
	if facts.HIP == "" {
		count = min(count, c.count())
	}
	var free []int
	for k := range count {
		if p.busy || !c.inUse(k) {
			free = append(free, k)
		}
	}
	return free
}

// twoFreeGPUs returns why there are not two GPUs that can be tried together.
func twoFreeGPUs(p *patient) string {
	facts, _ := p.torch()
	switch {
	case facts.Devices == 0 || facts.CUDAError != "":
		return "there is no GPU that torch can use"
	case facts.Devices == 1:
		return "there is one GPU"
	case len(p.free()) < 2:
		return "others use the GPUs; --busy tries them anyway"
	}
	return ""
}
