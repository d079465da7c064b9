package job

import (
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// A table reads one table of a train.toml. What is wrong becomes a problem and
// the default stands, so that reading goes on and every problem is found.
type table struct {
	name     string
	values   map[string]any
	problems *[]Problem
}

// has reports whether the key is set.
func (t *table) has(key string) bool {
	_, set := t.values[key]
	return set
}

// get returns a key's value.
func (t *table) get(key string) (any, bool) {
	v, set := t.values[key]
	return v, set
}

// bad reports a problem with the value of a key, or with an element of it.
func (t *table) bad(key, format string, args ...any) {
	t.badAt([]string{key}, format, args...)
}

func (t *table) badAt(path []string, format string, args ...any) {
	*t.problems = append(*t.problems, Problem{
		Key: append([]string{t.name}, path...), Message: fmt.Sprintf(format, args...), AtValue: true,
	})
}

// badWord reports a word that is none of those allowed.
func (t *table) badWord(path []string, got string, words []string) {
	p := Problem{Key: append([]string{t.name}, path...), AtValue: true, Suggest: Nearest(got, words)}
	p.Message = fmt.Sprintf("unknown value %q, want %s", got, either(quotedWords(words)))
	if p.Suggest != "" && len(words) > 6 {
		p.Message = fmt.Sprintf("unknown value %q", got)
	}
	*t.problems = append(*t.problems, p)
}

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

// text reads a string.
func (t *table) text(key, fallback string) string {
	v, set := t.get(key)
	if !set {
		return fallback
	}
	s, ok := v.(string)
	if !ok {
		t.bad(key, "want text, found %s%s", describe(v), inQuotes(v))
		return fallback
	}
	return s
}

// filled reads a string that may not be empty or hold a NUL.
func (t *table) filled(key string) string {
	s := t.text(key, "")
	switch {
	case !t.has(key):
	case s == "":
		if _, ok := t.values[key].(string); ok {
			t.bad(key, "is empty")
		}
	case strings.Contains(s, "\x00"):
		t.bad(key, "holds a NUL character")
		return ""
	}
	return s
}

// file reads a path. Nothing is expanded in it.
func (t *table) file(key, fallback string) string {
	s := t.text(key, fallback)
	switch {
	case strings.HasPrefix(s, "~"):
		t.bad(key, "only a shell expands ~; write the path out, or ./%s for a file of that name", s)
	case strings.Contains(s, "\x00"):
		t.bad(key, "holds a NUL character")
		return fallback
	}
	return s
}

// choice reads one of some words; the first is the default.
func (t *table) choice(key, fallback string, words ...string) string {
	if v, set := t.get(key); set {
		if _, ok := v.(string); !ok {
			t.bad(key, "want %s, found %s", either(quotedWords(words)), describe(v))
			return fallback
		}
	}
	s := t.text(key, fallback)
	if !slices.Contains(words, s) {
		t.badWord([]string{key}, s, words)
		return fallback
	}
	return s
}

// whole reads a whole number from least to most.
func (t *table) whole(key string, fallback, least, most int) int {
	v, set := t.get(key)
	if !set {
		return fallback
	}
	n, ok := v.(int64)
	switch {
	case !ok:
		t.bad(key, "want a whole number, found %s%s", describe(v), withoutQuotes(v))
	case n < int64(least):
		t.bad(key, "%d is less than %d", n, least)
	case n > int64(most):
		t.bad(key, "%d is more than %d", n, most)
	default:
		return int(n)
	}
	return fallback
}

// truth reads true or false.
func (t *table) truth(key string, fallback bool) bool {
	v, set := t.get(key)
	if !set {
		return fallback
	}
	b, ok := v.(bool)
	if !ok {
		t.bad(key, "want true or false, found %s%s", describe(v), withoutQuotes(v))
		return fallback
	}
	return b
}

// duration reads "30s" or "2h30m", of at least least.
func (t *table) duration(key string, fallback, least time.Duration) time.Duration {
	v, set := t.get(key)
	if !set {
		return fallback
	}
	s, ok := v.(string)
	if !ok {
		if n, isNumber := number(v); isNumber {
			t.bad(key, "%v", bareDuration(n))
		} else {
			t.bad(key, "want a duration such as \"30s\", found %s", describe(v))
		}
		return fallback
	}
	d, err := parseDuration(s)
	switch {
	case err != nil:
		t.bad(key, "%v", err)
	case d < least:
		t.bad(key, "%q is less than %v", s, least)
	default:
		return d
	}
	return fallback
}

// size reads "24GiB", in bytes.
func (t *table) size(key string) int64 {
	v, set := t.get(key)
	if !set {
		return 0
	}
	s, ok := v.(string)
	if n, isNumber := number(v); isNumber {
		s, ok = n, true
	}
	if !ok {
		t.bad(key, "want a size such as \"24GiB\", found %s", describe(v))
		return 0
	}
	bytes, err := ParseSize(s)
	if err != nil {
		t.bad(key, "%v", err)
	}
	return bytes
}

// words reads an array of strings; nil where one element is none.
func (t *table) words(key string) []string {
	v, set := t.get(key)
	if !set {
		return nil
	}
	array, ok := v.([]any)
	if !ok {
		t.bad(key, "want an array of texts, found %s%s", describe(v), inBrackets(v))
		return nil
	}
	words := make([]string, len(array))
	good := true
	for i, e := range array {
		s, isText := e.(string)
		path := []string{key, strconv.Itoa(i)}
		switch {
		case !isText:
			t.badAt(path, "want text, found %s%s", describe(e), inQuotes(e))
			good = false
		case strings.Contains(s, "\x00"):
			t.badAt(path, "holds a NUL character")
			good = false
		}
		words[i] = s
	}
	if !good {
		return nil
	}
	return words
}

// texts reads a table of strings.
func (t *table) texts(key string) map[string]string {
	v, set := t.get(key)
	if !set {
		return nil
	}
	values, ok := v.(map[string]any)
	if !ok {
		t.bad(key, "want a table such as { NAME = \"value\" }, found %s", describe(v))
		return nil
	}
	texts := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		s, isText := values[name].(string)
		path := []string{key, name}
		switch {
		case name == "" || strings.ContainsAny(name, "=\x00"):
			*t.problems = append(*t.problems, Problem{Key: []string{t.name, key, name}, Message: "is no name for a variable"})
		case !isText:
			t.badAt(path, "want text, found %s%s", describe(values[name]), inQuotes(values[name]))
		case strings.Contains(s, "\x00"):
			t.badAt(path, "holds a NUL character")
		default:
			texts[name] = s
		}
	}
	return texts
}

// describe names the type of a value in a person's words.
func describe(v any) string {
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

// number spells a number.
func number(v any) (string, bool) {
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
	if n, ok := number(v); ok {
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
