package job

import (
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
)

// onGPU is a job with a ceiling on a GPU of 80 GiB, and an interpreter that says
// which PyTorch it has. The GPU stands in for one: what the ceiling does to a
// real one is measured on real ones.
func onGPU(t *testing.T, torch string, bytes int64) Resolved {
	t.Helper()
	path := filepath.Join(t.TempDir(), "python")
	packages := "{}"
	if torch != "" {
		packages = `{"torch": "` + torch + `"}`
	}
	put(t, path, "#!/bin/sh\necho '{\"version\": \"3.12.0\", \"packages\": "+packages+"}'\n")
	return Resolved{Inspected: Inspected{
		Job: Job{Kind: Script, DeviceMemory: bytes}, Interpreter: python.At(path, t.TempDir(), nil),
		GPUs: ranks.DeviceView{Count: 1, Devices: []ranks.Device{{Total: 80 << 30}}},
	}}
}

func TestACeilingOnAGPU(t *testing.T) {
	c, err := onGPU(t, "2.11.0+cu130", 20<<30).limit(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	for name, test := range map[string]struct{ user, knob, want string }{
		"nothing set":              {"", "", "per_process_memory_fraction:0.250000"},
		"the user's keys are kept": {"max_split_size_mb:128", "", "max_split_size_mb:128,per_process_memory_fraction:0.250000"},
		"beside the knob's":        {"", "expandable_segments:True", "expandable_segments:True,per_process_memory_fraction:0.250000"},
	} {
		env, set := map[string]string{}, map[string]string{}
		if test.user != "" {
			env["PYTORCH_CUDA_ALLOC_CONF"] = test.user
		}
		if test.knob != "" {
			set["PYTORCH_CUDA_ALLOC_CONF"] = test.knob
		}
		c.withAllocator(env, set)
		if got := set["PYTORCH_CUDA_ALLOC_CONF"]; got != test.want {
			t.Errorf("%s: %q, want %q", name, got, test.want)
		}
	}
}

func TestACeilingIsRefused(t *testing.T) {
	for name, test := range map[string]struct {
		torch string
		bytes int64
		want  string
	}{
		"an old PyTorch":    {"2.9.1+cu128", 20 << 30, "needs a newer PyTorch than 2.9.1"},
		"a very old one":    {"1.13.0a0", 20 << 30, "needs a newer PyTorch than 1.13.0a0"},
		"none":              {"", 20 << 30, "needs PyTorch, and "},
		"more than the GPU": {"2.11.0", 90 << 30, "is more than the GPU's 80.0 GiB"},
	} {
		_, err := onGPU(t, test.torch, test.bytes).limit(t.Context())
		if err == nil || errext.Hint(err) == "" || !strings.Contains(err.Error(), test.want) {
			t.Errorf("%s: %v", name, err)
		}
	}
}

// A program has no interpreter that could be asked.
func TestACeilingOnAProgram(t *testing.T) {
	r := onGPU(t, "", 20<<30)
	r.Job.Kind, r.Interpreter = Program, nil
	if c, err := r.limit(t.Context()); err != nil || c.allocator == "" {
		t.Errorf("%+v, %v", c, err)
	}
}
