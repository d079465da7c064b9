package strategy

// A Snapshot is what a rank's CUDA allocator held when memory ran out, by what allocated
// it. Sizes are bytes.
type Snapshot struct {
	Rank int `json:"rank"`
	// File is the allocator's own snapshot, which PyTorch's memory_viz opens, as a path in
	// the attempt's folder; empty where it was not kept.
	File string `json:"file,omitempty"`
	// Recorded says that allocations were recorded with their stacks, and From by which
	// step that began: 0 before the model was loaded.
	Recorded bool `json:"recorded"`
	From     int  `json:"from,omitempty"`

	Reserved  int64 `json:"reserved_bytes"`
	Allocated int64 `json:"allocated_bytes"`
	// Free is what lies free in segments that are held, Largest the largest piece of it.
	Free      int64 `json:"free_bytes"`
	Largest   int64 `json:"largest_free_bytes"`
	Requested int64 `json:"requested_bytes,omitempty"`
	// Allowed is what the allocator may hold: its share of the device, or all of it.
	Allowed int64 `json:"allowed_bytes,omitempty"`

	// Top are the places that hold most, the largest first. Leaks are those whose blocks
	// come with every step and are not freed by any.
	Top   []Allocation `json:"top,omitempty"`
	Leaks []Allocation `json:"leaks,omitempty"`
	// Giant is a single block, or the request that failed, that is a large part of all.
	Giant *Allocation `json:"giant,omitempty"`
	// Missing says what is not known, and how to get it; empty: nothing is missing.
	Missing string `json:"missing,omitempty"`
}

// An Allocation is what one place in the code holds.
type Allocation struct {
	Bytes int64 `json:"bytes"`
	Count int   `json:"count"` // blocks; 0 of a request that failed
	// File, Line and Function are the innermost place outside PyTorch itself; empty where
	// no stack was recorded.
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Function string `json:"function,omitempty"`
	// Module is File as people read it: "model.py", "transformers/trainer.py".
	Module string `json:"module,omitempty"`
	// What is what it is, where that is known: "logits"; Shape its shape, and Dtype its
	// elements' type.
	What  string `json:"what,omitempty"`
	Shape []int  `json:"shape,omitempty"`
	Dtype string `json:"dtype,omitempty"`
	// PerStep is what is added with each step; of a leak only.
	PerStep int64 `json:"per_step_bytes,omitempty"`
	// Advice is what to do about it; empty for nothing.
	Advice string `json:"advice,omitempty"`
}
