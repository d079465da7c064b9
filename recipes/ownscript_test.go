package recipes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// ownScript is a command whose script's source is known.
func ownScript(t testing.TB, argv, text string, modules ...string) recipes.Command {
	cmd := recipes.Command{Argv: strings.Fields(argv), Env: map[string]string{}, Files: map[string][]byte{}, Script: []byte(text)}
	for _, text := range modules {
		cmd.Modules = append(cmd.Modules, format.Source{Path: "module.py", Text: []byte(text)})
	}
	cmd = parsed(t, cmd)
	cmd.Parser = cmd.Code.Parser()
	return cmd
}

// ranges reads a command under a recipe of the catalogue.
func ranges(t *testing.T, recipe string, cmd recipes.Command, ranks int) (strategy.Plan, map[strategy.Knob]strategy.Range) {
	t.Helper()
	plan, ranges, err := catalogued(t, recipe).Read(cmd, recipes.Topology{Ranks: ranks})
	if err != nil {
		t.Fatalf("%s: %v", recipe, err)
	}
	return plan, ranges
}

// timmLike resembles timm's train.py before it accumulated, checkpointed or supported bfloat16.
const timmLike = `
import argparse
from timm.optim import create_optimizer_v2, optimizer_kwargs
from timm.scheduler import create_scheduler_v2
parser = argparse.ArgumentParser(description='a classifier of our own')
parser.add_argument('--data-dir', metavar='DIR')
parser.add_argument('--model', default='resnet50', type=str)
parser.add_argument('-b', '--batch-size', type=int, default=64, metavar='N', help='images (per GPU)')
parser.add_argument('--batch', type=int, default=1, help='which of the batches to show')
parser.add_argument('--opt', default='adamw', type=str)
parser.add_argument('--amp', action='store_true', default=False)
parser.add_argument('-j', '--workers', type=int, default=8)
parser.add_argument('--experiment', default='')
`

// TestLoadersOfScriptsWithoutTheArgument: a script whose parser lacks a framework's argument for its loader has another
// number there than the framework's default.
func TestLoadersOfScriptsWithoutTheArgument(t *testing.T) {
	const line, text = "train.py --pretrained_model_name_or_path m --train_batch_size 2", "import argparse\nimport diffusers\np = argparse.ArgumentParser()\np.add_argument('--pretrained_model_name_or_path')\np.add_argument('--train_batch_size', type=int, default=4)\n"
	for more, want := range map[string]strategy.Value{
		"": "",
		"p.add_argument('--dataloader_num_workers', type=int, default=3)\n": "3",
		"for name in others:\n    p.add_argument(name)\n":                   "",
	} {
		plan, all := ranges(t, "diffusers", ownScript(t, line, text+more), 1)
		if got := plan[strategy.DataloaderWorkers]; got != want || want == "" && !strings.Contains(all[strategy.DataloaderWorkers].Absent, "no argument --dataloader_num_workers") {
			t.Errorf("%q: %q workers, want %q: %q", more, got, want, all[strategy.DataloaderWorkers].Absent)
		}
		if plan[strategy.MicroBatchSize] != "2" || plan[strategy.GradientAccumulationSteps] != "1" {
			t.Errorf("%q: %v", more, plan)
		}
	}
}

// TestArgumentsMissingInTheParserAreNotAdded: a script derived from a framework's gets no
// argument that its own parser would refuse.
func TestArgumentsMissingInTheParserAreNotAdded(t *testing.T) {
	cmd := ownScript(t, "train.py --data-dir d --model m", timmLike)
	plan, all := ranges(t, "timm", cmd, 1)
	for k, name := range map[strategy.Knob]string{
		strategy.GradientAccumulationSteps: "--grad-accum-steps", strategy.ActivationCheckpointing: "--grad-checkpointing",
		strategy.EvalBatchSize: "--validation-batch-size", strategy.PinMemory: "--pin-mem",
	} {
		if want := "the script's parser has no argument " + name; all[k].Absent != want {
			t.Errorf("%s: %q, want %q", k, all[k].Absent, want)
		}
	}
	if got := all[strategy.Precision]; slices.Contains(got.Values, "bf16") || !slices.Contains(got.Values, "fp16") {
		t.Errorf("precision can be %v", got)
	}
	if plan[strategy.MicroBatchSize] != "64" || plan[strategy.DataloaderWorkers] != "8" || plan[strategy.Optimizer] != "adamw" {
		t.Errorf("the script's own defaults are not read: %v", plan)
	}
	if _, ok := catalogued(t, "timm").ResumeGlob(cmd); ok {
		t.Error("it is resumed with an argument that it lacks")
	}
	if words := catalogued(t, "timm").Pinned(cmd, "r"); !slices.Equal(words, []string{"--experiment", "r"}) {
		t.Errorf("pinned: %q", words)
	}

	whole := timmLike + "parser.add_argument('--grad-accum-steps', type=int, default=2)\nparser.add_argument('--resume', default='')\nparser.add_argument('--amp-dtype', default='float16')\n"
	cmd = ownScript(t, "train.py --data-dir d --model m --experiment e", whole)
	plan, all = ranges(t, "timm", cmd, 1)
	if all[strategy.GradientAccumulationSteps].Absent != "" || plan[strategy.GradientAccumulationSteps] != "2" || !slices.Contains(all[strategy.Precision].Values, "bf16") {
		t.Errorf("%v, %v", plan, all[strategy.GradientAccumulationSteps])
	}
	if _, ok := catalogued(t, "timm").ResumeGlob(cmd); !ok {
		t.Error("it is not resumed")
	}
	// The parser's arguments are in a module of the script's own.
	_, all = ranges(t, "timm", ownScript(t, "train.py --data-dir d", "from timm.optim import optimizer_kwargs\nimport arguments\n", whole), 1)
	if all[strategy.GradientAccumulationSteps].Absent != "" || all[strategy.ActivationCheckpointing].Absent == "" {
		t.Error("the module's parser is not read")
	}
	// With computed names the arguments are not known. A knob that the user described is not
	// affected.
	_, all = ranges(t, "timm", ownScript(t, "train.py --data-dir d", timmLike+"for f in flags:\n    parser.add_argument('--' + f)\n"), 1)
	if why := all[strategy.ActivationCheckpointing].Absent; why != "" {
		t.Errorf("computed names: %s", why)
	}
	own := catalogued(t, "timm").With(knobsOf(t, `gradient_accumulation_steps = { arg = "--steps", default = 1 }`))
	if _, all, err := own.Read(ownScript(t, "train.py --data-dir d", timmLike), recipes.Topology{Ranks: 1}); err != nil || all[strategy.GradientAccumulationSteps].Absent != "" {
		t.Errorf("a knob of the user's: %v, %v", all[strategy.GradientAccumulationSteps], err)
	}
}

// TestComputedDefaults: an unknown batch is not halved.
func TestComputedDefaults(t *testing.T) {
	script := strings.Replace(timmLike, "default=64", "default=int(os.environ['BATCH'])", 1)
	plan, all := ranges(t, "timm", ownScript(t, "train.py --data-dir d", script), 1)
	if _, known := plan[strategy.MicroBatchSize]; known || !strings.Contains(all[strategy.MicroBatchSize].Absent, "computed") {
		t.Errorf("%v, %v", plan, all[strategy.MicroBatchSize])
	}
	plan, all = ranges(t, "timm", ownScript(t, "train.py --data-dir d --batch-size 32", script), 1)
	if plan[strategy.MicroBatchSize] != "32" || all[strategy.MicroBatchSize].Absent != "" {
		t.Errorf("given: %v, %v", plan, all[strategy.MicroBatchSize])
	}
}

// TestAbbreviationsOfTheScript: --batch is short for --batch-size, unless the script has
// an argument of that name.
func TestAbbreviationsOfTheScript(t *testing.T) {
	for word, want := range map[string]strategy.Value{"--batch-siz": "16", "--batch-s": "16", "--batch": "64"} {
		plan, _ := ranges(t, "timm", ownScript(t, "train.py --data-dir d "+word+" 16", timmLike), 1)
		if plan[strategy.MicroBatchSize] != want {
			t.Errorf("%s 16: micro batch %s, want %s", word, plan[strategy.MicroBatchSize], want)
		}
	}
}

// megatronLike resembles Megatron's arguments of some years ago, with a part of them in
// dataclasses as today.
const megatronLike = `
def add_training_args(parser):
    group = parser.add_argument_group(title='training')
    group.add_argument('--micro-batch-size', type=int, default=None)
    group.add_argument('--global-batch-size', type=int, default=None)
    group.add_argument('--fp16', action='store_true')
    group.add_argument('--checkpoint-activations', action='store_true')
    group.add_argument('--num-workers', type=int, default=4)
    group.add_argument('--load', type=str)
@dataclass
class OptimizerConfig:
    use_distributed_optimizer: bool = False
    """Shard it."""
`

func TestForkOfMegatron(t *testing.T) {
	cmd := ownScript(t, "pretrain.py --num-layers 4 --micro-batch-size 8 --global-batch-size 64", "from megatron.training import pretrain\n", megatronLike)
	plan, all := ranges(t, "megatron-lm", cmd, 4)
	if want := "the script's parser has no argument --recompute-granularity"; all[strategy.ActivationCheckpointing].Absent != want {
		t.Errorf("checkpointing: %q, want %q", all[strategy.ActivationCheckpointing].Absent, want)
	}
	if got := all[strategy.Precision]; slices.Contains(got.Values, "bf16") || !slices.Contains(got.Values, "fp16") {
		t.Errorf("precision can be %v", got.Values)
	}
	if all[strategy.Sharding].Absent != "" || all[strategy.OffloadOptimizer].Absent == "" || plan[strategy.DataloaderWorkers] != "4" {
		t.Errorf("sharding %+v, offload %+v, %v", all[strategy.Sharding], all[strategy.OffloadOptimizer], plan)
	}
	// The settings that belong to a value are also checked.
	cmd = ownScript(t, "pretrain.py --num-layers 4 --micro-batch-size 8", "", megatronLike+"    group.add_argument('--recompute-granularity')\n    group.add_argument('--recompute-activations', action='store_true')\n")
	_, all = ranges(t, "megatron-lm", cmd, 4)
	if got := all[strategy.ActivationCheckpointing]; got.Absent != "" || slices.Contains(got.Values, "full") || !slices.Contains(got.Values, "selective") {
		t.Errorf("full without --recompute-method: %+v", got)
	}
}

// TestDefaultsOfTrainingArguments: a class that extends them has its own defaults.
func TestDefaultsOfTrainingArguments(t *testing.T) {
	const script = `
from transformers import HfArgumentParser, Trainer, TrainingArguments
@dataclass
class Arguments(TrainingArguments):
    per_device_train_batch_size: int = field(default=4, metadata={"help": "each"})
    gradient_accumulation_steps: int = 2
    gradient_checkpointing: bool = True
    optim: str = "adamw_" + kind
args, = HfArgumentParser(Arguments).parse_args_into_dataclasses()
`
	plan, all := ranges(t, "hf-trainer", ownScript(t, "train.py --output_dir out", script), 2)
	if plan[strategy.MicroBatchSize] != "4" || plan[strategy.GradientAccumulationSteps] != "2" || plan[strategy.ActivationCheckpointing] != "full" || plan[strategy.EvalBatchSize] != "8" {
		t.Errorf("%v", plan)
	}
	if plan[strategy.Optimizer] != "" || !strings.Contains(all[strategy.Optimizer].Absent, "computed") {
		t.Errorf("optimizer %q, %+v", plan[strategy.Optimizer], all[strategy.Optimizer])
	}
	change, err := catalogued(t, "hf-trainer").Apply(ownScript(t, "train.py --output_dir out", script), plan.With(strategy.Plan{strategy.MicroBatchSize: "2", strategy.GradientAccumulationSteps: "4", strategy.ActivationCheckpointing: "none"}), recipes.Topology{Ranks: 2}, attempt)
	want := "train.py --output_dir out --per_device_train_batch_size 2 --gradient_accumulation_steps 4 --gradient_checkpointing False"
	if got := strings.Join(change.Argv, " "); err != nil || got != want {
		t.Errorf("%s, %v, want %s", got, err, want)
	}
}

// TestBatchesOfDeepSpeedScripts: the configuration sets the micro batch only if DeepSpeed makes
// the batches, or the script does so by that value.
func TestBatchesOfDeepSpeedScripts(t *testing.T) {
	const config = `{"train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2}`
	for script, own := range map[string]bool{
		"import deepspeed\nloader = DataLoader(data, batch_size=8)\nengine, *_ = deepspeed.initialize(args=a, model=m,\n  model_parameters=m.parameters())\n": true,
		"import deepspeed\nengine, *_ = deepspeed.initialize(args=a, model=m, training_data=None)\n":                                                          true,
		"from deepspeed import initialize\ninitialize(a, m, None, m.parameters(), None)\n":                                                                    true,
		"import deepspeed\nengine, _, loader, _ = deepspeed.initialize(args=a, model=m, training_data=data)\n":                                                false,
		"import deepspeed\ndeepspeed.initialize(a, m, None, m.parameters(), data)\n":                                                                          false,
		"import deepspeed\nengine, *_ = deepspeed.initialize(args=a, model=m)\nDataLoader(d, batch_size=engine.train_micro_batch_size_per_gpu())\n":           false,
		"import deepspeed\nengine, *_ = deepspeed.initialize(args=a, model=m)\nloader = engine.deepspeed_io(data)\n":                                          false,
		"import deepspeed\nfrom engine import start\nstart(args)\n":                                                                                           false,
	} {
		cmd := ownScript(t, "train.py --deepspeed --deepspeed_config ds.json", script)
		cmd.Files["ds.json"] = []byte(config)
		plan, all := ranges(t, "deepspeed", cmd, 2)
		for _, k := range []strategy.Knob{strategy.MicroBatchSize, strategy.GradientAccumulationSteps} {
			if got := all[k].Absent != ""; got != own || own && (plan[k] != "" || !strings.Contains(all[k].Absent, "training_data")) {
				t.Errorf("%s: %s is %q, absent %q", script, k, plan[k], all[k].Absent)
			}
		}
		if all[strategy.Sharding].Absent != "" {
			t.Errorf("%s: sharding: %s", script, all[strategy.Sharding].Absent)
		}
	}
}

// TestUnknownConfigurationIsNotRefused: a job is not refused for a setting that DeepSpeed may
// understand.
func TestUnknownConfigurationIsNotRefused(t *testing.T) {
	for config, absent := range map[string][]strategy.Knob{
		`{"train_batch_size": 48, "train_micro_batch_size_per_gpu": 8, "gradient_accumulation_steps": 2}`: {strategy.MicroBatchSize}, // 3 of 4 ranks: the script's mpu
		`{"zero_optimization": {"stage": 2}}`:                                                         {strategy.MicroBatchSize}, // the script fills it in
		`{"train_micro_batch_size_per_gpu": "per_gpu", "zero_optimization": {"stage": 2}}`:            {strategy.MicroBatchSize},
		`{"train_micro_batch_size_per_gpu": 8, "zero_optimization": {"stage": "two"}}`:                {strategy.Sharding},
		`{"train_micro_batch_size_per_gpu": 8, "zero_optimization": true}`:                            {strategy.Sharding, strategy.OffloadOptimizer},
		"{\n  train_micro_batch_size_per_gpu: 8\n  # Hjson\n}":                                        {strategy.MicroBatchSize, strategy.Sharding, strategy.Precision},
		`{"train_micro_batch_size_per_gpu": 8, "bf16": {"enabled": true}, "fp16": {"enabled": true}}`: {strategy.Precision},
	} {
		cmd := ownScript(t, "train.py --deepspeed --deepspeed_config ds.json", "import deepspeed\n")
		cmd.Files["ds.json"] = []byte(config)
		plan, all, err := catalogued(t, "deepspeed").Read(cmd, recipes.Topology{Ranks: 4})
		if err != nil {
			t.Errorf("%s: refused: %v", config, err)
			continue
		}
		for _, k := range absent {
			if all[k].Absent == "" || plan[k] != "" {
				t.Errorf("%s: %s is %q, %+v", config, k, plan[k], all[k])
			}
		}
		if change, err := catalogued(t, "deepspeed").Apply(cmd, plan, recipes.Topology{Ranks: 4}, attempt); err != nil || change.Diff != "" {
			t.Errorf("%s: its own plan: %v\n%s", config, err, change.Diff)
		}
	}
}

// TestTextEncoder: settings that the script itself refuses are not offered.
func TestTextEncoder(t *testing.T) {
	const refusal = "    raise ValueError('Gradient accumulation is not supported when training the text encoder in distributed training.')\n"
	args := "from diffusers import X\nparser.add_argument('--train_batch_size', default=4)\nparser.add_argument('--gradient_accumulation_steps', default=1)\nparser.add_argument('--train_text_encoder', action='store_true')\n"
	for _, test := range []struct {
		script, flag string
		ranks        int
		refused      bool
	}{
		{args + refusal, "--train_text_encoder", 2, true}, {args + refusal, "--train_text_encoder", 1, false},
		{args + refusal, "", 2, false}, {args, "--train_text_encoder", 2, false},
	} {
		_, all := ranges(t, "diffusers", ownScript(t, "train.py --train_batch_size 4 "+test.flag, test.script), test.ranks)
		if got := strings.Contains(all[strategy.MicroBatchSize].Absent, "--train_text_encoder"); got != test.refused {
			t.Errorf("%q on %d ranks: %+v", test.flag, test.ranks, all[strategy.MicroBatchSize])
		}
	}
}

// TestBatchOfATrainerWithOneProcess: on several GPUs its batch is that of all of them, and
// DeepSpeed would use one. On one GPU, DeepSpeed gets the variables that it needs.
func TestBatchOfATrainerWithOneProcess(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	cmd := recipes.Command{Argv: strings.Fields("train.py --output_dir out --per_device_train_batch_size 8"), Env: map[string]string{}, Files: map[string][]byte{}, Devices: 4}
	at := recipes.Topology{Ranks: 1, DataParallel: 1, Plain: true}
	plan, all, err := hf.Read(cmd, at)
	if err != nil || all[strategy.OffloadOptimizer].Absent == "" || all[strategy.MicroBatchSize].Absent != "" {
		t.Fatalf("%+v, %v", all, err)
	}
	half := plan.With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"})
	change, err := hf.Apply(cmd, half, at, attempt)
	testenv.Check(t, err)
	cmd.Files["out/checkpoint-5/trainer_state.json"] = []byte(`{"train_batch_size": 32}`)
	change, err = hf.ResumeFrom(change, cmd, half, "out/checkpoint-5", attempt)
	if got := string(change.Files["checkpoint/checkpoint-5/trainer_state.json"]); err != nil || got != `{"train_batch_size": 16}` {
		t.Errorf("the checkpoint says %s, %v", got, err)
	}

	cmd.Devices = 1
	plan, all, err = hf.Read(cmd, at)
	if err != nil || all[strategy.OffloadOptimizer].Absent != "" {
		t.Fatalf("%+v, %v", all[strategy.OffloadOptimizer], err)
	}
	offload := plan.With(strategy.Plan{strategy.Sharding: "zero2", strategy.OffloadOptimizer: "cpu"})
	for _, plain := range []bool{true, false} {
		at.Plain = plain
		if change, err = hf.Apply(cmd, offload, at, attempt); err != nil || (change.Env["RANK"] == "0") != plain || (change.Env["WORLD_SIZE"] == "1") != plain {
			t.Errorf("plain %v: %v, %v", plain, change.Env, err)
		}
	}
}

// TestPrecisionLeftToTheFramework: a DeepSpeed configuration that leaves both dtypes to the framework's arguments does
// not say that the job trains in fp32.
func TestPrecisionLeftToTheFramework(t *testing.T) {
	for dtypes, want := range map[string]strategy.Value{
		`"fp16": {"enabled": "auto"}, "bf16": {"enabled": "auto"}`: "", `"bf16": {"enabled": "auto"}`: "", `"bf16": {"enabled": true}, "fp16": {"enabled": "auto"}`: "bf16", `"steps_per_print": 1`: "fp32",
	} {
		cmd := recipes.Command{Argv: []string{"x.py", "--deepspeed", "ds.json"}, Files: map[string][]byte{"ds.json": []byte(`{"train_micro_batch_size_per_gpu": 1, ` + dtypes + `}`)}}
		plan, _, err := catalogued(t, "deepspeed").Read(cmd, recipes.Topology{Ranks: 1})
		if err != nil || plan[strategy.Precision] != want {
			t.Errorf("%s: %q, %v; want %q", dtypes, plan[strategy.Precision], err, want)
		}
	}
}

// parsed is a command whose script and modules an interpreter has parsed.
func parsed(t testing.TB, cmd recipes.Command) recipes.Command {
	t.Helper()
	input, err := detect.SourceRequest{Sources: append([]format.Source{{Path: "train.py", Text: cmd.Script}}, cmd.Modules...), Seconds: 600}.Input()
	testenv.Check(t, err)
	r, err := detect.Read(testenv.Answer(t, detect.Program, input))
	if err != nil || r.Unknown != "" {
		t.Fatal(r.Unknown, err)
	}
	cmd.Code = r.Code
	return cmd
}

// TestAcceleratorCall: an argument that the script gives its Accelerator is not changed by a
// variable, unless the recipe changes that argument.
func TestAcceleratorCall(t *testing.T) {
	env := map[string]string{"ACCELERATE_MIXED_PRECISION": "no"}
	for call, turned := range map[string]bool{
		"Accelerator()": true,
		"Accelerator(gradient_accumulation_steps=cfg.steps, mixed_precision=None)": true,
		"Accelerator(mixed_precision=cfg.mixed_precision)":                         false,
		"accelerate.Accelerator(mixed_precision='bf16')":                           false,
		"def Accelerator(mixed_precision='bf16'): pass":                            true,
	} {
		cmd := recipes.Command{Argv: []string{"train.py", "--config", "c.yaml"}, Env: env, Script: []byte("import accelerate\na = " + call + "\n")}
		if strings.HasPrefix(call, "def ") {
			cmd.Script = []byte(call + "\n")
		}
		plan, ranges, err := catalogued(t, "accelerate").Read(parsed(t, cmd), recipes.Topology{Ranks: 2})
		testenv.Check(t, err)
		if absent := ranges[strategy.Precision].Absent; (absent == "") != turned || (plan[strategy.Precision] == "fp32") != turned {
			t.Errorf("%s: precision %q, %q", call, plan[strategy.Precision], absent)
		}
	}
	own := recipes.Command{Argv: []string{"train.py", "--mixed-precision", "bf16"}, Script: []byte("import accelerate\na = accelerate.Accelerator(mixed_precision=args.mixed_precision)\n")}
	if plan, _, err := catalogued(t, "accelerate").Read(parsed(t, own), recipes.Topology{Ranks: 1}); err != nil || plan[strategy.Precision] != "" {
		t.Errorf("the script's own argument: %v, %v", plan, err)
	}
	plugin := recipes.Command{Argv: []string{"train.py"}, Env: env, Script: []byte("Accelerator(deepspeed_plugin=plugin)\n")}
	_, ranges, err := catalogued(t, "accelerate").Read(parsed(t, plugin), recipes.Topology{Ranks: 2})
	if err != nil || ranges[strategy.Sharding].Absent == "" || ranges[strategy.Precision].Absent != "" {
		t.Errorf("%v, %v", ranges, err)
	}
}

// TestSettingsThatAreGivenOtherwise: a flag that sets the optimizer, and a strategy with settings in the code, leave none
// for the argument, or the variable, that the recipe would read.
func TestSettingsThatAreGivenOtherwise(t *testing.T) {
	const lightning = "import lightning as L\nfrom pytorch_lightning.strategies import DeepSpeedStrategy\n"
	for name, test := range map[string]struct {
		recipe, script, argv string
		knob                 strategy.Knob
		want                 strategy.Value
	}{
		"the default":          {"hf-trainer", "", "--output_dir out", strategy.Optimizer, "adamw"},
		"--adafactor":          {"hf-trainer", "", "--output_dir out --adafactor", strategy.Optimizer, ""},
		"--adafactor False":    {"hf-trainer", "", "--output_dir out --adafactor False", strategy.Optimizer, "adamw"},
		"no strategy":          {"lightning-script", lightning, "--precision 32 --strategy ddp", strategy.Sharding, "none"},
		"a computed file":      {"lightning-script", lightning + "s = DeepSpeedStrategy(config=args.config)\n", "--precision 32 --strategy ddp", strategy.Sharding, ""},
		"a stage":              {"lightning-script", lightning + "s = DeepSpeedStrategy(stage=3)\n", "--precision 32 --strategy ddp", strategy.Sharding, ""},
		"a strategy's default": {"lightning-script", lightning + "s = DeepSpeedStrategy()\n", "--precision 32 --strategy ddp", strategy.Sharding, ""},
	} {
		cmd := recipes.Command{Argv: append([]string{"train.py"}, strings.Fields(test.argv)...), Script: []byte(test.script)}
		plan, _, err := catalogued(t, test.recipe).Read(parsed(t, cmd), recipes.Topology{Ranks: 2})
		if err != nil || plan[test.knob] != test.want {
			t.Errorf("%s: %q, %v", name, plan[test.knob], err)
		}
	}
}

// TestTrainersDefaultsUnderTrlParser: a TrlParser that reads TrainingArguments has the Trainer's
// defaults, and TRL's if the class is one of TRL's.
func TestTrainersDefaultsUnderTrlParser(t *testing.T) {
	argv := []string{"train.py", "--output_dir", "out"}
	read := func(classes string, argv ...string) strategy.Plan {
		t.Helper()
		script := "from trl import TrlParser\n" + classes
		plan, _, err := catalogued(t, "trl").Read(parsed(t, recipes.Command{Argv: argv, Script: []byte(script)}), recipes.Topology{Ranks: 1})
		testenv.Check(t, err)
		return plan
	}
	if plan := read("TrlParser((SFTConfig,))\n", argv...); plan[strategy.ActivationCheckpointing] != "full" || plan[strategy.Precision] != "bf16" {
		t.Errorf("TRL's: %v", plan)
	}
	ours := "class GRPOConfig(TrainingArguments):\n    n: int = 1\nTrlParser((GRPOConfig,))\n"
	if plan := read(ours, argv...); plan[strategy.ActivationCheckpointing] != "none" || plan[strategy.Precision] != "fp32" {
		t.Errorf("the Trainer's: %v", plan)
	}
	if plan := read(ours, append(argv, "--gradient_checkpointing", "True")...); plan[strategy.ActivationCheckpointing] != "full" {
		t.Errorf("given: %v", plan)
	}
}
