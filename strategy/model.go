package strategy

import "fmt"

// LargestModel is the largest model that a process trained; nil: none was reported.
func (e *Evidence) LargestModel() (largest *Model) {
	for _, r := range e.folded().reports() {
		if r.Model != nil && (largest == nil || r.Model.Parameters > largest.Parameters) {
			largest = r.Model
		}
	}
	return largest
}

// Model names the largest model that a process trained, by its class and the number of its
// parameters: "GPT2LMHeadModel 124M"; empty: none was reported.
func (e *Evidence) Model() string {
	largest := e.LargestModel()
	if largest == nil || largest.Class == "" {
		return ""
	}
	return largest.Class + " " + parameterCount(largest.Parameters)
}

// parameterCount is a number of parameters in the field's short form: "350K", "124M", "1.1B", "70B".
func parameterCount(n int64) string {
	switch {
	case n >= 10e9:
		return fmt.Sprintf("%.0fB", float64(n)/1e9)
	case n >= 999.5e6:
		return fmt.Sprintf("%.1fB", float64(n)/1e9)
	case n >= 999.5e3:
		return fmt.Sprintf("%.0fM", float64(n)/1e6)
	case n >= 1000:
		return fmt.Sprintf("%.0fK", float64(n)/1e3)
	}
	return fmt.Sprint(n)
}
