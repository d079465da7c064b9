package script

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
)

// onTorch are packages that train with PyTorch: who imports one of them reaches it.
var onTorch = []string{
	"torch", "torchvision", "torchaudio", "torchtune", "torchtitan", "transformers", "lightning", "pytorch_lightning", "accelerate", "deepspeed",
	"diffusers", "timm", "trl", "peft", "unsloth", "axolotl", "llamafactory", "swift", "composer", "llmfoundry", "open_clip", "sentence_transformers",
	"fairseq", "fairseq2", "megatron", "nemo", "mmengine", "mmcv", "mmdet", "detectron2", "ultralytics", "fastai", "ignite", "catalyst", "monai",
	"kornia", "torch_geometric", "segmentation_models_pytorch", "espnet", "espnet2", "speechbrain", "verl",
}

// Torch reports whether what a script or its modules import reaches PyTorch.
func Torch(sources []format.Source) bool {
	return slices.ContainsFunc(sources, func(s format.Source) bool {
		return slices.ContainsFunc(onTorch, func(name string) bool { return strings.Contains(string(s.Text), name) && imports(s.Text, name) })
	})
}

// fixed matches what makes a model's forward one piece that nothing can be put into.
var fixed = regexp.MustCompile(`^[ \t]*([\w.]+)[ \t]*=[ \t]*(torch\.(?:compile|jit\.script))\([ \t]*([\w.]+)`)

// Fixed is the call by which a script certainly makes its model one piece,
// "torch.compile"; empty where it does not, or only under a condition.
func Fixed(script []byte) string {
	if !strings.Contains(string(script), "torch.") {
		return ""
	}
	lines := strings.Split(withoutComments(script), "\n")
	for i, line := range lines {
		if m := fixed.FindStringSubmatch(line); m != nil && m[1] == m[3] && !conditional(lines, i) {
			return m[2]
		}
	}
	return ""
}

// conditional reports whether a line runs only under some condition that a block around
// it names, or in a function that perhaps nobody calls with it.
func conditional(lines []string, at int) bool {
	depth := indent(lines[at])
	for i := at - 1; i >= 0 && depth > 0; i-- {
		if strings.TrimSpace(lines[i]) == "" || indent(lines[i]) >= depth {
			continue
		}
		depth = indent(lines[i])
		word, _, _ := strings.Cut(strings.TrimSpace(lines[i]), " ")
		switch strings.TrimSuffix(word, ":") {
		case "if":
			if !strings.Contains(lines[i], "__main__") {
				return true
			}
		case "elif", "else", "try", "except", "for", "while", "case", "with":
			return true
		}
	}
	return false
}

func indent(line string) int { return len(line) - len(strings.TrimLeft(line, " \t")) }

// pipeline matches what makes a model one that DeepSpeed trains as a pipeline.
var pipeline = regexp.MustCompile(`\bPipelineModule[ \t]*\(|\bclass[ \t]+\w+[ \t]*\([^)]*\bPipelineModule\b`)

// Pipeline reports whether a source makes a model that DeepSpeed trains as a pipeline.
func Pipeline(sources []format.Source) bool {
	return slices.ContainsFunc(sources, func(s format.Source) bool {
		return pipeline.MatchString(withoutComments(s.Text)) && imports(s.Text, "deepspeed")
	})
}
