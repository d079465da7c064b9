package script

import (
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
)

func TestTorch(t *testing.T) {
	for text, want := range map[string]bool{
		"import torch":                            true,
		"import torch.nn as nn":                   true,
		"from torch import nn":                    true,
		"from transformers import Trainer":        true,
		"import numpy as np\nimport lightning":    true,
		"# import torch":                          false,
		"import torchless\nimport jax":            false,
		"from mine.torch_like import anything":    false,
		"print('no import of anything to speak')": false,
	} {
		if got := Torch([]format.Source{{Path: "a.py", Text: []byte("import os")}, {Path: "b.py", Text: []byte(text)}}); got != want {
			t.Errorf("%q reaches PyTorch: %v", text, got)
		}
	}
}

func TestFixed(t *testing.T) {
	for text, want := range map[string]string{
		"model = torch.compile(model)": "torch.compile",
		"def main():\n    model = Net()\n    model = torch.compile(model, mode='x')\nmain()":  "torch.compile",
		"if __name__ == '__main__':\n    model = torch.jit.script(model)":                     "torch.jit.script",
		"if args.compile:\n    model = torch.compile(model)":                                  "",
		"def f():\n    if a:\n        b()\n    else:\n\n        model = torch.compile(model)": "",
		"# model = torch.compile(model)":                                                      "",
		"loss = torch.jit.script(focal)":                                                      "",
		"step = compile(model)":                                                               "",
	} {
		if got := codeOf(t, text)[0].Fixed; got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}
