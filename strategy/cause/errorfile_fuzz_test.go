package cause

import (
	"testing"
	"unicode/utf8"
)

// FuzzErrorFile checks that a rank's error.json can at worst be refused.
func FuzzErrorFile(f *testing.F) {
	f.Add([]byte(`{"message": {"message": "ValueError: x", "extraInfo": {"py_callstack": "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\nValueError: x\n", "timestamp": "1700000000"}}}`))
	f.Add([]byte(`{"message": "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB", "timestamp": 1700000000}`))
	f.Add([]byte(`{"message": 3}`))
	f.Add([]byte(`null`))
	f.Fuzz(func(t *testing.T, text []byte) {
		s, _, ok := ErrorFile(text)
		if !ok {
			return
		}
		if _, known := Lookup(s.Code); !known || !s.Raised || s.Weight.Dismissed() {
			t.Errorf("%+v", s)
		}
		if !utf8.ValidString(s.Text) {
			t.Errorf("text %q", s.Text)
		}
	})
}
