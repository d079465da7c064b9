package recipes

import (
	"regexp"

	"github.com/gpurun/gpurun/strategy"
)

// Observer returns a reader of the lines in which a job reports that it starts from scratch instead of resuming, or
// that it did nothing. It is nil if the recipe knows no such line.
func (r Recipe) Observer() func(line string) (strategy.ObservedSetting, bool) {
	if r.Resume.Lost == "" && r.Progress.Nothing == "" {
		return nil
	}
	matcher := func(expression string) func(line string) bool {
		if expression == "" {
			return func(string) bool { return false }
		}
		return regexp.MustCompile(expression).MatchString // Parse has already compiled it
	}
	lost, nothing := matcher(r.Resume.Lost), matcher(r.Progress.Nothing)
	return func(line string) (strategy.ObservedSetting, bool) {
		seen := strategy.ObservedSetting{Fresh: lost(line), Nothing: nothing(line), Text: line}
		return seen, seen.Fresh || seen.Nothing
	}
}
