package strategy

// A Price is what a change of the plan saved and cost: figures of the attempt before it and
// of the first one after it that got as far. A zero is not known.
type Price struct {
	Rungs   []Rung  `json:"rungs"`
	Changed Changes `json:"changed"`
	// BytesBefore is what the plan before needed at its peak: as it was measured, else at
	// least what it held and asked for when memory ran out. AtLeast says that it is that.
	BytesBefore int64 `json:"bytes_before,omitempty"`
	BytesAfter  int64 `json:"bytes_after,omitempty"`
	AtLeast     bool  `json:"at_least,omitempty"`
	// SecondsBefore and SecondsAfter are the times of an optimizer step for the same global
	// batch. Estimated says that the one before was never measured, but follows from the one
	// after by what the planner knows of such plans.
	SecondsBefore float64 `json:"step_seconds_before,omitempty"`
	SecondsAfter  float64 `json:"step_seconds_after,omitempty"`
	Estimated     bool    `json:"estimated,omitempty"`
}
