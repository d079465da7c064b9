package commandline

import (
	"github.com/gpurun/gpurun/launcher/lazy"
	"slices"
	"strings"
)

// An Estimate is the command line of gpurun estimate.
type Estimate struct {
	// Size is the number of parameters as typed; empty if there is none.
	Size string
	// Job is a train.toml or a command line, with the flags of a run before it; nil for none.
	Job []string
	// Others are words that need a job, if there is none.
	Others []string
	JSON   bool
	// Given has the options of gpurun estimate by name, as typed. The value of a bare option is "1".
	Given map[string]Given
}

// estimateOptions are the options of gpurun estimate itself. They must not be abbreviated, so that an
// abbreviation of a torchrun option keeps its meaning.
var estimateOptions = []Option{
	{Name: "precision", Value: "WHICH", Whole: true, About: "what is computed in: fp32, tf32, bf16 or fp16"},
	{Name: "weights", Value: "WHICH", Whole: true,
		About: "what the bytes follow: fp32 (autocast casts a copy), bf16 or fp16 (states too), deepspeed (16-bit\n" +
			"weights and a master copy in fp32); by default deepspeed with --zero 1 or more, else fp32"},
	{Name: "optimizer", Value: "NAME", Whole: true,
		About: "adamw, adamw-fused, adamw-8bit, adamw-4bit, paged-adamw-8bit, adafactor, lion, momentum, sgd"},
	{Name: "gpus", Value: "N", Whole: true, About: "data-parallel ranks, on one host"},
	{Name: "zero", Value: "STAGE", Whole: true, About: "DeepSpeed's stage, 0 to 3; --fsdp: PyTorch's FSDP, as FULL_SHARD"},
	{Name: "micro-batch", Value: "N", Aliases: []string{"micro-batch-size"}, Whole: true,
		About: "samples of one forward on one GPU; --accumulation N: forwards for each optimizer step"},
	{Name: "sequence", Value: "N", Aliases: []string{"sequence-length"}, Whole: true, About: "tokens of a sample"},
	{Name: "checkpointing", Value: "H", Whole: true,
		About: "of activations: none, selective (every second matrix product is kept, as torchtitan does) or full"},
	{Name: "loss", Value: "WHICH", Whole: true,
		About: "whole: of all logits at once, in fp32; chunked: a part at a time, of logits in 16 bits, as torchtune\n" +
			"does; fused: without logits, as Liger does"},
	{Name: "optimizer-in-backward", Bare: true, Whole: true,
		About: "each parameter's optimizer step follows its gradient in the backward pass"},
	{Name: "attention", Value: "KIND", Whole: true,
		About: "sdpa or flash, which do not hold the scores, or eager, which does"},
	{Name: "offload", Value: "WHAT", Whole: true,
		About: "optimizer, param or activations, joined by commas, to host memory; as separate flags\n" +
			"--offload-optimizer, --offload-param (both also =nvme), --offload-activations"},
	{Name: "config", Value: "FILE", Whole: true, About: "the config.json of a model of Hugging Face's, or its folder"},
	{Name: "parameters", Value: "SIZE", Whole: true,
		About: "the number of parameters, of a job too; --layers N, --hidden N, --heads N, --kv-heads N,\n" +
			"--intermediate N, --vocab N: the model's shape"},
	{Name: "layers", Whole: true},
	{Name: "heads", Whole: true},
	{Name: "kv-heads", Whole: true},
	{Name: "intermediate", Whole: true},
	{Name: "accumulation", Whole: true},
	{Name: "hidden", Aliases: []string{"hidden-size"}, Whole: true},
	{Name: "vocab", Aliases: []string{"vocab-size", "vocabulary"}, Whole: true},
	{Name: "fsdp", Bare: true, Whole: true},
	{Name: "offload-optimizer", Bare: true, Optional: true, Whole: true},
	{Name: "offload-param", Bare: true, Optional: true, Whole: true},
	{Name: "offload-activations", Bare: true, Optional: true, Whole: true},
}

// estimate has these and the options of a run.
var estimate = OptionGrammar{Options: slices.Concat(torchrunOptions(), runOptions, estimateOptions),
	Abbreviations: true, Remainder: true}

// sizeLike matches a word that is probably meant as a number of parameters.
var sizeLike = lazy.Regexp(`^[0-9][0-9._]*([eE][+]?[0-9]+)?[A-Za-z]{0,2}$`)

// ReadEstimate reads the words after "gpurun estimate": options, then a size, a train.toml or a command line.
// Options may also follow a size and a train.toml. exists reports whether a word is a file, and so not a
// size. The error is a *Problem or ErrHelp.
func ReadEstimate(words []string, exists func(string) bool) (Estimate, error) {
	e := Estimate{Given: map[string]Given{}}
	var kept []string
	for {
		read, err := estimate.Read(words)
		if err != nil {
			return e, err
		}
		for _, g := range read.Given {
			switch {
			case g.Means == Help:
				return e, ErrHelp
			case g.Name == "json":
				e.JSON = true
			case ofEstimate(g.Option):
				e.Given[g.Name] = g
			}
		}
		kept = append(kept, flags(words[:read.From], read.Given, ofEstimate)...)
		switch {
		case e.Job != nil: // the reader of the job reports errors after it
			e.Job = slices.Concat(e.Job, kept, read.Rest)
			return e, nil
		case len(read.Rest) == 0 || e.Size != "":
			e.Others = slices.DeleteFunc(append(kept, read.Rest...), func(w string) bool { return w == "--json" })
			return e, nil
		case sizeLike().MatchString(read.Rest[0]) && !exists(read.Rest[0]):
			e.Size = read.Rest[0]
		case strings.HasSuffix(read.Rest[0], ".toml"):
			e.Job, kept = append(kept, read.Rest[0]), nil
		default:
			e.Job = append(kept, read.Rest...)
			return e, nil
		}
		words = read.Rest[1:]
	}
}

// ofEstimate reports whether an option is gpurun estimate's own.
func ofEstimate(o *Option) bool {
	return slices.ContainsFunc(estimateOptions, func(own Option) bool { return own.Name == o.Name && own.Name != "" })
}
