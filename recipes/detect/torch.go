package detect

import (
	"bytes"
	"slices"
)

// onTorch are packages that train with PyTorch: a file that imports one of them uses it.
var onTorch = []string{
	"torch", "torchvision", "torchaudio", "torchtune", "torchtitan", "transformers", "lightning", "pytorch_lightning", "accelerate", "deepspeed",
	"diffusers", "timm", "trl", "peft", "unsloth", "axolotl", "llamafactory", "swift", "composer", "llmfoundry", "open_clip", "sentence_transformers",
	"fairseq", "fairseq2", "megatron", "nemo", "mmengine", "mmcv", "mmdet", "detectron2", "ultralytics", "fastai", "ignite", "catalyst", "monai",
	"kornia", "torch_geometric", "segmentation_models_pytorch", "espnet", "espnet2", "speechbrain", "verl",
}

// MentionsTorch reports whether a source has the name of a package that trains with PyTorch. Only
// for such a source is it worth starting an interpreter.
func MentionsTorch(source []byte) bool {
	return slices.ContainsFunc(onTorch, func(name string) bool { return bytes.Contains(source, []byte(name)) })
}
