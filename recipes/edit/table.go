package edit

import (
	"fmt"
	"maps"
	"regexp"
	"slices"
	"strconv"
	"strings"
)

// A ValueTable reads one table of a file. A wrong value becomes a problem and the fallback is
// used, so that every problem is found.
type ValueTable struct {
	path     []string
	values   map[string]any
	problems *[]Problem
}

// NewTable returns the table of these values at a path of the file. Errors in it, and in the
// tables inside, go to problems.
func NewTable(values map[string]any, problems *[]Problem, path ...string) *ValueTable {
	return &ValueTable{path: path, values: values, problems: problems}
}

// Inner returns a table at a path inside this one; its problems are added to this one's.
func (t *ValueTable) Inner(values map[string]any, path ...string) *ValueTable {
	return NewTable(values, t.problems, t.Path(path...)...)
}

// Path is the path of a key inside the table, from the root of the file.
func (t *ValueTable) Path(inside ...string) []string { return slices.Concat(t.path, inside) }

// Has reports whether the key is set.
func (t *ValueTable) Has(key string) bool {
	_, set := t.values[key]
	return set
}

// Get returns a key's value.
func (t *ValueTable) Get(key string) (any, bool) {
	v, set := t.values[key]
	return v, set
}

// Keys lists the keys that are set, sorted.
func (t *ValueTable) Keys() []string { return slices.Sorted(maps.Keys(t.values)) }

// Report adds a problem unchanged.
func (t *ValueTable) Report(p Problem) { *t.problems = append(*t.problems, p) }

// Bad reports a problem with the value of a key, or of the table if the key is empty.
func (t *ValueTable) Bad(key, format string, args ...any) {
	if key == "" {
		t.BadAt(nil, format, args...)
		return
	}
	t.BadAt([]string{key}, format, args...)
}

// BadAt reports a problem with the value at a path inside the table.
func (t *ValueTable) BadAt(path []string, format string, args ...any) {
	t.Report(Problem{Key: t.Path(path...), Message: fmt.Sprintf(format, args...), AtValue: true})
}

// BadWord reports a word that is not allowed.
func (t *ValueTable) BadWord(path []string, got string, words []string) {
	p := Problem{Key: t.Path(path...), AtValue: true, Suggest: Nearest(got, words)}
	p.Message = fmt.Sprintf("unknown value %q, want %s", got, Either(words))
	if p.Suggest != "" && len(words) > 6 {
		p.Message = fmt.Sprintf("unknown value %q", got)
	}
	t.Report(p)
}

// Unknown reports a key that the table does not have, and suggests one of near.
func (t *ValueTable) Unknown(key string, near []string) {
	t.Report(Problem{Key: t.Path(key), Message: "unknown key", Suggest: Nearest(key, near)})
}

// Read puts the value of a key into field, a pointer. It reads text (one of the words, if there
// are any), a number from least to most, a truth value, a list of texts or a regular expression.
// A wrong value is replaced by a fallback. It returns false, and reads nothing, for a field of
// another type.
func (t *ValueTable) Read(key string, field any, least, most int, words ...string) bool {
	switch f := field.(type) {
	case *string:
		if len(words) > 0 {
			*f = t.Choice(key, *f, words...)
		} else {
			*f = t.Filled(key)
		}
	case *int:
		*f = t.Whole(key, *f, least, most)
	case *bool:
		*f = t.Truth(key, *f)
	case *[]string:
		*f = t.Words(key)
	case **regexp.Regexp:
		*f = t.Expression(key)
	default:
		return false
	}
	return true
}

// typed returns the value of a key; false if it is not set, or of another type than is wanted.
func typed[T any](t *ValueTable, key, want string, advice func(any) string) (value T, ok bool) {
	v, set := t.Get(key)
	if !set {
		return value, false
	}
	if value, ok = v.(T); !ok {
		t.Bad(key, "want %s, found %s%s", want, Describe(v), advice(v))
	}
	return value, ok
}

// Text reads a string.
func (t *ValueTable) Text(key, fallback string) string {
	if s, ok := typed[string](t, key, "text", inQuotes); ok {
		return s
	}
	return fallback
}

// Filled reads a string that is not empty and contains no NUL.
func (t *ValueTable) Filled(key string) string {
	s, ok := typed[string](t, key, "text", inQuotes)
	if ok && s == "" {
		t.Bad(key, "is empty")
	}
	if strings.Contains(s, "\x00") {
		t.Bad(key, "holds a NUL character")
		return ""
	}
	return s
}

// Expression reads a regular expression; nil if there is none.
func (t *ValueTable) Expression(key string) *regexp.Regexp {
	text := t.Filled(key)
	if text == "" {
		return nil
	}
	expression, err := regexp.Compile(text)
	if err != nil {
		t.Bad(key, "%s", lowerFirst(strings.TrimPrefix(err.Error(), "error parsing regexp: ")))
		return nil
	}
	return expression
}

// Choice reads one of several words.
func (t *ValueTable) Choice(key, fallback string, words ...string) string {
	s, ok := typed[string](t, key, Either(words), func(any) string { return "" })
	switch {
	case ok && !slices.Contains(words, s):
		t.BadWord([]string{key}, s, words)
	case ok:
		return s
	}
	return fallback
}

// Whole reads a whole number from least to most.
func (t *ValueTable) Whole(key string, fallback, least, most int) int {
	n, ok := typed[int64](t, key, "a whole number", withoutQuotes)
	switch {
	case !ok:
	case n < int64(least):
		t.Bad(key, "%d is less than %d", n, least)
	case n > int64(most):
		t.Bad(key, "%d is more than %d", n, most)
	default:
		return int(n)
	}
	return fallback
}

// Truth reads true or false.
func (t *ValueTable) Truth(key string, fallback bool) bool {
	if b, ok := typed[bool](t, key, "true or false", withoutQuotes); ok {
		return b
	}
	return fallback
}

// element reads a string inside the value of a key.
func (t *ValueTable) element(v any, path ...string) (s string, ok bool) {
	s, ok = v.(string)
	switch {
	case !ok:
		t.BadAt(path, "want text, found %s%s", Describe(v), inQuotes(v))
	case strings.Contains(s, "\x00"):
		t.BadAt(path, "holds a NUL character")
		ok = false
	}
	return s, ok
}

// Words reads an array of strings; nil if one element is not a string.
func (t *ValueTable) Words(key string) []string {
	array, ok := typed[[]any](t, key, "an array of texts", inBrackets)
	if !ok {
		return nil
	}
	words := make([]string, len(array))
	good := true
	for i, e := range array {
		words[i], ok = t.element(e, key, strconv.Itoa(i))
		good = good && ok
	}
	if !good {
		return nil
	}
	return words
}

// Texts reads a table of strings whose keys are names of variables.
func (t *ValueTable) Texts(key string) map[string]string {
	values, ok := typed[map[string]any](t, key, "a table such as { NAME = \"value\" }", func(any) string { return "" })
	if !ok {
		return nil
	}
	texts := map[string]string{}
	for _, name := range slices.Sorted(maps.Keys(values)) {
		if name == "" || strings.ContainsAny(name, "=\x00") {
			t.Report(Problem{Key: t.Path(key, name), Message: "is not a name for a variable"})
		} else if s, ok := t.element(values[name], key, name); ok {
			texts[name] = s
		}
	}
	return texts
}

// Table reads a table; it is empty if the key is not set or its value is not a table.
func (t *ValueTable) Table(key string) (inner *ValueTable, there bool) {
	v, set := t.Get(key)
	values, ok := v.(map[string]any)
	if set && !ok {
		t.Bad(key, "want a table, found %s", Describe(v))
	}
	return t.Inner(values, key), set && ok
}

// Tables reads an array of tables; a single table is an array of one, at the key itself. It is
// false if the value is neither.
func (t *ValueTable) Tables(key string) (inner []*ValueTable, ok bool) {
	v, _ := t.Get(key)
	switch v := v.(type) {
	case map[string]any:
		return []*ValueTable{t.Inner(v, key)}, true
	case []any:
		for i, element := range v {
			values, isTable := element.(map[string]any)
			if !isTable {
				return nil, false
			}
			inner = append(inner, t.Inner(values, key, strconv.Itoa(i)))
		}
		return inner, true
	}
	return nil, false
}

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
