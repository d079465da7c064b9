package recipes_test

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// TestFeatureAccumulationNeedsTheModelsForward: a program derived from open_clip's is offered
// --accum-freq only if that calls the model with the arguments that it accepts.
func TestFeatureAccumulationNeedsTheModelsForward(t *testing.T) {
	const loop = "def train(args):\n    if args.accum_freq == 1:\n        out = model(images, texts%s)\n    else:\n        out = model(images, texts)\n"
	for name, test := range map[string]struct{ more, forward, want string }{
		"open_clip's own":              {"", "self, image, text=None", ""},
		"a loop with another argument": {", boxes", "self, image, text, boxes=None", "the loop calls the model with 3 arguments, and with 2 where --accum-freq is more than 1"},
		"a forward with another":       {"", "self, image, text, boxes: Tensor, *, fine=False", "the forward of FGCLIP takes 3 arguments, and --accum-freq calls it with 2"},
	} {
		t.Run(name, func(t *testing.T) {
			all, err := recipes.Catalog()
			if err != nil {
				t.Fatal(err)
			}
			for _, r := range all {
				if r.Name != "open-clip" {
					continue
				}
				_, ranges, err := r.Read(parsed(t, recipes.Command{
					Argv: []string{"open_clip_train/main.py", "--batch-size", "64"}, Script: []byte("from open_clip_train.train import train\n"),
					Modules: []format.Source{{Path: "train.py", Text: []byte(strings.Replace(loop, "%s", test.more, 1))},
						{Path: "model.py", Text: []byte("class FGCLIP(nn.Module):\n    def __init__(self, a, b, c):\n        pass\n    def forward(" + test.forward + "):\n        pass\n")}},
				}), recipes.Topology{Ranks: 1})
				if err != nil {
					t.Fatal(err)
				}
				for _, k := range []strategy.Knob{strategy.MicroBatchSize, strategy.GradientAccumulationSteps} {
					if got := ranges[k].Absent; test.want == "" && strings.Contains(got, "forward") || !strings.Contains(got, test.want) {
						t.Errorf("%s is absent %q, want %q", k, got, test.want)
					}
				}
			}
		})
	}
}
