package format

import (
	"github.com/gpurun/gpurun/launcher/lazy"
	"maps"
	"slices"
	"strings"
)

// A Parser has the arguments that a job accepts, by its sources. Nil: nothing is known.
type Parser struct {
	options map[string]Expression // by name: "--batch-size"
	fields  map[string]Expression // of dataclasses, by name: "batch_size"
	// trainer are the fields of classes that extend a framework's training arguments.
	trainer map[string]Expression
	// open: some arguments are not known.
	open bool
	// exact: arguments may not be abbreviated.
	exact bool
}

// trainerClass matches the names of frameworks' own classes of training arguments.
var trainerClass = lazy.Regexp(`(TrainingArguments|^(SFT|DPO|GRPO|KTO|Reward|RLOO|ORPO|CPO|PPO|OnlineDPO)Config)$`)

// Parser returns the arguments that the job accepts, by its code; nil if the code was not read.
func (c ScriptCode) Parser() *Parser {
	if c == nil {
		return nil
	}
	p := &Parser{options: map[string]Expression{}, fields: map[string]Expression{}, trainer: map[string]Expression{}}
	for _, file := range c {
		p.exact = p.exact || file.Exact
		p.open = p.open || file.Open || file.Failed != ""
		for _, o := range file.Options {
			for _, name := range o.Names {
				put(p.options, name, o.Default)
			}
		}
		for _, class := range file.Classes {
			trains := slices.ContainsFunc(c.Roots(class.Name), trainerClass().MatchString)
			for name, value := range class.Fields {
				put(p.fields, name, value)
				if trains {
					put(p.trainer, name, value)
				}
			}
		}
	}
	for _, file := range c {
		for option := range p.options {
			if value, set := file.Default[identifier(option)]; set {
				p.options[option] = value
			}
		}
	}
	return p
}

// put records a default; if two differ, it is not known.
func put(into map[string]Expression, name string, v Expression) {
	if old, there := into[name]; there && old != v {
		v = Expression{}
	}
	into[name] = v
}

// Complete reports whether all the parser's arguments are known: then any other argument does not
// exist.
func (p *Parser) Complete() bool { return p != nil && !p.open && len(p.options) > 0 }

// Incomplete records that sources which define arguments were not read.
func (p *Parser) Incomplete() { p.open = true }

// Names lists the names of its arguments, sorted.
func (p *Parser) Names() []string { return slices.Sorted(maps.Keys(p.options)) }

// Has reports whether there is an argument. With dashes, dashes and underscores inside a name are
// the same.
func (p *Parser) Has(name string, dashes bool) bool {
	if _, field := p.fields[identifier(name)]; field {
		return true
	}
	for option := range p.options {
		if option == name || dashes && identifier(option) == identifier(name) {
			return true
		}
	}
	return false
}

// Default is the default of an option in an argparse parser; false if it has none of that name.
func (p *Parser) Default(name string) (Expression, bool) {
	if p == nil {
		return Expression{}, false
	}
	v, ok := p.options[name]
	return v, ok
}

// TrainerDefault is the default that one of the job's own classes gives to an argument of the
// framework's training arguments, which the class extends; false if none does.
func (p *Parser) TrainerDefault(name string) (Expression, bool) {
	if p == nil {
		return Expression{}, false
	}
	v, ok := p.trainer[identifier(name)]
	return v, ok
}

// Abbreviates reports whether a parser accepts a word for a longer argument that begins with it.
// It does not if the word is another argument's whole name, or if abbreviations are off. If
// several arguments begin with the word, argparse itself ends the job.
func (p *Parser) Abbreviates(word string) bool {
	return p == nil || !p.exact && !p.Has(word, false)
}

// identifier turns an argument's name into that of a variable.
func identifier(name string) string {
	return strings.ReplaceAll(strings.TrimLeft(name, "-"), "-", "_")
}
