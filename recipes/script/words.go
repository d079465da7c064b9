package script

import (
	"fmt"
	"regexp"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/strategy"
)

// names match the names of arguments for a knob. A name is never sufficient: the argument's value
// has to reach the same place as the knob's.
var names = map[strategy.Knob]func() *regexp.Regexp{
	strategy.MicroBatchSize: lazy.Regexp(
		`^((per_(device|gpu|rank|replica)|micro|mini|train|training|tr|data|loader|device|local)_?)*(batch_?size|batch_?sz|batch|bs|bsz|minibatch)(_?(per_(gpu|device|rank|process|replica)|gpu|device|train|training))*$|^b$|^ims_per_batch$|^(imgs|samples)_per_gpu$`),
	strategy.GradientAccumulationSteps: lazy.Regexp(`accum|grad(ient)?_ac|^(grad(ient)?_)?update_freq$|iter_size|^gas$|^ga_steps$|grad_step_freq|optim(izer)?_step_every`),
	strategy.EvalBatchSize:             lazy.Regexp(`batch|bs$|bsz`),
	strategy.ActivationCheckpointing:   lazy.Regexp(`checkpoint|ckpt|remat|recompute|^with_cp$|^use_cp$`),
	strategy.DataloaderWorkers:         lazy.Regexp(`worker|^n_?cpu|num_?threads|n_?threads|^j$|num_?proc`),
	strategy.SequenceLength:            lazy.Regexp(`^(max_)?(train_)?(seq|sequence|context|ctx|block)_?(len|length|size)$|^n_ctx$|^model_max_length$`),
}

// called are the knobs' names for people.
var called = map[strategy.Knob]string{
	strategy.MicroBatchSize: "batch size", strategy.GradientAccumulationSteps: "gradient accumulation", strategy.EvalBatchSize: "batch size of the evaluation",
	strategy.ActivationCheckpointing: "switch for activation checkpointing", strategy.DataloaderWorkers: "number of loader workers", strategy.SequenceLength: "sequence length",
}

// Knobs are the knobs that are searched for in a source, in the order in which they are shown.
var Knobs = []strategy.Knob{
	strategy.MicroBatchSize, strategy.GradientAccumulationSteps, strategy.EvalBatchSize, strategy.ActivationCheckpointing, strategy.DataloaderWorkers, strategy.SequenceLength,
}

var (
	ofAll = lazy.Regexp(`(?i)\b(total|global|effective|overall|combined|summed)\b|\ball (the )?(available )?(gpus?|devices?|ranks?|nodes?|process(es)?|workers|replicas)\b|\bacross\b|among all`)
	ofOne = lazy.Regexp(`(?i)(per|each|single|one|for a|for each|a) ?-?(gpu|device|rank|process|card|worker|node)|_per_(gpu|device)|per_(gpu|device)_`)
	ofSum = lazy.Regexp(`(^|_)(total|global|effective|eff|overall|all)(_|$)`)
)

// noInteger ends the doubt about an argument that the script takes as a text: a changed one would break it.
const noInteger = " has not the type int"

// countsMore is in the reasons of countsAll.
const countsMore = " counts "

// countsAll is the reason why an argument counts the samples of all ranks, or of several micro
// batches, by its name or help; empty if it does not.
func (s Argument) countsAll() string {
	if ofSum().MatchString(strings.ToLower(s.Dest)) {
		return fmt.Sprintf("%s counts the samples of all GPUs, by its name", s.Options[0])
	}
	if found := ofAll().FindString(s.Help); found != "" && !ofOne().MatchString(s.Help) && !ofOne().MatchString(s.Dest) {
		return fmt.Sprintf("%s counts the samples of all GPUs, by its description (%q)", s.Options[0], found)
	}
	return ""
}

// whole is the reason why an argument is not one whole number; empty if it is.
func (s Argument) whole() string {
	of := strings.ToLower(s.Type)
	switch {
	case s.Nargs != "" && s.Nargs != `"?"` && s.Nargs != "'?'", s.Action != "" && s.Action != "store":
		return s.Options[0] + " is not a single number"
	case strings.Contains(of, "int") && !strings.Contains(of, "list") && !strings.Contains(of, "tuple") && !strings.Contains(of, "print"):
		return ""
	case of == "" && s.Kind != "argparse":
		if _, number := s.Default.(float64); number {
			return ""
		}
	}
	return s.Options[0] + noInteger
}

var (
	evalWord  = lazy.Regexp(`(?i)(^|[^a-z])(val|valid|validation|validate|dev|eval|evaluation|evaluate|test|tests|testing|tst|infer|inference|predict|prediction|gallery|query|knn|memory|probe|va|te)([^a-z]|$)|valid|evalu|test(set|data|loader|_)|val(set|data|loader|_)|predict`)
	trainWord = lazy.Regexp(`(?i)train|(^|[^a-z])(tr|fit)([^a-z]|$)`)
)

// role is the use of a loader's batches: "train", "eval"; empty if it is not known.
func (l loader) role() string {
	if l.Role != "" {
		return l.Role
	}
	for _, text := range []string{l.Target, l.Data, l.Function, l.Sampler} {
		train, eval := trainWord().MatchString(text), evalWord().MatchString(text)
		switch {
		case train && !eval:
			return "train"
		case eval && !train:
			return "eval"
		}
	}
	if l.Shuffle != nil && *l.Shuffle {
		return "train"
	}
	for _, b := range l.Branches {
		if phase := b.phase(); phase != "" {
			return phase
		}
	}
	return ""
}

// phase is the use of what a branch makes, by a comparison with one word, as in split == "train"; empty if it does not
// say.
func (b branch) phase() string {
	test, holds := b.Test, b.Holds
	if test.Op == "not" && len(test.Of) == 1 {
		test, holds = test.Of[0], !holds
	}
	if test.Op != "in" || len(test.Of) != 2 || !holds {
		return ""
	}
	switch word, _ := test.Of[1].Const.value.(string); {
	case strings.HasPrefix(word, "train"):
		return "train"
	case evalWord().MatchString(word):
		return "eval"
	}
	return ""
}

// maker names the code that makes the batches, for people.
func (l loader) maker() string {
	switch l.Kind {
	case "slice":
		return "the slices of " + l.Data
	case "range":
		return "the loop over the samples"
	case "randint":
		return "the samples that randint draws"
	case "draw":
		return "the samples drawn for each step"
	}
	return l.Kind
}
