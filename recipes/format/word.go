package format

import (
	"fmt"

	"github.com/gpurun/gpurun/recipes/edit"
)

// variable is { env = "BATCH_SIZE" }: an environment variable.
type variable struct {
	onCommand
	name string
}

// Variable is the place of an environment variable.
func Variable(name string) Place { return Place{PlaceKind: variable{name: name}} }

func (v variable) String() string { return "variable " + v.name }

func (v variable) Present(d *Draft) bool {
	_, set := d.Variable(v.name)
	return set
}

// Read treats an empty variable as missing.
func (v variable) Read(d *Draft) (any, bool, error) {
	word, found := d.Variable(v.name)
	return word, found && word != "", nil
}

func (v variable) Write(d *Draft, word any, _ bool) error {
	d.SetVariable(v.name, fmt.Sprint(word))
	return nil
}

// override is { override = "train.batch" }: a word train.batch=8.
type override struct {
	onCommand
	key   string
	under string // the option that overrides follow; empty: any position
}

func (o override) String() string { return "override " + o.key }

func (o override) Read(d *Draft) (any, bool, error) {
	word, found := d.grammar.Override(d.Argv, o.key)
	return word, found, nil
}

func (o override) Write(d *Draft, word any, _ bool) error {
	d.Argv = d.grammar.SetOverride(d.Argv, o.under, o.key, fmt.Sprint(word))
	return nil
}

// leader is the option for Recipe.Under.
func (o override) leader() string { return o.under }

// beginning is { word = "checkpoint:" }: a word like checkpoint:full, which stays at the end of
// the command, after appended arguments.
type beginning struct {
	onCommand
	text string
}

func (b beginning) String() string { return "word " + b.text }

func (b beginning) Read(d *Draft) (any, bool, error) {
	word, found := edit.Beginning(d.Argv, b.text)
	return word, found, nil
}

func (b beginning) Write(d *Draft, word any, _ bool) error {
	d.Argv = edit.SetBeginning(d.Argv, b.text, fmt.Sprint(word))
	return nil
}

// staysLast is the beginning of the words that have to stay at the end.
func (b beginning) staysLast() string { return b.text }
