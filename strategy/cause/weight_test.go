package cause

import (
	"encoding/json"
	"testing"
)

func TestWeights(t *testing.T) {
	for _, c := range []struct {
		w                                Weight
		name                             string
		handled, outlived, warned, final Weight
		over, warning, dismissed         bool
	}{
		{WeightCause, "cause", WeightHandled, WeightOutlived, WeightWarning, WeightCause, false, false, false},
		{WeightSymptom, "symptom", WeightHandled, WeightOutlived, WeightWarning, WeightSymptom, false, false, false},
		{WeightWarning, "warning", WeightHarmless, WeightHarmless, WeightWarning, WeightWarning, false, true, false},
		{WeightOutlived, "outlived", WeightHandled, WeightOutlived, WeightHarmless, WeightOutlived, true, false, false},
		{WeightHandled, "handled", WeightHandled, WeightHandled, WeightHarmless, WeightCause, true, false, true},
		{WeightHarmless, "harmless", WeightHarmless, WeightHarmless, WeightHarmless, WeightWarning, true, true, true},
	} {
		if c.w.Handled() != c.handled || c.w.Outlived() != c.outlived || c.w.Warned() != c.warned || c.w.Final() != c.final {
			t.Errorf("%s becomes %s, %s, %s and %s", c.w, c.w.Handled(), c.w.Outlived(), c.w.Warned(), c.w.Final())
		}
		if c.w.Over() != c.over || c.w.Warning() != c.warning || c.w.Dismissed() != c.dismissed {
			t.Errorf("%s is over %v, a warning %v, dismissed %v", c.w, c.w.Over(), c.w.Warning(), c.w.Dismissed())
		}
		text, err := json.Marshal(c.w)
		if err != nil || string(text) != `"`+c.name+`"` {
			t.Errorf("%s in JSON is %s, %v", c.name, text, err)
		}
		var got Weight
		if err := json.Unmarshal(text, &got); err != nil || got != c.w {
			t.Errorf("%s is read as %s, %v", text, got, err)
		}
	}
	var w Weight
	if json.Unmarshal([]byte(`"heavy"`), &w) == nil {
		t.Error("an unknown weight is read")
	}
	if _, err := json.Marshal(Weight(17)); err == nil {
		t.Error("an unknown weight is written")
	}
}

func TestRemarks(t *testing.T) {
	for text, want := range map[string]string{
		"make: *** [Makefile:3: train] Error 1":                               `["ended"]`,
		"command terminated with exit code 137":                               `null`,
		"trainer-1 exited with code 1":                                        `["ended"]`,
		"exited with code 1, that is exit code 137":                           `null`,
		"make: *** [train] Killed":                                            `["ended","killed"]`,
		"DataLoader worker (pid 7) is killed by signal: Killed. ":             `["loader-worker","killed"]`,
		"torch.distributed.elastic.multiprocessing.errors.ChildFailedError: ": `["elsewhere"]`,
		"  exitcode  : -9":                                                    `null`,
		"failed (exitcode: -9) local_rank: 0 (pid: 7)":                        `["killed"]`,
	} {
		got, err := json.Marshal(Remarks(Unknown, text))
		if err != nil || string(got) != want {
			t.Errorf("%q: %s, want %s", text, got, want)
		}
	}
	if got := Remarks(UserError, "make: *** [train] Error 1"); got != nil {
		t.Errorf("an exception that quotes an end is one: %v", got)
	}
}
