package journal

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"path/filepath"
	"slices"
	"sync/atomic"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// campaigns is how many runs one test makes; make stress repeats the tests.
const campaigns = 20

var seeds atomic.Uint64

// chance is where a test's random choices come from: another seed each time that a test is
// repeated.
func chance(t *testing.T) *rand.Rand {
	t.Helper()
	return rand.New(rand.NewPCG(testenv.Of(t)+seeds.Add(1)-1, 0))
}

// killed is what a store and ranks panic with when gpurun is killed.
type killed struct{}

// A life is one gpurun, from its start to its end, which may be a kill or a full disk.
// It is the launcher's world, its recipe, and its ranks, which end at once.
type life struct {
	t     *testing.T
	run   *campaign
	own   *Journal
	kill  int // after how many steps it is killed, below 0 for never
	full  int // after how many steps the disk is full, below 0 for never
	empty int // and after how many more it is not
	stop  int // after how many steps somebody stops gpurun, below 0 for never
	quit  context.CancelCauseFunc
}

// undisturbed is a life that nothing happens to.
func undisturbed(t *testing.T, c *campaign) *life {
	return &life{t: t, run: c, kill: -1, full: -1000, stop: -1}
}

// A campaign is one run through many lives, and what has to hold over all of them.
type campaign struct {
	dir        string
	chance     *rand.Rand
	fits       int    // the micro batch that fits
	end        string // what the job ends with once it fits
	checkpoint string // the newest complete one
	ranOut     []strategy.Plan
	started    int
	over       bool // the journal has the end of an attempt that ends the run
}

var first = strategy.Plan{strategy.MicroBatchSize: "8", strategy.GradientAccumulationSteps: "1", strategy.Allocator: "default"}

var job = strategy.Job{Ranks: 1, LocalRanks: 1, DataParallel: 1, Knobs: map[strategy.Knob]strategy.Range{
	strategy.MicroBatchSize: {Min: 1}, strategy.GradientAccumulationSteps: {}, strategy.Allocator: {Values: []strategy.Value{"default", "expandable"}},
}}

var policy = strategy.Policy{Mode: strategy.Ladder, MaxAttempts: 20, Numerics: strategy.MixedPrecision, TransientRetries: 3}

// step is one moment at which gpurun may be killed, or a disk found full.
func (l *life) step() error {
	if l.kill--; l.kill == 0 {
		panic(killed{})
	}
	if l.stop--; l.stop == 0 && l.quit != nil {
		l.quit(&launcher.Signal{Number: unix.SIGTERM})
	}
	if l.full--; l.full < 0 && l.full > -1000 {
		if l.empty--; l.empty >= 0 {
			return launcher.RunDirError(l.run.dir, &os.PathError{Op: "write", Path: filepath.Join(l.run.dir, File), Err: unix.ENOSPC})
		}
	}
	return nil
}

func (l *life) Append(e launcher.Event) error {
	if err := l.step(); err != nil {
		return err
	}
	if l.kill == 1 { // in the middle of the line
		line, err := launcher.Encode(e, time.Now())
		if err != nil {
			l.t.Fatal(err)
		}
		_, _ = l.own.file.Write(line[:l.run.chance.IntN(len(line)+1)])
		panic(killed{})
	}
	err := l.own.Append(e)
	switch e := e.(type) {
	case launcher.Exited:
		if err == nil {
			l.run.ended(e.Evidence)
		}
	case launcher.Ended:
		if err == nil {
			l.run.ended(e.Evidence)
		}
	}
	_ = l.step() // killed between the write and what follows from it
	return err
}

func (l *life) Prepare(n int) (string, error) {
	if err := l.step(); err != nil {
		return "", err
	}
	return l.own.Prepare(n)
}

func (l *life) Write(dir string, p strategy.Plan, c strategy.Command) error {
	if err := l.step(); err != nil {
		return err
	}
	return l.own.Write(dir, p, c)
}

// Draft is no step: a run does not rest on it.
func (l *life) Draft(v launcher.Verdict) error { return l.own.Draft(v) }

func (l *life) Finish(v launcher.Verdict) error {
	if err := l.step(); err != nil {
		return err
	}
	if l.kill == 1 { // between the verdict and its event
		text, _ := json.Marshal(v)
		if err := system.WriteFile(filepath.Join(l.run.dir, verdictFile), text, system.PrivateMode); err != nil {
			l.t.Fatal(err)
		}
		panic(killed{})
	}
	err := l.own.Finish(v)
	_ = l.step()
	return err
}

func (l *life) Apply(p strategy.Plan, by strategy.Arguments, checkpoint, dir string) (strategy.Command, error) {
	if checkpoint != "" && checkpoint != l.run.checkpoint {
		l.t.Errorf("attempt %d starts from %q, and %q is there", l.run.started, checkpoint, l.run.checkpoint)
	}
	return strategy.Command{Argv: []string{"train.py"}, Files: map[string][]byte{filepath.Join(dir, "copy.json"): []byte(p.String())}}, nil
}

func (l *life) Notice() *strategy.Notice                              { return nil }
func (l *life) Settle(context.Context, time.Duration) []strategy.Fact { return nil }
func (l *life) Stop(int, time.Duration)                               {}
func (l *life) Progress() []strategy.Fact                             { return nil }
func (l *life) LastSign(int) strategy.Sign                            { return strategy.Sign{} }
func (l *life) Stacks()                                               {}
func (l *life) Inventory(context.Context) strategy.Inventory {
	return strategy.Inventory{Accelerator: "cuda", BF16: true, Checkpoint: l.run.checkpoint}
}

// Start plays one attempt: out of memory until the plan fits, then the job's own end.
func (l *life) Start(ctx context.Context, launch launcher.Launch) (launcher.Attempt, error) {
	c := l.run
	if _ = l.step(); ctx.Err() != nil { // stopped while ranks were being started
		return nil, context.Cause(ctx)
	}
	c.started++
	if c.over {
		l.t.Errorf("attempt %d is started, and the run has been decided", launch.N)
	}
	if slices.ContainsFunc(c.ranOut, func(p strategy.Plan) bool { return cmp.Equal(p, launch.Plan) }) {
		l.t.Errorf("attempt %d runs with %s, which ran out of memory", launch.N, launch.Plan)
	}
	if c.chance.IntN(3) == 0 {
		c.checkpoint = fmt.Sprintf("ckpt-%d", c.started)
	}
	_ = l.step() // killed while ranks run
	return &ranks{life: l, facts: facts(c, launch.Plan)}, nil
}

// ranks have ended before they are asked.
type ranks struct {
	*life
	facts chan strategy.Fact
}

func (r *ranks) Facts() <-chan strategy.Fact { return r.facts }

// StopPeers stops no rank: they have ended.
func (r *ranks) StopPeers(int, []int) {}

func (r *ranks) Release() {}

func facts(c *campaign, p strategy.Plan) chan strategy.Fact {
	micro, _ := p.Number(strategy.MicroBatchSize)
	end, code := cause.Code(c.end), 1
	if micro > c.fits {
		end = cause.CUDAOOM
	}
	channel := make(chan strategy.Fact, 2)
	defer close(channel)
	if end == cause.None {
		code = 0
	} else {
		channel <- strategy.Fact{Time: time.Now(), Source: "stderr", Content: &strategy.Finding{Code: end, Raised: true, Rank: -1, Phase: cause.Forward, Line: 1, Text: "Error: it failed"}}
	}
	channel <- strategy.Fact{Time: time.Now(), Source: "exit", Content: &strategy.Exit{Code: code, PID: 1}}
	return channel
}

// ended notes what the journal holds for good.
func (c *campaign) ended(e strategy.Evidence) {
	switch d := strategy.Diagnose(e); {
	case e.Unstarted != nil:
	case d.Cause == cause.CUDAOOM:
		c.ranOut = append(c.ranOut, e.Plan)
	case e.StopSignal != 0 && !e.EndedWell(): // somebody stopped it, and it goes on with its plan
	default:
		c.over = true
	}
}

// live goes through one life. It reports whether that ended with the run's verdict.
func (l *life) live() (v launcher.Verdict, ok bool) {
	c := l.run
	j, events, err := (RunSearch{}).OpenRun(l.t.Context(), c.dir, nil, LockWait{})
	if err != nil {
		l.t.Fatalf("what was left cannot be gone on with: %v", err)
	}
	l.own = j
	defer func() {
		bug := recover()
		if _, dead := bug.(killed); bug != nil && !dead {
			panic(bug)
		}
		_ = errors.Join(j.file.Close(), j.lock.Close()) // as the kernel does it
	}()
	began := launcher.Began{Run: "r", Plan: first, Policy: policy, Job: job}
	state, done, err := launcher.GoOn(c.dir, began, events)
	if err != nil {
		l.t.Fatal(err)
	}
	if done {
		if !c.over && len(c.ranOut) == 0 {
			l.t.Error("done, and nothing was decided")
		}
		if !state.Closed {
			err = launcher.Finish(l, state.Verdict)
		}
		return state.Verdict, err == nil
	}
	if state, _, err = state.Restart(job, func(decided string) strategy.Checkpoints {
		return strategy.Checkpoints{Decided: decided != "" && decided == c.checkpoint, Newest: c.checkpoint}
	}); err != nil {
		l.t.Fatal(err)
	}
	if err := l.Append(began); err != nil {
		return v, false
	}
	run := launcher.Launcher{Policy: policy, Job: job, Accelerator: "cuda", Recipe: l, Starter: l, World: l, Store: l, HangTimeout: time.Minute}
	ctx, quit := context.WithCancelCause(context.Background())
	defer quit(nil)
	l.quit = quit
	v, err = run.Run(ctx, state)
	return v, err == nil && v.Outcome.Final()
}

// end is how the run has to end, whatever happens to it.
func (c *campaign) outcome() strategy.Outcome {
	switch {
	case c.fits == 0:
		return strategy.Exhausted
	case c.end == string(cause.None):
		return strategy.Trained
	}
	return strategy.Failed
}

func newCampaign(t *testing.T, chance *rand.Rand) *campaign {
	return &campaign{
		dir: filepath.Join(t.TempDir(), "run"), chance: chance, fits: []int{0, 1, 2, 4, 8}[chance.IntN(5)],
		end: string([]cause.Code{cause.None, cause.None, cause.UserError}[chance.IntN(3)]),
	}
}

// checkEnd: the verdict is the one in verdict.json and in the journal, and a further
// start changes nothing.
func (c *campaign) checkEnd(t *testing.T, v launcher.Verdict) {
	t.Helper()
	if v.Outcome != c.outcome() {
		t.Errorf("%s, want %s: %s", v.Outcome, c.outcome(), v.Reason)
	}
	text, err := os.ReadFile(filepath.Join(c.dir, verdictFile))
	var written launcher.Verdict
	if err := errors.Join(err, json.Unmarshal(text, &written)); err != nil {
		t.Fatal(err)
	}
	started, before := c.started, readAll(t, c.dir)
	again, ok := undisturbed(t, c).live()
	for _, other := range []launcher.Verdict{written, again} {
		if other.Outcome != v.Outcome || other.Code != v.Code || len(other.Attempts) != len(v.Attempts) {
			t.Errorf("verdicts differ:\n%+v\n%+v", v, other)
		}
	}
	if !ok || c.started != started || !bytes.Equal(before, readAll(t, c.dir)) {
		t.Errorf("a further start of a run that is done: %v, %d attempts", ok, c.started-started)
	}
}

func readAll(t *testing.T, dir string) []byte {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(dir, File))
	if err != nil {
		t.Fatal(err)
	}
	return text
}

// TestStressKills: gpurun is killed at random, between any two things that it does and in
// the middle of a line, and the disk is full now and then, until the run is done. No
// plan that is known to have run out of memory runs again, nothing that was decided is
// done twice, and the run ends as it would have.
func TestStressKills(t *testing.T) {
	chance := chance(t)
	for range campaigns {
		c := newCampaign(t, chance)
		for n := 0; ; n++ {
			l := &life{t: t, run: c, kill: 1 + chance.IntN(40), full: chance.IntN(30), empty: chance.IntN(12), stop: chance.IntN(40)}
			if n > 25 {
				l = undisturbed(t, c)
			}
			if v, ok := l.live(); ok {
				c.checkEnd(t, v)
				break
			}
			if n > 26 {
				t.Fatal("an undisturbed life does not end the run")
			}
			if chance.IntN(4) == 0 {
				c.checkpoint = "" // somebody has removed it
			}
		}
		if t.Failed() {
			t.Fatalf("fits %d, ends with %s:\n%s", c.fits, c.end, readAll(t, c.dir))
		}
	}
}

// TestStressCuts: a journal that is cut anywhere, as a kill or a crash may leave it, is
// gone on with, to the same end. Near the ends of lines every cut is tried, of the others one
// in eight: make stress repeats the test.
func TestStressCuts(t *testing.T) {
	chance := chance(t)
	whole := newCampaign(t, chance)
	whole.fits = 4
	v, ok := undisturbed(t, whole).live()
	if !ok {
		t.Fatalf("%+v", v)
	}
	text := readAll(t, whole.dir)
	path := filepath.Join(t.TempDir(), File)
	if err := os.WriteFile(path, text, 0o644); err != nil {
		t.Fatal(err)
	}
	for cut := len(text) - 1; cut >= 0; cut-- {
		if !bytes.Contains(text[max(0, cut-3):min(cut+3, len(text))], []byte("\n")) && chance.IntN(8) != 0 {
			continue
		}
		if err := os.Truncate(path, int64(cut)); err != nil {
			t.Fatal(err)
		}
		events, err := Read(filepath.Dir(path))
		if err = errors.Join(err, launcher.CheckOrder(events)); err != nil || len(events) != bytes.Count(text[:cut], []byte("\n")) {
			t.Fatalf("cut at %d: %d events, %v", cut, len(events), err)
		}
		if cut == 0 || text[cut-1] == '\n' || chance.IntN(200) == 0 {
			goOn(t, whole, text[:cut], events)
		}
	}
}

// goOn ends a run whose journal was cut.
func goOn(t *testing.T, whole *campaign, text []byte, events []launcher.Event) {
	t.Helper()
	c := &campaign{dir: t.TempDir(), chance: whole.chance, fits: whole.fits, end: whole.end, checkpoint: whole.checkpoint}
	if err := os.WriteFile(filepath.Join(c.dir, File), text, 0o644); err != nil {
		t.Fatal(err)
	}
	for _, e := range events {
		switch e := e.(type) {
		case launcher.Exited:
			c.ended(e.Evidence)
		case launcher.Ended:
			c.ended(e.Evidence)
		}
	}
	v, ok := undisturbed(t, c).live()
	if !ok {
		t.Fatalf("cut at %d: %s", len(text), v.Outcome)
	}
	c.checkEnd(t, v)
}
