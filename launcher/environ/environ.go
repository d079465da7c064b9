// Package environ represents the environment of a process as one value: variables by name, which are read
// from and written to the words that execve takes.
package environ

import (
	"maps"
	"slices"
	"strings"
)

// Vars are variables by name. A nil Vars is an empty environment.
type Vars map[string]string

// Parse reads the words NAME=VALUE of an environment. If a name is given twice, the last one counts, as in
// bash. Words without "=" are omitted.
func Parse(words []string) Vars {
	v := make(Vars, len(words))
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok {
			v[name] = value
		}
	}
	return v
}

// Words returns the environment as execve takes it, sorted, each name once.
func (v Vars) Words() []string {
	words := make([]string, 0, len(v))
	for name, value := range v {
		words = append(words, name+"="+value)
	}
	slices.Sort(words)
	return words
}

// With returns a copy with more variables set. Later sets override earlier ones.
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
