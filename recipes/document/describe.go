package document

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

// Describe names the type of a value in a person's words.
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

// inQuotes says how to make text of a bare value.
func inQuotes(v any) string {
	if n, ok := Number(v); ok {
		return "; write \"" + n + "\""
	}
	if b, ok := v.(bool); ok {
		return fmt.Sprintf("; write \"%t\"", b)
	}
	return ""
}

// withoutQuotes says how to make a bare value of text.
func withoutQuotes(v any) string {
	s, ok := v.(string)
	_, notNumber := strconv.Atoi(s)
	if !ok || notNumber != nil && s != "true" && s != "false" {
		return ""
	}
	return "; write " + s + " without quotes"
}

// inBrackets says how to make an array of text.
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
