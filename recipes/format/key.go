package format

import (
	"fmt"

	"github.com/gpurun/gpurun/strategy"
)

// key is { path = "train.batch", via = { arg = "--config" } }: a value in a JSON,
// YAML or TOML file.
type key struct {
	InFile
	path string // "train.batch", "groups.0.lr"
}

func parseKey(n *table, _ strategy.Knob, p *Place) Kind {
	return key{InFile: parseInFile(n, p), path: n.text("path")}
}

func (k key) String() string { return "key " + k.path }

func (k key) Needs() string {
	if len(k.vias) > 0 {
		return k.names()
	}
	return k.String()
}

func (k key) Read(d *Draft) (any, bool, error) {
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

func (k key) Write(d *Draft, word any, _ bool) error { return k.Change(d, k.path, word) }
func (k key) Missing(d *Draft) string                { return k.missing(d, k.String()) }
func (k key) Values() []strategy.Value               { return nil }

// Key is the place of a key in the file that one of these arguments names.
func Key(path string, arguments ...string) Place {
	k := key{path: path, InFile: InFile{optional: true}}
	for _, name := range arguments {
		k.vias = append(k.vias, Via{namer: held{argument{names: []string{name}}, name}})
	}
	return Place{Kind: k}
}
