package document

import (
	"strings"

	"github.com/gpurun/gpurun/recipes/patch"
)

// locate finds a key path, or the nearest existing table, and writes the path as in the file:
// dots, quotes around keys that need them, indices in brackets.
func locate(positions map[string]patch.Position, path []string, atValue bool) (offset int, dotted string) {
	var b strings.Builder
	var at patch.Position
	missing := false
	for i, name := range path {
		next, known := positions[patch.Join(path[:i+1])]
		switch {
		case next.Item:
			b.WriteString("[" + name + "]")
		case b.Len() > 0:
			b.WriteString("." + patch.TOMLKey(name))
		default:
			b.WriteString(patch.TOMLKey(name))
		}
		if missing = missing || !known; !missing {
			at = next
		}
	}
	if atValue && !missing {
		return at.Value, b.String()
	}
	return at.Key, b.String()
}
