package strategy

import "testing"

// A failure of the job's own code is reported with its file and line, also in the verdict's
// reason.
func TestJobErrorNamesItsLine(t *testing.T) {
	text := "Traceback (most recent call last):\n  File \"/home/u/train.py\", line 41, in setup\n    return cfg[\"lr\"]\nKeyError: 'lr'\n"
	d := Diagnose(Evidence{Facts: append(says(0, 1, text), exits(0, 2, 1)...)})
	if got, want := d.Sentence(), "train.py:41: KeyError: 'lr' on rank 0"; got != want {
		t.Errorf("%q, want %q", got, want)
	}
	if want := `look at /home/u/train.py:41, in setup: return cfg["lr"]`; d.Advice != want {
		t.Errorf("advice %q, want %q", d.Advice, want)
	}
}
