package test

import (
	"fmt"
	"math"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/google/go-cmp/cmp/cmpopts"

	"github.com/gpurun/gpurun/strategy"
)

// contextBytes is the memory that a process on a GPU needs in addition to PyTorch's allocations.
const contextBytes = 700 << 20

// onGPU runs a line under gpurun, with a ceiling that is a share of the untouched job's peak.
func (r result) onGPU(t *testing.T, dir, name string, share float64, flags, line []string) launched {
	t.Helper()
	ceiling := fmt.Sprintf("%dMiB", (contextBytes+int64(share*float64(r.Peak)))>>20)
	words := append([]string{"--fresh", "--run-dir", filepath.Join(dir, name), "--device-memory", ceiling, "--no-in-place"}, flags...)
	l := runUnder(t, dir, nil, words, line)
	t.Logf("%s under %s, peak %d MiB: %s after %d attempts: %s", name, ceiling, r.Peak>>20, l.verdict.Outcome, len(l.verdict.Attempts), l.verdict.Reason)
	for _, a := range l.verdict.Attempts {
		t.Logf("  attempt %d: %s in %s, %s, changed %s", a.N, a.Cause, a.Phase, a.Training, a.Changed)
	}
	return l
}

// TestEqualTrainingOfBERT rescues BERT's classification with the Trainer and SGD, with 128 samples per micro
// batch: its train_loss equals the untouched job's, within the job's own spread.
func TestEqualTrainingOfBERT(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch", "transformers", "accelerate"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	dir := copyOf(t, filepath.Join("testdata", "equal_trainer"))
	line := func(seed int) []string {
		return append([]string{python}, trainerArguments("--width", "768", "--layers", "12", "--length", "128", "--samples", "2560", "--dropout", "0.1", "--max_steps", "20",
			"--per_device_train_batch_size", "128", "--learning_rate", "0.01", "--seed", strconv.Itoa(seed))...)
	}
	var untouched []result
	for seed := range 3 {
		l := runUnder(t, dir, nil, []string{"--fresh", "--run-dir", filepath.Join(dir, fmt.Sprint("untouched-", seed))}, line(seed))
		untouched = append(untouched, resultOf(t, l.out))
	}
	again := resultOf(t, runUnder(t, dir, nil, []string{"--fresh", "--run-dir", filepath.Join(dir, "again")}, line(0)).out)
	spread := math.Abs(again.TrainLoss - untouched[0].TrainLoss)
	losses := []float64{untouched[0].TrainLoss, untouched[1].TrainLoss, untouched[2].TrainLoss}
	t.Logf("train_loss of three seeds: %v; the first again: %v", losses, again.TrainLoss)
	for seed, r := range untouched {
		l := r.onGPU(t, dir, fmt.Sprint("rescued-", seed), .6, nil, line(seed))
		if l.verdict.Outcome != strategy.Trained || len(l.verdict.Attempts) < 2 {
			t.Errorf("%s: %s", l.verdict.Outcome, l.verdict.Reason)
			continue
		}
		got := resultOf(t, l.out)
		t.Logf("seed %d: train_loss %v, untouched %v", seed, got.TrainLoss, r.TrainLoss)
		if math.Abs(got.TrainLoss-r.TrainLoss) > max(3*spread, 1e-3*r.TrainLoss) {
			t.Errorf("seed %d: train_loss %v, untouched %v, whose spread is %v", seed, got.TrainLoss, r.TrainLoss, spread)
		}
	}
	l := untouched[0].onGPU(t, dir, "micro-batch", .6, []string{"--never", "checkpointing", "--never", "split", "--never", "precision"}, line(0))
	switch v := l.verdict; {
	case v.Outcome == strategy.Trained:
		got := resultOf(t, l.out) // different dropout, as with another seed
		if width := slices.Max(losses) - slices.Min(losses); math.Abs(got.TrainLoss-losses[0]) > max(2*width, .02*losses[0]) {
			t.Errorf("a smaller micro batch has train_loss %v, seeds have %v", got.TrainLoss, losses)
		}
	case !slices.ContainsFunc(v.Attempts[len(v.Attempts)-1].Skipped, func(s strategy.Skip) bool {
		return s.Remedy == strategy.RemedyMicroBatch && strings.Contains(s.Reason, "num_items_in_batch")
	}):
		t.Errorf("%s: %s; skipped: %v", v.Outcome, v.Reason, v.Attempts[len(v.Attempts)-1].Skipped)
	}
}

// TestEqualTrainingOfNanoGPT rescues a nanoGPT on one GPU out of its evaluation, and on two
// out of a step, where the accumulation is that of all ranks.
func TestEqualTrainingOfNanoGPT(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	for _, test := range []struct {
		name    string
		gpus    int
		line    []string
		share   float64
		phase   string
		changed string
	}{
		{"one GPU", 1, []string{"train.py", "--batch_size=64", "--gradient_accumulation_steps=1"}, .35, "eval", ""},
		{"two GPUs", 2, []string{"-m", "torch.distributed.run", "--standalone", "--nproc_per_node", "2", "train.py", "--batch_size=32", "--gradient_accumulation_steps=16"},
			.75, "", "micro batch 32→16, accumulation 16→32"},
	} {
		t.Run(test.name, func(t *testing.T) {
			if why := (scene{gpus: test.gpus, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
				t.Skip(why)
			}
			dir := copyOf(t, filepath.Join("testdata", "equal_nanogpt"))
			line := append(append([]string{python}, test.line...), "--max_iters=6", "--n_layer=4", "--n_head=12", "--n_embd=768", "--vocab_size=50304", "--block_size=512")
			untouched := runUnder(t, dir, nil, []string{"--fresh", "--run-dir", filepath.Join(dir, "untouched")}, line)
			l := resultOf(t, untouched.out).onGPU(t, dir, "rescued", test.share, []string{"--never", "checkpointing", "--never", "split", "--never", "precision"}, line)
			if l.verdict.Outcome != strategy.Trained || len(l.verdict.Attempts) < 2 {
				t.Fatalf("%s after %d attempts: %s\n%s", l.verdict.Outcome, len(l.verdict.Attempts), l.verdict.Reason, tail([]byte(l.errs), 30))
			}
			if first := l.verdict.Attempts[0]; test.phase != "" && string(first.Phase) != test.phase || !strings.HasPrefix(first.Changed.String(), test.changed) {
				t.Errorf("attempt 0 ended in %s, changed %s", first.Phase, first.Changed)
			}
			want, got := iterationLosses(t, untouched.out, 6), iterationLosses(t, l.out, 6)
			t.Logf("losses: untouched %v, rescued %v", want, got)
			if diff := cmp.Diff(want, got, cmpopts.EquateApprox(1e-3, 0)); diff != "" || len(want) != 6 {
				t.Errorf("losses (-untouched +rescued):\n%s", diff)
			}
			for _, one := range []launched{untouched, l} {
				if at := falseEffect.FindString(one.errs); at != "" {
					t.Errorf("gpurun says that the accumulation %s:\n%s", at, tail([]byte(one.errs), 30))
				}
			}
		})
	}
}
