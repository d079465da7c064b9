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

// turnedInside are the knobs, and their values, that gpurun's hook can change in the process.
var turnedInside = map[strategy.Knob][]strategy.Value{
	strategy.ActivationCheckpointing: {"none", "full"},
	strategy.ForwardParts:            {"1", "2", "4", "8", "16", "32"},
	strategy.OffloadActivations:      {"none", "cpu"},
	strategy.LossParts:               {"off", "on"},
	strategy.Attention:               {"eager", "sdpa"},
	strategy.Precision:               {"fp32", "bf16"},
}

// inside lets gpurun's hook change knobs for which the job has no setting. A setting of the job comes first,
// and a knob that the user's settings exclude stays excluded.
func (r Resolved) inside(plan strategy.Plan, knobs map[strategy.Knob]strategy.Range) {
	if !r.Job.Launch.Probe {
		return
	}
	reason := r.notInside()
	inCode, shards := r.recipe.InCode(), r.shards()
	if own := knobs[strategy.MicroBatchSize]; reason == "" && plan[strategy.MicroBatchSize] == "" && own.By != strategy.ByHook {
		own.Reported = true // the process sees the loader's batch size, or the first batches
		knobs[strategy.MicroBatchSize] = own
	}
	for k, own := range knobs {
		if own.Absent == "" && plan[k] == "" && inCode && r.Job.Launch.Hooks {
			own.Reported = true
			knobs[k] = own
		}
	}
	for k, values := range turnedInside {
		switch own := knobs[k]; {
		case len(own.Likely) > 0 && reason == "": // a name is no proof of what the argument does
			knobs[k] = strategy.Range{By: strategy.ByHook, Values: values, Caveat: caveats[k], Likely: own.Likely}
		case k == strategy.ForwardParts && shards != "":
			knobs[k] = strategy.Range{Absent: shards}
		case own.Absent == "", r.recipe.RuledOut(r.command, r.at, plan, k):
		case plan[k] != "" && plan[k] != values[0]:
		case against(r.Job.Argv, k) != "":
			own.Absent = "the command has " + against(r.Job.Argv, k)
			knobs[k] = own
		case reason != "":
			own.Absent += "; " + reason
			knobs[k] = own
		default:
			delete(plan, k) // the process reports it
			knobs[k] = strategy.Range{By: strategy.ByHook, Values: values, Caveat: caveats[k]}
		}
	}
}

// shards is the reason against parts of the batch if accelerate launch shards the job, by FSDP or a ZeRO stage: its ranks
// communicate in each backward pass. It is empty if nothing shows that.
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

// caveats are what the process needs to change a knob: they follow "the process, which".
var caveats = map[strategy.Knob]string{
	strategy.ForwardParts: "needs several independent samples, and a model without state",
	strategy.LossParts:    "needs one over classes, with large logits",
}

// refusals match a word of a command, with its value, if any, by which the user excludes a change of a knob.
var refusals = map[strategy.Knob]func() *regexp.Regexp{
	strategy.ActivationCheckpointing: lazy.Regexp(`(?i)^--?(?:(?:no|disable)[-_](?:use[-_])?(?:(?:gradient|grad|activation|act)[-_])?(?:checkpoint(?:ing)?|ckpt|recompute)|(?:use[-_])?(?:gradient|grad|activation)[-_](?:checkpoint(?:ing)?|ckpt)[= ](?:false|0|no|off|none))$`),
	strategy.Precision:               lazy.Regexp(`(?i)^--?(?:(?:no|disable)[-_](?:amp|mixed[-_]precision|autocast|fp16|bf16)|fp32|float32|full[-_]precision|(?:precision|dtype|mixed[-_]precision|amp)[= ](?:32|32-true|fp32|float32|full|no|none|false|0))$`),
	strategy.Attention:               lazy.Regexp(`(?i)^--?(?:(?:no|disable)[-_](?:sdpa|flash(?:[-_](?:attn|attention))?)|attn[-_]implementation[= ]eager)$`),
}

// against returns the word of a command by which the user excludes a change of a knob; empty for none.
func against(argv []string, k strategy.Knob) string {
	refusal := refusals[k]
	for i := range argv {
		switch {
		case refusal == nil:
		case refusal().MatchString(argv[i]):
			return argv[i]
		case i > 0 && refusal().MatchString(argv[i-1]+" "+argv[i]):
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
	return slices.ContainsFunc(newPythonPath().FindAllSubmatch(text, -1), func(m [][]byte) bool { return !bytes.Contains(m[1], []byte("PYTHONPATH")) })
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
		switch values := turnedInside[k]; {
		case p.knobs[k].By != strategy.ByHook:
			written[k] = v
		case slices.Contains(values[1:], v):
			turned = turned.With(strategy.Plan{k: v})
		}
	}
	return written, turned
}
