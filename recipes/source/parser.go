package source

import (
	"regexp"
	"slices"
	"strings"
)

// longestCallee is how much of a text before a bracket is looked at for a name.
const longestCallee = 8

// A Parser is what a job's sources say of the arguments that it takes.
type Parser struct {
	options map[string]Value // by name: "--batch-size"
	fields  map[string]Value // of dataclasses, by name: "batch_size"
	// trainer are the fields of classes that extend a framework's training arguments.
	trainer map[string]Value
	// open says that there are arguments of which nobody knows.
	open bool
	// exact: arguments may not be cut short.
	exact bool
}

var (
	// optionCall matches the beginning of a call whose first word is an option.
	optionCall = regexp.MustCompile(`\([ \t\n]*["']-`)
	// callee matches the name of what is called, before its bracket.
	callee = regexp.MustCompile(`\w[ \t]*$`)
	// addCall matches a parser's own way of adding an argument.
	addCall  = regexp.MustCompile(`\badd_argument[ \t]*\(`)
	setCall  = regexp.MustCompile(`\bset_defaults[ \t]*\(`)
	optional = regexp.MustCompile(`^["'](-{1,2}[A-Za-z][\w./-]*)["']$`)
	noAbbrev = regexp.MustCompile(`\ballow_abbrev[ \t]*=[ \t]*False\b`)
)

// Parse reads what sources say of the arguments that a job takes.
func Parse(sources ...[]byte) *Parser {
	p := &Parser{options: map[string]Value{}, fields: map[string]Value{}, trainer: map[string]Value{}}
	var classes []class
	texts := make([]string, len(sources))
	for i, source := range sources {
		text := withoutComments(string(source))
		texts[i] = text
		p.exact = p.exact || strings.Contains(text, "allow_abbrev") && noAbbrev.MatchString(text)
		p.readOptions(text)
		classes = append(classes, classesOf(text)...)
	}
	for _, text := range texts {
		p.readDefaults(text)
	}
	p.readClasses(classes)
	return p
}

// Complete reports whether the parser's arguments are all known, so that one that is
// not among them does not exist.
func (p *Parser) Complete() bool { return p != nil && !p.open && len(p.options) > 0 }

// Incomplete says that sources which define arguments are not among those that were read.
func (p *Parser) Incomplete() { p.open = true }

func (p *Parser) has(name string) bool {
	if _, ok := p.options[name]; ok {
		return true
	}
	_, ok := p.fields[identifier(name)]
	return ok
}

// Has reports whether there is an argument. Where dashes is true, dashes and
// underscores inside a name are the same.
func (p *Parser) Has(name string, dashes bool) bool {
	if p.has(name) {
		return true
	}
	if dashes {
		for option := range p.options {
			if identifier(option) == identifier(name) {
				return true
			}
		}
	}
	return false
}

// Default is the default of an option in an argparse parser; false where it has none
// of that name.
func (p *Parser) Default(name string) (Value, bool) {
	if p == nil {
		return Value{}, false
	}
	v, ok := p.options[name]
	return v, ok
}

// TrainerDefault is the default that a class of the job's own gives to an argument of
// the framework's training arguments, which it extends; false where none does.
func (p *Parser) TrainerDefault(name string) (Value, bool) {
	if p == nil {
		return Value{}, false
	}
	v, ok := p.trainer[identifier(name)]
	return v, ok
}

// Abbreviates reports whether a parser takes a word for a longer argument that begins
// with it: not where the word is another argument's whole name, or where nothing may be
// cut short. A word that begins several makes argparse end the job by itself.
func (p *Parser) Abbreviates(word string) bool {
	if p == nil {
		return true
	}
	_, field := p.fields[identifier(word)]
	return !p.exact && !field && !p.Has(word, false)
}

// identifier is an argument's name as a variable's.
func identifier(name string) string {
	return strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_")
}

// readOptions reads the options that parsers of a text have.
func (p *Parser) readOptions(text string) {
	for _, at := range optionCall.FindAllStringIndex(text, -1) {
		if !callee.MatchString(text[max(0, at[0]-longestCallee):at[0]]) {
			continue // a group, and no call
		}
		parts, _ := inBrackets(text, at[0])
		names := optionNames(parts)
		c := callOf(parts)
		value, action := valueOf(c.Keyword["default"]), c.Keyword["action"]
		switch _, given := c.Keyword["default"]; {
		case given:
		case strings.Contains(action, "store_true"):
			value = Value{Text: "False", Known: true}
		case strings.Contains(action, "store_false"):
			value = Value{Text: "True", Known: true}
		case strings.Contains(action, "append") || c.Keyword["required"] != "":
		default:
			value = Value{Known: true, None: true}
		}
		for _, name := range names {
			p.put(p.options, name, value)
			if strings.Contains(action, "BooleanOptionalAction") {
				p.put(p.options, "--no-"+strings.TrimLeft(name, "-"), Value{})
			}
		}
	}
	if !strings.Contains(text, "add_argument") {
		return
	}
	for _, at := range addCall.FindAllStringIndex(text, -1) {
		if parts, _ := inBrackets(text, at[1]-1); len(parts) > 0 && !strings.ContainsAny(parts[0][:1], `"'`) || len(parts) > 0 && len(quoted.FindString(parts[0])) == 0 {
			p.open = true // its name is computed
		}
	}
}

// optionNames are the names at the beginning of a call: "-b", "--batch-size", or
// "--amp/--no-amp".
func optionNames(parts []string) []string {
	var names []string
	for _, part := range parts {
		m := optional.FindStringSubmatch(part)
		if m == nil {
			break
		}
		names = append(names, strings.Split(m[1], "/")...)
	}
	return names
}

// put records a default; of two that differ neither is known.
func (p *Parser) put(into map[string]Value, name string, v Value) {
	if old, there := into[name]; there && old != v {
		v = Value{}
	}
	into[name] = v
}

// readDefaults reads defaults that are set apart from the options.
func (p *Parser) readDefaults(text string) {
	if !strings.Contains(text, "set_defaults") {
		return
	}
	for _, at := range setCall.FindAllStringIndex(text, -1) {
		parts, _ := inBrackets(text, at[1]-1)
		for name, expression := range callOf(parts).Keyword {
			for option := range p.options {
				if identifier(option) == name {
					p.options[option] = valueOf(expression)
				}
			}
		}
	}
}

// trainerClass matches the names of frameworks' own classes of training arguments.
var trainerClass = regexp.MustCompile(`(TrainingArguments|^(SFT|DPO|GRPO|KTO|Reward|RLOO|ORPO|CPO|PPO|OnlineDPO)Config)$`)

// readClasses reads the fields of all classes, and tells those that extend training
// arguments, directly or through another one.
func (p *Parser) readClasses(classes []class) {
	var extends []string
	for before := -1; before < len(extends); {
		before = len(extends)
		for _, c := range classes {
			own := slices.ContainsFunc(c.bases, func(base string) bool { return trainerClass.MatchString(base) || slices.Contains(extends, base) })
			if own && !slices.Contains(extends, c.name) {
				extends = append(extends, c.name)
			}
		}
	}
	for _, c := range classes {
		for name, value := range c.fields {
			p.put(p.fields, name, value)
			if slices.Contains(extends, c.name) {
				p.put(p.trainer, name, value)
			}
		}
	}
}
