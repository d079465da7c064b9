package hook

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
	"github.com/gpurun/gpurun/test/testenv"
)

const mib = 1 << 20

// measure runs one of the ways of testdata/measured.py and gives what was measured.
func measure(t *testing.T, way string, fails bool) memory.Measurement {
	t.Helper()
	return measureIn(t, "measured.py", way, fails)
}

// measureIn runs one of the ways of a script of testdata.
func measureIn(t *testing.T, script, way string, fails bool) memory.Measurement {
	t.Helper()
	path := needs(t)
	r := newTrial(t)
	r.orders.Script = testdata(t, script)
	out, errs, code := testenv.Warmed(t, r.job(t, path, r.orders.Script, way))
	if (code != 0) != fails || fails && !strings.Contains(errs, "can't allocate memory") {
		t.Fatalf("exit code %d:\n%s%s", code, out, errs)
	}
	r.told(t) // that nothing went wrong in the probe
	text, err := os.ReadFile(filepath.Join(r.dir, "rank0", memoryFile))
	if err != nil {
		t.Fatal(err)
	}
	m, ok := parseMeasured(text)
	if !ok {
		t.Fatalf("%s", text)
	}
	t.Logf("%s", text)
	return m
}

// near reports whether two figures differ by 4 MiB at most: the interpreter allocates, too.
func near(a, b int64) bool { return max(a-b, b-a) <= 4*mib }

// between are the differences of one mark to the next.
func between(marks []int64) (found []int64) {
	for i := range marks[1:] {
		found = append(found, marks[i+1]-marks[i])
	}
	return found
}

// What a block holds is the difference of the marks, and a list of blocks has its own.
func TestMarks(t *testing.T) {
	for way, want := range map[string]struct {
		paths  []string
		counts []int
		block  []int64 // MiB that the second block of a list, and those after it, hold: two tensors of each sample
		input  []int64 // MiB
	}{
		"plain":  {[]string{"h"}, []int{8}, []int64{16}, []int64{8}},
		"pair":   {[]string{"encoder.h", "decoder.layers"}, []int{3, 5}, []int64{8, 16}, []int64{4, 8}},
		"stages": {[]string{"stages.0", "stages.1"}, []int{2, 3}, []int64{8, 8}, []int64{4, 4}},
	} {
		t.Run(way, func(t *testing.T) {
			m := measure(t, way, false)
			if len(m.Marks) != len(want.paths) || len(m.Model.Blocks) != len(want.paths) {
				t.Fatalf("marks %+v of %+v", m.Marks, m.Model.Blocks)
			}
			for i, marks := range m.Marks {
				if b := m.Model.Blocks[i]; marks.Path != want.paths[i] || b.Path != want.paths[i] || b.Class != "Block" || b.Count != want.counts[i] || len(marks.Bytes) != want.counts[i] {
					t.Errorf("list %d: %+v of %+v", i, marks, b)
				}
				for _, n := range between(append(marks.Bytes[1:], marks.After)) {
					if !near(n, want.block[i]*mib) {
						t.Errorf("%s: a block holds %d MiB, want %d", marks.Path, n/mib, want.block[i])
					}
				}
				for j, end := range marks.Ends {
					if !near(end-marks.Bytes[j], want.block[i]*mib) || marks.Outputs[j] != want.input[i]*mib {
						t.Errorf("%s: block %d holds %d MiB at its end and returns %d", marks.Path, j, (end-marks.Bytes[j])/mib, marks.Outputs[j]/mib)
					}
				}
				if len(marks.Ends) != want.counts[i] {
					t.Errorf("%s: %d blocks ended", marks.Path, len(marks.Ends))
				}
				if marks.Input != want.input[i]*mib {
					t.Errorf("%s: input of %d", marks.Path, marks.Input)
				}
			}
			if m.Failed != "" || m.Steps == 0 || m.Start == 0 || m.First.ForwardPeak < m.First.Forward {
				t.Errorf("measured %+v", m)
			}
		})
	}
}

// Under checkpointing the blocks run again in the backward pass, which is no first forward.
func TestMarksUnderCheckpointing(t *testing.T) {
	m := measure(t, "recompute", false)
	if len(m.Marks) != 1 || len(m.Marks[0].Bytes) != 8 {
		t.Fatalf("marks %+v", m.Marks)
	}
	for _, n := range between(m.Marks[0].Bytes) {
		if !near(n, 4*mib) {
			t.Errorf("a block holds %d MiB", n/mib)
		}
	}
}

// Gradients are held while micro batches are accumulated; the calls of a step are counted.
func TestAccumulationIsMeasured(t *testing.T) {
	m := measure(t, "accumulate", false)
	if m.Calls != 3 || m.Steps != 4 || m.Batch != 1 || m.Longest != 1<<20 || !slices.Equal(m.Shape, []int{1, 1 << 20}) {
		t.Errorf("measured %+v", m)
	}
	if m.First.Micro == 0 || m.StepSeconds <= m.CallSeconds || m.CallSeconds <= 0 {
		t.Errorf("the first step %+v, a step of %g s, a call of %g s", m.First, m.StepSeconds, m.CallSeconds)
	}
}

// A loss may be made of several calls. The gradients of a step may be held in the next one: in its forward, and as
// zeros in its backward, too.
func TestGradientsThatAreHeldAreReported(t *testing.T) {
	for way, want := range map[string]struct{ linger, kept bool }{"zeroed": {true, true}, "let_go": {}, "let_go_late": {linger: true}} {
		if m := measure(t, way, false); m.Together != 2 || m.Calls != 2 || m.Linger != want.linger || m.Kept != want.kept {
			t.Errorf("%s: %d of %d calls together, linger %v, kept %v", way, m.Together, m.Calls, m.Linger, m.Kept)
		}
	}
}

// A resumed job has its optimizer's state before the first call.
func TestLoadedStateIsReported(t *testing.T) {
	for way, want := range map[string]int64{"resumes": 128 * mib, "heavy": 0} {
		if m := measure(t, way, false); m.StartStates == nil || !near(*m.StartStates, want) {
			t.Errorf("%s: %v bytes of state were loaded, want %d", way, m.StartStates, want)
		}
	}
}

// The instants of a model that is nothing but its weights: gradients and two states.
func TestPhasesAreMeasured(t *testing.T) {
	m := measure(t, "heavy", false)
	const weight = 64 * mib
	one, two := m.First, m.Second
	for name, pair := range map[string][2]int64{
		"gradients": {one.Before - one.Forward, weight}, "states": {m.States, 2 * weight}, "after the step": {one.After - one.Before, 2 * weight},
		"the second forward": {two.Forward - one.Before, 2 * weight}, "the peak of the backward": {one.BackwardPeak, one.Before},
	} {
		if !near(pair[0], pair[1]) {
			t.Errorf("%s: %d MiB, want %d", name, pair[0]/mib, pair[1]/mib)
		}
	}
	if one.OptimizerPeak < one.After || m.Peak < one.OptimizerPeak || m.Reserved != 0 || m.Total == 0 || m.Host == 0 || m.Optimizer != "Adam" {
		t.Errorf("measured %+v", m)
	}
	want := &memory.TrainedModel{
		Class: "Heavy", Parameters: 1<<24 + 41, Trainable: 1<<24 + 41, Bytes: map[string]int64{"float32": 4 * (1<<24 + 41)}, Outside: 1<<24 + 41,
		Cast: 41, CastOutside: 41, Largest: 1 << 24, Embedding: 1 << 24, Vocabulary: 10, Hidden: 4, Blocks: []memory.BlockList{},
	}
	if diff := cmp.Diff(want, m.Model); diff != "" {
		t.Error(diff)
	}
}

// Where memory runs out, the phase is reported, what was held, and how much was requested.
func TestWhereMemoryRanOut(t *testing.T) {
	for _, test := range []struct {
		way, instant string
		wanted       int64 // MiB
		room         int64 // MiB that were left when the root was first called, 0: it was not
	}{
		{"load", "load", 10, 0},
		{"forward", "forward", 16, 112},
		{"loss", "loss", 16, 104},
		{"backward", "backward", 64, 40},
		{"optimizer", "optimizer", 64, 160},
		{"evaluation", "evaluation", 64, 0},
		{"evaluation_first", "evaluation", 64, 0},
		{"later", "forward", 32, 0},
		{"quiet_forward", "forward", 4, 0},
		{"quiet_loss", "loss", 4, 0},
	} {
		t.Run(test.way, func(t *testing.T) {
			m := measure(t, test.way, true)
			if m.Failed != test.instant || m.Requested != test.wanted*mib {
				t.Fatalf("failed in %q, wanted %d MiB", m.Failed, m.Requested/mib)
			}
			if m.Allowed == 0 || m.Allocated == 0 || m.Allocated > m.Allowed+mib || m.Allocated+m.Requested < m.Allowed-4*mib {
				t.Errorf("%d MiB were held and %d more requested, of %d", m.Allocated/mib, m.Requested/mib, m.Allowed/mib)
			}
			if test.room > 0 && !near(m.Allowed-m.Start, test.room*mib) {
				t.Errorf("%d MiB were left at the start", (m.Allowed-m.Start)/mib)
			}
			if seen := m.First.Forward > 0; seen != !slices.Contains([]string{"load", "forward", "evaluation_first"}, test.way) || test.way == "evaluation" && m.First.After == 0 {
				t.Errorf("the first step %+v", m.First)
			}
			if test.way == "forward" && (len(m.Marks) != 1 || len(m.Marks[0].Bytes) != 4 || m.Marks[0].After != 0) {
				t.Errorf("the fourth block was reached: %+v", m.Marks)
			}
			if test.way == "evaluation_first" && m.EvaluationBatch != 16 {
				t.Errorf("an evaluation of %d samples", m.EvaluationBatch)
			}
		})
	}
}

// A longer input than all before has its step measured, whenever it comes.
func TestLongerInputIsMeasured(t *testing.T) {
	m := measure(t, "longer", false)
	if m.Longer.Longest != 5<<20 || m.Second.Longest != 2<<20 || m.Longer.Forward == 0 || m.Longer.Before == 0 || m.Longer.After == 0 || m.Longest != 1<<20 || m.Steps != 9 {
		t.Errorf("longer %+v of %+v", m.Longer, m)
	}
	if held := m.Longer.Forward - m.First.Forward; !near(held, 4*8*8*mib) {
		t.Errorf("a longer forward holds %d MiB more", held/mib)
	}
	for _, way := range []string{"quiet_longer", "quiet_longer_than_all"} {
		if m := measure(t, way, false); m.Longer.Longest != 5<<20 || m.Longer.Forward == 0 || m.Longer.After == 0 {
			t.Errorf("%s, after steps that are only counted: %+v", way, m.Longer)
		}
	}
}

// What a job catches itself is no failure, and what was made up before is not measured.
func TestCaughtErrorIsNoFailure(t *testing.T) {
	m := measure(t, "catches", false)
	if m.Failed != "" || m.Batch != 1 || m.Steps != 2 || len(m.Marks) != 1 || len(m.Marks[0].Bytes) != 8 || m.First.Forward == 0 {
		t.Errorf("measured %+v", m)
	}
	if m := measure(t, "catches_and_ends", false); m.Failed != "" || m.Steps != 4 {
		t.Errorf("measured %+v", m)
	}
}

// The peak of calls without gradients is that of an evaluation.
func TestEvaluationIsMeasured(t *testing.T) {
	m := measure(t, "evaluates", false)
	if m.EvaluationBatch != 20 || m.Evaluation < m.First.Forward || m.Failed != "" || m.Steps != 3 {
		t.Errorf("measured %+v", m)
	}
}

// The parameters that FSDP gathers at once are counted by unit, not by block.
func TestUnitsOfFSDPAreCounted(t *testing.T) {
	for way, want := range map[string][2]int64{"units": {2, 3}, "one_unit": {8, 0}, "plain": {}} {
		if m := measure(t, way, false).Model; m.UnitOutermost != want[0] || m.UnitLargest != want[1] {
			t.Errorf("%s: %d and %d parameters, want %d", way, m.UnitOutermost, m.UnitLargest, want)
		}
	}
}

// A job that differentiates twice is recognised, however it does it, and recomputation is refused with the reason.
// One that does not is not.
func TestSecondDerivativesAreRecognised(t *testing.T) {
	for way, want := range map[string]string{
		"penalty": "torch.autograd.grad with create_graph", "jvp": "torch.autograd.grad with create_graph", "backward_twice": "torch.autograd.backward with create_graph",
		"forward_mode": "derivatives in the forward direction", "gradient_only": "", "plain": "",
	} {
		t.Run(way, func(t *testing.T) {
			path := needs(t)
			r := newTrial(t)
			r.orders.Script = testdata(t, "measured.py")
			if out, errs, code := testenv.Warmed(t, r.job(t, path, r.orders.Script, way)); code != 0 {
				t.Fatalf("exit code %d:\n%s%s", code, out, errs)
			}
			text, err := os.ReadFile(filepath.Join(r.dir, "rank0", memoryFile))
			if err != nil {
				t.Fatal(err)
			}
			if m, ok := parseMeasured(text); !ok || m.Twice != want {
				t.Errorf("twice: %q, want %q", m.Twice, want)
			}
			said, _ := r.told(t)
			if why := said.Refused[strategy.ActivationCheckpointing]; strings.Contains(why, "differentiates twice") != (want != "") {
				t.Errorf("checkpointing is refused: %q", why)
			}
		})
	}
}

// A compiled model is left alone: its steps are reported, and their peaks.
func TestCompiledModelIsLeftAlone(t *testing.T) {
	m := measure(t, "script", false)
	if !m.Model.Compiled || len(m.Marks) > 0 || m.First.Forward != 0 || m.Steps != 5 || m.Peak == 0 || m.StepSeconds == 0 {
		t.Errorf("measured %+v", m)
	}
}

// A model that the job drops is not kept, and one that comes later is not measured.
func TestDroppedModelIsFreed(t *testing.T) {
	if m := measure(t, "forgets", false); m.Model.Blocks[0].Count != 8 || m.Steps != 4 {
		t.Errorf("measured %+v", m)
	}
}

// Of two models the one that is trained first counts, with its own optimizer's steps.
func TestFirstTrainedModelIsMeasured(t *testing.T) {
	m := measure(t, "gan", false)
	if m.Others != 12 { // a number in each of three blocks
		t.Errorf("another model of %d bytes", m.Others)
	}
	if m.Model.Blocks[0].Count != 2 || m.Calls != 1 || m.Steps != 4 || len(m.Marks[0].Bytes) != 2 {
		t.Errorf("measured %+v", m)
	}
}

// What is a convolutional net shows in its blocks: a ConvNeXt has more linear modules than
// convolutions, as a ViT has. Only that one has attention.
func TestConvolutionalModelIsRecognised(t *testing.T) {
	for way, want := range map[string]bool{"mixed": true, "patches": false} {
		if m := measureIn(t, "images.py", way, false); m.Model == nil || m.Model.Convolutional != want || m.Model.Attention == want || len(m.Model.Blocks) != 1 {
			t.Errorf("%s: %+v", way, m.Model)
		}
	}
}

// A process whose steps all use a remedy in place has measured these, and the error before as if it had ended by it. If
// only a late step uses it, that is not among the measured ones. The peak of the failed pass is no
// measurement: on the CPU, none is known then.
func TestRepeatedStepsAreMeasured(t *testing.T) {
	for rows, on := range map[string][]string{"6,6,6,6,6": {"checkpointing"}, "1,1,1,6,1,1": nil} {
		r := repeating(t, "loops.py", strategy.RemedyCheckpointing)
		r.warmed(t, r.orders.Script, rows, "55")
		text, err := os.ReadFile(filepath.Join(r.dir, "rank0", memoryFile))
		if err != nil {
			t.Fatal(err)
		}
		m, ok := parseMeasured(text)
		if !ok || m.RanOut == nil != (on == nil) {
			t.Fatalf("%s: %s", rows, text)
		}
		if !slices.Equal(m.InPlace, on) || m.Failed != "" || m.Steps < 5 || m.StepSeconds <= 0 || m.Second.After == 0 || m.Peak >= m.Allowed {
			t.Errorf("%s: %s", rows, text)
		}
		if a := m.RanOut; a != nil && (a.Failed != "forward" || a.Requested <= 0 || a.Allocated <= m.Start || m.Peak != 0 || len(a.Marks) != 1 || len(a.Marks[0].Bytes) < 2) {
			t.Errorf("%s: ran out %+v of %s", rows, a, text)
		}
	}
}

// A step that runs out of memory when it is done again, too, is no measurement of the job as written: the first
// failure is.
func TestFailedRepeatIsNoMeasurement(t *testing.T) {
	r := repeating(t, "loops.py", strategy.RemedyCheckpointing)
	if out, errs, code := testenv.Warmed(t, r.job(t, needs(t), r.orders.Script, "6,6", "32")); code == 0 {
		t.Fatalf("it fitted:\n%s%s", out, errs)
	}
	text, err := os.ReadFile(filepath.Join(r.dir, "rank0", memoryFile))
	if err != nil {
		t.Fatal(err)
	}
	m, ok := parseMeasured(text)
	if !ok || m.Failed != "backward" || m.RanOut == nil || m.RanOut.Failed != "forward" || m.First.Forward != 0 || len(m.Marks) > 0 {
		t.Errorf("%s", text)
	}
}
