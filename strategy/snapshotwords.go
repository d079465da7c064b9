package strategy

import (
	"cmp"
	"fmt"
	"path"
	"strings"
)

// mostSnapshotLines is how many lines of a snapshot people are shown at the end of a run.
const mostSnapshotLines = 5

// Words say what filled the memory, in at most five lines; nil where nothing is known and
// nothing can be said of that.
func (s Snapshot) Words() []string {
	if s.Reserved == 0 {
		if s.Missing == "" {
			return nil
		}
		return []string{"memory at the failure: " + s.Missing}
	}
	var found []string
	for _, said := range []string{s.giant(), s.leak(), s.fragmented(), s.unknown()} {
		if said != "" && len(found) < mostSnapshotLines-2 {
			found = append(found, "  "+said)
		}
	}
	lines := []string{s.held() + "; by line:"}
	for _, a := range s.Top[:min(len(s.Top), mostSnapshotLines-1-len(found))] {
		lines = append(lines, fmt.Sprintf("  %9s  %s", GiB(a.Bytes), a.where()))
	}
	return append(lines, found...)
}

// Brief says it in one line, empty for nothing.
func (s Snapshot) Brief() string {
	if s.Reserved == 0 {
		return ""
	}
	said := s.held()
	if len(s.Top) > 0 && s.Top[0].File != "" {
		said += fmt.Sprintf(", most by %s (%s)", s.Top[0].where(), GiB(s.Top[0].Bytes))
	}
	switch {
	case len(s.Leaks) > 0:
		said += "; a leak: " + s.Leaks[0].leaking()
	case s.Giant != nil && s.Giant.What != "":
		said += "; " + s.Giant.shaped()
	case s.Fragmented():
		said += "; fragmented"
	}
	return said
}

// Fragmented reports whether what lies free in pieces would have served the request.
func (s Snapshot) Fragmented() bool {
	return s.Requested > 0 && s.Free >= s.Requested && s.Largest < s.Requested
}

func (s Snapshot) held() string {
	said := "memory at the failure: " + GiB(s.Reserved)
	if s.Allowed > 0 {
		said += " of " + GiB(s.Allowed)
	}
	said += " held"
	if s.Requested > 0 {
		said += ", " + GiB(s.Requested) + " more wanted"
	}
	return said
}

func (s Snapshot) giant() string {
	if s.Giant == nil {
		return ""
	}
	said := "giant: " + s.Giant.shaped()
	if place := s.Giant.Place(); place != "" {
		said += ", at " + place
	}
	if s.Giant.Advice != "" {
		said += " → " + s.Giant.Advice
	}
	return said
}

func (s Snapshot) leak() string {
	if len(s.Leaks) == 0 {
		return ""
	}
	return "leak: " + s.Leaks[0].leaking()
}

func (s Snapshot) fragmented() string {
	if !s.Fragmented() {
		return ""
	}
	return fmt.Sprintf("fragmented: %s lie free within what is held, the largest piece %s", GiB(s.Free), GiB(s.Largest))
}

func (s Snapshot) unknown() string {
	if s.Missing == "" {
		return ""
	}
	return "not known: " + s.Missing
}

// Place is where it was allocated, as people read it: "model.py:88 forward"; empty where
// that is not known.
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
	case a.File != "":
		return a.Place()
	case a.What != "":
		return a.What
	case a.Count > 1:
		return fmt.Sprintf("%d blocks of %s, no line known", a.Count, GiB(a.Bytes/int64(a.Count)))
	}
	return "one block, no line known"
}

// shaped says what a giant is: "logits 16×2048×50257 fp32, 6.1 GiB".
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
