package hook

import (
	"encoding/json"
	"fmt"
	"math"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// habitsVariable selects more than make test does: "all" tries each habit in all places, which takes long; other text,
// those habits whose names contain it.
const habitsVariable = "GPURUN_HABITS"

// A habit is an entry of testdata/habits: what training scripts change beside a model's output.
type habit struct {
	Name     string
	Once     bool // it is not tried inside the model's blocks
	Prints   bool // a pass that is done again prints again
	Compiled bool // memory does not run out in it
	Handles  bool // the job handles the error itself
	Draws    bool // parts of a batch draw other random numbers for its rows than the whole

	python, modules string
}

// eachHabit calls test for all habits, each with its number.
func eachHabit(t *testing.T, pythons []string, test func(t *testing.T, h habit, number int)) {
	for _, python := range pythons {
		list := habit{python: python}.run(t, nil)
		var all []habit
		if err := json.Unmarshal([]byte(list.out), &all); err != nil {
			t.Fatalf("%v: %s%s", err, list.out, list.errs)
		}
		wanted := os.Getenv(habitsVariable)
		for number, h := range all {
			if wanted != "" && wanted != "all" && !strings.Contains(h.Name, wanted) {
				continue
			}
			h.python, h.modules = python, t.TempDir()
			name := h.Name
			if len(pythons) > 1 {
				name += " with " + strings.Trim(strings.ReplaceAll(python, "/", "-"), "-")
			}
			t.Run(name, func(t *testing.T) {
				t.Parallel()
				test(t, h, number)
			})
		}
	}
}

// usualPython is the interpreter of make test; newerPythons are those of make transformers, which have a current PyTorch.
func usualPython(t *testing.T) []string {
	return []string{needs(t, "numpy")}
}

func newerPythons(t *testing.T) (found []string) {
	for _, python := range filepath.SplitList(os.Getenv("GPURUN_TEST_TRANSFORMERS")) {
		if has(python, "torch", "numpy") {
			found = append(found, python)
		}
	}
	if len(found) == 0 {
		t.Skip("GPURUN_TEST_TRANSFORMERS names no interpreter; make transformers installs them")
	}
	return found
}

// A habitRun is a job that has ended.
type habitRun struct {
	out, errs string
	code      int
	*trial
}

// run trains, under the hook if there are orders.
func (h habit) run(t *testing.T, orders *Orders, words ...string) habitRun {
	t.Helper()
	r := newTrial(t)
	if r.bare = orders == nil; !r.bare {
		r.orders = *orders
	}
	if h.modules != "" {
		r.modules = h.modules // the job sees PYTHONPATH
	}
	r.orders.Script = testdata(t, "habits/run.py")
	r.env = []string{"PYTHONHASHSEED=0"}
	var argv []string
	if h.Name != "" {
		argv = append([]string{h.Name}, words...)
	}
	out, errs, code := testenv.Warmed(t, r.job(t, append([]string{h.python, r.orders.Script}, argv...)...))
	return habitRun{out, errs, code, r}
}

// inPlaceOrders are the orders of a run without flags.
func inPlaceOrders(remedies ...strategy.Remedy) *Orders {
	if len(remedies) == 0 {
		remedies = []strategy.Remedy{strategy.RemedyCheckpointing, strategy.RemedySplit, strategy.RemedyLossParts}
	}
	return &Orders{Hooks: true, Record: RecordFirst, InPlace: &strategy.InPlaceOrders{Remedies: remedies, BeforeLoss: true, Optimizer: true, Allocator: true}}
}

// What a job leaves is the same with the hook as without it, bit by bit, where memory does not run out.
func TestHabitsAreUntouched(t *testing.T) {
	eachHabit(t, usualPython(t), untouchedHabit)
}

func TestTransformersHabitsAreUntouched(t *testing.T) {
	eachHabit(t, newerPythons(t), untouchedHabit)
}

func untouchedHabit(t *testing.T, h habit, number int) {
	places, everywhere := [][]string{nil, {"block", "rows=1"}}, os.Getenv(habitsVariable) != ""
	if !everywhere && number%6 != 0 {
		t.Skip("GPURUN_HABITS=all tries it")
	}
	if h.Once {
		places = places[:1]
	}
	for i, words := range places {
		if i > 0 && !everywhere {
			break
		}
		want := h.run(t, nil, words...)
		if want.code != 0 {
			t.Fatalf("%q fails by itself: %s%s", words, want.out, want.errs)
		}
		for mode, orders := range map[string]*Orders{"defaults": inPlaceOrders(), "--no-in-place": {Hooks: true, Record: RecordFirst}} {
			if mode != "defaults" && !everywhere && number%18 != 0 {
				continue
			}
			got := h.run(t, orders, words...)
			if diff := cmp.Diff(strings.Split(want.out, "\n"), strings.Split(got.out, "\n")); diff != "" || got.code != 0 {
				t.Errorf("with %s %q, exit code %d (-alone +with the hook):\n%s", mode, words, got.code, shortened(diff))
			}
			if diff := cmp.Diff(want.errs, got.errs); diff != "" {
				t.Errorf("with %s %q, on stderr (-alone +with the hook):\n%s", mode, words, shortened(diff))
			}
			got.told(t)
		}
	}
}

// shortened returns the first changed lines of a difference.
func shortened(diff string) string {
	var lines []string
	for line := range strings.Lines(diff) {
		if (strings.HasPrefix(line, "-") || strings.HasPrefix(line, "+")) && len(lines) < 8 {
			lines = append(lines, line[:min(len(line)-1, 300)])
		}
	}
	return strings.Join(lines, "\n")
}

// Where memory runs out in a forward or backward pass, a job ends as the undisturbed one, or with its own error.
func TestHabitsWhereMemoryRunsOut(t *testing.T) {
	eachHabit(t, usualPython(t), exhaustedHabit)
}

func TestTransformersHabitsWhereMemoryRunsOut(t *testing.T) {
	eachHabit(t, newerPythons(t), exhaustedHabit)
}

// A failure is where memory runs out: in the middle of a step's calls of linear(), or of its backward pass.
type failure struct {
	where string
	step  int // -1: the last
	times int // so often in a row
}

func exhaustedHabit(t *testing.T, h habit, number int) {
	if h.Compiled {
		t.Skip("memory does not run out in compiled code here")
	}
	places := [][]string{nil, {"block"}, {"rows=1"}, {"block", "rows=1"}}
	trials := [][]failure{
		{{"forward", 1, 1}, {"backward", 2, 1}}, {{"backward", 0, 1}}, {{"forward", 0, 1}}, {{"backward", 1, 1}, {"forward", -1, 1}}, {{"forward", -1, 1}},
		{{"backward", -1, 1}}, {{"forward", 1, 2}}, {{"backward", 1, 2}},
	}
	remedies := [][]strategy.Remedy{nil, {strategy.RemedyCheckpointing}, {strategy.RemedySplit}}
	if h.Once {
		places = [][]string{nil, {"rows=1"}}
	}
	if os.Getenv(habitsVariable) == "" { // one habit of five, and one of each for it
		place, trial := number/3%len(places), number/3%3
		if h.Name == "tensors.MomentumEncoderOutside" { // once, what its first steps change was not seen
			place, trial = 0, 1
		} else if number%3 != 1 || number/3%5 > 2 {
			t.Skip("GPURUN_HABITS=all tries it")
		}
		places, trials, remedies = places[place:][:1], trials[trial:][:1], remedies[:1]
	}
	for _, place := range places {
		alone := h.run(t, nil, append([]string{"places"}, place...)...)
		if alone.code != 0 {
			t.Errorf("%q fails by itself: %s%s", place, alone.out, alone.errs)
			continue
		}
		undisturbed := parseLeft(t, alone.out)
		for _, trial := range trials {
			at := undisturbed.at(trial)
			if len(at) == 0 {
				continue
			}
			for _, only := range remedies {
				words := append(slices.Clone(place), at...)
				if h.Handles {
					undisturbed = parseLeft(t, h.run(t, nil, words...).out)
				}
				ended := undisturbed.compare(t, h, h.run(t, inPlaceOrders(only...), words...))
				if ended.problem != "" {
					t.Errorf("%q with %v: %s", words, only, ended.problem)
				}
				t.Logf("%q with %v: %s", words, only, ended.how)
			}
		}
	}
}

// left is what a habit leaves: lines, and one in JSON.
type left struct {
	lines []string
	Marks []map[string]int // calls of linear(), at the end of each step
	Hits  int              // how often memory ran out
}

func parseLeft(t *testing.T, out string) (l left) {
	t.Helper()
	l.lines = strings.Split(strings.TrimSuffix(out, "\n"), "\n")
	i := slices.IndexFunc(l.lines, func(line string) bool { return strings.HasPrefix(line, `{"marks"`) })
	if i < 0 {
		t.Fatalf("printed %s", out)
	}
	if err := json.Unmarshal([]byte(l.lines[i]), &l); err != nil {
		t.Fatal(err)
	}
	l.lines = slices.Delete(l.lines, i, i+1)
	return l
}

// at returns the places of failures: in the middle of the step's calls.
func (l left) at(failures []failure) (at []string) {
	for _, f := range failures {
		step := f.step
		if step < 0 {
			step += len(l.Marks)
		}
		if step >= len(l.Marks) {
			continue
		}
		before := 0
		if step > 0 {
			before = l.Marks[step-1][f.where]
		}
		n := before + 1 + (l.Marks[step][f.where]-before)*3/5
		for i := range f.times {
			at = append(at, fmt.Sprintf("%s:%d", f.where, n+i))
		}
	}
	return at
}

// An ending is how a job ended in which memory ran out.
type ending struct{ how, problem string }

// compare judges a job by its undisturbed one.
func (l left) compare(t *testing.T, h habit, r habitRun) (e ending) {
	t.Helper()
	rank, _ := r.told(t)
	rounds, repeated := false, 0
	if rank != nil {
		for _, one := range rank.InPlace {
			repeated += one.Times
			rounds = rounds || one.Remedy != strategy.RemedyCheckpointing && one.Remedy != strategy.RemedyOffloadActivations
		}
	}
	if r.code != 0 {
		e.how = "refused"
		if rank != nil && rank.InPlaceRefused != nil {
			e.how += ": " + rank.InPlaceRefused.Reason
		}
		last := strings.TrimSpace(r.errs)
		last = last[strings.LastIndex(last, "\n")+1:]
		if !strings.Contains(last, "can't allocate memory") || strings.Contains(last, "gpurun") {
			e.problem = "it ended with another error than its own: " + last
		}
		lines := strings.Split(r.out, "\n")
		e.problem += differs(h, l.lines, lines[:len(lines)-1], rounds, true)
		return e
	}
	got := parseLeft(t, r.out)
	if e.how = fmt.Sprintf("%d repeated", repeated); rounds {
		e.how += ", equal to rounding"
	}
	switch {
	case got.Hits == 0:
		e.problem = "memory did not run out in the job's own calls"
	case !h.Handles && repeated == 0:
		e.problem = "nothing was repeated"
	default:
		e.problem = differs(h, l.lines, got.lines, rounds, false)
	}
	return e
}

// differs returns the first line in which a job differs from the undisturbed one. If it rounds, numbers may differ in
// their last digits, and digests do not count. The beginning only: the job has ended early.
func differs(h habit, want, got []string, rounds, beginning bool) string {
	if h.Prints { // what a repeated pass prints is there twice
		want, got = known(want), known(got)
	}
	if beginning {
		want = want[:min(len(want), len(got))]
	}
	if len(want) != len(got) {
		return fmt.Sprintf("%d lines in place of %d: %s", len(got), len(want), shortened(cmp.Diff(want, got)))
	}
	if rounds && h.Draws { // of a split batch only its distribution is the same, as docs/recovery.md says
		return ""
	}
	for i, line := range want {
		if line != got[i] && !(rounds && alike(strings.Fields(line), strings.Fields(got[i]))) {
			return fmt.Sprintf("it differs in silence: %q in place of %q", got[i], line)
		}
	}
	return ""
}

// known returns the lines that the harness prints.
func known(lines []string) []string {
	return slices.DeleteFunc(slices.Clone(lines), func(line string) bool {
		first, _, _ := strings.Cut(line, " ")
		return !slices.Contains([]string{"loss", "tensor", "number", "value", "generator", "size", "seen", "random", "file"}, first)
	})
}

// alike reports whether the words of two lines are equal but for the rounding of numbers, which is relative to the
// largest in the line.
func alike(one, other []string) bool {
	if len(one) != len(other) {
		return false
	}
	size := .1
	for _, word := range one {
		if f, ok := number(word); ok {
			size = max(size, math.Abs(f))
		}
	}
	for i, word := range one {
		a, isNumber := number(word)
		b, both := number(other[i])
		switch {
		case word == other[i] || strings.HasPrefix(word, "#"):
		case !isNumber || !both || !(math.Abs(a-b) <= 5e-6*size):
			return false
		}
	}
	return true
}

// number reads a number as float.hex() writes it.
func number(word string) (float64, bool) {
	if !strings.Contains(word, "0x") {
		return 0, false
	}
	f, err := strconv.ParseFloat(word, 64)
	return f, err == nil
}
