package ranks

import (
	"fmt"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

var t0 = time.Date(2026, 1, 2, 3, 4, 5, 0, time.UTC)

// collect returns a rank and a function that ends it and returns its facts.
func collect() (*rank, func() []strategy.Fact) {
	var got []strategy.Fact
	f := newFacts(func(fact strategy.Fact) { got = append(got, fact) })
	r := &rank{global: 3, facts: f}
	return r, func() []strategy.Fact {
		r.finish()
		f.close()
		return got
	}
}

func TestFindingsOfARankAreBounded(t *testing.T) {
	r, end := collect()
	for i := range 1000 {
		r.found("stderr", t0.Add(time.Duration(i)*time.Second), cause.Finding{Code: cause.NCCLError, Seq: i + 1, Line: i})
		if i == 500 {
			r.found("stderr", t0, cause.Finding{Code: cause.CUDAOOM, Raised: true, Seq: 5000})
		}
	}
	var want []string
	for i := range 64 {
		want = append(want, fmt.Sprint("nccl-error ", i))
	}
	want = append(want, "cuda-oom 0")
	for i := range 64 {
		want = append(want, fmt.Sprint("nccl-error ", 1000-64+i))
	}
	var got []string
	for _, fact := range end() {
		if fact.Rank != 3 || fact.Source != "stderr" {
			t.Errorf("a fact of rank %d, %s", fact.Rank, fact.Source)
		}
		got = append(got, fmt.Sprint(fact.Finding().Code, " ", fact.Finding().Line))
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestALaterStateOfAFindingReplacesIt(t *testing.T) {
	r, end := collect()
	seen := cause.Finding{Code: cause.CUDAOOM, Raised: true, Seq: 1, Text: "0", Traceback: []string{"first"}}
	r.found("stderr", t0, seen)
	for i := 1; i <= 20; i++ {
		seen.Text = fmt.Sprint(i)
		if i == 20 {
			seen.Weight = cause.WeightHandled
		}
		r.found("stderr", t0.Add(time.Duration(i)*time.Second), seen)
	}
	r.found("stdout", t0, cause.Finding{Code: cause.CUDAOOM, Raised: true, Seq: 1, Text: "of stdout"})
	var got []string
	for _, fact := range end() {
		if !fact.Time.Equal(t0) {
			t.Errorf("fact %q has the time %v of a later line", fact.Finding().Text, fact.Time)
		}
		got = append(got, fact.Finding().Text)
	}
	want := []string{"0", "1", "2", "3", "4", "5", "6", "7", "8", "of stdout", "20"}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

func TestALaterStateOfAKeptFindingStaysInItsPlace(t *testing.T) {
	r, end := collect()
	for i := range 100 {
		r.found("stderr", t0.Add(time.Duration(i)*time.Second), cause.Finding{Code: cause.HostOOM, Seq: i + 1})
	}
	r.found("stderr", t0.Add(time.Hour), cause.Finding{Code: cause.HostOOM, Seq: 90, Weight: cause.WeightHandled})
	facts := end()
	if len(facts) != 100 {
		t.Fatalf("%d facts, want 100", len(facts))
	}
	for i, fact := range facts {
		if (fact.Finding().Weight == cause.WeightHandled) != (i == 89) || !fact.Time.Equal(t0.Add(time.Duration(i)*time.Second)) {
			t.Errorf("fact %d: %s at %v", i, fact.Finding().Weight, fact.Time)
		}
	}
}

func TestFactsDoNotBlockAReader(t *testing.T) {
	release := make(chan struct{})
	n := 0
	o := open(t, 1, OutputOptions{OnFact: func(strategy.Fact) {
		<-release
		n++
	}})
	for i := range 1000 {
		o.ranks[0].found("stdout", t0, cause.Finding{Raised: i%2 == 0, Seq: i + 1})
	}
	out, _ := o.Files(0)
	flood(t, out, 1000)
	close(release)
	wait(t, o)
	if n != 4*keepEach {
		t.Errorf("%d facts, want %d", n, 4*keepEach)
	}
}
