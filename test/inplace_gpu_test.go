package test

import (
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/strategy"
)

// inPlaceHead has the columns of TestInPlaceOnAGPU's table.
const inPlaceHead = "| job | ceiling GiB (of the untouched peak) | attempts | done again: remedy, phase, step, times, seconds | s lost; longer than the untouched step: s, in ordinary steps | step s: untouched, rescued | peak GiB | largest difference of a loss (of two untouched runs) |\n|---|---|--:|---|--:|---|--:|---|"

// inPlaceShares are the ceilings of TestInPlaceOnAGPU as shares of what the untouched job needs.
func inPlaceShares(t *testing.T) []float64 {
	if os.Getenv("GPURUN_PLANNER_SHARES") == "" {
		return []float64{.85, .6}
	}
	return shares(t)
}

// TestInPlaceOnAGPU trains the jobs of TestInside and TestPlanner under ceilings, with steps done again in
// place. GPURUN_INSIDE and GPURUN_PLANNER select jobs ("-": none), GPURUN_PLANNER_SHARES the ceilings.
func TestInPlaceOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	chosen, table := strings.Fields(os.Getenv("GPURUN_INSIDE")), []string{inPlaceHead}
	rescued, failures := 0, 0
	count := func(attempts int) {
		failures++
		if attempts == 1 {
			rescued++
		}
	}
	for _, s := range insides {
		if len(chosen) > 0 && !slices.Contains(chosen, s.name) || s.batch {
			continue
		}
		t.Run(s.name, func(t *testing.T) {
			if why := (scene{gpus: max(s.gpus, 1), needs: append(s.needs, "torch")}).lacks(installed, len(devices)); why != "" {
				t.Skip(why)
			}
			table = append(table, s.again(t, python, count)...)
		})
	}
	m := comparison{python: python, fresh: freshFlag(t), cards: newCards(devices)}
	m.deadline, _ = t.Deadline()
	chosen = strings.Fields(os.Getenv("GPURUN_PLANNER"))
	for _, c := range contests() {
		if len(chosen) > 0 && !slices.Contains(chosen, c.name) {
			continue
		}
		t.Run(c.name, func(t *testing.T) {
			if why := c.lacks(installed, len(devices)); why != "" {
				t.Skip(why)
			}
			visible, release := m.cards.take(c.gpus)
			defer release()
			table = append(table, (&match{contest: c, comparison: &m, visible: visible}).again(t, count)...)
		})
	}
	t.Logf("%d of %d failures were rescued in the first attempt\n%s", rescued, failures, strings.Join(table, "\n"))
	if rescued*10 < failures*8 {
		t.Errorf("%d of %d failures were rescued in the first attempt, fewer than 80 %%", rescued, failures)
	}
}

// TestCostOnAGPU trains 300 steps without gpurun and with it, three times in turn, while nothing fails.
func TestCostOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	job := inside{name: "gpt", env: []string{"LONG=1"}}
	dir, line := copyOf(t, filepath.Join("testdata", "inside")), []string{python, "gpt.py"}
	table := []string{"| median step, ms: untouched | with gpurun | ratio | largest difference of a loss |\n|--:|--:|--:|--:|"}
	for range 3 {
		untouched := job.script(t, dir, line)
		watched, v := job.rescue(t, dir, line, "70GiB", "--fresh")
		if t.Failed() || len(v.Attempts) != 1 || len(v.Attempts[0].InPlace) > 0 {
			t.Fatalf("%+v", v.Attempts)
		}
		before, with := 1e3*median(untouched.Each[20:]), 1e3*median(watched.Each[20:])
		table = append(table, fmt.Sprintf("| %.3f | %.3f | %.4f | %.2g |", before, with, with/before, apart(watched, untouched)))
	}
	t.Log("\n" + strings.Join(table, "\n"))
}

// again runs a job of TestInside twice without gpurun, then under each ceiling. It returns its lines of the table.
func (s inside) again(t *testing.T, python string, count func(attempts int)) (lines []string) {
	dir := copyOf(t, filepath.Join("testdata", "inside"))
	line := append([]string{python}, s.line...)
	if s.line[0] == "torchrun" {
		line = append([]string{python, "-m", "torch.distributed.run"}, s.line[1:]...)
	}
	untouched, other := s.script(t, dir, line), s.script(t, dir, line)
	if t.Failed() {
		return nil
	}
	for _, share := range inPlaceShares(t) {
		ceiling := untouched.Peak*share + 600<<20 // the context, and what the allocator keeps
		o, v := s.rescue(t, dir, line, fmt.Sprintf("%.0fMiB", ceiling/(1<<20)), "--fresh")
		count(len(v.Attempts))
		difference, spread := apart(o, untouched), apart(untouched, other)
		if difference > 3*spread+1e-3 {
			t.Errorf("at %.2f losses differ by %g, those of untouched runs by %g", share, difference, spread)
		}
		lines = append(lines, fmt.Sprintf("| %s | %.1f (%.2f) | %d%s | %s | %.2f; %s | %.3f, %.3f | %.2f | %.2g (%.2g) |", s.name, ceiling/(1<<30), share,
			len(v.Attempts), unlessTrained(v.Outcome), doneAgain(v), lostSeconds(v), longer(v, o, untouched), untouched.Seconds, o.Seconds, gib(o.Peak), difference, spread))
	}
	return lines
}

// again runs a job of TestPlanner without a ceiling, then under each.
func (m *match) again(t *testing.T, count func(attempts int)) (lines []string) {
	written, ok := m.try(t, m.written)
	if !ok {
		t.Fatal("the job as it is written does not train")
	}
	for _, share := range inPlaceShares(t) {
		ceiling := share*float64(written.peak) + 600<<20
		c := call{dir: m.folderWith(t, m.written), flags: append([]string{"--device-memory", strconv.Itoa(int(ceiling)>>20) + "MiB"}, m.fresh...)}
		v, said, err := m.timed(t, c)
		t.Logf("at %.2f:\n%s", share, said)
		if err != nil || len(v.Attempts) == 0 {
			t.Errorf("at %.2f: %s after %d attempts, %v", share, v.Outcome, len(v.Attempts), err)
			continue
		}
		count(len(v.Attempts))
		var again []string
		lost := v.lost().Seconds()
		for _, a := range v.Attempts {
			again = append(again, inPlaceWords(a.InPlace)...)
			lost += inPlaceSeconds(a.InPlace)
		}
		lines = append(lines, fmt.Sprintf("| %s | %.1f (%.2f) | %d%s | %s | %.2f | %.1f, %.1f samples/s | %.2f | |", m.name, ceiling/(1<<30), share,
			len(v.Attempts), unlessTrained(v.Outcome), strings.Join(again, "; "), lost, written.speed, v.own.Speed, gib(float64(v.last().Peak))))
	}
	return lines
}

func unlessTrained(o strategy.Outcome) string {
	if o == strategy.Trained {
		return ""
	}
	return ", " + string(o)
}

func doneAgain(v launcher.Verdict) string {
	var all []string
	for _, a := range v.Attempts {
		all = append(all, inPlaceWords(a.InPlace)...)
	}
	return strings.Join(all, "; ")
}

func inPlaceWords(all []strategy.InPlace) (words []string) {
	for _, e := range all {
		words = append(words, fmt.Sprintf("%s, %s, %d, %d, %.2f", e.Remedy, e.Phase, e.Step, e.Times, e.Seconds.Duration().Seconds()))
	}
	return words
}

func inPlaceSeconds(all []strategy.InPlace) (sum float64) {
	for _, e := range all {
		sum += e.Seconds.Duration().Seconds()
	}
	return sum
}

// longer is by how much the steps that were done again took longer than the same steps of the untouched job. In
// both a first step compiles kernels.
func longer(v launcher.Verdict, o, untouched outcome) string {
	if len(v.Attempts) != 1 {
		return "–"
	}
	sum, counted := 0.0, map[int]bool{}
	for _, e := range v.Attempts[0].InPlace {
		if !counted[e.Step] && e.Step < min(len(o.Each), len(untouched.Each)) {
			counted[e.Step] = true
			sum += o.Each[e.Step] - untouched.Each[e.Step]
		}
	}
	return fmt.Sprintf("%.2f, %.1f", sum, sum/untouched.Seconds)
}

// lostSeconds adds up the attempts that did not train, and the steps that were done again.
func lostSeconds(v launcher.Verdict) (sum float64) {
	for i, a := range v.Attempts {
		if i < len(v.Attempts)-1 {
			sum += a.Seconds.Duration().Seconds()
		}
		sum += inPlaceSeconds(a.InPlace)
	}
	return sum
}

func median(all []float64) float64 {
	all = slices.Sorted(slices.Values(all))
	return all[len(all)/2]
}
