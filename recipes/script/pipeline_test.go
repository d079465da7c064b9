package script

import (
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
)

func TestPipelineMustBeConstructed(t *testing.T) {
	for text, want := range map[string]bool{
		"from deepspeed.pipe import PipelineModule\nnet = PipelineModule(layers=layers, num_stages=2)\n": true,
		"import deepspeed\nclass Net(deepspeed.pipe.PipelineModule):\n    pass\n":                        true,
		"from deepspeed.pipe import PipelineModule, LayerSpec\n":                                         false,
		"import deepspeed\n# net = PipelineModule(layers)\n":                                             false,
		"from parts import PipelineModule\nnet = PipelineModule()\n":                                     false,
	} {
		if got := Pipeline([]format.Source{{Path: "train.py", Text: []byte(text)}}, codeOf(t, text)); got != want {
			t.Errorf("%v: %q", got, text)
		}
	}
}
