package job

import "github.com/gpurun/gpurun/recipes/document"

// What is wrong in a train.toml, and where.
type (
	Problem = document.Problem
	Fault   = document.Fault
	Error   = document.Error
)

// A Check validates a part of a train.toml that package job does not know, such
// as [knobs]. It gets the whole file as generic values, as in Job.Knobs, and
// may be called with a file in which other things are wrong.
type Check func(table map[string]any) []Problem
