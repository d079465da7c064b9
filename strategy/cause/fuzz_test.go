package cause

import (
	"testing"
	"unicode/utf8"

	"github.com/google/go-cmp/cmp"
)

// read returns the findings of a log that arrives in writes of the given sizes, repeated; without
// sizes, in one write.
func read(log []byte, sizes ...int) []Finding {
	var all []Finding
	s := NewScanner("stderr")
	s.OnFinding = func(at Finding) { all = append(all, at) }
	for i := 0; len(log) > 0; i++ {
		n := len(log)
		if len(sizes) > 0 {
			n = min(n, max(1, sizes[i%len(sizes)]))
		}
		if wrote, err := s.Write(log[:n]); err != nil || wrote != n {
			panic("Write failed, or did not take all")
		}
		log = log[n:]
	}
	s.Close()
	return all
}

// FuzzScanner checks that the findings do not depend on how the output is cut, and that they keep
// to their bounds for any output.
func FuzzScanner(f *testing.F) {
	for _, c := range scannerCases {
		f.Add([]byte(c.log), uint16(1), uint16(7))
	}
	f.Add([]byte("\x1b[31mRuntimeError\x1b[0m: CUDA out of memory. Tried to allocate 1 GiB (GPU \x00"), uint16(3), uint16(64))
	f.Fuzz(func(t *testing.T, log []byte, a, b uint16) {
		whole := read(log)
		cut := read(log, int(a), int(b))
		if diff := cmp.Diff(whole, cut); diff != "" {
			t.Errorf("in writes of %d and %d bytes (-whole +cut):\n%s", a, b, diff)
		}
		for _, at := range whole {
			if _, ok := Lookup(at.Code); !ok {
				t.Errorf("unknown code %q", at.Code)
			}
			if len(at.Text) > textLimit || !utf8.ValidString(at.Text) {
				t.Errorf("text of %d bytes, valid %v", len(at.Text), utf8.ValidString(at.Text))
			}
			if len(at.Traceback) > tracebackLines {
				t.Errorf("traceback of %d lines", len(at.Traceback))
			}
			if at.Line < 1 || at.Seq < 1 || at.Phase == "" {
				t.Errorf("line %d, seq %d, phase %q", at.Line, at.Seq, at.Phase)
			}
		}
	})
}
