package ranks

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"regexp"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestStepsInAnyPieces(t *testing.T) {
	text := "loading\nstep 1 loss 2\r\nstep 2\rstep 3\n\x1b[32mstep\x1b[0m 4\nstep x\n\n" +
		strings.Repeat("#", longestLine) + "step 5\nstep 99999999999999999999\nstep 6"
	want := []int{1, 2, 3, 4, 6}
	for size := 1; size <= len(text); size++ {
		var got []int
		r := &rank{step: regexp.MustCompile(`step (\d+)`)}
		s := &lines{each: func(line []byte) {
			if n, _, ok := r.stepIn(plain(line)); ok {
				got = append(got, n)
			}
		}}
		for rest := text; rest != ""; rest = rest[min(size, len(rest)):] {
			s.add([]byte(rest[:min(size, len(rest))]))
		}
		s.end()
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("in pieces of %d bytes: %s", size, diff)
		}
		if size == 40 {
			size = len(text) - 1
		}
	}
}

func TestProgressSumsUpSteps(t *testing.T) {
	r, end := collect()
	at := func(seconds int, n int) { r.stepped("stdout", t0.Add(time.Duration(seconds)*time.Second), n, 0) }
	at(100, 10)
	at(110, 11)
	at(117, 11) // A bar that is drawn again is no step.
	at(125, 12)
	at(126, 13)
	o := &Output{ranks: []*rank{r, {global: 4, activity: Activity{Output: t0, Longest: time.Hour, Steps: 1}}}}
	want := Activity{Step: t0.Add(126 * time.Second), Steps: 4, Longest: 15 * time.Second}
	if diff := cmp.Diff(want, o.Activity(3)); diff != "" {
		t.Error(diff)
	}
	want.Output, want.Steps, want.Longest = t0, 5, time.Hour
	if diff := cmp.Diff(want, o.Activity()); diff != "" {
		t.Error(diff)
	}
	facts := []strategy.Fact{{
		Time: t0.Add(126 * time.Second), Rank: 3, Source: "stdout",
		Content: &strategy.Progress{Steps: 4, First: 10, Last: 13, Longest: strategy.Seconds(15 * time.Second), For: strategy.Seconds(26 * time.Second)},
	}}
	if diff := cmp.Diff(facts, end()); diff != "" {
		t.Error(diff)
	}
}

// A step that was done again in place is not the longest, whether the report of it comes before or
// after its end.
func TestRepeatedStepIsNotTheLongest(t *testing.T) {
	for _, late := range []bool{false, true} {
		r, end := collect()
		o := &Output{ranks: []*rank{r}}
		at := func(seconds, n int) { r.stepped("stdout", t0.Add(time.Duration(seconds)*time.Second), n, 0) }
		at(100, 1)
		at(110, 2)
		if !late {
			o.Repeated(3)
		}
		at(400, 3)
		if late {
			o.Repeated(3)
		}
		at(404, 4)
		at(410, 5)
		end()
		want := 10 * time.Second
		if !late {
			want = 6 * time.Second // the step before the report may have been the repeated one
		}
		if got := o.Activity().Longest; got != want || r.progress.Longest.Duration() != want {
			t.Errorf("late %v: longest step %v, %v in the facts, want %v", late, got, r.progress.Longest.Duration(), want)
		}
	}
}

// A rank whose lines show no steps is known by those that its process counts, which
// tells some of them only, and the last one twice.
func TestStepsThatTheProcessCounts(t *testing.T) {
	r, end := collect()
	o := &Output{ranks: []*rank{r}}
	for _, step := range [][2]int{{1, 10}, {2, 11}, {20, 13}, {20, 14}, {40, 15}, {40, 16}} {
		o.Stepped(3, step[0], t0.Add(time.Duration(step[1])*time.Second))
	}
	r.stepped("stdout", t0.Add(20*time.Second), 400, 0) // it counts something else
	facts := []strategy.Fact{{
		Time: t0.Add(15 * time.Second), Rank: 3, Source: "probe",
		Content: &strategy.Progress{Steps: 40, First: 1, Last: 40, Longest: strategy.Seconds(2 * time.Second), For: strategy.Seconds(5 * time.Second)},
	}}
	if diff := cmp.Diff(facts, end()); diff != "" {
		t.Error(diff)
	}
	r, end = collect()
	o = &Output{ranks: []*rank{r}}
	r.stepped("stdout", t0, 1, 0)
	o.Stepped(3, 7, t0.Add(time.Second))
	if facts := end(); len(facts) != 1 || strategy.As[*strategy.Progress](facts[0]).Last != 1 || facts[0].Source != "stdout" {
		t.Errorf("steps that lines show first: %+v", facts)
	}
}

// The groups of a pattern are known by their names; the first without one is the step.
func TestGroupsOfAStep(t *testing.T) {
	loss := 2.5
	for pattern, want := range map[string]strategy.Progress{
		`at (\d+) of (\d+)`:                                          {Steps: 1, First: 12, Last: 12, Total: 90},
		`at (?P<step>\d+) of (?P<total>\d+)`:                         {Steps: 1, First: 12, Last: 12, Total: 90},
		`at (?P<step>\d+).*of (?P<total>\d+).*loss (?P<loss>[\d.]+)`: {Steps: 1, First: 12, Last: 12, Total: 90, Loss: &loss},
		`at (\d+) of (?P<total>\d+), loss (?P<loss>\S+)`:             {Steps: 1, First: 12, Last: 12, Total: 90, Loss: &loss},
	} {
		var facts []strategy.Fact
		o := open(t, 1, OutputOptions{Step: regexp.MustCompile(pattern), OnFact: func(f strategy.Fact) { facts = append(facts, f) }})
		stdout, _ := o.Files(0)
		writeOutput(t, stdout, "at 12 of 90, loss 2.5\n")
		wait(t, o)
		if len(facts) != 1 {
			t.Errorf("%s: %+v", pattern, facts)
		} else if diff := cmp.Diff(&want, strategy.As[*strategy.Progress](facts[0])); diff != "" {
			t.Errorf("%s: %s", pattern, diff)
		}
	}
}

func TestAStepIsSeenInARanksOutput(t *testing.T) {
	var facts []strategy.Fact
	o := open(t, 2, OutputOptions{
		Step:   regexp.MustCompile(`step=(\d+)`),
		OnFact: func(f strategy.Fact) { facts = append(facts, f) },
	})
	before := time.Now()
	_, stderr := o.Files(1)
	writeOutput(t, stderr, "step=7\nstep=8")
	wait(t, o)
	if a := o.Activity(1); a.Steps != 2 || a.Output.Before(before) || a.Step.Before(before) {
		t.Errorf("activity %+v", a)
	}
	if a := o.Activity(0); a != (Activity{}) {
		t.Errorf("a silent rank has activity %+v", a)
	}
	if len(facts) != 1 || facts[0].Rank != 1 || facts[0].Source != "stderr" || strategy.As[*strategy.Progress](facts[0]).Last != 8 {
		t.Errorf("facts %+v", facts)
	}
}

func TestReportedSettingIsSeenInARanksOutput(t *testing.T) {
	var facts []strategy.Fact
	o := open(t, 2, OutputOptions{
		Observe: func(line string) (strategy.ObservedSetting, bool) {
			value, ok := strings.CutPrefix(line, "batch size ")
			return strategy.ObservedSetting{Knob: strategy.MicroBatchSize, Value: strategy.Value(value), Text: line}, ok
		},
		OnFact: func(f strategy.Fact) { facts = append(facts, f) },
	})
	stdout, _ := o.Files(1)
	writeOutput(t, stdout, "batch size 8\n\x1b[1mbatch size 8\x1b[0m\nbatch size 4\n")
	writeOutput(t, stdout, strings.Repeat(strings.Repeat("x", 99)+"\n", settingsHead/100+1)+"batch size 2\n")
	wait(t, o)
	var got []strategy.ObservedSetting
	for _, f := range facts {
		if strategy.As[*strategy.ObservedSetting](f) != nil && f.Rank == 1 && f.Source == "stdout" {
			got = append(got, *strategy.As[*strategy.ObservedSetting](f))
		}
	}
	want := []strategy.ObservedSetting{
		{Knob: strategy.MicroBatchSize, Value: "8", Text: "batch size 8"},
		{Knob: strategy.MicroBatchSize, Value: "4", Text: "batch size 4"},
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Error(diff)
	}
}

// dam is a writer that takes nothing until it is opened.
type dam struct {
	opened chan struct{}
	said   bytes.Buffer
}

func (g *dam) Write(p []byte) (int, error) {
	<-g.opened
	return g.said.Write(p)
}

func TestWordsAreWrittenWhenWriteReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		w := NewMessages(&said)
		for i := range 100 {
			fmt.Fprintf(w, "line %d\n", i)
			if !strings.HasSuffix(said.String(), fmt.Sprintf("line %d\n", i)) {
				t.Fatalf("after line %d: %q", i, said.String())
			}
		}
		w.Close()
	})
}

// A pipe without a reader holds gpurun up once, and then no more until there is one.
func TestUnreadWordsDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &dam{opened: make(chan struct{})}
		w := NewMessages(g)
		began := time.Now()
		var want strings.Builder
		for i := range 1000 {
			fmt.Fprintf(io.MultiWriter(w, &want), "line %d\n", i)
		}
		if took := time.Since(began); took > messagesPatience {
			t.Errorf("1000 lines that nobody read took %v", took)
		}
		close(g.opened)
		synctest.Wait()
		if g.said.String() != want.String() {
			t.Errorf("said %d bytes, want %d", g.said.Len(), want.Len())
		}
		w.Close()
	})
}

func TestWordsSkipAStoppedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &dam{opened: make(chan struct{})}
		w := NewMessages(g)
		fmt.Fprintln(w, "the verdict")
		began := time.Now()
		w.Close()
		if took := time.Since(began); took > messagesClose {
			t.Errorf("closed after %v", took)
		}
		close(g.opened)
		<-w.queue.done
	})
}

// A reader that is slow, but reads, gets everything.
func TestWordsWaitForAReaderThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		slow := writerFunc(func(p []byte) (int, error) {
			time.Sleep(messagesClose * 9 / 10)
			return said.Write(p)
		})
		w := NewMessages(slow)
		var want strings.Builder
		for i := range 4 {
			fmt.Fprintf(io.MultiWriter(w, &want), "%d %s\n", i, strings.Repeat("x", consolePiece))
		}
		w.Close()
		if said.String() != want.String() {
			t.Errorf("said %d bytes, want %d", said.Len(), want.Len())
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWordsToAClosedPipeAreLost(t *testing.T) {
	r, pipe, err := os.Pipe()
	testenv.Check(t, err)
	r.Close()
	defer pipe.Close()
	w := NewMessages(pipe)
	for range 3 {
		if n, err := fmt.Fprintln(w, "to nobody"); n != 10 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	w.Close()
}

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
