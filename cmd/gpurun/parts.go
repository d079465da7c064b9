package main

import (
	"context"
	"encoding/json"
	"os/exec"
	"path/filepath"
	"slices"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/strategy"
)

// listPackages prints the packages that an interpreter has, without importing
// one of them.
const listPackages = `
import importlib.metadata, json
print(json.dumps({(d.metadata["Name"] or "").lower(): d.version for d in importlib.metadata.distributions()}))`

// packages asks the job's interpreter for the packages that it has, by name in
// lower case; nil where it has none to ask, or does not answer.
func (p *prepared) packages(ctx context.Context) map[string]string {
	if p.job.Kind == job.Program || p.python == "" {
		return nil
	}
	cmd := exec.CommandContext(ctx, p.python, "-c", listPackages)
	cmd.Env, cmd.Dir = p.env, p.job.Workdir
	out, err := cmd.Output()
	if err != nil {
		return nil
	}
	var installed map[string]string
	if json.Unmarshal(out, &installed) != nil {
		return nil
	}
	return installed
}

// missing names, for each rung, the part that it needs and that is not there:
// DeepSpeed itself where the recipe shards through it, and what DeepSpeed builds
// its Adam for the CPU and its asynchronous I/O with when they are first used.
func (p *prepared) missing() map[strategy.Rung]string {
	if !slices.Contains(p.recipe.Rules, "deepspeed-config") || p.command.Packages == nil {
		return nil
	}
	missing := map[strategy.Rung]string{}
	lack := func(reason string, rungs ...strategy.Rung) {
		for _, r := range rungs {
			if missing[r] == "" {
				missing[r] = reason
			}
		}
	}
	if p.command.Packages["deepspeed"] == "" {
		lack("the job's interpreter has no DeepSpeed", strategy.RungShard, strategy.RungOffloadOptimizer, strategy.RungOffloadParam, strategy.RungNVMe)
	}
	if !p.finds("c++", "g++", "clang++") {
		lack("DeepSpeed builds its CPU optimizer when it is first used, and there is no C++ compiler", strategy.RungOffloadOptimizer, strategy.RungOffloadParam, strategy.RungNVMe)
	}
	if p.accelerator() == "cuda" && !p.finds("nvcc") {
		lack("DeepSpeed builds its CPU optimizer when it is first used, and there is no nvcc", strategy.RungOffloadOptimizer, strategy.RungOffloadParam, strategy.RungNVMe)
	}
	if root := p.job.Recovery.NVMePath; root != "" {
		if reason := lackOfNVMe(root); reason != "" {
			lack(reason, strategy.RungNVMe)
		}
	}
	if !hasLibaio() {
		lack("DeepSpeed reads and writes NVMe through libaio, which is not there", strategy.RungNVMe)
	}
	return missing
}

// finds reports whether one of the programs is in PATH, or where CUDA keeps its own.
func (p *prepared) finds(names ...string) bool {
	home, _ := launcher.Lookup(p.env, "CUDA_HOME")
	for _, name := range names {
		for _, path := range []string{name, filepath.Join(home, "bin", name), filepath.Join("/usr/local/cuda/bin", name)} {
			if _, err := exec.LookPath(path); err == nil {
				return true
			}
		}
	}
	return false
}

// hasLibaio looks where Linux distributions put the library.
func hasLibaio() bool {
	for _, pattern := range []string{"/lib/*/libaio.so*", "/usr/lib/*/libaio.so*", "/usr/lib64/libaio.so*", "/usr/lib/libaio.so*"} {
		if found, err := filepath.Glob(pattern); err == nil && len(found) > 0 {
			return true
		}
	}
	return false
}
