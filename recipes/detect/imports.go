package detect

import (
	"regexp"
	"slices"
	"strings"
)

var (
	pythonComment = regexp.MustCompile(`(?m)#.*$`)
	fromImport    = regexp.MustCompile(`(?m)^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n;]+)`)
	plainImport   = regexp.MustCompile(`(?m)^[ \t]*import[ \t]+([^\n;]+)`)
	continuation  = regexp.MustCompile(`\\\r?\n`)
)

// imports reports whether a Python source imports a module ("deepspeed"), or
// imports and thus can use a name of a module ("transformers.HfArgumentParser").
// Comments do not count. It reads text, not Python: an import in a string counts.
func imports(source []byte, name string) bool {
	text := withoutComments(source)
	module, member, qualified := cutLast(name)
	for _, m := range fromImport.FindAllStringSubmatch(text, -1) {
		if m[1] == name || strings.HasPrefix(m[1], name+".") {
			return true
		}
		inside := m[1] == module || strings.HasPrefix(m[1], module+".")
		if qualified && inside && slices.Contains(imported(m[2]), member) {
			return true
		}
	}
	for _, m := range plainImport.FindAllStringSubmatch(text, -1) {
		for item := range strings.SplitSeq(m[1], ",") {
			fields := strings.Fields(item)
			if len(fields) == 0 {
				continue
			}
			alias := fields[len(fields)-1] // the module, or what follows "as"
			switch {
			case fields[0] == name || strings.HasPrefix(fields[0], name+"."):
				return true
			case qualified && fields[0] == module && strings.Contains(text, alias+"."+member):
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

// imported lists the names of a from-import, as the module calls them.
func imported(list string) []string {
	var names []string
	for item := range strings.SplitSeq(strings.Trim(list, "()"), ",") {
		if fields := strings.Fields(item); len(fields) > 0 {
			names = append(names, fields[0])
		}
	}
	return names
}
