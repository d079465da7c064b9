package strategy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// FuzzDiagnose checks that any output gives a well-formed diagnosis, and the same one each time.
func FuzzDiagnose(f *testing.F) {
	for _, c := range logs {
		f.Add(c.log, "", 1, true)
	}
	f.Add(oomForward, watchdog, 137, true)
	f.Add(oomCaught, valueError, 0, false)
	f.Fuzz(func(t *testing.T, zero, one string, code int, exited bool) {
		var facts []Fact
		for rank, log := range []string{zero, one} {
			for _, s := range cause.Scan("stderr", log) {
				facts = append(facts, Fact{Rank: rank, Source: "stderr", Content: (*Finding)(&s)})
			}
			if exited {
				facts = append(facts, Fact{Rank: rank, Source: "exit", Content: &Exit{Code: code & 255}})
			}
		}
		ev := Evidence{Ranks: 2, Facts: facts}
		d := Diagnose(ev)
		if diff := cmp.Diff(d, Diagnose(ev)); diff != "" {
			t.Errorf("a second time (-first +second):\n%s", diff)
		}
		if _, ok := cause.Lookup(d.Cause); !ok {
			t.Errorf("unknown cause %q", d.Cause)
		}
		if d.Phase == "" || d.Symptoms == nil || d.Rank < -1 {
			t.Errorf("phase %q, symptoms %v, rank %d", d.Phase, d.Symptoms, d.Rank)
		}
		if d.Fatal && d.Cause == cause.None {
			t.Error("nothing is fatal, and it is")
		}
		for _, i := range d.Because {
			if i < 0 || i >= len(facts) {
				t.Errorf("fact %d of %d", i, len(facts))
			}
		}
	})
}
