package recipes

import (
	"bytes"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// rules connect settings of one framework, by the names that recipe files use.
var rules = format.Rules{
	"deepspeed-config": deepspeedRule,
	"trainer-state": {Checkpoint: map[string]func([]byte, strategy.Plan) ([]byte,
		error){"trainer_state.json": rewriteTrainBatchSize}},
	"accelerate-accumulation": {Read: readLaunched, Apply: applyLaunched},
	"lightning-strategy":      {Shape: guardStrategy},
	"axolotl-fsdp":            {Shape: guardAxolotl},
	"fsdp-always":             {Shape: guardFSDP},
	"accelerate-launch":       {Shape: guardLaunch},
	"trainer-launch":          {Shape: guardTrainer},
	"accelerator-call":        {Read: readAcceleratorCall},
	"trainer-arguments":       {Shape: func(r *format.Recipe) { r.Detection.Not = noTrainerArguments }},
	"trl-arguments":           {Shape: func(r *format.Recipe) { r.Detection.Not = noTRLArguments }, Read: trlArguments},
	"text-encoder":            {Read: textEncoder},
	"vllm-serve":              {Shape: vllmServe},
	"swift-version":           {Shape: swiftVersion},
	"lightning-configs":       {Shape: mergedConfigs},
	"lightning-intervals":     {Shape: countedIntervals},
	"swift-accumulation":      {Shape: swiftAccumulation},
	"ultralytics-batch":       {Shape: ultralyticsBatch},
	"training-loader":         {Shape: shufflingLoader, Read: countedBatches},
	"timm-script":             {Read: timmScript},
}

// From transformers 4.36 to 5.1 a resumed run of the Trainer takes its batch size from the
// checkpoint and not from the arguments (https://github.com/huggingface/transformers/pull/27568,
// undone by https://github.com/huggingface/transformers/pull/43770 except under
// auto_find_batch_size), so a smaller micro batch would be lost.
//
// rewriteTrainBatchSize puts the plan's micro batch into a trainer_state.json that has one. It is
// never removed: version 4 divides by it.
func rewriteTrainBatchSize(text []byte, plan strategy.Plan) ([]byte, error) {
	const key = "train_batch_size"
	micro, known := plan.Number(strategy.MicroBatchSize)
	old, found, err := edit.Get(edit.JSON, text, key)
	if err != nil || !known || !found || old == nil {
		return text, err
	}
	return edit.Set(edit.JSON, text, key, micro)
}

// spread is the number of devices over which a Trainer of one process spreads each batch with
// DataParallel: its batch is then that of all of them. Under DeepSpeed it has one device.
func spread(r format.Recipe, cmd Command) int {
	if cmd.Devices < 2 || !slices.Contains(r.Rules, "trainer-state") || format.NewDraft(r, cmd).Has("--deepspeed") {
		return 1
	}
	return cmd.Devices
}

// accelerateAccum is the variable in which accelerate launch passes on
// gradient_accumulation_steps of its own configuration. It takes precedence over Accelerator's
// argument (accelerate/accelerator.py), and the Trainer refuses to start if the two differ, so
// both change together.
const accelerateAccum = "ACCELERATE_GRADIENT_ACCUMULATION_STEPS"

// launched is the launcher's accumulation; "auto" counts as none.
func launched(d *format.Draft) (n int, set bool) {
	value, _ := d.Variable(accelerateAccum)
	return strategy.Value(value).Number()
}

func readLaunched(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	n, set := launched(d)
	if accum, known := plan.Number(strategy.GradientAccumulationSteps); set && known && n != accum {
		format.LeaveBatch(ranges,
			fmt.Sprintf("accelerate launch sets an accumulation of %d, but the job sets %d: make them agree", n, accum))
	}
	return nil
}

func applyLaunched(d *format.Draft, old, plan strategy.Plan) error {
	accum := plan[strategy.GradientAccumulationSteps]
	if _, set := launched(d); set && accum != old[strategy.GradientAccumulationSteps] {
		d.SetVariable(accelerateAccum, string(accum))
	}
	return nil
}

// givenToAccelerator are the keywords of Accelerator, and the knobs that the launcher no longer
// decides about. A call's argument is stronger than the variables of accelerate launch
// (accelerate/accelerator.py), so a change of these would have no effect.
var givenToAccelerator = map[string][]strategy.Knob{
	"mixed_precision":   {strategy.Precision},
	"deepspeed_plugin":  createdKnobs,
	"deepspeed_plugins": createdKnobs,
	"fsdp_plugin":       createdKnobs,
	"megatron_lm_plugin": {
		strategy.Sharding, strategy.OffloadOptimizer, strategy.OffloadParam, strategy.MicroBatchSize,
		strategy.GradientAccumulationSteps,
	},
}

func readAcceleratorCall(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	for _, call := range d.Original.Code.Calls("Accelerator", "accelerate.Accelerator") {
		for keyword, knobs := range givenToAccelerator {
			value, given := call.Keyword[keyword]
			if !given || value.None {
				continue
			}
			for _, knob := range knobs {
				if r, there := ranges[knob]; there && r.Absent == "" && !argumentOf(value.Code, d, knob) {
					ranges[knob] = strategy.Range{Absent: fmt.Sprintf("the script gives the Accelerator %s, which is stronger than the launcher's", keyword), Reported: knob == strategy.Precision}
					if knob == strategy.Precision {
						delete(plan, knob) // the process reports it
					}
				}
			}
		}
	}
	return nil
}

// argumentOf reports whether an expression is the argument in which the recipe keeps a knob, so
// that a change of the argument takes effect: args.mixed_precision.
func argumentOf(expression string, d *format.Draft, knob strategy.Knob) bool {
	name := expression[strings.LastIndexByte(expression, '.')+1:]
	return slices.ContainsFunc(d.Recipe.Knobs[knob].Places,
		func(p format.Place) bool { return strings.Contains(p.String(), "--"+name) })
}

// textEncoder is for some of diffusers' scripts, which refuse to accumulate on several processes
// while they train the text encoder (examples/dreambooth/train_dreambooth.py).
func textEncoder(d *format.Draft, _ strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	on, err := d.On("--train_text_encoder")
	if err != nil || !on || d.At.Ranks < 2 {
		return err
	}
	script := d.Original.Script
	if script == nil || bytes.Contains(
		script, []byte("Gradient accumulation is not supported when training the text encoder")) {
		format.LeaveBatch(ranges, "the script refuses to accumulate with --train_text_encoder on several ranks")
	}
	return nil
}

// timmScript is for scripts that began as a copy of timm's: they may lack its newer arguments, and may have models of
// their own. A key of the configuration file has no effect without its argument.
func timmScript(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	for k, names := range map[strategy.Knob][]string{
		strategy.ActivationCheckpointing:   {"--grad-checkpointing"},
		strategy.GradientAccumulationSteps: {"--grad-accum-steps"},
		strategy.EvalBatchSize:             {"--validation-batch-size"},
	} {
		if why := d.Lacks(names...); why != "" && !d.Recipe.Knobs[k].Own {
			delete(plan, k)
			ranges[k] = strategy.Range{Absent: why}
		}
	}
	if slices.ContainsFunc(d.Original.Sources(),
		func(text []byte) bool { return bytes.Contains(text, []byte("@register_model")) }) {
		delete(plan, strategy.Attention)
		ranges[strategy.Attention] = strategy.Range{Absent: "the job's code defines the models"}
	}
	return nil
}

// chosen marks places of knobs at which some words make the framework choose.
func chosen(r *format.Recipe, knobs ...strategy.Knob) {
	for _, knob := range knobs {
		for i := range r.Knobs[knob].Places {
			r.Knobs[knob].Places[i].Chosen = true
		}
	}
}

// vllmServe is for vLLM's program, of whose commands one serves a model; the others talk to a
// server, or measure one.
func vllmServe(r *format.Recipe) {
	chosen(r, strategy.SequenceLength, strategy.Precision) // "auto", and -1 for as long as fits
	servers := []string{"vllm.entrypoints.openai.api_server", "vllm.entrypoints.api_server"}
	r.Detection.Not = func(cmd Command) string {
		program := len(cmd.Argv) > 0 && !slices.Contains(servers, cmd.Argv[0])
		if program && (len(cmd.Argv) < 2 || cmd.Argv[1] != "serve") {
			return "the command serves no model"
		}
		return ""
	}
}

// swiftVersion distinguishes ms-swift 2 from later versions by the arguments if its version is
// not known: 3.0 changed their names. A model was named by --model_type or --model_id_or_path,
// and later by --model.
func swiftVersion(r *format.Recipe) {
	old := r.Name == "ms-swift-2"
	chosen(r, strategy.SequenceLength) // -1: no limit
	r.Detection.Not = func(cmd Command) string {
		d := format.NewDraft(*r, cmd)
		named := slices.ContainsFunc(
			[]string{"--sft_type", "--model_id_or_path", "--custom_train_dataset_path", "--batch_size"}, d.HasWord)
		if is := named || d.HasWord("--model_type") && !d.HasWord("--model"); is != old {
			return "the arguments belong to another version of ms-swift"
		}
		return ""
	}
}

// swiftAccumulation is for ms-swift without a given accumulation: it then accumulates up to 16
// samples on all ranks (swift/arguments/sft_args.py).
func swiftAccumulation(r *format.Recipe) {
	knob := r.Knobs[strategy.GradientAccumulationSteps]
	knob.Global = &format.Global{Nominal: "ceil"}
	knob.DefaultIsGlobal()
	r.Knobs[strategy.GradientAccumulationSteps] = knob
}

// ultralyticsBatch is for Ultralytics, which accumulates up to a nominal batch, nbs, rounded to
// the nearest whole number of micro batches. Its batch can be -1 or a fraction, for the largest
// that fits (ultralytics/engine/trainer.py).
func ultralyticsBatch(r *format.Recipe) {
	if g := r.Knobs[strategy.GradientAccumulationSteps].Global; g != nil {
		g.Nominal, g.Fixed = "nearest", true
	}
	chosen(r, strategy.MicroBatchSize)
}

// lightningConfigs are the arguments that name a LightningCLI's configuration.
var lightningConfigs = []string{"--config", "-c"}

// mergedConfigs is for LightningCLI, which merges all given files
// (https://lightning.ai/docs/pytorch/stable/cli/lightning_cli_advanced.html). It is not known
// which of them has a setting.
func mergedConfigs(r *format.Recipe) {
	several := format.Condition{Repeated: lightningConfigs, Unknown: true,
		Reason: "several --config are merged: it may be in any of them"}
	for k, knob := range r.Knobs {
		if len(knob.Places) == 0 {
			continue
		}
		knob.Unless = slices.Insert(slices.Clone(knob.Unless), behind(knob.Unless, false), several)
		r.Knobs[k] = knob
	}
}

// countedIntervals is for the intervals of Lightning's trainer, which count micro batches if they
// are whole numbers, and grow with accumulation.
func countedIntervals(r *format.Recipe) {
	const accumulate = "accumulate_grad_batches"
	knob := r.Knobs[strategy.GradientAccumulationSteps]
	for _, interval := range []string{"val_check_interval", "limit_train_batches"} {
		for _, p := range knob.Places {
			for _, argument := range p.Arguments() {
				knob.Scales = append(knob.Scales, format.Argument(strings.Replace(argument, accumulate, interval, 1)))
			}
			if p.InFile() != nil {
				knob.Scales = append(knob.Scales, format.Key("trainer."+interval, lightningConfigs...))
			}
		}
	}
	r.Knobs[strategy.GradientAccumulationSteps] = knob
}

// shufflingLoader selects among several loaders in code the one that shuffles: it is for
// training.
func shufflingLoader(r *format.Recipe) {
	for _, k := range []strategy.Knob{strategy.MicroBatchSize, strategy.DataloaderWorkers} {
		for i, p := range r.Knobs[k].Places {
			r.Knobs[k].Places[i] = format.Where(p, "shuffle", true)
		}
	}
}

// countsBatches are words with which code sets up a schedule, or an interval, in batches.
var countsBatches = []string{
	"steps_per_epoch", "len(train_loader", "len(train_dataloader", "len(self.train_dataloader", "num_training_batches",
	"val_check_interval", "limit_train_batches", "batch_idx %", "manual_optimization", "automatic_optimization = False",
	"automatic_optimization=False",
}

// countedBatches is for a script that counts batches itself: with smaller ones it would train by
// another schedule.
func countedBatches(d *format.Draft, _ strategy.Plan, ranges map[strategy.Knob]strategy.Range) error {
	for _, text := range d.Original.Sources() {
		for _, word := range countsBatches {
			if micro := ranges[strategy.MicroBatchSize]; bytes.Contains(text, []byte(word)) && micro.Absent == "" {
				closed := word + strings.Repeat(")", strings.Count(word, "(")) // the word may end within a call
				ranges[strategy.MicroBatchSize] = strategy.Range{Absent: "the code may count batches (" + closed +
					"), of which there would be more", Reported: micro.Reported}
			}
		}
	}
	return nil
}

// HfArgumentParser reads any dataclass. A script that gives it none of TrainingArguments has
// arguments of other meanings under the same names, and so has a job that passes them to its own
// loop. If TrlParser reads TrainingArguments that are not TRL's, the defaults are the Trainer's.

var (
	// className matches a class that is given by name: TrainingArguments, transformers.X.
	className = lazy.Regexp(`^[A-Za-z_][\w.]*$`)
	// trlClass matches TRL's own configurations, each of which extends TrainingArguments.
	trlClass = lazy.Regexp(
		`^(SFT|DPO|GRPO|KTO|Reward|RLOO|ORPO|CPO|PPO|OnlineDPO|NashMD|XPO|BCO|GKD|PRM|IterativeSFT)Config$`)
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
				p.unknown = p.unknown || root == name && !trlClass().MatchString(root) &&
					!strings.HasSuffix(root, "TrainingArguments")
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
		{strategy.ActivationCheckpointing, "none", []string{"--gradient_checkpointing", "--no_gradient_checkpointing",
			"--activation_checkpointing"}},
		{strategy.Precision, "fp32", []string{"--bf16", "--fp16"}},
	} {
		if _, known := plan[is.knob]; known && !slices.ContainsFunc(is.names,
			func(name string) bool { return saysArgument(d, name) }) {
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
