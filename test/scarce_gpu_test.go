package test

import (
	"fmt"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// A scarce is a script in testdata/scarce that runs out of memory in its loss, in its optimizer's step, or
// nearly.
type scarce struct {
	name   string
	line   []string
	shares []float64 // ceilings, as shares of what it needs
	// phase is where memory is short, in the first attempt; empty: nothing fails.
	phase string
}

// TestScarceMemoryOnAGPU trains jobs that are short of memory beside the forward and the backward pass: large
// logits, an optimizer that steps all parameters at once, an allocator that retries.
func TestScarceMemoryOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	table := []string{"| job | ceiling (of the untouched peak) | attempts | done in place | step s: untouched, rescued | peak GiB: untouched, rescued | largest difference of a loss | memory pressure |\n|---|---|--:|---|---|---|---|---|"}
	for _, s := range []scarce{
		{"vocabulary", []string{"vocabulary.py"}, []float64{.75, .55}, "loss"},
		{"a loss of its own", []string{"env", "OWN=1", python, "vocabulary.py"}, []float64{.95}, ""},
		{"optimizer", []string{"optimizer.py"}, []float64{.9}, "optimizer"},
		{"pressure", []string{"pressure.py"}, []float64{1.02, .97}, ""},
	} {
		t.Run(s.name, func(t *testing.T) { table = append(table, s.play(t, python)...) })
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// play runs a job twice without gpurun, then under each ceiling, and returns its lines of the table.
func (s scarce) play(t *testing.T, python string) (lines []string) {
	dir := copyOf(t, filepath.Join("testdata", "scarce"))
	line := s.line
	if line[0] != "env" {
		line = append([]string{python}, line...)
	}
	var job inside
	untouched, other := job.script(t, dir, line), job.script(t, dir, line)
	if t.Failed() {
		return nil
	}
	for _, share := range s.shares {
		ceiling := untouched.Peak*share + 200<<20
		got, v := job.rescue(t, dir, line, fmt.Sprintf("%.0fMiB", ceiling/(1<<20)), "--fresh")
		difference, spread := apart(got, untouched), apart(untouched, other)
		if difference > 3*spread+1e-3 {
			t.Errorf("at %.2f losses differ by %g, those of untouched runs by %g", share, difference, spread)
		}
		first := v.Attempts[0]
		here := slices.ContainsFunc(first.InPlace, func(r strategy.InPlace) bool { return r.Phase == s.phase })
		if s.phase != "" && (len(v.Attempts) > 1 || !here) {
			t.Errorf("at %.2f: %d attempts; in place: %+v", share, len(v.Attempts), first.InPlace)
		}
		var words []string
		for _, a := range v.Attempts {
			words = append(words, inPlaceWords(a.InPlace)...)
		}
		lines = append(lines, fmt.Sprintf("| %s | %.2f | %d | %s | %.3f, %.3f | %.2f, %.2f | %.2g (%.2g) | %s |", s.name, share, len(v.Attempts), strings.Join(words, "; "),
			untouched.Seconds, got.Seconds, untouched.Peak/(1<<30), got.Peak/(1<<30), difference, spread, strings.Join(first.MemoryPressure, "; ")))
	}
	return lines
}
