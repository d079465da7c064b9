package recipes_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

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
		if err != nil {
			t.Fatal(err)
		}
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
		if err != nil {
			t.Fatal(err)
		}
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
