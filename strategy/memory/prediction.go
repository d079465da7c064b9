package memory

// A Prediction is what a plan is expected to need.
type Prediction struct {
	// Mean and Bound are the peak of what the allocator gives on the device, in bytes: as
	// it is expected, and what it will hardly exceed.
	Mean  int64 `json:"mean_bytes"`
	Bound int64 `json:"bound_bytes"`
	// Least is what the plan needs whatever else is true: what it holds between steps.
	Least int64 `json:"least_bytes,omitempty"`
	// Instant is where the peak is: load, forward, loss, recompute, backward, optimizer,
	// evaluation.
	Instant string `json:"instant,omitempty"`
	// Seconds is the time of one optimizer step of the same global batch; 0: unknown.
	Seconds float64 `json:"seconds,omitempty"`
	// Host, Pinned and NVMe are bytes of one rank outside the device.
	Host   int64 `json:"host_bytes,omitempty"`
	Pinned int64 `json:"pinned_bytes,omitempty"`
	NVMe   int64 `json:"nvme_bytes,omitempty"`
	// Evidence says what it rests on: "measured", "same mode", "blocks seen", "prior".
	Evidence string `json:"evidence,omitempty"`
	// Unknown says why nothing can be predicted; the figures are zero then.
	Unknown string `json:"unknown,omitempty"`
}
