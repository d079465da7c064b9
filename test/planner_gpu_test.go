package test

import (
	"bytes"
	"context"
	"fmt"
	"os"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

const (
	// fitMargin is the factor by which a ceiling must exceed a candidate's measured peak for the candidate to
	// count as fitting.
	fitMargin = 1.02
	// A throughput below leastRatio of the best candidate's fails the test. Below tellRatio it is reported.
	leastRatio, tellRatio = .85, .97
)

// comparisonHead has the columns of the table.
const comparisonHead = "| job | ceiling GiB (of the written plan's peak) | mode | attempts | s lost | plan that trained | peak GiB: predicted, measured | samples/s | of the best that fits | best candidate that fits |\n|---|---|---|---|---|---|---|---|---|---|"

// A comparison has the values that all jobs of one TestPlanner share.
type comparison struct {
	python   string
	shares   []float64 // ceilings, as shares of the written plan's peak
	modes    []string
	fresh    []string // --fresh, if gpurun has it
	cards    *cards
	deadline time.Time // zero: none

	mu   sync.Mutex
	rows []string
}

// TestPlanner trains real jobs under ceilings, from out of memory to trained, by the ladder and by the
// planner, and compares them with the best of all candidate plans. Each GPU has one job at a time.
// GPURUN_PLANNER selects jobs, GPURUN_PLANNER_SHARES the ceilings, GPURUN_PLANNER_GPUS the devices by index,
// GPURUN_PLANNER_MODES the ways of planning, GPURUN_PLANNER_TABLE a file for the rows. GPURUN_PLANNER_AT_ONCE jobs
// start on a GPU at once; with GPURUN_GPU_LOCK one of them trains, and the others wait with their packages imported.
func TestPlanner(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	cmp := &comparison{python: python, shares: shares(t), modes: modes(), fresh: freshFlag(t), cards: newCards(devices)}
	cmp.deadline, _ = t.Deadline()
	chosen := strings.Fields(os.Getenv("GPURUN_PLANNER"))
	cmp.row(t, comparisonHead)
	t.Run("jobs", func(t *testing.T) {
		var all []contest
		for _, c := range contests() {
			if len(chosen) == 0 || slices.Contains(chosen, c.name) {
				all = append(all, c)
			}
		}
		warm(t, python, installed, all)
		for _, c := range all {
			t.Run(c.name, func(t *testing.T) {
				if why := c.lacks(installed, len(devices)); why != "" {
					t.Skip(why)
				}
				t.Parallel()
				visible, release := cmp.cards.take(c.gpus)
				defer release()
				(&match{contest: c, comparison: cmp, visible: visible}).play(t)
			})
		}
	})
	t.Log("\n" + strings.Join(cmp.rows, "\n"))
}

// row records a row of the table, and writes it to the file.
func (c *comparison) row(t *testing.T, text string) {
	t.Helper()
	c.mu.Lock()
	defer c.mu.Unlock()
	c.rows = append(c.rows, text)
	path := os.Getenv("GPURUN_PLANNER_TABLE")
	if path == "" {
		return
	}
	f, err := os.OpenFile(path, os.O_CREATE|os.O_APPEND|os.O_WRONLY, 0o644)
	if err == nil {
		_, err = fmt.Fprintln(f, text)
		err = errorOr(err, f.Close())
	}
	if err != nil {
		t.Errorf("write a row: %v", err)
	}
}

func errorOr(first, second error) error {
	if first != nil {
		return first
	}
	return second
}

func shares(t *testing.T) []float64 {
	t.Helper()
	text := os.Getenv("GPURUN_PLANNER_SHARES")
	if text == "" {
		return []float64{.35, .55, .75}
	}
	var all []float64
	for _, word := range strings.Fields(text) {
		share, err := strconv.ParseFloat(word, 64)
		if err != nil || share <= 0 {
			t.Fatalf("GPURUN_PLANNER_SHARES: %q is no share", word)
		}
		all = append(all, share)
	}
	return all
}

// modes are the ways of planning that are compared: those of --mode, which relaunch; "in-place" is the default.
func modes() []string {
	if all := strings.Fields(os.Getenv("GPURUN_PLANNER_MODES")); len(all) > 0 {
		return all
	}
	return []string{"ladder", "predict"}
}

// freshFlag is --fresh, or nothing for a gpurun that does not remember.
func freshFlag(t *testing.T) []string {
	t.Helper()
	text, err := exec.CommandContext(t.Context(), binary(t), "help", "run").Output()
	testenv.Check(t, err)
	if bytes.Contains(text, []byte("--fresh")) {
		return []string{"--fresh"}
	}
	return nil
}

// warm imports once what the jobs import, so that the first of them does not pay for the
// disk.
func warm(t *testing.T, python string, installed map[string]string, all []contest) {
	t.Helper()
	modules := []string{"torch"}
	for _, c := range all {
		for _, name := range c.needs {
			if installed[name] != "" && !slices.Contains(modules, name) {
				modules = append(modules, name)
			}
		}
	}
	begun := time.Now()
	cmd := exec.CommandContext(t.Context(), python, "-c", "import "+strings.Join(modules, ", ")+"\ntry:\n    from transformers import Trainer\nexcept ImportError:\n    pass")
	if text, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("import %v: %v\n%s", modules, err, tail(text, 10))
	}
	t.Logf("import %v: %.1f s", modules, time.Since(begun).Seconds())
}

// cards lends GPUs, each to one job at a time.
type cards struct {
	free chan int
	one  sync.Mutex // held while a job takes several GPUs
}

func newCards(devices []ranks.Device) *cards {
	atOnce, _ := strconv.Atoi(os.Getenv("GPURUN_PLANNER_AT_ONCE"))
	atOnce = max(atOnce, 1)
	c := &cards{free: make(chan int, len(devices)*atOnce)}
	some := strings.Fields(os.Getenv("GPURUN_PLANNER_GPUS"))
	for i := range devices {
		if len(some) == 0 || slices.Contains(some, strconv.Itoa(i)) {
			for range atOnce {
				c.free <- i
			}
		}
	}
	return c
}

// take waits for n GPUs, and returns their names for CUDA_VISIBLE_DEVICES.
func (c *cards) take(n int) (visible string, release func()) {
	c.one.Lock()
	defer c.one.Unlock()
	var taken []int
	var words []string
	for range n {
		taken = append(taken, <-c.free)
	}
	slices.Sort(taken)
	for _, k := range taken {
		words = append(words, strconv.Itoa(k))
	}
	return strings.Join(words, ","), func() {
		for _, k := range taken {
			c.free <- k
		}
	}
}

// A match is one job of a comparison.
type match struct {
	contest
	*comparison
	visible string
	longest time.Duration // of its runs so far
	trials  []trial
}

// A trial is a candidate that ran without a ceiling. Without a peak, it could not run.
type trial struct {
	plan  strategy.Plan
	peak  int64   // bytes of the allocator, of the rank that has the most
	speed float64 // samples a second
}

// play searches the candidates, and compares both modes with them.
func (m *match) play(t *testing.T) {
	written, ok := m.try(t, m.written)
	if !ok {
		t.Fatal("the job as it is written does not train")
	}
	m.search(t, int64(slices.Min(m.shares)*float64(written.peak)))
	t.Log("candidates without a ceiling:\n" + m.listed())
	for _, share := range m.shares {
		ceiling := int64(share * float64(written.peak))
		best, fits := m.best(ceiling)
		if !fits {
			m.row(t, fmt.Sprintf("| %s | %.2f (%.2f) | no candidate fits |", m.name, gib(float64(ceiling)), share))
			continue
		}
		results := map[string]rescue{}
		for _, mode := range m.modes {
			result, there := m.under(t, mode, share, ceiling, best)
			if !there {
				return
			}
			results[mode] = result
		}
		if predict, there := results["predict"]; there {
			m.judge(t, share, results["ladder"], predict, best)
		}
	}
}

// try runs a candidate as written, without a ceiling, with the allocator that gpurun would choose.
func (m *match) try(t *testing.T, plan strategy.Plan) (trial, bool) {
	t.Helper()
	c := call{dir: m.folderWith(t, plan), flags: append([]string{"--mode", "off"}, m.fresh...), env: []string{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:True"}}
	v, said, err := m.timed(t, c)
	if err != nil || v.Outcome != strategy.Trained {
		t.Logf("%s: %s %s %v\n%s", plan, v.Outcome, v.Reason, err, said)
		return trial{plan: plan}, false
	}
	a := v.last()
	m.sees(t, v, plan)
	if own := v.own.Peak; own > 0 && max(a.Peak, own) > min(a.Peak, own)*105/100 {
		t.Logf("%s: gpurun says a peak of %.2f GiB, the script itself %.2f", plan, gib(float64(a.Peak)), gib(float64(own)))
	}
	if own := v.own.Speed; own > 0 && max(a.Speed, own) > min(a.Speed, own)*1.1 {
		t.Logf("%s: gpurun says %.1f samples/s, the script itself %.1f", plan, a.Speed, own)
	}
	r := trial{plan: plan, peak: a.Peak, speed: v.own.Speed}
	m.trials = append(m.trials, r)
	return r, true
}

// timed runs gpurun on the match's GPUs, if there is time for it.
func (m *match) timed(t *testing.T, c call) (told, string, error) {
	t.Helper()
	ctx, cancel := context.WithTimeout(t.Context(), 5*time.Minute)
	defer cancel()
	if !m.deadline.IsZero() {
		if left := time.Until(m.deadline) - 15*time.Second; left < m.longest*3/2 {
			t.Skipf("%.0f s are left: the rest of %s did not run", left.Seconds(), m.name)
		}
		ctx, cancel = context.WithDeadline(ctx, m.deadline.Add(-15*time.Second))
		defer cancel()
	}
	c.python, c.toml, c.visible = m.python, m.toml, m.visible
	if c.state == "" {
		c.state = t.TempDir()
	}
	begun := time.Now()
	v, said, err := c.run(ctx, t)
	m.longest = max(m.longest, time.Since(begun))
	return v, said, err
}

// search runs the candidates. Of each kind it goes from the largest micro batch down to the first that fits
// under the lowest ceiling: a smaller one is not faster, and is never needed. Nor is a kind with changed
// numerics or offload needed if one without them fits.
func (m *match) search(t *testing.T, lowest int64) {
	t.Helper()
	for _, kind := range m.kinds {
		if best, fits := m.best(lowest); fits && m.group(best.plan) < m.group(m.written.With(kind)) {
			continue
		}
		for _, plan := range m.plans(kind) {
			r, ran := m.known(plan)
			if !ran {
				r, ran = m.try(t, plan)
			}
			if ran && float64(r.peak)*fitMargin <= float64(lowest) {
				break
			}
		}
	}
}

// known returns a candidate that has already run.
func (m *match) known(plan strategy.Plan) (trial, bool) {
	for _, r := range m.trials {
		if len(r.plan.Changed(plan)) == 0 {
			return r, true
		}
	}
	return trial{plan: plan}, false
}

// beside are knobs that may be set in addition without making it another candidate.
var beside = []strategy.Knob{strategy.Allocator, strategy.EvalBatchSize, strategy.DataloaderWorkers, strategy.PinMemory}

// trained returns the plan with which a run ended, in the knobs of the candidates. It reports false if gpurun
// also changed another knob.
func (m *match) trained(v told) (plan strategy.Plan, candidate bool) {
	turned := strategy.Plan{}
	for _, a := range v.Attempts[:len(v.Attempts)-1] {
		for knob, pair := range a.Changed {
			turned[knob] = pair[1]
		}
	}
	turned = turned.Using(v.last().Untaken)
	candidate = true
	for knob := range turned {
		if m.written[knob] == "" && !slices.Contains(beside, knob) {
			candidate = false
		}
	}
	for _, knob := range beside {
		delete(turned, knob)
	}
	return m.written.With(turned), candidate
}

// best is the candidate that should be chosen under a ceiling: the fastest with unchanged
// numerics and no offload, else with changed numerics and no offload, else with offload.
func (m *match) best(ceiling int64) (trial, bool) {
	fastest := map[int]trial{}
	for _, r := range m.trials {
		group := m.group(r.plan)
		if float64(r.peak)*fitMargin <= float64(ceiling) && r.speed > fastest[group].speed {
			fastest[group] = r
		}
	}
	for group := range 3 {
		if r, there := fastest[group]; there {
			return r, true
		}
	}
	return trial{}, false
}

// group is a plan's rank in the search for the best: 0 unchanged numerics and no offload, 1 changed numerics,
// 2 offload.
func (m *match) group(plan strategy.Plan) int {
	if v := plan[strategy.OffloadOptimizer]; v != "" && v != "none" {
		return 2
	}
	if plan[strategy.Precision] != m.written[strategy.Precision] {
		return 1
	}
	return 0
}

// listed returns the trials as a table.
func (m *match) listed() string {
	var text strings.Builder
	text.WriteString("| plan | peak GiB | samples/s |\n|---|---|---|\n")
	for _, r := range m.trials {
		fmt.Fprintf(&text, "| %s | %.2f | %.1f |\n", short(r.plan), gib(float64(r.peak)), r.speed)
	}
	return text.String()
}

// short describes a plan briefly: "16×1 full zero2".
func short(plan strategy.Plan) string {
	words := []string{fmt.Sprintf("%s×%s", plan[strategy.MicroBatchSize], plan[strategy.GradientAccumulationSteps])}
	if plan[strategy.MicroBatchSize] == "" {
		words = nil
	}
	for _, knob := range []strategy.Knob{strategy.ActivationCheckpointing, strategy.Precision, strategy.Attention, strategy.Sharding} {
		if v := plan[knob]; v != "" {
			words = append(words, string(v))
		}
	}
	for _, knob := range []strategy.Knob{strategy.OffloadOptimizer, strategy.OffloadParam, strategy.OffloadActivations} {
		if v := plan[knob]; v != "" && v != "none" {
			words = append(words, fmt.Sprintf("%s=%s", knob, v))
		}
	}
	return strings.Join(words, " ")
}

// A rescue is the result of a job under a ceiling.
type rescue struct {
	told
	ratio float64 // of the best candidate's throughput
}

// under runs the job as written under a ceiling, and writes its row. There is no rescue if nothing trained.
func (m *match) under(t *testing.T, mode string, share float64, ceiling int64, best trial) (rescue, bool) {
	t.Helper()
	flags := []string{"--mode", mode, "--no-in-place"}
	if mode == "in-place" {
		flags = nil
	}
	c := call{dir: m.folderWith(t, m.written), flags: slices.Concat(flags, []string{"--numerics", "mixed-precision", "--device-memory", strconv.FormatInt(ceiling>>20, 10) + "MiB"}, m.fresh)}
	v, said, err := m.timed(t, c)
	t.Logf("%s at %.2f:\n%s", mode, share, said)
	if err != nil || len(v.Attempts) == 0 {
		t.Errorf("%s at %.2f: %s after %d attempts, %v", mode, share, v.Outcome, len(v.Attempts), err)
		return rescue{}, false
	}
	a, got := v.last(), rescue{told: v}
	plan, candidate := m.trained(v)
	speed := v.own.Speed
	if r, there := m.known(plan); there && candidate {
		speed = r.speed // measured as the best one was
	}
	if v.Outcome == strategy.Trained {
		got.ratio = speed / best.speed
	}
	predicted := "–"
	if len(a.Predicted) == 2 {
		predicted = fmt.Sprintf("%.2f–%.2f", gib(float64(a.Predicted[0])), gib(float64(a.Predicted[1])))
	}
	m.row(t, fmt.Sprintf("| %s | %.2f (%.2f) | %s | %d%s | %.1f | %s | %s, %.2f | %.1f | %.3f | %s: %.1f, %.2f GiB |", m.name, gib(float64(ceiling)), share, mode,
		len(v.Attempts), map[bool]string{false: ", " + string(v.Outcome)}[v.Outcome == strategy.Trained], v.lost().Seconds(),
		short(plan), predicted, gib(float64(a.Peak)), speed, got.ratio, short(best.plan), best.speed, gib(float64(best.peak))))
	return got, true
}

// judge checks the planner's promises.
func (m *match) judge(t *testing.T, share float64, ladder, predict rescue, best trial) {
	t.Helper()
	if predict.Outcome != strategy.Trained {
		t.Errorf("at %.2f the planner did not train: %s", share, predict.Reason)
		return
	}
	if ladder.Outcome == strategy.Trained && len(predict.Attempts) > len(ladder.Attempts) {
		t.Errorf("at %.2f the planner took %d attempts, the ladder %d", share, len(predict.Attempts), len(ladder.Attempts))
	}
	switch {
	case predict.ratio < leastRatio:
		t.Errorf("at %.2f the planner's plan has %.3f of the throughput of %s", share, predict.ratio, short(best.plan))
	case predict.ratio < tellRatio:
		t.Logf("at %.2f the planner's plan has %.3f of the throughput of %s", share, predict.ratio, short(best.plan))
	}
	a := predict.last()
	switch {
	case len(a.Predicted) != 2:
		t.Logf("at %.2f the plan that trained carries no prediction", share)
	case float64(a.Peak) > 1.02*float64(a.Predicted[1]):
		t.Logf("at %.2f under-predicted: measured %.2f GiB, bound %.2f", share, gib(float64(a.Peak)), gib(float64(a.Predicted[1])))
	}
}

// A job has its GPUs alone until it returns them.
func TestCardsAreHandedOutOnce(t *testing.T) {
	c := newCards(make([]ranks.Device, 3))
	two, giveTwo := c.take(2)
	one, giveOne := c.take(1)
	if two != "0,1" || one != "2" {
		t.Errorf("took %q and %q", two, one)
	}
	giveOne()
	giveTwo()
	if all, _ := c.take(3); all != "0,1,2" {
		t.Errorf("took %q once all were back", all)
	}
}

// The best candidate: unchanged numerics first, then no offload, and it must fit with a margin.
func TestBestCandidate(t *testing.T) {
	of := func(micro int, more strategy.Plan, peak int64, speed float64) trial {
		at := strategy.Plan{strategy.Precision: "fp32", strategy.GradientAccumulationSteps: strategy.Number(16 / micro)}
		return trial{plan: asWritten(micro, at).With(more), peak: peak, speed: speed}
	}
	m := &match{contest: contest{written: asWritten(16, strategy.Plan{strategy.Precision: "fp32"})}, trials: []trial{
		of(16, nil, 1000, 10), of(8, nil, 600, 9), of(16, strategy.Plan{strategy.ActivationCheckpointing: "full"}, 500, 7),
		of(16, strategy.Plan{strategy.Precision: "bf16"}, 400, 30), of(16, strategy.Plan{strategy.OffloadOptimizer: "cpu"}, 100, 50),
	}}
	for ceiling, want := range map[int64]int{1021: 0, 1019: 1, 611: 2, 509: 3, 401: 4} {
		if got, fits := m.best(ceiling); !fits || got.speed != m.trials[want].speed {
			t.Errorf("under %d the best is %s (%v), want %s", ceiling, got.plan, fits, m.trials[want].plan)
		}
	}
	if got, fits := m.best(101); fits {
		t.Errorf("under 101 the best is %s", got.plan)
	}
	turn := func(changes strategy.Changes) told {
		return told{Attempts: []toldAttempt{{Changed: changes}, {}}}
	}
	smaller := strategy.Changes{strategy.MicroBatchSize: {"16", "8"}, strategy.GradientAccumulationSteps: {"1", "2"}, strategy.Allocator: {"default", "expandable"}}
	plan, candidate := m.trained(turn(smaller))
	if r, there := m.known(plan); !candidate || !there || r.speed != 9 {
		t.Errorf("%s, a candidate: %v", plan, candidate)
	}
	if plan, candidate := m.trained(turn(strategy.Changes{strategy.Attention: {"eager", "sdpa"}})); candidate {
		t.Errorf("%s is no candidate: attention is none of its knobs", plan)
	}
}
