package strategy

import (
	"cmp"
	"fmt"
	"path"
	"strings"
)

// A Snapshot has the contents of a rank's CUDA allocator when memory ran out, by the code that
// allocated it. Sizes are bytes.
type Snapshot struct {
	Rank int `json:"rank"`
	// File is PyTorch's own snapshot, for memory_viz, as a path in the attempt's folder; empty if
	// it was not kept.
	File string `json:"file,omitempty"`
	// Recorded: allocations were recorded with their stacks, from step From on; 0: before the
	// model was loaded.
	Recorded bool `json:"recorded"`
	From     int  `json:"from,omitempty"`

	Reserved  int64 `json:"reserved_bytes"`
	Allocated int64 `json:"allocated_bytes"`
	Free      int64 `json:"free_bytes"`         // within reserved segments
	Largest   int64 `json:"largest_free_bytes"` // piece of Free
	Requested int64 `json:"requested_bytes,omitempty"`
	Allowed   int64 `json:"allowed_bytes,omitempty"` // the allocator's share of the device

	// Top are the places that hold most, the largest first. Leaks grow with every step and are
	// never freed.
	Top   []Allocation `json:"top,omitempty"`
	Leaks []Allocation `json:"leaks,omitempty"`
	// Giant is a block, or the failed request, that is a large part of all memory.
	Giant *Allocation `json:"giant,omitempty"`
	// Missing names information that is not available, and how to get it.
	Missing string `json:"missing,omitempty"`
}

// An Allocation is the memory that one place in the code holds.
type Allocation struct {
	Bytes int64 `json:"bytes"`
	Count int   `json:"count"` // blocks; 0 for a failed request
	// File, Line and Function are the innermost place outside PyTorch; empty without a stack.
	File     string `json:"file,omitempty"`
	Line     int    `json:"line,omitempty"`
	Function string `json:"function,omitempty"`
	Module   string `json:"module,omitempty"` // File for people: "model.py", "transformers/trainer.py"
	// The known properties of the tensor: "logits", its shape and its dtype.
	What    string `json:"what,omitempty"`
	Shape   []int  `json:"shape,omitempty"`
	Dtype   string `json:"dtype,omitempty"`
	PerStep int64  `json:"per_step_bytes,omitempty"` // growth of a leak
	Advice  string `json:"advice,omitempty"`         // how to reduce it
}

// mostSnapshotLines bounds the lines about a snapshot at the end of a run.
const mostSnapshotLines = 5

// Words is a description of what filled the memory, at most five lines; nil: nothing is known.
func (s Snapshot) Words() []string {
	if s.Reserved == 0 {
		if s.Missing == "" {
			return nil
		}
		return []string{"memory at the failure: " + s.Missing}
	}
	var found []string
	add := func(line string) {
		if len(found) < mostSnapshotLines-2 {
			found = append(found, "  "+line)
		}
	}
	if s.Giant != nil {
		line := "giant: " + s.Giant.shaped()
		if place := s.Giant.Place(); place != "" {
			line += ", at " + place
		}
		if s.Giant.Advice != "" {
			line += " → " + s.Giant.Advice
		}
		add(line)
	}
	if len(s.Leaks) > 0 {
		add("leak: " + s.Leaks[0].leaking())
	}
	if s.Fragmented() {
		add(fmt.Sprintf("fragmented: %s lie free within what is held, the largest piece %s", GiB(s.Free), GiB(s.Largest)))
	}
	if s.Missing != "" {
		add("not known: " + s.Missing)
	}
	lines := []string{s.held() + "; by line:"}
	for _, a := range s.Top[:min(len(s.Top), mostSnapshotLines-1-len(found))] {
		lines = append(lines, fmt.Sprintf("  %9s  %s", GiB(a.Bytes), a.where()))
	}
	return append(lines, found...)
}

// Brief is the description in one line; empty: nothing is known.
func (s Snapshot) Brief() string {
	if s.Reserved == 0 {
		return ""
	}
	line := s.held()
	if len(s.Top) > 0 && s.Top[0].File != "" {
		line += fmt.Sprintf(", most by %s (%s)", s.Top[0].where(), GiB(s.Top[0].Bytes))
	}
	switch {
	case len(s.Leaks) > 0:
		line += "; a leak: " + s.Leaks[0].leaking()
	case s.Giant != nil && s.Giant.What != "":
		line += "; " + s.Giant.shaped()
	case s.Fragmented():
		line += "; fragmented"
	}
	return line
}

// OfRequest reports whether the snapshot was taken when a request of so many bytes failed. An error
// message rounds them.
func (s Snapshot) OfRequest(bytes int64) bool {
	return max(s.Requested, bytes)-min(s.Requested, bytes) <= max(s.Requested, bytes)/100
}

// ofOther is the snapshot without the request, which is not the one that was raised to the job:
// libraries try workspaces of several sizes, and go on without one.
func (s Snapshot) ofOther(raised int64) Snapshot {
	other := fmt.Sprintf("the error's request of %s: this was held shortly before, when another of %s failed",
		GiB(raised), GiB(s.Requested))
	if s.Missing != "" {
		other = s.Missing + "; " + other
	}
	s.Missing = other
	if s.Giant != nil && s.Giant.Count == 0 {
		s.Giant = nil
	}
	s.Requested = 0
	return s
}

// Fragmented reports whether the free pieces together would have served the request.
func (s Snapshot) Fragmented() bool {
	return s.Requested > 0 && s.Free >= s.Requested && s.Largest < s.Requested
}

func (s Snapshot) held() string {
	line := "memory at the failure: " + GiB(s.Reserved)
	if s.Allowed > 0 {
		line += " of " + GiB(s.Allowed)
	}
	line += " held"
	if s.Requested > 0 {
		line += ", " + GiB(s.Requested) + " more requested"
	}
	return line
}

// Place is the place of the allocation for people: "model.py:88 forward"; empty: not known.
func (a Allocation) Place() string {
	if a.File == "" {
		return ""
	}
	return strings.TrimRight(fmt.Sprintf("%s:%d %s", cmp.Or(a.Module, path.Base(a.File)), a.Line, a.Function), " ")
}

func (a Allocation) where() string {
	switch {
	case a.File != "" && a.What != "":
		return fmt.Sprintf("%s (%s)", a.Place(), a.What)
	case a.File != "" || a.What != "":
		return cmp.Or(a.Place(), a.What)
	case a.Count > 1:
		return fmt.Sprintf("%d blocks of %s, no line known", a.Count, GiB(a.Bytes/int64(a.Count)))
	}
	return "one block, no line known"
}

// shaped describes the tensor: "logits 16×2048×50257 fp32, 6.1 GiB".
func (a Allocation) shaped() string {
	what := "one block"
	switch {
	case a.What != "":
		sizes := make([]string, len(a.Shape))
		for i, n := range a.Shape {
			sizes[i] = fmt.Sprint(n)
		}
		what = strings.TrimSpace(fmt.Sprintf("%s %s %s", a.What, strings.Join(sizes, "×"), a.Dtype))
	case a.Count == 0:
		what = "the request"
	}
	if a.Count > 1 {
		return fmt.Sprintf("%s, %d times %s", what, a.Count, GiB(a.Bytes))
	}
	return fmt.Sprintf("%s, %s", what, GiB(a.Bytes))
}

func (a Allocation) leaking() string {
	return fmt.Sprintf("%s stay with every step, by %s (%s so far)", GiB(a.PerStep), a.where(), GiB(a.Bytes))
}
