// Package environ is the environment of a process as one value: variables by
// name, read from and written as the words that execve takes.
package environ

import (
	"maps"
	"slices"
	"strings"
)

// Vars are variables by name. A nil Vars is an empty environment.
type Vars map[string]string

// Parse reads the words NAME=VALUE of an environment. Of a name that is given
// twice the last one counts, as for getenv in bash; a word without "=" is left out.
func Parse(words []string) Vars {
	v := make(Vars, len(words))
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok {
			v[name] = value
		}
	}
	return v
}

// Words gives the environment as execve takes it, sorted, each name once.
func (v Vars) Words() []string {
	words := make([]string, 0, len(v))
	for name, value := range v {
		words = append(words, name+"="+value)
	}
	slices.Sort(words)
	return words
}

// With returns a copy with variables set on top of it; the last set is the strongest.
func (v Vars) With(sets ...map[string]string) Vars {
	merged := make(Vars, len(v))
	maps.Copy(merged, v)
	for _, set := range sets {
		maps.Copy(merged, set)
	}
	return merged
}

// Lookup finds a variable, and whether it is set.
func (v Vars) Lookup(name string) (string, bool) {
	value, set := v[name]
	return value, set
}
