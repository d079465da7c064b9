// Package lazy compiles regular expressions on first use: a start of gpurun needs few of them.
package lazy

import (
	"regexp"
	"sync"
)

// Regexp returns a function that returns the compiled expression, which must be valid.
func Regexp(expression string) func() *regexp.Regexp {
	return sync.OnceValue(func() *regexp.Regexp { return regexp.MustCompile(expression) })
}
