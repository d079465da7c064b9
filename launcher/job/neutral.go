package job

import (
	"slices"
	"strconv"
	"strings"
)

// neutralNumbers and neutralNames are options that change no shape, count or dtype, and so not the memory of a job:
// numbers, and names of runs and places of output. They are written with "_", and without what precedes the last ".".
var (
	neutralNumbers = []string{"seed", "random_seed", "manual_seed", "rng_seed", "global_seed", "data_seed", "lr", "learning_rate", "base_lr", "max_lr", "min_lr", "peak_lr", "base_learning_rate"}
	neutralNames   = []string{
		"run_name", "run_id", "exp_name", "experiment_name", "wandb_name", "wandb_run_name", "wandb_project", "wandb_group", "project_name", "job_name",
		"output", "output_dir", "out_dir", "outdir", "output_path", "save_dir", "save_path", "log_dir", "logdir", "logging_dir", "results_dir",
	}
)

// withoutNeutral returns the words of a command without the values of neutral options.
func withoutNeutral(argv []string) []string {
	words := slices.Clone(argv)
	for i := 1; i < len(words); i++ {
		name, value, assigned := strings.Cut(words[i], "=")
		dashed := strings.HasPrefix(name, "-")
		switch {
		case assigned && neutral(name, value):
			words[i] = name + "="
		case !assigned && dashed && i+1 < len(words) && neutral(name, words[i+1]):
			words[i+1] = ""
			i++
		}
	}
	return words
}

// neutral reports whether an option is neutral with a value.
func neutral(option, value string) bool {
	name := strings.ReplaceAll(strings.TrimLeft(option, "-+"), "-", "_")
	name = name[strings.LastIndexByte(name, '.')+1:]
	if slices.Contains(neutralNumbers, name) {
		_, err := strconv.ParseFloat(value, 64)
		return err == nil
	}
	return slices.Contains(neutralNames, name) && value != "" && !strings.HasPrefix(value, "-")
}
