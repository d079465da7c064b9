package recipes_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// TestRecipesDeclareTheirLoss: a recipe whose micro batch can be changed declares the effect on
// the training.
func TestRecipesDeclareTheirLoss(t *testing.T) {
	all, err := recipes.Catalog()
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
