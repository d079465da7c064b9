package doctor

import (
	"errors"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// fakeNVML builds the library that replaces the driver's in the tests of
// launcher/ranks: no GPU can be made to break, and most machines that run these have none.
func fakeNVML(t *testing.T, flags ...string) (folder string) {
	t.Helper()
	compiler, err := exec.LookPath("cc")
	if err != nil || !ranks.HasNVML() {
		t.Skipf("needs a C compiler and a build with NVML: %v", err)
	}
	folder = t.TempDir()
	args := append(flags, "-shared", "-fPIC", "-o", filepath.Join(folder, "libnvidia-ml.so.1"), filepath.Join("..", "ranks", "testdata", "nvml.c"))
	if out, err := exec.Command(compiler, args...).CombinedOutput(); err != nil {
		t.Fatalf("compile: %v\n%s", err, out)
	}
	return folder
}

func TestGPUs(t *testing.T) {
	type want struct {
		check      string
		state      CheckStatus
		found, fix string
	}
	for name, c := range map[string]struct {
		flags []string
		env   commandline.Environ
		wants []want
	}{
		"well and idle": {[]string{"-DALONE", "-DIDLE"}, nil, []want{
			{"devices", OK, "1 × NVIDIA H200, 140 GiB, driver 520.61.05 for CUDA 11", ""}, {"health", OK, "no memory errors, not slowed down, 41 °C", ""}, {"other users", OK, "none", ""},
		}},
		"sick": {[]string{"-DALONE", "-DSICK"}, nil, []want{
			{"health", Problem, "GPU 0: broken memory, and no spare rows left", "replaced"},
			{"other users", Warning, "GPU 0: 3.0 GiB in use (process 42", "CUDA_VISIBLE_DEVICES"},
		}},
		"hot":             {[]string{"-DALONE", "-DHOT"}, nil, []want{{"health", Warning, "GPU 0: slowed down by heat at 41 °C", "cooling"}}},
		"lost":            {nil, nil, []want{{"devices", Problem, "GPU 2: GPU is lost", "dmesg"}}},
		"lost, another's": {nil, commandline.Environ{"CUDA_VISIBLE_DEVICES": "0"}, []want{{"devices", Warning, "GPU 2: GPU is lost; the job sees 1 GPU of others", "dmesg"}}},
		"hidden":          {[]string{"-DALONE"}, commandline.Environ{"CUDA_VISIBLE_DEVICES": ""}, []want{{"devices", Warning, "hides all", "unset CUDA_VISIBLE_DEVICES"}, {"health", Skipped, "no GPU", ""}}},
		"not there":       {[]string{"-DALONE"}, commandline.Environ{"CUDA_VISIBLE_DEVICES": "7"}, []want{{"devices", Problem, "none that may be used", "nvidia-smi -L"}}},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			results := inChild(t, examination{Only: []string{"devices", "health", "other users"}}, c.env.With(commandline.Environ{"LD_LIBRARY_PATH": fakeNVML(t, c.flags...)}))
			for _, w := range c.wants {
				wants(t, results[w.check], w.state, w.found, w.fix)
			}
		})
	}
}

func TestFaults(t *testing.T) {
	for _, c := range []struct {
		health     strategy.Health
		err        error
		fault, fix string
	}{
		{strategy.Health{Remapped: 3, Celsius: 50}, nil, "", ""},
		{strategy.Health{Uncorrected: 1}, nil, "1 error of its memory that ECC could not correct", "-q -d ECC"},
		{strategy.Health{Uncorrected: 2, Pending: true}, nil, "broken memory waits to be remapped", "--gpu-reset"},
		{strategy.Health{Pending: true, Failed: true}, nil, "no spare rows left", "replaced"},
		{strategy.Health{}, errors.New("GPU is lost"), "GPU is lost", "restarted"},
	} {
		if fault, fix := faultOf(c.health, c.err); !strings.Contains(fault, c.fault) || !strings.Contains(fix, c.fix) || (fault == "") != (c.fault == "") {
			t.Errorf("%+v, %v: %q, %q", c.health, c.err, fault, fix)
		}
	}
}

// A PyTorch for a newer CUDA than the driver's, on the one GPU.
func TestTorchNewerThanDriver(t *testing.T) {
	env := pretend(t, map[string]any{"cuda": "12.8", "devices": 1}).With(commandline.Environ{"LD_LIBRARY_PATH": fakeNVML(t, "-DALONE", "-DIDLE")})
	results := inChild(t, examination{Only: []string{"torch"}}, env)
	wants(t, results["torch"], Problem, "driver 520.61.05 knows CUDA 11 at most", "525.60")
}

// A machine without GPUs says why, where that can be seen.
func TestNoGPU(t *testing.T) {
	wants(t, devices(t.Context(), onPaper(t, nil)), Warning, "none", "--gpus all")
	p := onPaper(t, map[string]string{
		"sys/bus/pci/devices/0000:00:02.0/vendor": "0x8086\n", "sys/bus/pci/devices/0000:00:02.0/class": "0x030000\n",
		"sys/bus/pci/devices/0000:01:00.0/vendor": "0x10de\n", "sys/bus/pci/devices/0000:01:00.0/class": "0x030200\n",
	})
	wants(t, devices(t.Context(), p), Problem, "on the bus, and its driver is not there", "install the NVIDIA driver")
	p.cards = func() cards { return cards{view: ranks.DeviceView{Count: 2, Source: "/dev/nvidia*"}} }
	if ranks.HasNVML() {
		wants(t, devices(t.Context(), p), Problem, "2 GPUs (/dev/nvidia*), and the driver's library NVML cannot be loaded", "utility")
	} else {
		wants(t, devices(t.Context(), p), Warning, "built without NVML", "install")
	}
	p.cards = func() cards { return cards{view: ranks.DeviceView{Count: 2, Name: "AMD GPU", Accelerator: "rocm"}} }
	wants(t, devices(t.Context(), p), OK, "2 × AMD GPU", "")
}

// In a step of Slurm that promised GPUs, none is the problem that ends each job.
func TestNoGPUWherePromised(t *testing.T) {
	p := onPaper(t, nil)
	p.environ = []string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1", "SLURM_JOB_NODELIST=n1", "SLURM_STEP_GPUS=0", "CUDA_VISIBLE_DEVICES=0"}
	r := resultOf(t, p, "devices")
	wants(t, r, Problem, "none: Slurm promised GPUs (CUDA_VISIBLE_DEVICES=0), and none is usable: there is no NVIDIA driver on n1", "try another node")
	if code := newReport([]Result{r}, nil).Code(); code != 1 {
		t.Errorf("exit code %d", code)
	}
	p.environ[4] = "CUDA_VISIBLE_DEVICES="
	wants(t, devices(t.Context(), p), Warning, "none", "--gpus=1")
}

// tries is a patient on whose GPUs things can be tried.
func tries(t *testing.T, settings map[string]any, devices int) *patient {
	t.Helper()
	p := withTorch(t, settings)
	p.cards = func() cards { return cards{view: ranks.DeviceView{Count: 2}} }
	p.torch = func() (torchFacts, error) {
		return torchFacts{Torch: "2.9.0", CUDA: "12.8", NCCL: true, Devices: devices}, nil
	}
	return p
}

// A GPU that others use is tried on request only.
func TestBusyGPUs(t *testing.T) {
	p := tries(t, nil, 2)
	p.cards = func() cards {
		return cards{view: ranks.DeviceView{Count: 2, Devices: []ranks.Device{{Used: 70 << 30}, {Index: 1}}}, users: [][]ranks.DeviceProcess{nil, {{PID: 1}}}}
	}
	wants(t, resultOf(t, p, "NCCL"), Skipped, "--busy", "")
	if p.busy = true; twoFreeGPUs(p) != "" || len(p.free()) != 2 {
		t.Errorf("with --busy: %q, %v", twoFreeGPUs(p), p.free())
	}
}
