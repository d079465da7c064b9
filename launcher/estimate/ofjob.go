package estimate

import (
	"cmp"
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// modelArguments are the arguments and keys by which frameworks name a model; configArguments name its
// configuration, which takes precedence.
var (
	configArguments = []string{"config_name", "model_config_name", "model_config"}
	modelArguments  = []string{"model_name_or_path", "pretrained_model_name_or_path", "base_model", "model_name",
		"model_path", "model_id", "model"}
)

// Of reads a prepared job: its plan, its ranks, its model's configuration if that is a file on this machine,
// and measurements of earlier runs, if any.
func (r *Request) Of(p *job.Prepared, remembered []memory.Measurement) {
	s, plan := p.StrategyJob(), p.Plan()
	r.measured = remembered
	r.plan = strategy.MemoryPlan(plan)
	r.plan.Optimizer, r.plan.DataParallel = r.optimizer(r.plan.Optimizer), cmp.Or(s.DataParallel, s.Ranks, 1)
	r.weights = s.Knobs[strategy.Precision].Weights
	recipe, _ := p.Recipe()
	r.plan.DeepSpeed = recipe == "deepspeed" || strings.EqualFold(p.Environ()["ACCELERATE_USE_DEEPSPEED"], "true")
	r.ofFSDP(p)
	r.ofFramework(p, recipe)
	r.ofModel(p)
}

// ofFramework sets what only some frameworks have, and gives their words the meaning that memory has for them.
func (r *Request) ofFramework(p *job.Prepared, recipe string) {
	switch {
	case strings.HasPrefix(recipe, "megatron") && r.plan.Checkpointing == "selective":
		// It computes the attention's scores again, which a fused attention does not hold anyway.
		r.plan.Checkpointing, r.plan.Attention = "none", "flash"
		r.notes = append(r.notes, "checkpointing: Megatron's selective spares the attention's scores only")
	case strings.HasPrefix(recipe, "torchtune"):
		given := map[string]bool{} // an argument outranks the file
		settings(p.Job, func(key, value string) {
			switch {
			case key == "optimizer_in_bwd":
				if !given[key] {
					given[key], r.plan.StepInBackward = true, strings.EqualFold(value, "true")
				}
			case strings.HasSuffix(value, "CEWithChunkedOutputLoss"), strings.HasSuffix(value, "LinearCrossEntropyLoss"):
				r.plan.LossParts = "chunked"
			}
		})
	}
}

// ofModel finds the shape of the job's model, preferably from a process's report.
func (r *Request) ofModel(p *job.Prepared) {
	for _, m := range r.measured {
		if m.Model == nil {
			continue
		}
		if a, whole := memory.OfModel(*m.Model); whole {
			r.shape, r.from = a, "an earlier run of this job"
			if r.plan.Sequence == 0 && len(m.Shape) == 2 {
				r.plan.Sequence = m.Shape[1]
			}
			return
		}
	}
	named := modelsNamed(p.Job)
	for _, name := range named {
		path := localConfig(name, p.Job.Workdir, p.Environ())
		if path == "" {
			continue
		}
		a, err := readConfig(path)
		if err != nil {
			r.trouble = err
			if errors.Is(err, fs.ErrNotExist) {
				continue
			}
			return
		}
		r.shape, r.from, r.trouble = a, path, nil
		return
	}
	if len(named) > 0 && r.trouble == nil {
		r.trouble = fmt.Errorf("the job's model %s is not on this machine, and gpurun does not download it", named[0])
	}
}

// optimizer returns an optimizer's name if its bytes are known. Another one counts as AdamW, with a note.
func (r *Request) optimizer(name string) string {
	if name == "" || slices.Contains(memory.Optimizers(), name) {
		return name
	}
	if _, given := r.Given["optimizer"]; !given {
		r.notes = append(r.notes,
			fmt.Sprintf("optimizer: the bytes of %s are not known; it is counted as adamw (--optimizer)", name))
	}
	return "adamw"
}

// modelsNamed returns the models in the job's arguments, and in the configuration files that they name:
// configurations first, arguments before files.
func modelsNamed(j job.Job) []string {
	var configs, models []string
	settings(j, func(key, value string) {
		switch {
		case slices.Contains(configArguments, key):
			configs = append(configs, value)
		case slices.Contains(modelArguments, key):
			models = append(models, value)
		}
	})
	return slices.Concat(configs, models)
}

// settings calls found for each setting in the job's arguments, and then in the configuration files that they
// name, by its name without dashes and tables.
func settings(j job.Job, found func(key, value string)) {
	take := func(key, value string) {
		key = strings.ReplaceAll(strings.TrimLeft(key, "-"), "-", "_")
		if dot := strings.LastIndexByte(key, '.'); dot >= 0 { // Hydra's model.partial_pretrain
			key = key[dot+1:]
		}
		if value != "" && !strings.HasPrefix(value, "-") {
			found(key, value)
		}
	}
	for i, word := range j.Argv[min(1, len(j.Argv)):] {
		if key, value, joined := strings.Cut(word, "="); joined {
			take(key, value)
		} else if at := i + 2; strings.HasPrefix(word, "--") && at < len(j.Argv) {
			take(word, j.Argv[at])
		}
	}
	for _, word := range j.Argv[min(1, len(j.Argv)):] {
		_, after, joined := strings.Cut(word, "=")
		if joined {
			word = after
		}
		f, text := fileOf(j.Workdir, word)
		named(f, text, take)
	}
}

// fileOf returns the text and the format of the configuration file that a word may name.
func fileOf(dir, word string) (edit.Format, []byte) {
	switch filepath.Ext(word) {
	case ".yaml", ".yml", ".json", ".toml":
	default:
		return "", nil
	}
	text, err := job.ReadFile(under(dir, word), largestConfig)
	if err != nil {
		return "", nil // the job itself will fail
	}
	f, _ := edit.FormatOf(word, text)
	return f, text
}

// named calls take for each key with a text or a truth value in a configuration, including its tables.
func named(f edit.Format, text []byte, take func(key, value string)) {
	if text == nil {
		return
	}
	root, err := edit.Decode(f, text)
	if err != nil {
		return
	}
	var walk func(v any)
	walk = func(v any) {
		table, _ := v.(map[string]any)
		for _, key := range slices.Sorted(maps.Keys(table)) {
			switch value := table[key].(type) {
			case string:
				take(key, value)
			case bool:
				take(key, strconv.FormatBool(value))
			}
			walk(table[key])
		}
	}
	walk(root)
}

// localConfig returns the path of a model's config.json on this machine: of a file, in a folder, or in
// Hugging Face's cache; empty for none.
func localConfig(name, dir string, env map[string]string) string {
	path := under(dir, name)
	if info, err := os.Stat(path); err == nil {
		if info.IsDir() {
			return filepath.Join(path, "config.json")
		}
		if filepath.Ext(path) == ".json" {
			return path
		}
	}
	hub := cmp.Or(env["HF_HUB_CACHE"], env["HUGGINGFACE_HUB_CACHE"])
	if hub == "" {
		hub = filepath.Join(cmp.Or(env["HF_HOME"], filepath.Join(env["HOME"], ".cache", "huggingface")), "hub")
	}
	found, err := filepath.Glob(filepath.Join(hub, "models--"+strings.ReplaceAll(name, "/", "--"), "snapshots", "*",
		"config.json"))
	if err != nil || len(found) == 0 {
		return ""
	}
	return found[0]
}

// under returns a path as the job resolves it.
func under(dir, path string) string {
	if filepath.IsAbs(path) {
		return path
	}
	return filepath.Join(dir, path)
}
