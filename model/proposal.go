package model

import "github.com/gpurun/gpurun/strategy"

// A Proposal is a plan as the user could have written the job, in the place where the
// user wrote it.
type Proposal struct {
	Env map[string]string // to be set, beside what the job sets already
	// File is the name of the train.toml; empty for a command line.
	File string
	// Key is the key of [job] that gets the words: "args", "program" or "command";
	// empty for a command line, and "argv" for words that have no such place.
	Key   string
	Words []string
	// Sources are words as they were written, by their index: with the variables whose values
	// Words has. An empty one belongs to that before it. EnvSources are those of Env, with the
	// name.
	Sources    map[int]string
	EnvSources map[string]string
	// NoArgs: the words hold those of job.args, which is to go.
	NoArgs bool
	// HasEnv: the job has a table job.env.
	HasEnv bool
	// Code are calls in the job's code as they would be written, and Turned is what has
	// no words in the job at all: gpurun turned it in the process.
	Code   []string
	Turned strategy.Plan
	// Unchanged: the words and variables are those of the job as it is.
	Unchanged bool
	// Remembered: the next start begins with the plan by itself.
	Remembered bool
}
