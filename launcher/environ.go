package launcher

import (
	"slices"
	"strings"
)

// Lookup finds a variable in an environment; the last one counts, as for execve.
func Lookup(env []string, name string) (string, bool) {
	for _, word := range slices.Backward(env) {
		if k, v, ok := strings.Cut(word, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// Overlay returns an environment with variables set on top of it, sorted, each
// name once.
func Overlay(env []string, sets ...map[string]string) []string {
	merged := map[string]string{}
	for _, word := range env {
		if k, v, ok := strings.Cut(word, "="); ok {
			merged[k] = v
		}
	}
	for _, set := range sets {
		for k, v := range set {
			merged[k] = v
		}
	}
	words := make([]string, 0, len(merged))
	for k, v := range merged {
		words = append(words, k+"="+v)
	}
	slices.Sort(words)
	return words
}
