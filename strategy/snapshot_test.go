package strategy

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// The latest snapshot of a rank counts, for any source of the facts.
func TestSnapshotsOfRanks(t *testing.T) {
	var e Evidence
	for _, f := range []Fact{{Rank: 1, Content: &Snapshot{Rank: 1, Reserved: 1}}, {Rank: 0, Content: &Snapshot{Reserved: 2}}, {Rank: 1, Content: &Snapshot{Rank: 1, Reserved: 3}}} {
		e.Add(f)
	}
	again := Evidence{Facts: e.Facts}
	for _, each := range []*Evidence{&e, &again} {
		all := each.Snapshots()
		if len(each.Facts) != 2 || len(all) != 2 || all[0].Reserved != 2 || all[1].Reserved != 3 {
			t.Errorf("%+v", all)
		}
	}
}

func TestRecordAllAllocations(t *testing.T) {
	oom := func(late bool, growth *cause.Growth, phase cause.Phase) Attempt {
		return Attempt{Diagnosis: Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Late: late, Growth: growth, Phase: phase}}
	}
	lost := Attempt{Diagnosis: Diagnosis{Cause: cause.NCCLTimeout, Fatal: true}}
	for name, test := range map[string]struct {
		history []Attempt
		want    bool
	}{
		"the first attempt":     {nil, false},
		"an ordinary one":       {[]Attempt{oom(false, nil, cause.Forward)}, false},
		"late":                  {[]Attempt{oom(true, nil, cause.Forward)}, true},
		"a leak":                {[]Attempt{oom(false, &cause.Growth{}, cause.Backward)}, true},
		"unexplained":           {[]Attempt{oom(false, nil, cause.NoPhase)}, true},
		"late, then another":    {[]Attempt{oom(true, nil, cause.Forward), oom(false, nil, cause.Forward)}, false},
		"late, then a network":  {[]Attempt{oom(true, nil, cause.Forward), lost}, true},
		"nothing but a network": {[]Attempt{lost}, false},
	} {
		if got := RecordAllAllocations(test.history); got != test.want {
			t.Errorf("%s: %v", name, got)
		}
	}
}

// Five lines at most: the first has the sizes, and a giant, a leak and fragments come before
// further places.
func TestSnapshotWords(t *testing.T) {
	places := []Allocation{{Bytes: 4 << 30, Count: 9, File: "/v/lib/python3.11/site-packages/transformers/models/x.py", Module: "transformers/models/x.py", Line: 7, Function: "forward"}, {Bytes: 3 << 30, Count: 2}, {Bytes: 2 << 30, Count: 1}, {Bytes: 1 << 30, Count: 1, What: "gradients"}}
	s := Snapshot{
		Reserved: 20 << 30, Allowed: 24 << 30, Allocated: 18 << 30, Free: 2 << 30, Largest: 1 << 20, Requested: 1 << 30, Top: places,
		Giant: &Allocation{Bytes: 3 << 30, Count: 2}, Leaks: []Allocation{{Bytes: 2 << 30, PerStep: 1 << 30, Count: 2, File: "/j/t.py", Line: 1}}, Missing: "the rest",
	}
	want := `memory at the failure: 20.0 GiB of 24.0 GiB held, 1.0 GiB more requested; by line:
    4.0 GiB  transformers/models/x.py:7 forward
  giant: one block, 2 times 3.0 GiB
  leak: 1.0 GiB stay with every step, by t.py:1 (2.0 GiB so far)
  fragmented: 2.0 GiB lie free within what is held, the largest piece 1 MiB`
	if got := strings.Join(s.Words(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	s.Giant, s.Leaks, s.Largest = nil, nil, 2<<30
	want = `memory at the failure: 20.0 GiB of 24.0 GiB held, 1.0 GiB more requested; by line:
    4.0 GiB  transformers/models/x.py:7 forward
    3.0 GiB  2 blocks of 1.5 GiB, no line known
    2.0 GiB  one block, no line known
  not known: the rest`
	if got := strings.Join(s.Words(), "\n"); got != want {
		t.Errorf("got\n%s\nwant\n%s", got, want)
	}
	if words := (Snapshot{}).Words(); words != nil || (Snapshot{}).Brief() != "" {
		t.Errorf("nothing is told as %q", words)
	}
}

// A snapshot of another request than the error's does not describe that, and reads so.
func TestSnapshotOfAnotherRequest(t *testing.T) {
	of := func(requested int64) Snapshot {
		e := Evidence{Facts: []Fact{
			{Rank: 0, Content: &Finding{Code: cause.CUDAOOM, Weight: cause.WeightCause, Raised: true, Figures: cause.Figures{Requested: bytes(2 << 30)}}},
			{Rank: 0, Content: &Snapshot{Reserved: 20 << 30, Free: 3 << 30, Largest: 1 << 30, Requested: requested, Giant: &Allocation{Bytes: requested}}},
		}}
		return e.Snapshots()[0]
	}
	if s := of(2<<30 + 1<<20); s.Requested == 0 || s.Giant == nil || s.Missing != "" || !s.Fragmented() {
		t.Errorf("the error's own: %+v", s)
	}
	s := of(17 << 30)
	if words := strings.Join(s.Words(), " "); s.Giant != nil || s.Fragmented() || strings.Contains(words, "more requested") ||
		!strings.Contains(words, "not known: the error's request of 2.0 GiB: this was held shortly before, when another of 17.0 GiB failed") {
		t.Errorf("%s", words)
	}
}
