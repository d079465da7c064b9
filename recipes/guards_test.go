package recipes_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// ofRule lists the recipes that name one of some rules.
func ofRule(t *testing.T, rules ...string) []recipes.Recipe {
	t.Helper()
	all, err := recipes.Catalog()
	testenv.Check(t, err)
	all = slices.DeleteFunc(all, func(r recipes.Recipe) bool {
		return !slices.ContainsFunc(rules, func(rule string) bool { return slices.Contains(r.Rules, rule) })
	})
	if len(all) < 2 {
		t.Fatalf("%v are named by %d recipes", rules, len(all))
	}
	return all
}

// bare is a command of a recipe without any setting of its own.
func bare(env map[string]string, files map[string][]byte, argv ...string) recipes.Command {
	return recipes.Command{Argv: append([]string{"train.py"}, argv...), Env: env, Files: files}
}

// What accelerate launch sets decides in every recipe whose jobs make an Accelerator, and the plan shows it.
func TestLaunchDecidesInAllRecipes(t *testing.T) {
	for name, test := range map[string]struct {
		env  map[string]string
		plan strategy.Plan
	}{
		"FSDP with checkpointing": {
			map[string]string{"ACCELERATE_USE_FSDP": "true", "FSDP_ACTIVATION_CHECKPOINTING": "true", "FSDP_OFFLOAD_PARAMS": "false", "FSDP_SHARDING_STRATEGY": "FULL_SHARD"},
			strategy.Plan{strategy.Sharding: "fsdp", strategy.ActivationCheckpointing: "full", strategy.OffloadParam: "none"},
		},
		"FSDP with offload": {
			map[string]string{"ACCELERATE_USE_FSDP": "true", "FSDP_ACTIVATION_CHECKPOINTING": "false", "FSDP_OFFLOAD_PARAMS": "true"},
			strategy.Plan{strategy.Sharding: "fsdp", strategy.OffloadOptimizer: "cpu", strategy.OffloadParam: "cpu"},
		},
		"FSDP that shards nothing": {
			map[string]string{"ACCELERATE_USE_FSDP": "true", "FSDP_SHARDING_STRATEGY": "NO_SHARD"},
			strategy.Plan{strategy.Sharding: "none"},
		},
		"ZeRO-3 with offload": {
			map[string]string{"ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "3", "ACCELERATE_DEEPSPEED_OFFLOAD_PARAM_DEVICE": "nvme"},
			strategy.Plan{strategy.Sharding: "zero3", strategy.OffloadParam: "nvme", strategy.OffloadOptimizer: "none"},
		},
		"DeepSpeed's default stage": {
			map[string]string{"ACCELERATE_USE_DEEPSPEED": "true"},
			strategy.Plan{strategy.Sharding: "zero2", strategy.OffloadOptimizer: "none"},
		},
	} {
		for _, r := range ofRule(t, "accelerate-launch", "trainer-launch") {
			test.env["ACCELERATE_MIXED_PRECISION"] = "no"
			at := recipes.Topology{Ranks: 8, DataParallel: 8}
			plan, ranges, err := r.Read(bare(test.env, nil), at)
			if err != nil {
				t.Errorf("%s, %s: %v", name, r.Name, err)
				continue
			}
			for k, want := range test.plan {
				if plan[k] != want || ranges[k].Absent == "" {
					t.Errorf("%s, %s: %s is %q, and can be changed: %v", name, r.Name, k, plan[k], ranges[k].Absent == "")
				}
			}
		}
	}
}

// Every recipe of a framework that trains with an Accelerator, or with Lightning's Trainer, has the framework's
// guards.
func TestRecipesOfAFrameworkShareGuards(t *testing.T) {
	all, err := recipes.Catalog()
	testenv.Check(t, err)
	for _, r := range all {
		for start, rules := range map[string][]string{
			"transformers": {"trainer-launch"}, "trl": {"trainer-launch"}, "accelerate": {"accelerate-launch", "trainer-launch"}, "lightning": {"lightning-strategy"},
		} {
			imports := slices.ContainsFunc(r.Detection.Imports, func(name string) bool { return name == start || strings.HasPrefix(name, start+".") })
			if imports && !slices.ContainsFunc(rules, func(rule string) bool { return slices.Contains(r.Rules, rule) }) {
				t.Errorf("%s is of %s, and names none of the rules %v", r.Name, start, rules)
			}
		}
	}
}

// fsdp and fsdp_config of the Trainer decide wherever the recipe's arguments are.
func TestTrainerSettingsDecideWhereverTheyAre(t *testing.T) {
	code := func(keyword string) format.ScriptCode {
		return format.ScriptCode{{
			Calls: []format.CodeCall{{Name: "TrainingArguments", Whole: []string{"transformers.TrainingArguments"}, Keyword: map[string]format.Expression{keyword: {Text: "full_shard", Known: true}}}},
		}}
	}
	yes := []byte(`{"fsdp_activation_checkpointing": true}`)
	for _, test := range []struct {
		recipe        string
		cmd           recipes.Command
		checkpointing strategy.Value
		sharding      strategy.Value
	}{
		{"hf-trainer", bare(nil, map[string][]byte{"f.json": yes}, "--fsdp", "full_shard auto_wrap", "--fsdp_config", "f.json"), "full", "fsdp"},
		{"llama-factory", bare(nil, map[string][]byte{"f.json": yes}, "--fsdp", "full_shard", "--fsdp_config", "f.json"), "full", "fsdp"},
		{"ms-swift", bare(nil, map[string][]byte{"f.json": yes}, "--fsdp", "full_shard", "--fsdp_config", "f.json"), "full", "fsdp"},
		{"trl", bare(nil, map[string][]byte{"t.yaml": []byte("fsdp: full_shard\nfsdp_config: f.json\n"), "f.json": yes}, "--config", "t.yaml"), "full", "fsdp"},
		{"axolotl", bare(nil, map[string][]byte{"a.yaml": []byte("fsdp_config:\n  activation_checkpointing: true\n")}, "a.yaml"), "full", "fsdp"},
		{"hf-trainer-code", recipes.Command{Argv: []string{"train.py"}, Code: code("fsdp")}, "", "fsdp"},
		{"hf-trainer", bare(nil, nil, "--fsdp", "no_shard"), "none", "none"},
		{"hf-trainer", bare(nil, map[string][]byte{"a.json": []byte(`{"fsdp": "full_shard", "fsdp_config": {"activation_checkpointing": true}}`)}, "a.json"), "full", "fsdp"},
	} {
		i := slices.IndexFunc(ofRule(t, "trainer-launch"), func(r recipes.Recipe) bool { return r.Name == test.recipe })
		r := ofRule(t, "trainer-launch")[i]
		plan, ranges, err := r.Read(test.cmd, recipes.Topology{Ranks: 8, DataParallel: 8})
		if err != nil {
			t.Errorf("%s: %v", test.recipe, err)
			continue
		}
		if plan[strategy.Sharding] != test.sharding || plan[strategy.ActivationCheckpointing] != test.checkpointing {
			t.Errorf("%s %v: sharding %q, checkpointing %q", test.recipe, test.cmd.Argv, plan[strategy.Sharding], plan[strategy.ActivationCheckpointing])
		}
		if test.checkpointing == "full" && ranges[strategy.ActivationCheckpointing].Absent == "" {
			t.Errorf("%s would turn gradient_checkpointing on beside FSDP's", test.recipe)
		}
	}
}

// Lightning's strategy decides in all its recipes: as an argument, in a file, and in code.
func TestStrategyDecidesWhereverItIs(t *testing.T) {
	code := format.ScriptCode{{
		Calls: []format.CodeCall{{Name: "Trainer", Whole: []string{"lightning.pytorch.Trainer"}, Keyword: map[string]format.Expression{"strategy": {Text: "deepspeed_stage_3_offload", Known: true}}}},
	}}
	for name, test := range map[string]struct {
		cmd  recipes.Command
		want strategy.Plan
	}{
		"lightning":        {bare(nil, map[string][]byte{"c.yaml": []byte("trainer: {strategy: fsdp}\n")}, "--config", "c.yaml"), strategy.Plan{strategy.Sharding: "fsdp", strategy.OffloadParam: "none"}},
		"lightning-script": {bare(nil, nil, "--strategy", "deepspeed_stage_2_offload"), strategy.Plan{strategy.Sharding: "zero2", strategy.OffloadOptimizer: "cpu"}},
		"lightning-code":   {recipes.Command{Argv: []string{"train.py"}, Code: code}, strategy.Plan{strategy.Sharding: "zero3", strategy.OffloadParam: "cpu"}},
	} {
		for _, r := range ofRule(t, "lightning-strategy") {
			if r.Name != name {
				continue
			}
			plan, _, err := r.Read(test.cmd, recipes.Topology{Ranks: 4, DataParallel: 4})
			if err != nil {
				t.Errorf("%s: %v", name, err)
			}
			for k, want := range test.want {
				if plan[k] != want {
					t.Errorf("%s: %s is %q, not %q", name, k, plan[k], want)
				}
			}
		}
	}
}

// A script that accelerate launch starts, and of which no framework is known, has the launcher's plan; another
// script has none, and a knob that the user describes stays the user's.
func TestLaunchDecidesWithoutARecipe(t *testing.T) {
	env := map[string]string{"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "ds.json"}
	files := map[string][]byte{"ds.json": []byte(`{"zero_optimization": {"stage": 1}}`)}
	at := recipes.Topology{Ranks: 2, DataParallel: 2}
	cmd := bare(env, files)
	plan, _, err := recipes.Recipe{}.Guarded(cmd).Read(cmd, at)
	if err != nil || plan[strategy.Sharding] != "zero1" || plan[strategy.Precision] != "bf16" {
		t.Errorf("%v, %v", plan, err)
	}
	if named := (recipes.Recipe{}.Guarded(cmd)).FilesNamed(cmd); !slices.Equal(named, []string{"ds.json"}) {
		t.Errorf("it reads %v", named)
	}
	other := bare(nil, nil)
	if plan, _, err := (recipes.Recipe{}.Guarded(other)).Read(other, at); err != nil || plan[strategy.Sharding] != "" {
		t.Errorf("without the launcher: %v, %v", plan, err)
	}
	own, problems := recipes.FromKnobs(map[string]any{"precision": map[string]any{"arg": "--dtype", "default": "fp32"}})
	if plan, ranges, err := own.Guarded(cmd).Read(cmd, at); len(problems) > 0 || err != nil || plan[strategy.Precision] != "fp32" || ranges[strategy.Precision].Absent != "" {
		t.Errorf("the user's precision: %v, %v", plan, err)
	}
}

// TestRecipesDeclareTheirLoss: a recipe whose micro batch can be changed declares the effect on
// the training.
func TestRecipesDeclareTheirLoss(t *testing.T) {
	all, err := recipes.Catalog()
	testenv.Check(t, err)
	for _, r := range all {
		if micro, there := r.Knobs[strategy.MicroBatchSize]; there && micro.Absent == "" && len(r.Losses) == 0 {
			t.Errorf("%s changes the micro batch, and says nothing of the loss", r.Name)
		}
	}
}

// TestLossOfARecipe: the first entry for the installed versions, the script and the command
// counts.
func TestLossOfARecipe(t *testing.T) {
	r, err := recipes.ParseFile("x.toml", []byte(`name = "x"
[[loss]]
class = "average"
reason = "KTO compares"
source = ["KTOTrainer"]
[[loss]]
class = "weighted"
reason = "by tokens"
versions = { transformers = ">=4.46" }
unless = [{ arg = "--loss", is = ["kto"], reason = "kto has statistics" }]
[[loss]]
class = "script"
reason = "divided"
`))
	testenv.Check(t, err)
	for name, test := range map[string]struct {
		version, script string
		argv            []string
		want            strategy.Loss
	}{
		"a new version":   {"4.57", "", nil, strategy.Loss{Class: strategy.Exact, Reason: "by tokens", Weighted: true}},
		"an old one":      {"4.40", "", nil, strategy.Loss{}},
		"another method":  {"4.57", "trainer = KTOTrainer(model)", nil, strategy.Loss{Class: strategy.Average, Reason: "KTO compares"}},
		"another setting": {"4.57", "", []string{"--loss", "kto"}, strategy.Loss{Class: strategy.Average, Reason: "kto has statistics"}},
	} {
		t.Run(name, func(t *testing.T) {
			found := r.LossOf(recipes.Command{Argv: append([]string{"train.py"}, test.argv...), Script: []byte(test.script), Packages: map[string]string{"transformers": test.version}})
			if got := found.Known(); got != test.want {
				t.Errorf("%+v", got)
			}
		})
	}
	_, err = recipes.ParseFile("x.toml", []byte("name = \"x\"\n[[loss]]\nclass = \"exakt\"\n"))
	if err == nil || !strings.Contains(err.Error(), `x.toml:3:9: loss[0].class: unknown value "exakt"`) || !strings.Contains(err.Error(), "what the framework does with the loss is missing") {
		t.Errorf("%v", err)
	}
}

// TestMethodsWithBatchStatisticsAreNotExact: a method with statistics over a micro batch is equal
// on average only, whatever the framework divides.
func TestMethodsWithBatchStatisticsAreNotExact(t *testing.T) {
	all, err := recipes.Catalog()
	testenv.Check(t, err)
	for _, test := range []struct {
		recipe string
		argv   []string
		files  map[string][]byte
		script string
		want   strategy.Training
	}{
		{"llama-factory", []string{"launcher.py", "sft.yaml"}, map[string][]byte{"sft.yaml": []byte("stage: sft\n")}, "", strategy.Exact},
		{"llama-factory", []string{"launcher.py", "kto.yaml"}, map[string][]byte{"kto.yaml": []byte("stage: kto\n")}, "", strategy.Average},
		{"axolotl", []string{"-m", "axolotl.cli.train", "a.yaml"}, map[string][]byte{"a.yaml": []byte("micro_batch_size: 1\n")}, "", strategy.Exact},
		{"trl", []string{"train.py"}, nil, "from trl import SFTTrainer\n", strategy.Exact},
		{"trl", []string{"train.py"}, nil, "from trl import KTOTrainer\n", strategy.Average},
		{"ms-swift", []string{"rlhf.py", "--rlhf_type", "kto"}, nil, "", strategy.Average},
		{"ms-swift", []string{"rlhf.py", "--rlhf_type", "dpo"}, nil, "", strategy.Exact},
	} {
		for _, r := range all {
			if r.Name != test.recipe {
				continue
			}
			if got := r.LossOf(recipes.Command{Argv: test.argv, Files: test.files, Script: []byte(test.script)}).Known(); got.Class != test.want {
				t.Errorf("%s %q: %+v, want %s", test.recipe, test.argv, got, test.want)
			}
		}
	}
}
