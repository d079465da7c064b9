package recipes

import (
	"bytes"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// HfArgumentParser reads any dataclass. A script that gives it none of TrainingArguments has
// arguments of other meanings under the same names, and so has a job that passes them to its own
// loop. If TrlParser reads TrainingArguments that are not TRL's, the defaults are the Trainer's.

var (
	// className matches a class that is given by name: TrainingArguments, transformers.X.
	className = lazy.Regexp(`^[A-Za-z_][\w.]*$`)
	// trlClass matches TRL's own configurations, each of which extends TrainingArguments.
	trlClass = lazy.Regexp(`^(SFT|DPO|GRPO|KTO|Reward|RLOO|ORPO|CPO|PPO|OnlineDPO|NashMD|XPO|BCO|GKD|PRM|IterativeSFT)Config$`)
)

// parsing describes the classes of a job's parsers of dataclasses.
type parsing struct {
	calls   int
	trainer bool // a class extends TrainingArguments, but none of TRL's
	trl     bool // a class extends one of TRL's configurations
	unknown bool // a class is computed, or comes from another package
}

// parsingOf reads the classes that the parsers of these names get in a command's sources.
func parsingOf(cmd Command, names ...string) parsing {
	var p parsing
	for _, call := range cmd.Code.Calls(names...) {
		p.calls++
		given, known := parsed(call)
		if !known {
			p.unknown = true
			continue
		}
		for _, name := range given {
			for _, root := range cmd.Code.Roots(name) {
				p.trl = p.trl || trlClass().MatchString(root)
				p.trainer = p.trainer || strings.HasSuffix(root, "TrainingArguments")
				p.unknown = p.unknown || root == name && !trlClass().MatchString(root) && !strings.HasSuffix(root, "TrainingArguments")
			}
		}
	}
	return p
}

// hfParser are the names by which HfArgumentParser is called.
var hfParser = []string{"HfArgumentParser", "transformers.HfArgumentParser"}

// noTrainerArguments is the reason why a command's parser reads no training arguments of the
// Trainer's; empty if it does, or if its source is not known.
func noTrainerArguments(cmd Command) string {
	if cmd.Script == nil {
		return ""
	}
	const reason = "HfArgumentParser reads no TrainingArguments"
	p := parsingOf(cmd, hfParser...)
	switch {
	case p.trl:
		return "HfArgumentParser reads a configuration of TRL's"
	case p.trainer:
		return noTrainer(cmd)
	case mentions(cmd, "trl") && mentions(cmd, "Config"):
		return "the classes that HfArgumentParser reads may be TRL's" // their defaults differ
	case p.unknown || p.calls == 0 && mentions(cmd, "TrainingArguments"):
		return noTrainer(cmd) // unknown classes may be the Trainer's
	}
	return reason
}

// noTRLArguments is the reason why a command's parser reads none of TRL's configurations.
func noTRLArguments(cmd Command) string {
	if cmd.Script == nil || cmd.Code == nil && mentions(cmd, "trl") && mentions(cmd, "Config") {
		return "" // unknown classes may be TRL's
	}
	if p := parsingOf(cmd, "TrlParser", "trl.TrlParser"); p.trl || p.trainer || p.unknown {
		return ""
	}
	if p := parsingOf(cmd, hfParser...); p.trl {
		return ""
	}
	return "no parser reads a configuration of TRL's"
}

// noTrainer is the reason why the arguments reach no Trainer of the framework's: the job trains
// with its own Accelerator, or with its own class of that name.
func noTrainer(cmd Command) string {
	var trainers []string
	for _, file := range cmd.Code {
		for _, class := range file.Classes {
			if len(class.Bases) > 0 {
				trainers = append(trainers, class.Name)
			}
		}
		for _, call := range file.Calls {
			trainers = append(trainers, call.Name[strings.LastIndexByte(call.Name, '.')+1:])
		}
	}
	trainers = slices.DeleteFunc(trainers, func(name string) bool { return !strings.Contains(name, "Trainer") })
	for _, name := range trainers {
		name = name[:strings.LastIndex(name, "Trainer")+len("Trainer")]
		if slices.ContainsFunc(cmd.Code.Roots(name), func(root string) bool { return strings.HasSuffix(root, "Trainer") }) {
			return ""
		}
	}
	switch {
	case len(trainers) > 0:
		return "the training arguments go to a trainer of the job's own"
	case len(cmd.Code[:min(1, len(cmd.Code))].Calls("Accelerator", "accelerate.Accelerator")) > 0:
		return "the training arguments go to a loop of the job's own"
	}
	return ""
}

// mentions reports whether one of a command's sources has one of these words.
func mentions(cmd Command, words ...string) bool {
	return slices.ContainsFunc(cmd.Sources(), func(text []byte) bool {
		return slices.ContainsFunc(words, func(word string) bool { return bytes.Contains(text, []byte(word)) })
	})
}

// trlArguments completes what TRL's arguments say: its own defaults are the Trainer's for a class of the Trainer, and
// the settings of vLLM count with --use_vllm only.
func trlArguments(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	trainerDefaults(d, plan)
	if !saysArgument(d, "--use_vllm") {
		for _, k := range []strategy.Knob{strategy.RolloutMemory, strategy.RolloutSleep} {
			delete(plan, k)
			ranges[k] = strategy.Range{Absent: "the job generates without vLLM"}
		}
	}
	return nil
}

// trainerDefaults corrects the defaults of a job whose parser reads TrainingArguments that are
// not TRL's.
func trainerDefaults(d *format.Draft, plan strategy.Plan) {
	p := parsingOf(d.Original, "TrlParser", "trl.TrlParser")
	if p.trl || !p.trainer {
		return
	}
	for _, is := range []struct {
		knob  strategy.Knob
		value strategy.Value
		names []string
	}{
		{strategy.ActivationCheckpointing, "none", []string{"--gradient_checkpointing", "--no_gradient_checkpointing", "--activation_checkpointing"}},
		{strategy.Precision, "fp32", []string{"--bf16", "--fp16"}},
	} {
		if _, known := plan[is.knob]; known && !slices.ContainsFunc(is.names, func(name string) bool { return saysArgument(d, name) }) {
			plan[is.knob] = is.value
		}
	}
}

// saysArgument reports whether an argument is on the command, or in a file that it names.
func saysArgument(d *format.Draft, name string) bool {
	key := []byte(strings.TrimLeft(name, "-"))
	for _, text := range d.Original.Files {
		if bytes.Contains(text, key) {
			return true
		}
	}
	return d.Has(name)
}

// parsed lists the classes of a parser; false if they are computed.
func parsed(call format.CodeCall) (names []string, known bool) {
	given := call.Keyword["dataclass_types"].Code
	if given == "" && len(call.Positional) > 0 {
		given = call.Positional[0].Code
	}
	bare := strings.Trim(given, "()[] \n\t")
	if bare == given && strings.ToUpper(given[:min(1, len(given))]) != given[:min(1, len(given))] {
		return nil, false // a variable
	}
	for name := range strings.SplitSeq(bare, ",") {
		name = strings.TrimSpace(name)
		switch {
		case name == "":
		case !className().MatchString(name):
			return nil, false
		default:
			names = append(names, name[strings.LastIndexByte(name, '.')+1:])
		}
	}
	return names, len(names) > 0
}
