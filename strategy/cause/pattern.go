package cause

import (
	"slices"
	"strings"
)

// A pattern recognises a line of output by substrings, which stay cheap on a long line where
// a regular expression would not.
type pattern struct {
	code    Code
	weight  Weight
	words   []string // in the line, in this order
	without []string // not in the line
	// recovery: the job says that it skips, retries or reduces. The line is no
	// finding; it makes the out-of-memory errors around it handled.
	recovery bool
	whole    bool // the one word is the whole line
	phase    Phase
	device   string
}

func (p *pattern) matches(text string) bool {
	if p.whole {
		return strings.Trim(text, " *`") == p.words[0] // with the marks of text that was made bold or code
	}
	rest := text
	for _, w := range p.words {
		i := strings.Index(rest, w)
		if i < 0 {
			return false
		}
		rest = rest[i+len(w):]
	}
	return !contains(text, p.without)
}

// raised is the pattern's weight in the line that ends a traceback: an exception is no
// warning, but may be another failure's symptom.
func (p *pattern) raised() Weight {
	switch {
	case p.weight != WeightWarning:
		return p.weight
	case p.code == Unknown || p.code == UserError || p.code == NCCLError:
		return WeightSymptom
	}
	return WeightCause
}

// classify returns the first pattern of the table that the line matches.
func classify(text string) *pattern {
	for i := range patterns {
		if patterns[i].matches(text) {
			return &patterns[i]
		}
	}
	return nil
}

func words(w ...string) []string { return w }

// patterns is the catalogue of lines. The first match wins: the more exact pattern is before
// the more general one.
var patterns = slices.Concat(
	recoveryPatterns, cudaPatterns, sharedMemoryPatterns, hostPatterns, diskPatterns, devicePatterns,
	networkPatterns, stopPatterns, otherPatterns,
)
