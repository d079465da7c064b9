package model

import "github.com/gpurun/gpurun/strategy"

// A Command is what one attempt runs, all paths and words in place.
type Command struct {
	Argv []string          `json:"argv"`
	Env  map[string]string `json:"env,omitempty"` // variables that gpurun sets
	// Calls are arguments that the probe changes as a rank's process makes a call, and
	// Turn is what it turns there.
	Calls []strategy.Call `json:"calls,omitempty"`
	Turn  strategy.Plan   `json:"turn,omitempty"`
	// Files are changed copies by their path in the attempt's folder.
	Files map[string][]byte `json:"-"`
	// Siblings maps a folder of copies to the original folder whose other files
	// are linked beside them, so that relative includes resolve as they did.
	Siblings map[string]string `json:"-"`
	// Whole is the folder with the copy of a checkpoint, which needs all of its siblings.
	Whole string `json:"-"`
	Diff  string `json:"-"` // unified, as a person would read it
}
