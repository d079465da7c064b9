package recipes

import (
	"errors"
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy"
)

// keys names every key that any pick sets.
func (p Place) keys() []string {
	names := map[string]bool{}
	for _, keys := range p.Pick {
		for key := range keys {
			names[key] = true
		}
	}
	return slices.Sorted(maps.Keys(names))
}

// picked is the value all of whose keys the file has. A missing key counts as
// false, and so does "auto" beside a key that is true.
func (d *draft) picked(p Place) (strategy.Value, bool, error) {
	file, _, named := d.file(p)
	if !named && p.Auto {
		return "", false, nil
	}
	if !named {
		return "", false, fmt.Errorf("the command names no file that holds them: it needs %s", p.vias())
	}
	held, autos := map[string]any{}, 0
	for _, key := range p.keys() {
		value, found, err := d.value(file, key)
		switch {
		case err != nil:
			return "", false, err
		case found && value == "auto":
			autos++
		case found:
			held[key] = value
		}
	}
	if len(held)+autos == 0 && p.Auto {
		return "", false, nil
	}
	for _, value := range slices.Sorted(maps.Keys(p.Pick)) {
		if matches(p.Pick[value], held) {
			if autos > 0 && !hasTrue(p.Pick[value]) {
				return "", true, errAuto
			}
			return value, true, nil
		}
	}
	return "", false, fmt.Errorf("in %s make none of the choices that the recipe knows", file)
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

// pick sets the keys of one value. A key that is missing, or "auto", and is to
// be false stays as it is.
func (d *draft) pick(p Place, value strategy.Value) error {
	keys, known := p.Pick[value]
	if !known {
		return fmt.Errorf("has no keys for %q", value)
	}
	if _, found, err := d.picked(p); p.Auto && (!found && err == nil || errors.Is(err, errAuto)) {
		return nil
	}
	file, _, named := d.file(p)
	if !named {
		return fmt.Errorf("the command names no file that holds %s", strings.Join(p.keys(), ", "))
	}
	for _, key := range slices.Sorted(maps.Keys(keys)) {
		old, found, err := d.value(file, key)
		if err != nil {
			return err
		}
		if !found && keys[key] == false || found && old == "auto" && (p.Auto || keys[key] == false) {
			continue
		}
		if err := d.changeFile(p, key, keys[key]); err != nil {
			return err
		}
	}
	return nil
}
