package estimate

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/strategy/memory"
)

// largestConfig is the largest config.json that is read, in bytes.
const largestConfig = 4 << 20

// shapeFlags set the model's shape, each a whole number.
var shapeFlags = []struct {
	name string
	of   func(*memory.Architecture) *int64
}{
	{"layers", func(a *memory.Architecture) *int64 { return &a.Layers }},
	{"hidden", func(a *memory.Architecture) *int64 { return &a.Hidden }},
	{"heads", func(a *memory.Architecture) *int64 { return &a.Heads }},
	{"kv-heads", func(a *memory.Architecture) *int64 { return &a.KVHeads }},
	{"intermediate", func(a *memory.Architecture) *int64 { return &a.Intermediate }},
	{"vocab", func(a *memory.Architecture) *int64 { return &a.Vocabulary }},
}

// architecture returns the model's shape, from the first source that has it: flags, its configuration, a
// process that ran it, published models of its size.
func (r *Request) architecture() (memory.Architecture, error) {
	said, err := r.flagShape()
	if err != nil {
		return said, err
	}
	a := r.shape
	if g, given := r.Given["config"]; given {
		if a, err = readConfig(g.Value); err != nil {
			return a, errext.WithHint(fmt.Errorf("--config: %w", err), configHint(err))
		}
		r.from = g.Value
	}
	whole := said.Layers > 0 && said.Hidden > 0 && said.Vocabulary > 0
	switch {
	case r.Size != "":
		n, err := memory.Size(r.Size)
		if err != nil {
			hint := "write it as 7B, 350M or 1.3e9"
			if number, has := strings.CutSuffix(strings.ToUpper(r.Size), "T"); has {
				hint = fmt.Sprintf("B is for a billion: did you mean %sB?", number)
			}
			return a, errext.WithHint(err, hint)
		}
		if a.Layers == 0 {
			a = memory.OfSize(n)
		}
		a.Parameters = n
	case a.Layers == 0 && whole:
		a = memory.Architecture{Gated: true}
	case a.Layers == 0:
		return a, r.unknownModel()
	}
	return overlay(a, said, whole), nil
}

// overlay sets the flags' values in a shape, and updates values that depend on them. A shape that is given
// completely by flags is not assumed any more.
func overlay(a, said memory.Architecture, whole bool) memory.Architecture {
	assumed := a.Assumed
	if said.Hidden > 0 && said.Hidden != a.Hidden && !assumed {
		a.HeadWidth = 0
	}
	for _, f := range shapeFlags {
		if n := *f.of(&said); n > 0 {
			*f.of(&a) = n
		}
	}
	if said.Vocabulary > 0 {
		a.AssumedVocabulary = false
	}
	if whole {
		a.Assumed = false
		if said.Heads == 0 && (assumed || a.Heads == 0) {
			a.Heads = max(a.Hidden/128, 1)
		}
		if said.KVHeads == 0 && (assumed || a.KVHeads == 0) {
			a.KVHeads = a.Heads
		}
		if said.Intermediate == 0 && (assumed || a.Intermediate == 0) { // as in Llama: two thirds of 4 times, rounded to 256
			a.Intermediate = (a.Hidden*8/3 + 255) / 256 * 256
		}
	}
	if said != (memory.Architecture{}) && !assumed && a.Parameters > 0 && said.Parameters == 0 && a.Like != "" {
		a.Parameters = 0 // another shape has another number of parameters
	}
	return a
}

// flagShape returns the shape from flags.
func (r *Request) flagShape() (memory.Architecture, error) {
	said := memory.Architecture{}
	for _, f := range shapeFlags {
		n, given, err := r.whole(f.name)
		if err != nil {
			return said, err
		}
		if given {
			*f.of(&said) = int64(n)
		}
	}
	if said.KVHeads > said.Heads && said.Heads > 0 {
		return said, errext.Errorf("several query heads share one key head, so there are at most as many key heads",
			"--kv-heads %d is more than --heads %d", said.KVHeads, said.Heads)
	}
	return said, nil
}

// whole returns a flag's whole number, from 1.
func (r *Request) whole(name string) (int, bool, error) {
	g, given := r.Given[name]
	if !given {
		return 0, false, nil
	}
	n, err := strconv.Atoi(g.Value)
	if err != nil || n < 1 || n > 1<<40 {
		return 0, true, errext.Errorf("give a whole number from 1, such as 4096", "%s: %q is not a whole number", g.Source,
			g.Value)
	}
	return n, true, nil
}

// unknownModel returns the error for an unknown model, with the flags that would help.
func (r *Request) unknownModel() error {
	const flags = "--parameters SIZE (such as 7B), or --config FILE, the model's config.json"
	switch {
	case r.trouble != nil:
		return errext.WithHint(r.trouble, "give "+flags)
	case r.Job != nil:
		return errext.Errorf("give "+flags, "gpurun does not find which model the job trains")
	}
	return errext.Errorf(
		"gpurun estimate 7B --precision bf16 --micro-batch 4 --sequence 4096, or gpurun estimate train.toml",
		"estimate takes a number of parameters, or a job")
}

// readConfig reads a config.json, given by its path or folder.
func readConfig(path string) (memory.Architecture, error) {
	if info, err := os.Stat(path); err == nil && info.IsDir() {
		path = filepath.Join(path, "config.json")
	}
	text, err := job.ReadFile(path, largestConfig)
	if err != nil {
		return memory.Architecture{}, err
	}
	a, err := memory.OfConfig(text)
	if err != nil {
		return a, fmt.Errorf("read the model's shape from %s: %w", path, err)
	}
	return a, nil
}

// configHint returns the hint for a configuration that cannot be used.
func configHint(err error) string {
	if errors.Is(err, memory.ErrExperts) {
		return "estimate knows dense models: give the number of all parameters, and --layers, --hidden and --intermediate of the experts that one token sees"
	}
	return "give the config.json that transformers store with a model's weights, or --parameters SIZE"
}
