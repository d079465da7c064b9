package format

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// fileKey is { path = "train.batch", via = { arg = "--config" } }: a value in a JSON,
// YAML or TOML file.
type fileKey struct {
	InFile
	path string // "train.batch", "groups.0.lr"
}

var fileKeySpecs = []spec[fileKey]{
	{"path", "the place of a value in a file: keys joined by dots", func(k *fileKey) any { return &k.path }, ""},
}

func (k *fileKey) complete(n *table, p *Place) { k.InFile = inFileOf(n, p) }

func (k fileKey) String() string { return "key " + k.path }

func (k fileKey) Read(d *Draft) (any, bool, error) {
	file, _, named := k.Find(d)
	if !named {
		if k.auto || k.optional {
			return nil, false, nil
		}
		return nil, false, fmt.Errorf("the command names no file that holds %s: it needs %s", k.path, k.names())
	}
	word, found, err := d.Value(file, k.path)
	if err != nil || !found || word == nil {
		return nil, false, err
	}
	if word == "auto" {
		return nil, true, ErrAuto
	}
	return word, true, nil
}

func (k fileKey) Write(d *Draft, word any, _ bool) error { return k.Change(d, k.path, word) }
func (k fileKey) Missing(d *Draft) string                { return k.missing(d, k.String()) }
func (k fileKey) Values() []strategy.Value               { return nil }

// Key is the place of a key in the file that one of these arguments names.
func Key(path string, arguments ...string) Place {
	k := fileKey{path: path, InFile: InFile{optional: true}}
	for _, name := range arguments {
		k.vias = append(k.vias, Via{arg: name})
	}
	return Place{Kind: k}
}
