package job

import (
	"bytes"
	"fmt"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/strategy"
)

// inside lets gpurun's hook change knobs for which the job has no setting. A setting of the job comes first,
// and a knob that the user's settings exclude stays excluded.
func (r Resolved) inside(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	if !r.Job.Launch.Probe {
		return
	}
	reason := r.notInside()
	inCode, shards := r.recipe.InCode(), r.shards()
	if own := knobs[strategy.MicroBatchSize]; reason == "" && plan[strategy.MicroBatchSize] == "" &&
		own.By != strategy.ByHook {
		own.Reported = true // the process sees the loader's batch size, or the first batches
		knobs[strategy.MicroBatchSize] = own
	}
	for k, own := range knobs {
		if own.Absent == "" && plan[k] == "" && inCode && r.Job.Launch.Hooks {
			own.Reported = true
			knobs[k] = own
		}
	}
	for _, k := range strategy.Knobs {
		how := strategy.InsideOf(k)
		if how == nil {
			continue
		}
		byHook := strategy.Range{By: strategy.ByHook, Values: how.Values, Caveat: how.Caveat}
		switch own := knobs[k]; {
		case len(own.Likely) > 0 && reason == "": // a name is no proof of what the argument does
			byHook.Likely = own.Likely
			knobs[k] = byHook
		case k == strategy.ForwardParts && shards != "":
			knobs[k] = strategy.Range{Absent: shards}
		case k == strategy.OffloadOptimizer && own.Absent == "" && reason == "" && r.lacksDeepSpeed() &&
			(plan[k] == "" || plan[k] == how.Values[0]):
			delete(plan, k)
			knobs[k] = byHook
		case own.Absent == "", r.recipe.RuledOut(r.command, r.at, plan, k):
		case plan[k] != "" && plan[k] != how.Values[0]:
		case against(r.Job.Argv, how) != "":
			own.Absent = "the command has " + against(r.Job.Argv, how)
			knobs[k] = own
		case reason != "":
			own.Absent += "; " + reason
			knobs[k] = own
		default:
			delete(plan, k) // the process reports it
			knobs[k] = byHook
		}
	}
}

// shards is the reason against parts of the batch if accelerate launch shards the job, by FSDP or a ZeRO stage: its
// ranks communicate in each backward pass. It is empty if nothing shows that.
func (r Resolved) shards() string {
	const parts = ": each part of the batch would have its own backward pass, and the ranks share "
	zero, _ := strconv.Atoi(r.env["ACCELERATE_DEEPSPEED_ZERO_STAGE"])
	switch on := func(name string) bool { return strings.EqualFold(r.env[name], "true") }; {
	case r.Ranks < 2:
		return ""
	case on("ACCELERATE_USE_FSDP"):
		return "accelerate launch uses FSDP" + parts + "parameters"
	case on("ACCELERATE_USE_DEEPSPEED") && zero > 0:
		return fmt.Sprintf("accelerate launch uses ZeRO stage %d%sgradients or parameters", zero, parts)
	}
	return ""
}

// against returns the word of a command by which the user excludes a change in the process; empty for none.
func against(argv []string, how *strategy.Inside) string {
	if how.Refusal == "" {
		return ""
	}
	refusal := regexp.MustCompile(how.Refusal)
	for i := range argv {
		switch {
		case refusal.MatchString(argv[i]):
			return argv[i]
		case i > 0 && refusal.MatchString(argv[i-1]+" "+argv[i]):
			return argv[i-1] + " " + argv[i]
		}
	}
	return ""
}

// notInside explains why nothing can be changed in the job's process; empty if that may be possible, which
// the process finally decides.
func (r Resolved) notInside() string {
	sources := r.sources()
	switch {
	case !r.Job.Launch.Probe:
		return "launch.probe = false keeps gpurun out of the process"
	case !r.Job.Launch.Hooks:
		return "launch.hooks = false keeps gpurun from changing it in the process"
	case len(sources) == 0 && !r.runsOthers():
		return "the program is not a Python script, so gpurun cannot change it in the process"
	case len(sources) == 0 && r.hidesProbe():
		return filepath.Base(r.Job.shellScript()) + " replaces PYTHONPATH, so gpurun does not reach the process"
	case len(sources) == 0:
		return "" // a shell script may run anything
	}
	return ""
}

// newPythonPath matches a line that sets PYTHONPATH, and its value.
var newPythonPath = lazy.Regexp(`(?m)^[^#\n]*?\bPYTHONPATH=(.*)`)

// hidesProbe reports whether the job's shell script sets PYTHONPATH without the folders that are in it: gpurun's own is
// one of them.
func (r Resolved) hidesProbe() bool {
	text, err := ReadFile(under(r.Job.Workdir, r.Job.shellScript()), largestFile)
	if err != nil {
		return false
	}
	return slices.ContainsFunc(newPythonPath().FindAllSubmatch(text, -1),
		func(m [][]byte) bool { return !bytes.Contains(m[1], []byte("PYTHONPATH")) })
}

// runsOthers reports whether the job's command may start Python: a module, a shell, a
// script of one.
func (s Inspected) runsOthers() bool {
	first := s.Job.Argv[0]
	if s.Job.Kind != Program || slices.Contains(commandline.Shells, nameOf(first)) || commandline.IsPython(first) {
		return true
	}
	path, err := python.Finder{Dir: s.Job.Workdir, Env: s.env}.InPath(first)
	if err != nil {
		return false
	}
	_, script := interpreterLine(path)
	return script
}

// split divides a plan into the part that the recipe writes, and the part that the hook changes.
func (p *Prepared) split(plan strategy.Plan) (written, turned strategy.Plan) {
	written = strategy.Plan{}
	for k, v := range plan {
		switch how := strategy.InsideOf(k); {
		case p.knobs[k].By != strategy.ByHook:
			written[k] = v
		case slices.Contains(how.Values[1:], v):
			turned = turned.With(strategy.Plan{k: v})
		}
	}
	return written, turned
}
