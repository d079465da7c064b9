package job

import (
	"context"
	"fmt"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// checkPromise refuses a job whose scheduler promised GPUs, if it would silently train on the CPU for days.
// The exit code is 75 if the devices or their driver fail, since another node or a later time may help, and 2
// if the job's own PyTorch cannot use a GPU. It allows a job that requests the CPU. If it is not certain that
// the job trains with PyTorch, it only warns.
func (s Inspected) checkPromise(ctx context.Context, m Surroundings) (warnings []string, err error) {
	promise := s.promised(commandline.ParseEnviron(m.Environ))
	if promise == "" || s.asksForCPU() || s.GPUs.Accelerator != "" {
		return nil, nil
	}
	said := "Slurm promised GPUs"
	if !s.Where.Slurm() {
		said = "the scheduler promised GPUs"
	}
	said += " (" + promise + ")"
	why, hint, torch := "", "", false
	warnings = guest(promisedGPUs, func() error {
		why, hint = s.torchCannot(ctx, m.NVML)
		torch = why != "" && s.importsTorch()
		return nil
	})
	switch {
	case torch:
		return nil, errext.WithCode(errext.Errorf(hint, "%s, and %s", said, why), strategy.CodeUsage)
	case why != "" && s.GPUs.Count > 0:
		return []string{fmt.Sprintf("%s, and %s: if the job uses it, it trains on the CPU", said, why)}, nil
	case s.GPUs.Count > 0:
		return warnings, nil
	}
	reason := "there is no NVIDIA driver on " + s.nodeName()
	if s.GPUs.Source != "" && s.GPUs.Source != "/dev/nvidia*" {
		reason = "the driver on " + s.nodeName() + " offers none of them (" + s.GPUs.Source + ")"
	}
	for _, w := range m.Warnings {
		reason += "; " + w
	}
	return nil, errext.WithCode(errext.Errorf(
		"try another node, or give the container its GPUs; to train on the CPU, set CUDA_VISIBLE_DEVICES = \"\" in job.env",
		"%s, and none is usable: %s", said, reason), strategy.CodeRetry)
}

// CheckPromise returns the error with which a job would end here, if its scheduler promised GPUs and it would see
// none that is usable. A nil job is any job that uses GPUs.
func CheckPromise(ctx context.Context, j *Job, m Surroundings, gpus ranks.DeviceView) error {
	if j == nil {
		j = defaults()
	}
	place, err := j.place(m.Environ)
	if err != nil {
		return nil // another error of the job
	}
	_, err = Inspected{Job: *j, Where: place, env: inherited(m.Environ).With(j.Env), GPUs: gpus}.checkPromise(ctx, m)
	return err
}

func (s Inspected) nodeName() string {
	if s.Where.Node != "" {
		return s.Where.Node
	}
	return "this node"
}

// batchSystems are the variables with a job's number, for schedulers that set no more than that.
var batchSystems = []string{"PBS_JOBID", "LSB_JOBID", "FLUX_JOB_ID", "JOB_COMPLETION_INDEX", "KUBERNETES_SERVICE_HOST"}

// promised returns the variable, with its value, in which a scheduler states that the job has GPUs; empty for
// none.
func (s Inspected) promised(env commandline.Environ) string {
	visible, set := env.Lookup("CUDA_VISIBLE_DEVICES")
	if set && len(ranks.VisibleWords(visible)) == 0 {
		return "" // no GPUs were requested
	}
	if n, err := strconv.Atoi(env["SLURM_GPUS_ON_NODE"]); err == nil && n > 0 && s.Where.Slurm() {
		return "SLURM_GPUS_ON_NODE=" + env["SLURM_GPUS_ON_NODE"]
	}
	scheduled := s.Where.Slurm() || slices.ContainsFunc(batchSystems, func(name string) bool { return env[name] != "" })
	if set && scheduled {
		return "CUDA_VISIBLE_DEVICES=" + visible
	}
	// Many images set "all", even on nodes without GPUs.
	if v := env["NVIDIA_VISIBLE_DEVICES"]; scheduled && v != "all" && len(ranks.VisibleWords(v)) > 0 {
		return "NVIDIA_VISIBLE_DEVICES=" + v
	}
	return ""
}

// onCPU matches an argument, with its value, if any, that requests the CPU.
var onCPU = lazy.Regexp(`(?i)^(?:--?(?:cpu|use[-_]cpu|no[-_]cuda|cpu[-_]only)(?:=(?:1|true))?|(?:[-\w.]*[-.])?(?:device|accelerator|backend[-_]device|device[-_]type)[= ]["']?cpu["']?)$`)

// asksForCPU reports whether the job requests to train on the CPU.
func (s Inspected) asksForCPU() bool {
	if visible, set := s.Job.Env["CUDA_VISIBLE_DEVICES"]; set && len(ranks.VisibleWords(visible)) == 0 {
		return true
	}
	if on, err := strconv.ParseBool(s.env["ACCELERATE_USE_CPU"]); s.Job.Launch.NprocPerNode == "cpu" || err == nil && on {
		return true
	}
	for i, word := range s.Job.Argv {
		if onCPU().MatchString(word) || i > 0 && onCPU().MatchString(s.Job.Argv[i-1]+" "+word) {
			return true
		}
	}
	return false
}

// importsTorch reports whether the job certainly trains with PyTorch: its script, or a local module that the
// script imports, imports it.
func (s Inspected) importsTorch() bool {
	return slices.ContainsFunc(s.sources(), func(f format.Source) bool { return torchImport().Match(f.Text) })
}

var torchImport = lazy.Regexp(`(?m)^\s*(?:import|from)\s+(?:torch|lightning|pytorch_lightning|accelerate|deepspeed|trl|peft|torchtune|torchtitan|megatron|composer)\b`)

// torchBuilt matches the lines of PyTorch's version.py that show what it was built for: "cuda = None" or
// "cuda: Optional[str] = '12.4'".
var torchBuilt = lazy.Regexp(`(?m)^(cuda|hip)\b[^=\n]*=\s*(?:None|['"]([\d.]+)[^'"]*['"])`)

// torchCannot explains why the job's PyTorch cannot use a GPU of this node, and what to do; empty if it can,
// or if that is not known. It does not import PyTorch, which takes seconds.
func (s Inspected) torchCannot(ctx context.Context, driver *ranks.NVMLConnection) (why, hint string) {
	if s.Interpreter == nil {
		return "", ""
	}
	text, err := s.Interpreter.ReadFile(ctx, "torch/version.py")
	if err != nil {
		return "", "" // not the one that the job's interpreter would find
	}
	built := map[string]string{}
	for _, m := range torchBuilt().FindAllStringSubmatch(string(text), -1) {
		built[m[1]] = m[2]
	}
	cuda, told := built["cuda"]
	switch {
	case !told || built["hip"] != "":
		return "", ""
	case cuda == "":
		return fmt.Sprintf("the PyTorch of %s was built without CUDA", s.Interpreter.Path()),
			"install a PyTorch with CUDA there, or name another interpreter with job.python"
	}
	n, err := driver.NVML()
	if n == nil || err != nil {
		return "", ""
	}
	needs, _ := majorMinor(cuda)
	_, has := n.Versions()
	if has == 0 || has >= needs || compatible(s.env) {
		return "", ""
	}
	return fmt.Sprintf("the driver is too old for the PyTorch of %s: that was built for CUDA %s, and the driver knows CUDA %d", s.Interpreter.Path(), cuda, has),
		fmt.Sprintf("have the driver updated, or install a PyTorch for CUDA %d", has)
}

// compatible reports whether NVIDIA's compatibility package, which lets an older driver run newer programs,
// may be in use.
func compatible(env commandline.Environ) bool {
	return strings.Contains(env["LD_LIBRARY_PATH"], "compat")
}
