package test

import (
	"strconv"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// A night is one start of the same job, with the plans remembered from earlier starts.
type night struct {
	name   string
	share  float64 // of the written plan's peak, the ceiling
	layers string  // another number of layers, empty for the same
	flags  []string
	check  func(t *testing.T, first, v told)
}

// TestSecondNightOnGPUs starts a job again and again with the same remembered plans: unchanged, with a larger
// and a smaller model, and under other ceilings. A ceiling simulates another card, except for its name.
func TestSecondNightOnGPUs(t *testing.T) {
	python, _, devices := rescueMachine(t)
	if freshFlag(t) == nil {
		t.Skip("this gpurun remembers nothing")
	}
	m := &match{contest: contests()[0], comparison: &comparison{python: python, cards: newCards(devices)}, visible: "0"}
	m.deadline, _ = t.Deadline()
	state := t.TempDir()
	written, ok := m.try(t, m.written) // with separate remembered plans
	if !ok {
		t.Fatal("the job as it is written does not train")
	}
	dir := m.folderWith(t, m.written)
	var first told
	for _, n := range gpuNights {
		t.Run(n.name, func(t *testing.T) {
			if n.layers != "" {
				layers := option(m.toml, "--layers", nil)
				layers.write(t, dir, "20", strategy.Value(n.layers))
				defer layers.write(t, dir, strategy.Value(n.layers), "20")
			}
			ceiling := strconv.FormatInt(int64(n.share*float64(written.peak))>>20, 10) + "MiB"
			v, said, err := m.timed(t, call{dir: dir, state: state, flags: append([]string{"--mode", "predict", "--no-in-place", "--device-memory", ceiling}, n.flags...)})
			if err != nil || v.Outcome != strategy.Trained {
				t.Fatalf("%s, %v\n%s", v.Outcome, err, said)
			}
			t.Logf("%d attempts under %s, %.1f s lost: %s then %s, %.2f GiB\n%s", len(v.Attempts), ceiling, v.lost().Seconds(), short(v.Attempts[0].Plan), short(v.last().Plan), gib(float64(v.last().Peak)), ownLines([]byte(said)))
			if len(first.Attempts) == 0 {
				first = v
			}
			n.check(t, first, v)
		})
	}
}

var gpuNights = []night{
	{name: "first", share: .5, check: func(t *testing.T, _, v told) {
		if len(v.Attempts) < 2 {
			t.Error("nothing ran out of memory")
		}
	}},
	{name: "second", share: .5, check: func(t *testing.T, first, v told) {
		if len(v.Attempts) != 1 || len(first.last().Plan.Changed(v.last().Plan)) > 0 {
			t.Errorf("%d attempts with %s, the first night ended with %s", len(v.Attempts), v.last().Plan, first.last().Plan)
		}
	}},
	{name: "fresh", share: .5, flags: []string{"--fresh"}, check: func(t *testing.T, first, v told) {
		if diff := first.Attempts[0].Plan.Changed(v.Attempts[0].Plan); len(diff) > 0 || len(v.Attempts) < 2 {
			t.Errorf("%d attempts, the first with %s: not the job as written (%s)", len(v.Attempts), v.Attempts[0].Plan, diff)
		}
	}},
	{name: "larger model", share: .5, layers: "26", check: func(t *testing.T, _, v told) { atMostTwo(t, v) }},
	{name: "smaller model", share: .5, layers: "4", check: untouched},
	{name: "smaller card", share: .38, check: func(t *testing.T, _, v told) { atMostTwo(t, v) }},
	{name: "larger card", share: 1.3, check: untouched},
}

// atMostTwo checks that plans remembered from another model or card mislead at most once.
func atMostTwo(t *testing.T, v told) {
	if len(v.Attempts) > 2 {
		t.Errorf("%d attempts", len(v.Attempts))
	}
}

// untouched checks that the job runs as written if there is enough memory.
func untouched(t *testing.T, first, v told) {
	for _, knob := range []strategy.Knob{strategy.MicroBatchSize, strategy.ActivationCheckpointing} {
		if len(v.Attempts) != 1 || v.last().Plan[knob] != first.Attempts[0].Plan[knob] {
			t.Errorf("%d attempts, %s is %s, and the job as it is written, which fits, has %s", len(v.Attempts), knob, v.last().Plan[knob], first.Attempts[0].Plan[knob])
		}
	}
}
