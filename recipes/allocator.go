package recipes

import (
	"strings"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

const expandable = "expandable_segments"

// allocatorOf returns the variable with the job's settings, and its value. Every version reads
// the old name; the new one only counts if the user has set it.
func allocatorOf(d *format.Draft) (name, value string) {
	old, since := strategy.AllocatorVariables[0], strategy.AllocatorVariables[1]
	if value, set := d.Variable(since); set {
		return since, value
	}
	value, _ = d.Variable(old)
	return old, value
}

// readAllocator reads a knob that every recipe has. A key that the user set is never replaced.
func readAllocator(d *format.Draft, plan strategy.Plan, ranges map[strategy.Knob]strategy.Range) {
	name, value := allocatorOf(d)
	settings := allocatorSettings(value)
	plan[strategy.Allocator] = "default"
	ranges[strategy.Allocator] = strategy.Range{Values: strategy.Vocabulary(strategy.Allocator)}
	own, set := settings[expandable]
	switch {
	case set:
		if strings.EqualFold(own, "true") {
			plan[strategy.Allocator] = "expandable"
		}
		ranges[strategy.Allocator] = strategy.Range{Absent: name + " sets " + expandable + " itself"}
	case settings["backend"] != "" && settings["backend"] != "native":
		ranges[strategy.Allocator] = strategy.Range{Absent: name + " chooses the allocator " + settings["backend"]}
	}
}

// setAllocator adds the key of the knob.
func setAllocator(d *format.Draft) {
	name, value := allocatorOf(d)
	setting := expandable + ":True"
	if strings.TrimSpace(value) != "" {
		setting = strings.TrimRight(value, ", ") + "," + setting
	}
	d.SetVariable(name, setting)
}

// allocatorSettings splits the variable's value. Commas inside brackets, as in
// roundup_power2_divisions:[256:1,512:2], belong to the value.
func allocatorSettings(text string) map[string]string {
	settings := map[string]string{}
	depth, start := 0, 0
	for i := 0; i <= len(text); i++ {
		switch {
		case i == len(text) || text[i] == ',' && depth == 0:
			if key, value, found := strings.Cut(text[start:i], ":"); found {
				settings[strings.TrimSpace(key)] = strings.TrimSpace(value)
			}
			start = i + 1
		case text[i] == '[':
			depth++
		case text[i] == ']':
			depth--
		}
	}
	return settings
}
