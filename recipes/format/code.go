package format

import (
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
)

// ScriptCode has the job's own Python files as parsed by the reader of scripts, the script first.
// It is shorter than the list of sources if the reader stopped early, and nil if no interpreter
// could read them: nothing is known about the missing files.
type ScriptCode []CodeFile

// A CodeFile is the content of one Python file.
type CodeFile struct {
	Path    string                `json:"path"`
	Failed  string                `json:"failed"` // why it was not parsed: "SyntaxError"
	Calls   []CodeCall            `json:"calls"`  // of classes, and of the few functions that a recipe requests
	Classes []CodeClass           `json:"classes"`
	Options []ParserOption        `json:"options"`
	Default map[string]Expression `json:"defaults"` // set by set_defaults, by the argument's name
	// Open: a parser has an argument whose name is computed.
	Open bool `json:"open"`
	// Exact: a parser accepts no abbreviations.
	Exact bool `json:"exact"`
	// Aliases are the names of imported objects, by their names in the file.
	Aliases map[string]string `json:"aliases"`
	Reads   bool              `json:"reads"`  // the command line
	Joins   string            `json:"joins"`  // the function with which it joins a process group
	Spawns  string            `json:"spawns"` // the function that starts ranks
	// Declared are the arguments of its parsers, Parsed the calls that make arguments of classes.
	Declared []DeclaredArgument `json:"declared"`
	Parsed   []ParsedClasses    `json:"parsed"`
	Hydra    *HydraMain         `json:"hydra"` // nil: it has no hydra.main
}

// A DeclaredArgument is an argument of a parser.
type DeclaredArgument struct {
	Kind    string     `json:"kind"` // "argparse", "click", "absl", "fire", "typer", "hf", "tyro" …
	Names   []string   `json:"names"`
	Dest    string     `json:"dest"` // its name in the parser's result
	Type    string     `json:"type"`
	Action  string     `json:"action"`
	Choices []string   `json:"choices"`
	Default Expression `json:"default"`
	All     bool       `json:"all"` // its help says that it counts the samples of all ranks
	Line    int        `json:"line"`
}

// ParsedClasses are the names in a call that makes arguments of classes, and the form of these.
type ParsedClasses struct {
	Form    string   `json:"form"`
	Classes []string `json:"classes"`
}

// A HydraMain is the decorator hydra.main: the folder and the name of the configuration.
type HydraMain struct {
	Folder string `json:"folder"`
	Name   string `json:"name"`
}

// A CodeCall is one call in the job's code.
type CodeCall struct {
	Name string `json:"name"` // as it is written: "tf.TrainingArguments"
	// Whole are the full names that the file's imports can give it.
	Whole      []string              `json:"whole"`
	Line       int                   `json:"line"`
	Positional []Expression          `json:"positional"`
	Keyword    map[string]Expression `json:"keyword"`
}

// An Expression is an expression in the job's code, or the default of an argument.
type Expression struct {
	// Text is a literal, without its quotes.
	Text string `json:"text"`
	// Known: it is a literal, not computed.
	Known bool `json:"known"`
	// None: it is the literal None.
	None bool `json:"none"`
	// Code is the expression as it is written; empty for a default.
	Code string `json:"code"`
}

// A CodeClass is one of the job's own classes.
type CodeClass struct {
	Name   string                `json:"name"`
	Bases  []string              `json:"bases"` // by their last names
	Fields map[string]Expression `json:"fields"`
	Types  map[string]string     `json:"types"` // the annotations of the fields
	Data   bool                  `json:"data"`  // it is a dataclass, or one of the like
	Line   int                   `json:"line"`
}

// A ParserOption is an argument that a call adds to a parser.
type ParserOption struct {
	Names   []string   `json:"names"`
	Default Expression `json:"default"`
}

// families lists the classes that can replace a name with the same keywords: its other names and
// the classes that extend it. TRL's classes are missing if their loss depends on the samples that
// share a batch.
var families = map[string][]string{
	"transformers.TrainingArguments": {"transformers.Seq2SeqTrainingArguments", "trl.SFTConfig",
		"trl.DPOConfig", "trl.RewardConfig"},
	"lightning.pytorch.Trainer":                      {"lightning.Trainer", "pytorch_lightning.Trainer"},
	"lightning.pytorch.callbacks.ModelCheckpoint":    {"pytorch_lightning.callbacks.ModelCheckpoint"},
	"lightning.pytorch.strategies.DeepSpeedStrategy": {"pytorch_lightning.strategies.DeepSpeedStrategy"},
	"torch.utils.data.DataLoader":                    {"torch.utils.data.dataloader.DataLoader"},
}

// CallsOf lists the calls of a module's name ("transformers.TrainingArguments"), or of its
// family, under the names that the imports give it.
func (c ScriptCode) CallsOf(name string) []CodeCall {
	return c.calls(func(call CodeCall) bool { return call.Means(name) })
}

// Means reports whether a call is one of a module's name, or of its family.
func (c CodeCall) Means(name string) bool {
	members := append([]string{name}, families[name]...)
	return slices.ContainsFunc(c.Whole, func(whole string) bool {
		return slices.ContainsFunc(members, func(member string) bool { return sameName(whole, member) })
	})
}

// Defines reports whether a class of this name is the job's own.
func (c ScriptCode) Defines(class string) bool {
	return slices.ContainsFunc(c, func(file CodeFile) bool {
		return slices.ContainsFunc(file.Classes, func(own CodeClass) bool { return own.Name == class })
	})
}

// sameName reports whether two full names mean the same object, also if one names a submodule.
func sameName(whole, name string) bool {
	dot := strings.LastIndexByte(name, '.')
	return whole == name || dot >= 0 && strings.HasSuffix(whole, name[dot:]) && strings.HasPrefix(whole, name[:dot+1])
}

// Calls lists the calls of functions by their names as they are written, such as
// "deepspeed.initialize".
func (c ScriptCode) Calls(names ...string) []CodeCall {
	return c.calls(func(call CodeCall) bool { return slices.Contains(names, call.Name) })
}

func (c ScriptCode) calls(wanted func(CodeCall) bool) (found []CodeCall) {
	for _, file := range c {
		for _, call := range file.Calls {
			if wanted(call) {
				found = append(found, call)
			}
		}
	}
	return found
}

// positions are the places of the keywords that a call can give without a name: those of TrainingArguments and of
// DataLoader.
var positions = map[string]int{"output_dir": 0, "batch_size": 1, "shuffle": 2}

// Given returns the argument that a call gives for a keyword; false if it gives none. A value
// that is not a literal, and a call with * or **, are not known.
func (c CodeCall) Given(keyword string) (Expression, bool) {
	if v, given := c.Keyword[keyword]; given {
		return v, true
	}
	starred := slices.IndexFunc(c.Positional, func(v Expression) bool { return strings.HasPrefix(v.Code, "*") })
	if i, placed := positions[keyword]; placed && i < len(c.Positional) && (starred < 0 || i < starred) {
		return c.Positional[i], true
	}
	return Expression{}, starred >= 0
}

// Roots lists the classes from outside the sources that a class of that name extends, directly or
// through others; the name itself, if the sources have no such class. A class that extends one of
// its own name extends that of another package. object and ABC do not count.
func (c ScriptCode) Roots(name string) []string {
	var roots []string
	c.follow(name, nil, map[string]bool{}, func(root string) {
		if !slices.Contains(roots, root) {
			roots = append(roots, root)
		}
	})
	return roots
}

// follow calls found with each root that is reached from a name. past are the classes on the way
// to it. Each class is followed once: done are those that were.
func (c ScriptCode) follow(name string, past []string, done map[string]bool, found func(string)) {
	switch {
	case slices.Contains(past, name):
		found(name)
		return
	case done[name]:
		return
	}
	done[name] = true
	beyond := append(slices.Clip(past), name)
	defined, alias := false, ""
	for _, file := range c {
		if alias == "" {
			alias = file.Aliases[name]
		}
		for _, class := range file.Classes {
			if class.Name != name {
				continue
			}
			defined = true
			for _, base := range class.Bases {
				if base != "object" && base != "ABC" && base != "Protocol" {
					c.follow(base, beyond, done, found)
				}
			}
		}
	}
	switch {
	case defined:
	case alias != "" && !slices.Contains(beyond, alias):
		c.follow(alias, beyond, done, found)
	default:
		found(name)
	}
}

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
