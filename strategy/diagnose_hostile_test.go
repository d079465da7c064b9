package strategy

import (
	"math/rand/v2"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestHostileTextOnManyRanks: ranks print the text of out-of-memory errors, but each ends for
// another cause, or is stopped because of a rank that does. Then none ran out of memory.
// GPURUN_SEED repeats a run.
func TestHostileTextOnManyRanks(t *testing.T) {
	random := rand.New(rand.NewPCG(testenv.Of(t), 2))
	texts := []string{oomTop, oomForward, oomCrowded, oomHuge, kernelOOM, "MemoryError\n", "epoch 3 of 10\n", "step 7 loss 0.3\n", "KeyError: 'x'\n", "\n"}
	words := []cause.Exception{
		keyError, {Class: "ValueError", Message: "bad row: " + oomTop}, {Class: "RuntimeError", Message: "CUDA error: device-side assert triggered"},
		{Class: "OSError", Message: "[Errno 28] No space left on device"}, {Class: "KeyError", Message: "'" + oomForward + "'"},
	}
	for i := range 3000 {
		ranks := 1 + random.IntN(4)
		decided := random.IntN(ranks) // this one ends by itself, whatever the others do
		var facts []Fact
		for rank := range ranks {
			text := ""
			for range 1 + random.IntN(4) {
				text += texts[random.IntN(len(texts))]
			}
			facts = append(facts, says(rank, 1+random.IntN(5), text)...)
			switch n := random.IntN(5); {
			case n == 0 && rank != decided:
				facts = append(facts, stopped(rank, 9)...)
			case n == 1:
				facts = append(facts, exits(rank, 7, []int{3, 17, 139, 135, 132}[random.IntN(5)])...)
			case n == 2:
				facts = append(append(facts, says(rank, 6, valueError)...), exits(rank, 7, 1)...)
			default:
				facts = append(append(facts, tells(rank, 6, words[random.IntN(len(words))])...), exits(rank, 7, []int{1, 139}[random.IntN(2)])...)
			}
		}
		if d := Diagnose(Evidence{Ranks: ranks, Facts: facts}); d.Cause.OutOfMemory() || d.Cause == cause.GPUOccupied || !d.Fatal {
			t.Fatalf("attempt %d: %s, fatal %v, on rank %d: %q", i, d.Cause, d.Fatal, d.Rank, d.Error)
		}
	}
}
