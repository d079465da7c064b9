package source

import (
	"regexp"
	"strings"
)

// A Call is what a function is called with.
type Call struct {
	Positional []string          // as they are written
	Keyword    map[string]string // as they are written
}

// Calls finds the calls of functions by their whole names, such as
// "deepspeed.initialize".
func Calls(text []byte, names ...string) []Call {
	return callsIn(withoutComments(string(text)), names)
}

// callsIn finds them in a text without comments.
func callsIn(clean string, names []string) []Call {
	var calls []Call
	quoted := make([]string, len(names))
	for i, name := range names {
		quoted[i] = regexp.QuoteMeta(name)
	}
	pattern := regexp.MustCompile(`(^|[^\w.])(?:` + strings.Join(quoted, "|") + `)[ \t]*\(`)
	for _, at := range pattern.FindAllStringIndex(clean, -1) {
		if strings.HasSuffix(strings.TrimRight(clean[:at[0]+1], " \t"), "def") {
			continue
		}
		parts, _ := inBrackets(clean, at[1]-1)
		calls = append(calls, callOf(parts))
	}
	return calls
}

// keyword matches the beginning of a keyword argument.
var keyword = regexp.MustCompile(`^([A-Za-z_]\w*)[ \t\n]*=[^=]`)

func callOf(parts []string) Call {
	c := Call{Keyword: map[string]string{}}
	for _, part := range parts {
		if m := keyword.FindStringSubmatch(part); m != nil {
			_, value, _ := strings.Cut(part, "=")
			c.Keyword[m[1]] = strings.TrimSpace(value)
		} else {
			c.Positional = append(c.Positional, part)
		}
	}
	return c
}

// A Value is what a source says that something is by default.
type Value struct {
	// Text is a literal, without its quotes.
	Text string
	// Known: it is a literal, and not computed.
	Known bool
	// None: it is the literal None.
	None bool
}

var (
	number = regexp.MustCompile(`^[+-]?(\d[\d_]*(\.\d*)?|\.\d+)([eE][+-]?\d+)?$`)
	quoted = regexp.MustCompile(`^(?:"([^"\\]*)"|'([^'\\]*)')$`)
)

// valueOf reads an expression that is a literal.
func valueOf(expression string) Value {
	switch {
	case expression == "None":
		return Value{Known: true, None: true}
	case expression == "True", expression == "False":
		return Value{Text: expression, Known: true}
	case number.MatchString(expression):
		return Value{Text: strings.ReplaceAll(strings.TrimPrefix(expression, "+"), "_", ""), Known: true}
	}
	if m := quoted.FindStringSubmatch(expression); m != nil {
		return Value{Text: m[1] + m[2], Known: true}
	}
	return Value{}
}
