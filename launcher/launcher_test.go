package launcher

import (
	"context"
	"errors"
	"maps"
	"slices"
	"strings"
	"sync"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// A script is the behaviour of the ranks in one attempt. The loop is tested with scripts, because real
// processes do not work with a fake clock. Package proc and the tests of the command test real ranks.
type script struct {
	acts []act
	// deaf ranks ignore SIGTERM and end only when the grace is over.
	deaf bool
	// chatty ranks write something once a second until they are stopped.
	chatty bool
	// talks is how long ranks write something once a second.
	talks time.Duration
	// longest is the ranks' longest step.
	longest time.Duration
	// steps returns the progress of the ranks, by the time since the start; nil: unknown.
	steps func(since time.Duration) *strategy.Progress
	// step is the time of the last step.
	step time.Duration
	own  bool
	// jump is how far the wall clock was put forward after the start.
	jump time.Duration
	// stacks are the ranks' stacks on request.
	stacks []strategy.Fact
}

// act is a fact that comes some time after the start.
type act struct {
	after time.Duration
	fact  strategy.Fact
}

func exit(after time.Duration, rank, code int) act {
	return act{after, strategy.Fact{Rank: rank, Source: "exit", Content: &strategy.Exit{Code: code}}}
}

func raised(after time.Duration, rank int, c cause.Code) act {
	return act{after, strategy.Fact{Rank: rank, Source: "stderr", Content: &strategy.Finding{
		Code: c, Raised: true, Rank: -1, Phase: cause.Backward, Line: 1, Text: "torch.cuda.OutOfMemoryError: CUDA out of memory."}}}
}

// stage plays one script after the other, and implements all of the launcher's interfaces.
type stage struct {
	t       *testing.T
	scripts []script
	events  []Event
	applied []strategy.Plan
	from    []string // checkpoints that attempts started from
	closely []bool   // for each attempt, whether all allocations are recorded
	stops   []stop
	parted  []parted
	freed   []time.Duration // when waiting ranks were released
	begin   time.Time
	inv     strategy.Inventory
	notice  string
	drafts  []Verdict
	fail    error         // error of Append, once a rank was started
	refuse  map[int]error // errors of Start, by attempt
	asked   int           // calls of Inventory
	mu      sync.Mutex
}

// stop is one call of Stop.
type stop struct {
	attempt int
	signal  int
	after   time.Duration
}

// parted is one call of StopPeers.
type parted struct {
	signal int
	of     []int
	after  time.Duration
}

func (s *stage) Apply(p strategy.Plan, by strategy.Arguments, checkpoint, _ string) (strategy.Command, error) {
	s.applied, s.from = append(s.applied, p), append(s.from, checkpoint)
	return strategy.Command{Argv: []string{"train.py"}}, nil
}

func (s *stage) Append(e Event) error {
	s.events = append(s.events, e)
	if _, ended := e.(Ended); ended && s.fail != nil {
		return s.fail
	}
	return nil
}

func (s *stage) Prepare(int) (string, error)                         { return "attempt", nil }
func (s *stage) Write(string, strategy.Plan, strategy.Command) error { return nil }
func (s *stage) Finish(v Verdict) error                              { return s.Append(Finished{Verdict: v}) }
func (s *stage) Draft(v Verdict) error {
	s.drafts = append(s.drafts, v)
	return nil
}

func (s *stage) Notice() *strategy.Notice {
	s.mu.Lock()
	defer s.mu.Unlock()
	if s.notice == "" {
		return nil
	}
	return &strategy.Notice{Signal: s.notice, Stop: true}
}

func (s *stage) announce(name string) {
	s.mu.Lock()
	defer s.mu.Unlock()
	s.notice = name
}

func (s *stage) Inventory(context.Context) strategy.Inventory {
	s.asked++
	return s.inv
}
func (s *stage) Settle(context.Context, time.Duration) []strategy.Fact {
	return nil
}

func (s *stage) Start(_ context.Context, l Launch) (Attempt, error) {
	if started, ok := s.events[len(s.events)-1].(Started); !ok || started.N != l.N {
		s.t.Errorf("attempt %d runs before the journal knows of it", l.N)
	}
	s.closely = append(s.closely, l.Closely)
	if err := s.refuse[l.N]; err != nil {
		return nil, err
	}
	a := &played{stage: s, n: l.N, script: s.scripts[l.N], facts: make(chan strategy.Fact), stopped: make(chan time.Duration, 1), begin: time.Now()}
	go a.play()
	return a, nil
}

type played struct {
	stage   *stage
	n       int
	script  script
	facts   chan strategy.Fact
	stopped chan time.Duration
	begin   time.Time
	last    time.Time
	mu      sync.Mutex
}

func (a *played) play() {
	defer close(a.facts)
	alive := 0
	for _, act := range a.script.acts {
		if act.fact.Exit() != nil {
			alive++
		}
	}
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	acts := a.script.acts
	for {
		var next <-chan time.Time
		if len(acts) > 0 {
			next = time.After(acts[0].after - time.Since(a.begin))
		}
		select {
		case <-next:
			f := acts[0].fact
			if f.Time = time.Now(); a.script.jump != 0 {
				f.Time = testenv.SetClock(a.stage.t, f.Time, a.script.jump)
			}
			if f.Source == "stderr" {
				a.sign()
			}
			a.facts <- f
			if acts = acts[1:]; f.Exit() != nil {
				alive--
			}
			if len(acts) == 0 && alive == 0 && !a.script.chatty && f.Exit() != nil {
				return
			}
		case <-tick.C:
			if a.script.chatty || time.Since(a.begin) <= a.script.talks {
				a.sign()
			}
		case grace := <-a.stopped:
			if a.script.deaf {
				time.Sleep(grace)
			}
			a.facts <- strategy.Fact{Time: time.Now(), Rank: 1, Source: "exit", Content: &strategy.Exit{Code: 143, Signal: 15, Stopped: true}}
			return
		}
	}
}

func (a *played) sign() {
	a.mu.Lock()
	defer a.mu.Unlock()
	a.last = time.Now()
}

func (a *played) Stacks() {
	for _, f := range a.script.stacks {
		a.facts <- f
	}
}

func (a *played) Facts() <-chan strategy.Fact { return a.facts }
func (a *played) LastSign(int) strategy.Sign {
	a.mu.Lock()
	defer a.mu.Unlock()
	sign := strategy.Sign{Output: a.last, Longest: strategy.Seconds(a.script.longest), Anyone: a.last}
	if now := time.Since(a.begin); a.script.step > 0 && now >= a.script.step {
		sign.Others, sign.Steps = a.begin.Add(a.script.step), 3
		if a.script.own {
			sign.Step = sign.Others
		}
	}
	return sign
}

func (a *played) Progress() []strategy.Fact {
	if a.script.steps == nil {
		return nil
	}
	return []strategy.Fact{{Time: time.Now(), Rank: 0, Source: "stdout", Content: a.script.steps(time.Since(a.begin))}}
}

func (a *played) StopPeers(signal int, of []int) {
	a.stage.mu.Lock()
	defer a.stage.mu.Unlock()
	a.stage.parted = append(a.stage.parted, parted{signal, of, time.Since(a.begin).Truncate(time.Millisecond)})
}

func (a *played) Release() {
	a.stage.mu.Lock()
	defer a.stage.mu.Unlock()
	a.stage.freed = append(a.stage.freed, time.Since(a.begin).Truncate(time.Millisecond))
}

func (a *played) Stop(signal int, grace time.Duration) {
	a.stage.mu.Lock()
	a.stage.stops = append(a.stage.stops, stop{a.n, signal, time.Since(a.begin).Truncate(time.Millisecond)})
	a.stage.mu.Unlock()
	a.stopped <- grace
}

var plan0 = strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1", strategy.ActivationCheckpointing: "none"}

func newLauncher(s *stage) *Launcher {
	s.begin = time.Now()
	s.inv.Accelerator = "cuda"
	return &Launcher{
		Accelerator: "cuda",
		Policy:      strategy.Policy{Mode: strategy.Ladder, MaxAttempts: 10, Numerics: strategy.MixedPrecision, TransientRetries: 3, RestartFromZero: strategy.Seconds(time.Hour)},
		Job: strategy.Job{Ranks: 2, LocalRanks: 2, DataParallel: 2, Knobs: map[strategy.Knob]strategy.Range{
			strategy.MicroBatchSize: {Min: 1}, strategy.GradientAccumulationSteps: {},
			strategy.ActivationCheckpointing: {Values: []strategy.Value{"none", "full"}},
		}},
		Recipe: s, Starter: s, World: s, Store: s,
		Graces: Graces{User: 30 * time.Second, Failure: 3 * time.Second}, HangTimeout: 30 * time.Second,
	}
}

func first() State { return State{Next: Next{Plan: plan0}, Verdict: Verdict{Run: "r"}} }

func kinds(events []Event) []string {
	var out []string
	for _, e := range events {
		out = append(out, e.kind())
	}
	return out
}

func TestFromOutOfMemoryToTrained(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{
			{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}},
			{acts: []act{raised(time.Minute, 1, cause.CUDAOOM), exit(time.Minute, 1, 1)}},
			{acts: []act{exit(18*time.Hour, 0, 0), exit(18*time.Hour, 1, 0)}},
		}, inv: strategy.Inventory{Checkpoint: "ckpt-5"}}
		v, err := newLauncher(s).Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained || v.Code != 0 {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		want := []strategy.Plan{plan0,
			plan0.With(strategy.Plan{strategy.ActivationCheckpointing: "full"}),
			{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2", strategy.ActivationCheckpointing: "full"}}
		if diff := cmp.Diff(want, s.applied); diff != "" {
			t.Error(diff)
		}
		if diff := cmp.Diff([]string{"", "ckpt-5", "ckpt-5"}, s.from); diff != "" {
			t.Error(diff)
		}
		one := []string{"started", "ended", "decided"}
		if diff := cmp.Diff(slices.Concat(one, one, []string{"started", "exited", "ended", "decided", "finished"}), kinds(s.events)); diff != "" {
			t.Error(diff)
		}
		if v.Attempts[0].Cause != cause.CUDAOOM || v.Attempts[0].Phase != cause.Backward || v.Attempts[0].Remedy != strategy.RemedyCheckpointing || *v.Attempts[1].Rank != 1 {
			t.Errorf("attempts %+v", v.Attempts)
		}
	})
}

// An attempt that follows an error that came late records all its allocations.
func TestAfterALateErrorAllIsRecorded(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		late := act{time.Minute, strategy.Fact{Rank: 0, Source: "stdout", Content: &strategy.Progress{Steps: 500, Last: 500}}}
		s := &stage{t: t, scripts: []script{
			{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}},
			{acts: []act{late, raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}},
			{acts: []act{exit(time.Hour, 0, 0), exit(time.Hour, 1, 0)}},
		}}
		v, err := newLauncher(s).Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		if diff := cmp.Diff([]bool{false, false, true}, s.closely); diff != "" {
			t.Error(diff)
		}
	})
}

// told is a rank's report of its end.
func told(after time.Duration, rank int, c cause.Code, source string) act {
	a := raised(after, rank, c)
	a.fact.Source, a.fact.Finding().Stream, a.fact.Finding().Seq = source, source, 1
	return a
}

// as changes an act's finding.
func as(a act, change func(*cause.Finding)) act {
	change(a.fact.Finding())
	return a
}

func symptom(s *cause.Finding) { s.Weight = cause.WeightSymptom }
func weak(s *cause.Finding)    { s.Weight = cause.WeightWarning }
func handled(s *cause.Finding) { s.Weight = cause.WeightHandled }
func wentOn(s *cause.Finding)  { s.Weight = cause.WeightOutlived }

func numbered(n int) func(*cause.Finding) {
	return func(s *cause.Finding) { s.Stream, s.Seq = "stderr", n }
}

func killed(after time.Duration, rank int) act {
	a := exit(after, rank, 137)
	a.fact.Exit().Signal = 9
	return a
}

// The time of the ranks' stop depends on the evidence. All ranks are alive and do not end by themselves
// except through an act. The run is cancelled after never.
func TestEvidenceBeforeExit(t *testing.T) {
	const s, m, never = time.Second, time.Minute, 5 * time.Hour
	for name, test := range map[string]struct {
		script
		want   time.Duration
		notice bool // a notice reports that a rank hangs
	}{
		// Strong evidence: 5 s.
		"probe":                {script{acts: []act{told(m, 0, cause.CUDAOOM, "probe")}}, m + 5*s, true},
		"error.json":           {script{acts: []act{told(m, 0, cause.CUDAOOM, "error.json")}}, m + 5*s, true},
		"not only memory":      {script{acts: []act{told(m, 0, cause.UserError, "probe")}}, m + 5*s, true},
		"long steps":           {script{longest: m, acts: []act{told(m, 0, cause.CUDAOOM, "probe")}}, m + 5*s, true},
		"output does not help": {script{chatty: true, acts: []act{told(m, 0, cause.CUDAOOM, "probe")}}, m + 5*s, true},
		"both files":           {script{acts: []act{told(m, 0, cause.CUDAOOM, "error.json"), told(m+2*s, 0, cause.CUDAOOM, "probe")}}, m + 5*s, true},
		"two ranks":            {script{acts: []act{told(m, 1, cause.CUDAOOM, "probe"), told(m+3*s, 0, cause.CUDAOOM, "probe")}}, m + 5*s, true},
		"completed later":      {script{acts: []act{told(m, 0, cause.CUDAOOM, "probe"), told(m+3*s, 0, cause.CUDAOOM, "probe")}}, m + 5*s, true},
		"and then its exit":    {script{acts: []act{told(m, 0, cause.CUDAOOM, "probe"), exit(m+s, 0, 1)}}, m + s, false},
		"and a late exit":      {script{acts: []act{told(m, 0, cause.CUDAOOM, "probe"), exit(m+4*s, 0, 1)}}, m + 4*s, false},
		"and a good exit":      {script{acts: []act{told(m, 0, cause.CUDAOOM, "error.json"), exit(m+s/5, 0, 0)}}, never, false},
		"and a late good exit": {script{acts: []act{told(m, 0, cause.CUDAOOM, "error.json"), exit(m+4*s, 0, 0)}}, m + 4*s, false},
		"another's good exit":  {script{acts: []act{told(m, 0, cause.CUDAOOM, "error.json"), exit(m+4*s, 1, 0)}}, m + 5*s, true},
		"a victim's":           {script{acts: []act{as(told(m, 0, cause.NCCLError, "probe"), symptom)}}, m + 10*s, true},
		"SystemExit":           {script{acts: []act{as(told(m, 0, cause.UserError, "error.json"), symptom)}}, never, false},
		"KeyboardInterrupt":    {script{acts: []act{as(told(m, 0, cause.Preempted, "error.json"), symptom)}}, never, false},

		// Weak evidence: silence for the hang timeout, or five times the longest step.
		"traceback":                    {script{acts: []act{raised(m, 0, cause.CUDAOOM)}}, m + 30*s, true},
		"traceback, short steps":       {script{longest: 2 * s, acts: []act{raised(m, 0, cause.CUDAOOM)}}, m + 30*s, true},
		"traceback, long steps":        {script{longest: 20 * s, acts: []act{raised(m, 0, cause.HostOOM)}}, m + 100*s, true},
		"traceback, then output":       {script{talks: 3 * m, acts: []act{raised(m, 0, cause.CUDAOOM)}}, 3*m + 30*s, true},
		"traceback, then a lot of it":  {script{talks: 9 * m, acts: []act{raised(m, 0, cause.CUDAOOM)}}, never, false},
		"traceback, handled":           {script{acts: []act{as(raised(m, 0, cause.CUDAOOM), handled)}}, never, false},
		"traceback, of no weight":      {script{acts: []act{as(raised(m, 0, cause.CUDAOOM), weak)}}, never, false},
		"traceback of another error":   {script{acts: []act{raised(m, 0, cause.UserError)}}, never, false},
		"traceback, handled in time":   {script{acts: []act{as(raised(m, 0, cause.CUDAOOM), numbered(1)), as(as(raised(m+29*s, 0, cause.CUDAOOM), numbered(1)), handled)}}, never, false},
		"traceback, then steps":        {script{acts: []act{as(raised(m, 0, cause.CUDAOOM), numbered(1)), as(as(raised(m+29*s, 0, cause.CUDAOOM), numbered(1)), wentOn)}}, never, false},
		"traceback, another handled":   {script{acts: []act{as(raised(m, 0, cause.CUDAOOM), numbered(1)), as(raised(m, 1, cause.CUDAOOM), numbered(1)), as(as(raised(m, 1, cause.CUDAOOM), numbered(1)), handled)}}, m + 30*s, true},
		"traceback, then another rank": {script{acts: []act{as(as(raised(m, 0, cause.CUDAOOM), numbered(1)), wentOn), as(raised(2*m, 1, cause.CUDAOOM), numbered(1))}}, 2*m + 30*s, true},
		"traceback, then a good exit":  {script{acts: []act{raised(m, 0, cause.CUDAOOM), exit(m+20*s, 0, 0)}}, never, false},
		"traceback, then a step":       {script{step: m + 20*s, own: true, acts: []act{raised(m, 0, cause.CUDAOOM)}}, never, false},
		"traceback, a step being read": {script{step: m + s, own: true, acts: []act{raised(m, 0, cause.CUDAOOM)}}, m + 31*s, true},
		"traceback, others' steps":     {script{step: m + 8*s, longest: 2 * s, acts: []act{raised(m, 0, cause.CUDAOOM)}}, never, false},
		"traceback in others' step":    {script{step: m + 3*s, longest: 2 * s, acts: []act{raised(m, 0, cause.CUDAOOM)}}, m + 33*s, true},
		"traceback, then its word":     {script{acts: []act{raised(m, 0, cause.CUDAOOM), told(m, 0, cause.CUDAOOM, "probe")}}, m + 5*s, true},

		// Exits: 2 s, or 10 s while only symptoms are known.
		"no word":                   {script{acts: []act{exit(m, 0, 1)}}, m + 2*s, false},
		"exit, then its words":      {script{acts: []act{exit(m, 0, 1), as(raised(m, 0, cause.NCCLError), symptom)}}, m + 10*s, false},
		"symptom, then the cause":   {script{acts: []act{as(raised(m, 0, cause.NCCLError), symptom), exit(m, 0, 1), raised(m+3*s, 1, cause.CUDAOOM)}}, m + 5*s, false},
		"symptom, late cause":       {script{acts: []act{as(raised(m, 0, cause.NCCLError), symptom), exit(m, 0, 1), raised(m+9*s, 1, cause.CUDAOOM)}}, m + 10*s, false},
		"symptom, then its word":    {script{acts: []act{as(raised(m, 0, cause.NCCLError), symptom), exit(m, 0, 1), told(m+3*s, 1, cause.CUDAOOM, "probe")}}, m + 8*s, true},
		"symptom, then a kill":      {script{acts: []act{as(raised(m, 0, cause.NCCLError), symptom), exit(m, 0, 1), killed(m+3*s, 1)}}, m + 5*s, false},
		"symptom, then a warning":   {script{acts: []act{as(raised(m, 0, cause.NCCLError), symptom), exit(m, 0, 1), as(raised(m+3*s, 1, cause.CUDAOOM), weak)}}, m + 10*s, false},
		"symptom, handled long ago": {script{acts: []act{as(raised(s, 1, cause.CUDAOOM), wentOn), as(raised(m, 0, cause.NCCLError), symptom), exit(m, 0, 1)}}, m + 10*s, false},
		"killed with symptoms":      {script{acts: []act{as(raised(m, 0, cause.NCCLError), symptom), killed(m, 0)}}, m + 2*s, false},
		"the silent one":            {script{acts: []act{as(raised(m, 0, cause.NCCLError), symptom), exit(m, 0, 1), exit(m+3*s, 1, 1)}}, m + 5*s, false},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				test.acts = append(test.acts, exit(never*2, 7, 0)) // one rank keeps running
				st := &stage{t: t, scripts: []script{test.script}}
				l := newLauncher(st)
				l.Policy.Mode, l.Policy.TransientRetries = strategy.Off, 0
				ctx, cancel := context.WithCancelCause(t.Context())
				time.AfterFunc(never, func() { cancel(&Signal{Number: syscall.SIGTERM}) })
				if _, err := l.Run(ctx, first()); err != nil {
					t.Fatal(err)
				}
				if len(st.stops) != 1 || st.stops[0].after != test.want {
					t.Errorf("stops %+v, want one after %s", st.stops, test.want)
				}
				if ev := ended(t, st.events); test.want != never {
					if again, _ := strategy.Replay(ev); again.At.Sub(ev.Started) != test.want || (again.Notice() != "") != test.notice {
						t.Errorf("replayed from the journal: %+v", again)
					}
				} else if again, stopped := strategy.Replay(ev); stopped {
					t.Errorf("replayed from the journal: %+v", again)
				}
				if got := slices.Contains(kinds(st.events), "noticed"); got != test.notice {
					t.Errorf("events %q", kinds(st.events))
				}
			})
		})
	}
}

// ended returns the evidence of the first attempt in the journal.
func ended(t *testing.T, events []Event) strategy.Evidence {
	t.Helper()
	i := slices.IndexFunc(events, func(e Event) bool { _, ok := e.(Ended); return ok })
	line, err := Encode(events[i], time.Time{})
	if err != nil {
		t.Fatal(err)
	}
	e, _, err := Decode(line)
	if err != nil {
		t.Fatal(err)
	}
	return e.(Ended).Evidence
}

// The other ranks are stopped after one has failed: after 2 s for their last output, or 10 s if only symptoms
// are known.
func TestRanksAreStoppedAfterTheFirstFailure(t *testing.T) {
	for name, test := range map[string]struct {
		acts []act
		want time.Duration
	}{
		"a cause":       {[]act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}, time.Minute + strategy.CollectWindow},
		"symptoms only": {[]act{as(raised(time.Minute, 0, cause.NCCLTimeout), symptom), exit(time.Minute, 0, 1)}, time.Minute + strategy.SymptomWindow},
		"nothing seen":  {[]act{exit(time.Minute, 0, 1)}, time.Minute + strategy.CollectWindow},
	} {
		t.Run(name, func(t *testing.T) {
			synctest.Test(t, func(t *testing.T) {
				s := &stage{t: t, scripts: []script{{acts: test.acts, chatty: true, deaf: true}}}
				l := newLauncher(s)
				l.Policy.Mode, l.Policy.TransientRetries = strategy.Off, 0
				if _, err := l.Run(t.Context(), first()); err != nil {
					t.Fatal(err)
				}
				if diff := cmp.Diff([]stop{{0, int(syscall.SIGTERM), test.want}}, s.stops, cmp.AllowUnexported(stop{})); diff != "" {
					t.Error(diff)
				}
				if took := time.Since(s.begin); took != test.want+3*time.Second {
					t.Errorf("the run took %s", took)
				}
			})
		})
	}
}

func TestARankThatHangsAfterItsTracebackIsStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{
			{acts: []act{raised(time.Minute, 0, cause.CUDAOOM)}},
			{acts: []act{exit(time.Minute, 0, 0), exit(time.Minute, 1, 0)}},
		}}
		v, err := newLauncher(s).Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Trained {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		if diff := cmp.Diff([]stop{{0, int(syscall.SIGTERM), time.Minute + 30*time.Second}}, s.stops, cmp.AllowUnexported(stop{})); diff != "" {
			t.Error(diff)
		}
	})
}

// A rank that keeps writing after an out-of-memory traceback is not stopped, for as long as it writes: it may
// be saving a checkpoint.
func TestRankThatKeepsWritingIsNotStopped(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{{chatty: true, acts: []act{raised(time.Minute, 0, cause.CUDAOOM)}}}}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(5*time.Hour, func() { cancel(&Signal{Number: syscall.SIGINT}) })
		v, err := newLauncher(s).Run(ctx, first())
		if err != nil || v.Outcome != strategy.Stopped || v.Code != 130 {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		if len(s.stops) != 1 || s.stops[0].after < 5*time.Hour-time.Second {
			t.Errorf("stops %+v", s.stops)
		}
	})
}

// After a notice no attempt is started. The next start of the run uses the decided plan.
func TestANoticeEndsTheRelaunches(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, notice: "SIGUSR1", scripts: []script{{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}}}}
		v, err := newLauncher(s).Run(t.Context(), first())
		if err != nil || v.Outcome != strategy.Retry || v.Code != strategy.CodeRetry || !strings.Contains(v.Reason, "after the notice SIGUSR1") {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		state, done := Resume(first().Next.Plan, "run", s.events)
		if done || state.Next.N != 1 || maps.Equal(state.Next.Plan, first().Next.Plan) {
			t.Errorf("done %v, next %+v", done, state.Next)
		}
	})
}

func TestAUsersStop(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{{deaf: true, chatty: true}}}
		ctx, cancel := context.WithCancelCause(t.Context())
		time.AfterFunc(time.Minute, func() { cancel(&Signal{Number: syscall.SIGTERM}) })
		v, err := newLauncher(s).Run(ctx, first())
		if err != nil || v.Outcome != strategy.Stopped || v.Code != 143 {
			t.Fatalf("verdict %+v, %v", v, err)
		}
		if took := time.Since(s.begin); took != time.Minute+30*time.Second {
			t.Errorf("the run took %s", took)
		}
	})
}

func TestAJournalThatCannotBeWrittenEndsTheRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, fail: errors.New("disk full"), scripts: []script{{acts: []act{exit(time.Minute, 0, 1)}}, {}}}
		if _, err := newLauncher(s).Run(t.Context(), first()); !errors.Is(err, s.fail) {
			t.Errorf("error %v", err)
		}
		if len(s.applied) != 1 {
			t.Errorf("%d attempts were started", len(s.applied))
		}
	})
}

// A journal that is cut off anywhere gives a state from which the run continues: never with a plan that ran
// out of memory, and never with a number used twice.
func TestResumeFromEveryCut(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		s := &stage{t: t, scripts: []script{
			{acts: []act{raised(time.Minute, 0, cause.CUDAOOM), exit(time.Minute, 0, 1)}},
			{acts: []act{raised(time.Minute, 1, cause.CUDAOOM), exit(time.Minute, 1, 1)}},
			{acts: []act{exit(time.Hour, 0, 0), exit(time.Hour, 1, 0)}},
		}}
		if _, err := newLauncher(s).Run(t.Context(), first()); err != nil {
			t.Fatal(err)
		}
		for cut := range len(s.events) + 1 {
			again := &stage{t: t, inv: s.inv, scripts: slices.Repeat([]script{{acts: []act{exit(time.Hour, 0, 0)}}}, 9)}
			state, done := Resume(plan0, "r", s.events[:cut])
			if done != (cut >= len(s.events)-1) { // a decision is as good as the verdict
				t.Errorf("cut at %d: done %v", cut, done)
			}
			if done {
				continue
			}
			v, err := newLauncher(again).Run(t.Context(), state)
			if err != nil || v.Outcome != strategy.Trained {
				t.Errorf("cut at %d: verdict %+v, %v", cut, v, err)
			}
			all := slices.Concat(s.events[:cut], again.events)
			checkNumbers(t, cut, all)
			started := 0
			for _, k := range kinds(all) {
				if k == (Started{}).kind() {
					started++
				}
			}
			if len(v.Attempts) != started {
				t.Errorf("cut at %d: %d attempts were started, and the verdict has %d", cut, started, len(v.Attempts))
			}
			for _, a := range state.History {
				if a.Diagnosis.Cause == cause.CUDAOOM && slices.ContainsFunc(again.applied, func(p strategy.Plan) bool { return cmp.Equal(p, a.Plan) }) {
					t.Errorf("cut at %d: plan %s ran out of memory and was run again", cut, a.Plan)
				}
			}
		}
	})
}

// checkNumbers checks that the attempts of a run are numbered from 0, without repetition.
func checkNumbers(t *testing.T, cut int, events []Event) {
	t.Helper()
	next := 0
	for _, e := range events {
		if started, ok := e.(Started); ok {
			if started.N != next {
				t.Errorf("cut at %d: attempt %d is followed by %d", cut, next-1, started.N)
			}
			next = started.N + 1
		}
	}
}
