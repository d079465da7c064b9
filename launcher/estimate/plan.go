package estimate

import (
	"cmp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/strategy/memory"
)

// dtypes maps names of a precision to the name in flags.
var dtypes = map[string]string{
	"fp32": "fp32", "tf32": "tf32", "bf16": "bf16", "fp16": "fp16", "float32": "fp32", "bfloat16": "bf16",
	"float16": "fp16",
}

// flagWords are the allowed values of flags, by the flag's name.
var flagWords = map[string][]string{
	"precision":     {"fp32", "tf32", "bf16", "fp16"},
	"weights":       {"fp32", "bf16", "fp16", "deepspeed"},
	"optimizer":     memory.Optimizers(),
	"checkpointing": {"none", "selective", "full"},
	"loss":          {"whole", "chunked", "fused"},
	"attention":     {"eager", "sdpa", "flash"},
	"zero":          {"0", "1", "2", "3"},
	"offload":       {"optimizer", "param", "activations"},
}

// word returns the value of one of these flags, empty if not given.
func (r *Request) word(name string) (string, error) {
	g, given := r.Given[name]
	if !given {
		return "", nil
	}
	value, words := strings.ToLower(g.Value), flagWords[name]
	if name == "precision" && dtypes[value] != "" {
		value = dtypes[value]
	}
	if !slices.Contains(words, value) {
		hint := "it is one of " + strings.Join(words, ", ")
		if meant := job.Nearest(value, words); meant != "" {
			hint = "did you mean " + meant + "? " + hint
		}
		return "", errext.Errorf(hint, "%s: %q is not known", g.Source, g.Value)
	}
	return value, nil
}

// planned returns the job's plan, overridden by flags.
func (r *Request) planned() (memory.RankPlan, error) {
	p := r.plan
	for _, f := range []struct {
		name string
		into *string
	}{{"precision", &p.Compute}, {"optimizer", &p.Optimizer}, {"checkpointing", &p.Checkpointing},
		{"attention", &p.Attention}, {"loss", &p.LossParts}} {
		value, err := r.word(f.name)
		if err != nil {
			return p, err
		}
		*f.into = cmp.Or(value, *f.into)
	}
	for name, into := range map[string]*int{"gpus": &p.DataParallel, "micro-batch": &p.MicroBatch,
		"accumulation": &p.Accumulation, "sequence": &p.Sequence} {
		n, given, err := r.whole(name)
		if err != nil {
			return p, err
		}
		if given {
			*into = n
		}
	}
	if p.LossParts == "whole" {
		p.LossParts = ""
	}
	_, stepped := r.Given["optimizer-in-backward"]
	p.StepInBackward = p.StepInBackward || stepped
	if p.StepInBackward && p.Accumulation > 1 {
		return p, errext.Errorf("leave one of them out: a step in the backward pass needs the whole gradient",
			"--optimizer-in-backward contradicts an accumulation of %d", p.Accumulation)
	}
	p.Optimizer = cmp.Or(p.Optimizer, "adamw")
	if err := r.shard(&p); err != nil {
		return p, err
	}
	if err := r.offload(&p); err != nil {
		return p, err
	}
	return p, r.weigh(&p)
}

// shard reads --zero and --fsdp.
func (r *Request) shard(p *memory.RankPlan) error {
	zero, err := r.word("zero")
	if err != nil {
		return err
	}
	_, fsdp := r.Given["fsdp"]
	switch {
	case fsdp && zero != "" && zero != "0":
		return errext.Errorf("keep one of them: --fsdp shards what --zero 3 does, without DeepSpeed",
			"--fsdp contradicts --zero %s", zero)
	case fsdp:
		p.Sharding = "fsdp"
	case zero == "0":
		p.Sharding = "none"
	case zero != "":
		p.Sharding = "zero" + zero
	case p.Sharding == "":
		p.Sharding = "none"
	}
	return nil
}

// offload reads --offload and its flags, and refuses values that no framework has.
func (r *Request) offload(p *memory.RankPlan) error {
	into := map[string]*string{"optimizer": &p.OffloadOptimizer, "param": &p.OffloadParam,
		"activations": &p.OffloadActivations}
	if g, given := r.Given["offload"]; given {
		for word := range strings.SplitSeq(g.Value, ",") {
			name := strings.TrimSuffix(strings.TrimSpace(word), "s")
			name = cmp.Or(map[string]string{"activation": "activations", "parameter": "param"}[name], name)
			if into[name] == nil {
				return errext.Errorf("it takes "+strings.Join(flagWords["offload"], ", ")+", joined by commas",
					"%s: %q cannot be offloaded", g.Source, word)
			}
			*into[name] = "cpu"
		}
	}
	for name, to := range into {
		g, given := r.Given["offload-"+name]
		if !given {
			continue
		}
		switch value := strings.ToLower(g.Value); {
		case value == "1", value == "cpu":
			*to = "cpu"
		case value == "none", value == "nvme" && name != "activations":
			*to = value
		default:
			return errext.Errorf("it takes cpu, or nvme for optimizer and param", "%s: %q is not a place to offload to",
				g.Source, g.Value)
		}
	}
	return offloadable(*p)
}

// offloadable refuses combinations that neither DeepSpeed nor FSDP has.
func offloadable(p memory.RankPlan) error {
	on := func(word string) bool { return word != "" && word != "none" }
	switch {
	case on(p.OffloadParam) && p.Sharding != "zero3" && p.Sharding != "fsdp":
		return errext.Errorf("add --zero 3, or leave the offload of parameters out",
			"parameters are offloaded by ZeRO's stage 3 only")
	case on(p.OffloadOptimizer) && (p.Sharding == "none" || p.Sharding == ""):
		return errext.Errorf("add --zero 1, 2 or 3 (one GPU is enough)", "the optimizer is offloaded by ZeRO and FSDP only")
	case (p.OffloadOptimizer == "nvme" || p.OffloadParam == "nvme") && p.Sharding != "zero3":
		return errext.Errorf("add --zero 3, or offload to cpu", "NVMe is for ZeRO's stage 3 only")
	}
	return nil
}

// weigh sets the dtype of weights: --weights; else DeepSpeed's, if it shards or trains; else the precision,
// if the job's also applies to the weights; else fp32.
func (r *Request) weigh(p *memory.RankPlan) error {
	kind, err := r.word("weights")
	if err != nil {
		return err
	}
	zero := strings.HasPrefix(p.Sharding, "zero")
	if kind == "" {
		switch {
		case zero, p.DeepSpeed && p.Sharding == "none":
			kind = "deepspeed"
		case r.weights && (p.Compute == "bf16" || p.Compute == "fp16"):
			kind = p.Compute
		default:
			kind = "fp32"
		}
	}
	sixteen := p.Compute == "bf16" || p.Compute == "fp16"
	switch {
	case kind == "deepspeed" && p.Sharding == "fsdp":
		return errext.Errorf("leave one of them out: with FSDP the bytes follow fp32 or bf16 weights",
			"--weights deepspeed contradicts FSDP")
	case kind == "deepspeed":
		p.DeepSpeed, p.Weights = true, "fp32"
		if sixteen {
			p.Weights = p.Compute
		}
	case kind != "fp32" && p.Compute != "" && p.Compute != kind:
		return errext.Errorf("weights in 16 bits are not cast: give --precision "+kind,
			"--weights %s contradicts --precision %s", kind, p.Compute)
	default:
		p.Weights, p.DeepSpeed = kind, false
	}
	return nil
}

// complete reports all values that are still not known at once, with their flags.
func (r *Request) complete(p memory.RankPlan) error {
	var flags, names []string
	for _, f := range []struct {
		flag    string
		unknown bool
	}{{"--precision bf16", p.Compute == ""}, {"--micro-batch N", p.MicroBatch == 0}, {"--sequence N", p.Sequence == 0}} {
		if f.unknown {
			name, _, _ := strings.Cut(strings.TrimPrefix(f.flag, "--"), " ")
			flags, names = append(flags, f.flag), append(names, strings.ReplaceAll(name, "-", " "))
		}
	}
	if len(flags) == 0 {
		return nil
	}
	who := "a size alone does"
	if r.Job != nil {
		who = "the job does"
	}
	return errext.Errorf("add "+strings.Join(flags, " "), "%s not give the %s", who, join(names))
}

// join returns a list for a sentence.
func join(words []string) string {
	if len(words) < 2 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:len(words)-1], ", ") + " and " + words[len(words)-1]
}
