package cause

import "strings"

// A pattern tells what a line of output means. Words are substrings that the
// line holds in that order, Without are substrings that it must not hold.
// Substrings keep a long line cheap where a regular expression would not.
type pattern struct {
	code    Code
	weight  Weight
	words   []string
	without []string
	// recovery: the job says that it skips, retries or reduces. The line is no
	// finding; it makes the out-of-memory errors around it handled.
	recovery bool
	// whole says that the line holds nothing but the one word.
	whole  bool
	phase  Phase
	device string
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
	for _, w := range p.without {
		if strings.Contains(text, w) {
			return false
		}
	}
	return true
}

// raised is what a pattern weighs in the line that ends a traceback: an exception
// is no warning, though it may be another failure's.
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

// patterns is the catalogue of lines. The first match wins, so that what a line
// says more exactly stands before what it says as well.
var patterns = join(
	recoveryPatterns, cudaPatterns, sharedMemoryPatterns, hostPatterns, diskPatterns, devicePatterns,
	networkPatterns, stopPatterns, otherPatterns,
)

func join(groups ...[]pattern) []pattern {
	var all []pattern
	for _, g := range groups {
		all = append(all, g...)
	}
	return all
}
