package cause

import (
	"fmt"
	"path"
	"slices"
	"strings"
)

// A StackFrame is one call of a process that was asked where it is.
type StackFrame struct {
	File     string `json:"file"`
	Line     int    `json:"line"`
	Function string `json:"function"`
}

func (f StackFrame) String() string {
	return fmt.Sprintf("%s:%d in %s", path.Base(f.File), f.Line, f.Function)
}

// waitsInside are parts of the paths of files in which a rank waits for others, and waitsIn
// functions of PyTorch whose end comes once the others have done their part.
var (
	waitsInside = []string{"torch/distributed/", "torch/autograd/", "torch/nn/parallel/", "deepspeed/comm/"}
	waitsIn     = []string{"synchronize"}
)

// Waits reports whether a call is one by which a rank waits for others.
func (f StackFrame) Waits() bool {
	return slices.Contains(waitsIn, f.Function) || contains(f.File, waitsInside)
}

// Library reports whether a call is of Python's or of an installed library's code.
func (f StackFrame) Library() bool {
	return f.Waits() || ofHook.MatchString(f.File) || installed(f.File) || strings.HasPrefix(f.File, "<")
}
