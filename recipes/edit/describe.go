package edit

import (
	"fmt"
	"strconv"
	"strings"
)

// Either joins words in quotes: "a", "b" or "c".
func Either(words []string) string { return either(quotedWords(words)) }

func quotedWords(words []string) []string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = strconv.Quote(w)
	}
	return quoted
}

// either joins alternatives: "a, b or c".
func either(words []string) string {
	last := len(words) - 1
	if last < 1 {
		return strings.Join(words, "")
	}
	return strings.Join(words[:last], ", ") + " or " + words[last]
}

// Describe names the type of a value for people.
func Describe(v any) string {
	switch v := v.(type) {
	case string:
		return "text"
	case int64:
		return "a whole number"
	case float64:
		return "a number with a fraction"
	case bool:
		return strconv.FormatBool(v)
	case []any:
		return "an array"
	case map[string]any:
		return "a table"
	}
	return "a date or time"
}

// Number spells a number.
func Number(v any) (string, bool) {
	switch v := v.(type) {
	case int64:
		return strconv.FormatInt(v, 10), true
	case float64:
		return strconv.FormatFloat(v, 'g', -1, 64), true
	}
	return "", false
}

// inQuotes is the advice to put a bare value in quotes.
func inQuotes(v any) string {
	if n, ok := Number(v); ok {
		return "; write \"" + n + "\""
	}
	if b, ok := v.(bool); ok {
		return fmt.Sprintf("; write \"%t\"", b)
	}
	return ""
}

// withoutQuotes is the advice to remove the quotes of a value.
func withoutQuotes(v any) string {
	s, ok := v.(string)
	_, notNumber := strconv.Atoi(s)
	if !ok || notNumber != nil && s != "true" && s != "false" {
		return ""
	}
	return "; write " + s + " without quotes"
}

// inBrackets is the advice to put text into an array.
func inBrackets(v any) string {
	s, ok := v.(string)
	if !ok {
		return ""
	}
	words := strings.Fields(s)
	if strings.ContainsAny(s, "'\"\\$`") {
		words = []string{s}
	}
	for i, w := range words {
		words[i] = strconv.Quote(w)
	}
	return "; write [" + strings.Join(words, ", ") + "]"
}

// Nearest returns the word that was probably meant by a wrong one, or an empty string: the
// nearest by edit distance, if at most a third of the letters are wrong.
func Nearest(wrong string, words []string) string {
	best, least := "", len(wrong)/3+1
	if len(wrong) < 3 {
		least = 1
	}
	for _, w := range words {
		if d := distance(fold(wrong), fold(w)); d < least || d == least && best == "" && d <= 1 {
			best, least = w, d
		}
	}
	if best == "" && len(wrong) >= 3 {
		for _, w := range words {
			if strings.HasPrefix(fold(w), fold(wrong)) {
				return w
			}
		}
	}
	return best
}

// fold normalises case and "_".
func fold(word string) string {
	return strings.ReplaceAll(strings.ToLower(word), "_", "-")
}

// distance counts the insertions, deletions, replacements and swaps of neighbours that turn a
// into b (optimal string alignment).
func distance(a, b string) int {
	before := make([]int, len(b)+1)
	last := make([]int, len(b)+1)
	row := make([]int, len(b)+1)
	for j := range last {
		last[j] = j
	}
	for i := 1; i <= len(a); i++ {
		row[0] = i
		for j := 1; j <= len(b); j++ {
			cost := 1
			if a[i-1] == b[j-1] {
				cost = 0
			}
			row[j] = min(last[j]+1, row[j-1]+1, last[j-1]+cost)
			if i > 1 && j > 1 && a[i-1] == b[j-2] && a[i-2] == b[j-1] {
				row[j] = min(row[j], before[j-2]+1)
			}
		}
		before, last, row = last, row, before
	}
	return last[len(b)]
}
