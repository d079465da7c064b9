package script

import (
	"bytes"
	"slices"

	"github.com/gpurun/gpurun/recipes/format"
)

// onTorch are packages that train with PyTorch: a file that imports one of them uses it.
var onTorch = []string{
	"torch", "torchvision", "torchaudio", "torchtune", "torchtitan", "transformers", "lightning", "pytorch_lightning", "accelerate", "deepspeed",
	"diffusers", "timm", "trl", "peft", "unsloth", "axolotl", "llamafactory", "swift", "composer", "llmfoundry", "open_clip", "sentence_transformers",
	"fairseq", "fairseq2", "megatron", "nemo", "mmengine", "mmcv", "mmdet", "detectron2", "ultralytics", "fastai", "ignite", "catalyst", "monai",
	"kornia", "torch_geometric", "segmentation_models_pytorch", "espnet", "espnet2", "speechbrain", "verl",
}

// Torch reports whether the imports of a script or its modules include PyTorch.
func Torch(sources []format.Source) bool {
	return slices.ContainsFunc(onTorch, func(name string) bool { return anyImports(sources, name) })
}

// MentionsTorch reports whether a source has the name of a package that trains with PyTorch. Only
// for such a source is it worth starting an interpreter.
func MentionsTorch(source []byte) bool {
	return slices.ContainsFunc(onTorch, func(name string) bool { return bytes.Contains(source, []byte(name)) })
}

// Pipeline reports whether the code makes a model that DeepSpeed trains as a pipeline.
func Pipeline(sources []format.Source, code format.ScriptCode) bool {
	for i, file := range code {
		if file.Pipeline && imports(sources[i], "deepspeed") {
			return true
		}
	}
	return false
}
