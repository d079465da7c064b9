package cause

import "fmt"

// A Weight is what a finding counts for when the reason of an end is looked for.
// A finding has exactly one; this table is the only place that says what each means.
//
//	weight    the end's cause?                            who gives it
//	cause     yes: the text names a cause                 the catalogue
//	symptom   only where no cause is known                the catalogue: a watchdog's timeout, a closed store
//	warning   only where nothing else is known            the catalogue, an exception that Python ignores,
//	                                                      a line that only speaks of running out of memory
//	outlived  only where the rank's own exit was not seen the scanner: training steps followed in the stream,
//	                                                      which another process may have written
//	handled   no: the job dealt with it                   the job's words that it skips, retries or reduces,
//	                                                      or training steps of the same program
//	harmless  no, and it is no reason for advice either   a warning after which the job continued
//
// While a job runs, the last three no longer make a rank suspect. A finding that is
// given again only ever moves down this table.
type Weight uint8

// The weights. The zero Weight is WeightCause.
const (
	WeightCause Weight = iota
	WeightSymptom
	WeightWarning
	WeightOutlived
	WeightHandled
	WeightHarmless
)

var weightNames = [...]string{"cause", "symptom", "warning", "outlived", "handled", "harmless"}

func (w Weight) String() string {
	if int(w) < len(weightNames) {
		return weightNames[w]
	}
	return fmt.Sprintf("Weight(%d)", int(w))
}

// MarshalText writes the weight's name.
func (w Weight) MarshalText() ([]byte, error) {
	if int(w) >= len(weightNames) {
		return nil, fmt.Errorf("weight %d has no name", int(w))
	}
	return []byte(weightNames[w]), nil
}

// UnmarshalText reads what MarshalText writes.
func (w *Weight) UnmarshalText(text []byte) error {
	for i, name := range weightNames {
		if string(text) == name {
			*w = Weight(i)
			return nil
		}
	}
	return fmt.Errorf("unknown weight %q", text)
}

// Over reports whether the job continued after the finding.
func (w Weight) Over() bool { return w >= WeightOutlived }

// Warning reports whether the finding is only a warning, whatever came after it.
func (w Weight) Warning() bool { return w == WeightWarning || w == WeightHarmless }

// Dismissed reports whether the job dealt with the finding, so that it can be the
// cause of nothing.
func (w Weight) Dismissed() bool { return w == WeightHandled || w == WeightHarmless }

// Handled is the weight of a finding that the job dealt with.
func (w Weight) Handled() Weight {
	switch w {
	case WeightWarning, WeightHarmless:
		return WeightHarmless
	}
	return WeightHandled
}

// Outlived is the weight of a finding after which more steps were seen.
func (w Weight) Outlived() Weight {
	switch w {
	case WeightWarning, WeightHarmless, WeightHandled:
		return w.Handled()
	}
	return WeightOutlived
}

// Warned is the weight of a finding whose surroundings make it a warning.
func (w Weight) Warned() Weight {
	if w.Over() {
		return WeightHarmless
	}
	return WeightWarning
}

// Final is the weight of a finding that the process itself reports as its end.
func (w Weight) Final() Weight {
	switch w {
	case WeightHandled:
		return WeightCause
	case WeightHarmless:
		return WeightWarning
	}
	return w
}
