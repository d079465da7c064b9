package source

import (
	"regexp"
	"strings"
)

// A class is one of a source's, with what of it can be arguments.
type class struct {
	name   string
	bases  []string // by their last names
	fields map[string]Value
}

var (
	classLine = regexp.MustCompile(`(?m)^([ \t]*)class[ \t]+(\w+)[ \t]*(\(|:)`)
	fieldName = regexp.MustCompile(`^[A-Za-z_]\w*[ \t]*:`)
	selfLine  = regexp.MustCompile(`\bself\.(\w+)[ \t]*=[^=]`)
	fieldCall = regexp.MustCompile(`^(?:dataclasses\.)?field[ \t]*\(`)
)

// classesOf are the classes of a text without comments.
func classesOf(text string) []class {
	if !strings.Contains(text, "class ") {
		return nil
	}
	var all []class
	for _, m := range classLine.FindAllStringSubmatchIndex(text, -1) {
		c := class{name: text[m[4]:m[5]], fields: map[string]Value{}}
		from := m[1]
		if text[m[6]] == '(' {
			parts, end := inBrackets(text, m[6])
			for _, base := range parts {
				c.bases = append(c.bases, base[strings.LastIndexByte(base, '.')+1:])
			}
			from = end
		}
		c.read(body(text[from:], m[3]-m[2]))
		all = append(all, c)
	}
	return all
}

// body is the text of a block: the lines that are further in than its head.
func body(text string, indent int) string {
	end := 0
	for line := range strings.Lines(text) {
		bare := strings.TrimRight(line, " \t\n")
		depth := len(bare) - len(strings.TrimLeft(bare, " \t"))
		if end > 0 && bare != "" && depth <= indent && !strings.ContainsAny(bare[:1], ")]}") {
			break
		}
		end += len(line)
	}
	return text[:end]
}

// read takes the fields with an annotation that stand directly in the class. What a
// method assigns is not known.
func (c *class) read(text string) {
	indent, at := "", 0
	for line := range strings.Lines(text) {
		from := at
		at += len(line)
		bare := strings.TrimLeft(line, " \t")
		own := line[:len(line)-len(bare)]
		if own == "" || strings.TrimSpace(bare) == "" || indent != "" && own != indent {
			continue
		}
		indent = own
		name := fieldName.FindString(bare)
		if name == "" {
			continue
		}
		_, value := statement(text, from+len(indent)+len(name))
		if name = strings.TrimRight(name, ": \t"); name != "else" && name != "try" && name != "finally" {
			c.fields[name] = fieldDefault(value)
		}
	}
	if len(c.fields) == 0 {
		return
	}
	for _, m := range selfLine.FindAllStringSubmatch(text, -1) {
		if _, there := c.fields[m[1]]; there {
			c.fields[m[1]] = Value{}
		}
	}
}

// fieldDefault reads what follows a field's equals sign.
func fieldDefault(expression string) Value {
	at := fieldCall.FindStringIndex(expression)
	if at == nil {
		return valueOf(expression)
	}
	parts, _ := inBrackets(expression, at[1]-1)
	return valueOf(callOf(parts).Keyword["default"])
}
