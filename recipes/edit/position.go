package edit

import (
	"strings"
)

// locate finds a key path, or the nearest existing table, and writes the path as in the file:
// dots, quotes around keys that need them, indices in brackets.
func locate(positions map[string]Position, path []string, atValue bool) (offset int, dotted string) {
	var b strings.Builder
	var at Position
	missing := false
	for i, name := range path {
		next, known := positions[Join(path[:i+1])]
		switch {
		case next.Item:
			b.WriteString("[" + name + "]")
		case b.Len() > 0:
			b.WriteString("." + TOMLKey(name))
		default:
			b.WriteString(TOMLKey(name))
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
