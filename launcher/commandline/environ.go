// Environ is the environment of a process as one value: variables by name, which are read
// from and written to the words that execve takes.

package commandline

import (
	"maps"
	"slices"
	"strings"
)

// Environ are variables by name. A nil Environ is an empty environment.
type Environ map[string]string

// ParseEnviron reads the words NAME=VALUE of an environment. If a name is given twice, the last one counts, as in
// bash. Words without "=" are omitted.
func ParseEnviron(words []string) Environ {
	v := make(Environ, len(words))
	for _, word := range words {
		if name, value, ok := strings.Cut(word, "="); ok {
			v[name] = value
		}
	}
	return v
}

// Words returns the environment as execve takes it, sorted, each name once.
func (v Environ) Words() []string {
	words := make([]string, 0, len(v))
	for name, value := range v {
		words = append(words, name+"="+value)
	}
	slices.Sort(words)
	return words
}

// With returns a copy with more variables set. Later sets override earlier ones.
func (v Environ) With(sets ...map[string]string) Environ {
	merged := make(Environ, len(v))
	maps.Copy(merged, v)
	for _, set := range sets {
		maps.Copy(merged, set)
	}
	return merged
}

// Lookup finds a variable, and whether it is set.
func (v Environ) Lookup(name string) (string, bool) {
	value, set := v[name]
	return value, set
}
