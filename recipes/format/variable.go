package format

import "fmt"

// variable is { env = "BATCH_SIZE" }: an environment variable.
type variable struct {
	onCommand
	name string
}

var variableSpecs = []spec[variable]{
	{"env", "an environment variable", func(v *variable) any { return &v.name }, ""},
}

func (v variable) String() string { return "variable " + v.name }
func (v variable) Needs() string  { return v.String() }

func (v variable) Present(d *Draft) bool {
	_, set := d.Variable(v.name)
	return set
}

// Read takes an empty variable for none.
func (v variable) Read(d *Draft) (any, bool, error) {
	word, found := d.Variable(v.name)
	return word, found && word != "", nil
}

func (v variable) Write(d *Draft, word any, _ bool) error {
	d.SetVariable(v.name, fmt.Sprint(word))
	return nil
}

func (v variable) follow(d *Draft) (string, bool) { return d.Variable(v.name) }
