package format

import "fmt"

// override is { override = "train.batch" }: a word train.batch=8.
type override struct {
	onCommand
	key   string
	under string // the option behind which it stands, empty: anywhere
}

var overrideSpecs = []spec[override]{
	{"override", "a word `train.batch=8`", func(o *override) any { return &o.key }, ""},
	{"under", "the option behind which an override, or a pinned one, is put where it is absent", func(o *override) any { return &o.under }, ""},
}

func (o override) String() string { return "override " + o.key }
func (o override) Needs() string  { return o.String() }

func (o override) Present(d *Draft) bool {
	_, found := d.grammar.Override(d.Argv, o.key)
	return found
}

func (o override) Read(d *Draft) (any, bool, error) {
	word, found := d.grammar.Override(d.Argv, o.key)
	return word, found, nil
}

func (o override) Write(d *Draft, word any, _ bool) error {
	d.Argv = d.grammar.SetOverride(d.Argv, o.under, o.key, fmt.Sprint(word))
	return nil
}

func (o override) follow(d *Draft) (string, bool) { return d.grammar.Override(d.Argv, o.key) }

// standsUnder is the option behind which the override stands, for Recipe.Under.
func (o override) standsUnder() string { return o.under }
