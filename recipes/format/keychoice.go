package format

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// keyChoice is { choose = { bf16 = { "bf16.enabled" = true } }, via = … }: several
// keys of a file for each value.
type keyChoice struct {
	InFile
	byValue map[strategy.Value]map[string]any
}

var keyChoiceSpecs = []spec[keyChoice]{{"choose", "", func(c *keyChoice) any { return leaf(c.readKeys) }, ""}}

func (c *keyChoice) complete(n *table, p *Place) { c.InFile = inFileOf(n, p) }

func (c *keyChoice) readKeys(n *table, key string) {
	inner := n.open(key)
	c.byValue = map[strategy.Value]map[string]any{}
	for _, value := range inner.Keys() {
		inner.knobValue(n.k, value, value)
		keys, _ := inner.Get(value)
		table, ok := keys.(map[string]any)
		if !ok {
			inner.fault(value, "want keys, as its neighbours have: { \"bf16.enabled\" = true }")
		}
		c.byValue[strategy.Value(value)] = table
	}
}

func (c keyChoice) String() string           { return "keys " + strings.Join(c.keys(), ", ") }
func (c keyChoice) Missing(d *Draft) string  { return c.missing(d, c.String()) }
func (c keyChoice) Values() []strategy.Value { return slices.Collect(maps.Keys(c.byValue)) }

// keys names every key that any value sets.
func (c keyChoice) keys() []string {
	names := map[string]bool{}
	for _, keys := range c.byValue {
		for key := range keys {
			names[key] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// Read is the value all of whose keys the file has. A missing key counts as
// false, and so does "auto" beside a key that is true.
func (c keyChoice) Read(d *Draft) (any, bool, error) {
	file, _, named := c.Find(d)
	if !named && c.auto {
		return nil, false, nil
	}
	if !named {
		return nil, false, fmt.Errorf("the command names no file that holds them: it needs %s", c.names())
	}
	held, autos, err := c.held(d, file)
	if err != nil || len(held)+autos == 0 && c.auto {
		return nil, false, err
	}
	for _, value := range slices.Sorted(maps.Keys(c.byValue)) {
		if matches(c.byValue[value], held) {
			if autos > 0 && !hasTrue(c.byValue[value]) {
				return nil, true, ErrAuto
			}
			return string(value), true, nil
		}
	}
	return nil, false, fmt.Errorf("in %s make none of the choices that the recipe knows", file)
}

// held are the keys that the file has, and how many of them are "auto".
func (c keyChoice) held(d *Draft, file string) (held map[string]any, autos int, err error) {
	held = map[string]any{}
	for _, key := range c.keys() {
		value, found, err := d.Value(file, key)
		switch {
		case err != nil:
			return nil, 0, err
		case found && value == "auto":
			autos++
		case found:
			held[key] = value
		}
	}
	return held, autos, nil
}

// hasTrue reports whether a value is made by a key that is true.
func hasTrue(keys map[string]any) bool {
	for _, value := range keys {
		if value == true {
			return true
		}
	}
	return false
}

// matches compares keys that are wanted with keys that are there.
func matches(want, held map[string]any) bool {
	for key, value := range want {
		have, there := held[key]
		if !there {
			have = false
		}
		if fmt.Sprint(have) != fmt.Sprint(value) {
			return false
		}
	}
	return true
}

// Write sets the keys of one value. A key that is missing, or "auto", and is to
// be false stays as it is.
func (c keyChoice) Write(d *Draft, word any, _ bool) error {
	value := strategy.Value(fmt.Sprint(word))
	keys, known := c.byValue[value]
	if !known {
		return fmt.Errorf("has no keys for %q", value)
	}
	if _, found, err := c.Read(d); c.auto && (!found && err == nil || errors.Is(err, ErrAuto)) {
		return nil
	}
	file, _, named := c.Find(d)
	if !named {
		return fmt.Errorf("the command names no file that holds %s", strings.Join(c.keys(), ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, found, err := d.Value(file, key)
		if err != nil {
			return err
		}
		if !found && keys[key] == false || found && old == "auto" && (c.auto || keys[key] == false) {
			continue
		}
		if err := c.Change(d, key, keys[key]); err != nil {
			return err
		}
	}
	return nil
}
