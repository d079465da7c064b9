package job

import (
	"bytes"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
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
		own.Told = true // the process sees the loader's batch size, or the first batches
		knobs[strategy.MicroBatchSize] = own
	}
	for k, own := range knobs {
		if own.Absent == "" && plan[k] == "" && inCode && r.Job.Launch.Hooks {
			own.Told = true
			knobs[k] = own
		}
	}
	for k, values := range turnedInside {
		switch own := knobs[k]; {
		case own.Confirm && plan[k] == "" && reason == "": // the source does not show its value
			knobs[k] = strategy.Range{By: strategy.ByHook, Values: values, Caveat: r.caveat(k)}
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
			knobs[k] = strategy.Range{By: strategy.ByHook, Values: values, Caveat: r.caveat(k)}
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

// What the code says of changes that only the process can refuse: BatchNorm, which may be of a model that the job does
// not use, and checkpointing that is on without gpurun.
var (
	batchNorm     = lazy.Regexp(`\b(?:Sync)?BatchNorm(?:[123]d)?\(|=\s*(?:torch\.)?(?:nn\.)?BatchNorm[123]d\b`)
	checkpointing = lazy.Regexp(`\w*(?:gradient|grad|activation)_checkpoint(?:ing)?\w*(?:\s*:\s*bool)?\s*=\s*(?:True|not)\b|\.(?:gradient_checkpointing_enable|enable_gradient_checkpointing|set_grad_checkpointing)\(|\bprepare_model_for_(?:int8|kbit)_training\(`)
	checkpointArg = lazy.Regexp(`(?i)^-*(?:[\w.]*\.)?(?:use[-_])?(?:gradient|grad|activation)[-_]checkpoint(?:ing)?(?:=(?:true|1|yes|on))?$`)
)

// caveat is why the process may refuse to change a knob: it follows "the process, which".
func (r Resolved) caveat(k strategy.Knob) string {
	switch k {
	case strategy.ForwardParts:
		const text = "needs several independent samples, and a model without state"
		if at := r.first(batchNorm()); at != "" {
			return text + " (BatchNorm at " + at + " is neither, if the model has it)"
		}
		return text
	case strategy.LossParts:
		return "needs one over classes, with large logits"
	case strategy.ActivationCheckpointing:
		at := r.first(checkpointing(), supports())
		if i := slices.IndexFunc(r.Job.Argv, checkpointArg().MatchString); i >= 0 {
			at = r.Job.Argv[i]
		}
		if at != "" {
			return "leaves it as it is where the job turns it on (" + at + ")"
		}
	}
	return ""
}

// first is the first place of the job's code that matches a pattern, by a text that matches none of the others; empty if
// none does.
func (s Inspected) first(pattern *regexp.Regexp, but ...*regexp.Regexp) string {
	return s.firstWhere(pattern, func(_, text []byte) bool {
		return !slices.ContainsFunc(but, func(other *regexp.Regexp) bool { return other.Match(text) })
	})
}

// firstWhere is the first place of the job's code that matches a pattern, and counts by the text before it and its own.
func (s Inspected) firstWhere(pattern *regexp.Regexp, counts func(before, text []byte) bool) string {
	for _, source := range s.sources() {
		for _, at := range pattern.FindAllIndex(source.Text, -1) {
			if before := source.Text[:at[0]]; counts(before, source.Text[at[0]:at[1]]) && !inText(before) {
				return s.place(source, at[0])
			}
		}
	}
	return ""
}

// inText reports whether the end of a source's text is within a string or a comment, by its last line alone.
func inText(before []byte) bool {
	line := before[bytes.LastIndexByte(before, '\n')+1:]
	return bytes.Count(line, []byte(`"`))%2 == 1 || bytes.Count(line, []byte("'"))%2 == 1 || bytes.ContainsRune(line, '#')
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
	case r.recipe.Name == "" && !script.Torch(sources) && !r.unreadPackage() && !r.importsMore() && script.RunsPrograms(sources, r.reading.Code) == "":
		return "no code that was read uses PyTorch"
	}
	if code := r.reading.Code; code != nil && code[0].Fixed != "" {
		return fmt.Sprintf("the code compiles the model with %s, so gpurun cannot change parts of it", code[0].Fixed)
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

// unreadPackage reports whether a source imports a package of the job of which no file was read: one that is installed
// from a folder of the same name, with its setup.py.
func (r Resolved) unreadPackage() bool {
	sources := r.sources()
	for _, source := range sources {
		for _, i := range script.Imports(source.Text) {
			top, _, _ := strings.Cut(i.Module, ".")
			folder := filepath.Join(filepath.Dir(r.sourcePath), top)
			info, err := os.Stat(folder)
			if top != "" && err == nil && info.IsDir() && !slices.ContainsFunc(sources, func(s format.Source) bool { return strings.HasPrefix(s.Path, folder+string(filepath.Separator)) }) {
				return true
			}
		}
	}
	return false
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
