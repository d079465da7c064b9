package cause

import (
	"fmt"
	"path"
	"regexp"
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
	return slices.Contains(waitsIn, f.Function) || slices.ContainsFunc(waitsInside, func(p string) bool { return strings.Contains(f.File, p) })
}

// probes matches the path of a file of gpurun's own hook (launcher/probe).
var probes = regexp.MustCompile(`/probe-\d+/inside/[^/]+$`)

// Library reports whether a call is of Python's or of an installed library's code.
func (f StackFrame) Library() bool {
	return f.Waits() || probes.MatchString(f.File) || strings.Contains(f.File, "-packages/") || strings.Contains(f.File, "/lib/python") || strings.HasPrefix(f.File, "<")
}
