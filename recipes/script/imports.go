package script

import (
	"regexp"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/source"
)

var (
	pythonComment = regexp.MustCompile(`(?m)#.*$`)
	continuation  = regexp.MustCompile(`\\\r?\n`)
)

// imports reports whether a Python source imports a module ("deepspeed"), or
// imports and thus can use a name of a module ("transformers.HfArgumentParser").
// Comments do not count. It reads text, not Python: an import in a string counts.
func imports(python []byte, name string) bool {
	text := withoutComments(python)
	module, member, qualified := cutLast(name)
	for _, i := range source.Imports(text) {
		switch {
		case i.Module == name || strings.HasPrefix(i.Module, name+"."):
			return true
		case !qualified:
		case i.Names == nil:
			if i.Module == module && strings.Contains(text, i.As+"."+member) {
				return true
			}
		case i.Module == module || strings.HasPrefix(i.Module, module+"."):
			if slices.ContainsFunc(i.Names, func(n source.ImportedName) bool { return n.Name == member }) {
				return true
			}
		}
	}
	return false
}

// withoutComments is a source with each statement on a line of its own.
func withoutComments(source []byte) string {
	return pythonComment.ReplaceAllString(continuation.ReplaceAllString(string(source), " "), "")
}

// cutLast splits off what follows the last dot.
func cutLast(name string) (module, member string, qualified bool) {
	i := strings.LastIndexByte(name, '.')
	if i < 0 {
		return name, "", false
	}
	return name[:i], name[i+1:], true
}
