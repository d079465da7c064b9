package job

import (
	"fmt"

	"github.com/gpurun/gpurun/recipes/document"
)

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

// A UsageError is a job that cannot be understood, with what to do about it.
type UsageError struct {
	Message string // lower case, no full stop
	Hint    string // likewise; may be empty
	Err     error  // what it rests on, if anything
}

func (e *UsageError) Error() string { return e.Message }

// Unwrap returns the error that the message rests on.
func (e *UsageError) Unwrap() error { return e.Err }

// usage makes a UsageError.
func usage(hint, format string, args ...any) *UsageError {
	return &UsageError{Message: fmt.Sprintf(format, args...), Hint: hint}
}
