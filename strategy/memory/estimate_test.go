package memory

import (
	"math"
	"testing"

	"pgregory.net/rapid"

	_ "github.com/gpurun/gpurun/test/testenv"
)

const gb = 1e9

// States are weights, gradients and optimizer: the parts that ZeRO divides.
func (p Parts) States() int64 { return p.Weights + p.Gradients + p.Optimizer }

// about reports whether a figure is another within a share of it.
func about(got int64, want, within float64) bool { return math.Abs(float64(got)/want-1) <= within }

// Table 1 of the ZeRO paper: GB of model states on one of N GPUs, Adam in mixed precision.
func TestZeROPaperTable(t *testing.T) {
	for _, row := range []struct {
		parameters       int64
		n                int
		zero1, zero2, z3 float64
	}{
		{7_500_000_000, 1, 120, 120, 120},
		{7_500_000_000, 4, 52.5, 41.3, 30},
		{7_500_000_000, 16, 35.6, 21.6, 7.5},
		{7_500_000_000, 64, 31.4, 16.6, 1.88},
		{7_500_000_000, 1024, 30.1, 15.1, 0.12},
		{128_000_000_000, 64, 536, 284, 32},
		{1_000_000_000_000, 1024, 4011, 2013, 15.6},
	} {
		for sharding, want := range map[string]float64{"zero1": row.zero1, "zero2": row.zero2, "zero3": row.z3} {
			e := Estimate(OfSize(row.parameters), RankPlan{Compute: "fp16", Weights: "fp16", DeepSpeed: true, Sharding: sharding, DataParallel: row.n, Sequence: 1, Optimizer: "adamw"})
			if got := e.Instants.Most.States(); !about(got, want*gb, 0.025) {
				t.Errorf("%d parameters, %s over %d: %.2f GB, the paper says %.2f", row.parameters, sharding, row.n, float64(got)/gb, want)
			}
		}
	}
}

// Published bytes per parameter: 16 in fp32, 18 with autocast (its 16-bit copy), 8 in pure
// bfloat16, 16 with DeepSpeed. Of Adam's states for 7 billion: 56 GB in fp32, 28 in bfloat16, 14
// of 8-bit Adam and 84 with DeepSpeed's master copy.
func TestBytesPerParameter(t *testing.T) {
	for _, c := range []struct {
		plan   RankPlan
		states float64 // bytes for each parameter: weights, gradients and optimizer
		adam   float64 // GB of the optimizer
	}{
		{RankPlan{Weights: "fp32", Compute: "fp32", Optimizer: "adamw"}, 16, 56},
		{RankPlan{Weights: "fp32", Compute: "bf16", Optimizer: "adamw"}, 18, 56},
		{RankPlan{Weights: "bf16", Compute: "bf16", Optimizer: "adamw"}, 8, 28},
		{RankPlan{Weights: "bf16", Compute: "bf16", DeepSpeed: true, Optimizer: "adamw"}, 16, 84},
		{RankPlan{Weights: "fp32", Compute: "fp32", DeepSpeed: true, Sharding: "zero1", Optimizer: "adamw"}, 20, 84},
		{RankPlan{Weights: "fp32", Compute: "bf16", Optimizer: "adamw-8bit"}, 12.03, 14},
		{RankPlan{Weights: "fp32", Compute: "fp32", Optimizer: "sgd"}, 8, 0},
		{RankPlan{Weights: "fp32", Compute: "fp32", Optimizer: "momentum"}, 12, 28},
		{RankPlan{Weights: "fp32", Compute: "fp32", Optimizer: "adafactor"}, 8, 0.07},
	} {
		c.plan.Sequence = 1
		a := Architecture{Parameters: 7_000_000_000, Layers: 32, Hidden: 4096, Heads: 32, Intermediate: 11008, Vocabulary: 100, Gated: true}
		most := Estimate(a, c.plan).Instants.Most
		if !about(most.States(), c.states*7*gb, 0.01) || c.adam > 0 && !about(most.Optimizer, c.adam*gb, 0.02) || c.adam == 0 && most.Optimizer != 0 {
			t.Errorf("%+v: %.1f GB of states, want %.1f; of the optimizer %.2f, want %.2f", c.plan, float64(most.States())/gb, c.states*7, float64(most.Optimizer)/gb, c.adam)
		}
	}
}

// Published figures of whole models: Llama-3.1-8B from 8 to 128 GPUs under FSDP frees 14 GiB of
// states by the law of partition (15.0 to 15.4 measured by torchtitan); activations of 8B at 32k
// tokens are 7 GiB per layer, 8 GiB of checkpoints in all, 240 GiB without; MPT-7B at 2048 on 8 ×
// 80 GB fits micro batch 6 but not 8.
func TestPublishedFigures(t *testing.T) {
	const gib = 1 << 30
	llama := llama8B
	fsdp := func(n int) int64 {
		return Estimate(llama, RankPlan{Weights: "fp32", Compute: "bf16", Sharding: "fsdp", DataParallel: n, Sequence: 8192, Optimizer: "adamw"}).Instants.Optimizer.States()
	}
	if freed := fsdp(8) - fsdp(128); !about(freed, 14.0*gib, 0.01) {
		t.Errorf("8 to 128 GPUs free %.1f GiB", float64(freed)/gib)
	}
	long := RankPlan{Weights: "bf16", Compute: "bf16", Sequence: 32768, MicroBatch: 1}
	if each := block(llama.filled(), long.Usual()); !about(int64(each), 7*gib, 0.10) {
		t.Errorf("%.1f GiB a layer at 32k", each/gib)
	}
	if whole := 32 * block(llama.filled(), long.Usual()); !about(int64(whole), 240*gib, 0.20) {
		t.Errorf("%.0f GiB without checkpointing", whole/gib)
	}
	if kept := 32 * hidden(llama, long); !about(int64(kept), 8*gib, 0.01) {
		t.Errorf("%.1f GiB of checkpoints", kept/gib)
	}
	mpt := Architecture{Parameters: 6_650_000_000, Layers: 32, Hidden: 4096, Heads: 32, Vocabulary: 50432, Tied: true}
	for micro, fits := range map[int]bool{6: true, 8: false} {
		e := Estimate(mpt, RankPlan{Weights: "fp32", Compute: "bf16", Sharding: "fsdp", DataParallel: 8, Sequence: 2048, MicroBatch: micro, Optimizer: "adamw-fused"})
		e16 := activations(mpt.filled(), RankPlan{Weights: "bf16", Compute: "bf16", Sequence: 2048, MicroBatch: micro}.Usual(), 1)
		need := e.Instants.Forward.States() - e.Instants.Forward.Gradients + share(mpt.Parameters, 4, 8) + e16.held + e.Outside
		if got := need <= e.Cards[3].Bytes; got != fits {
			t.Errorf("MPT-7B, micro batch %d: %.1f GiB", micro, float64(need)/gib)
		}
	}
}

var (
	llama7B  = Architecture{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 32, Intermediate: 11008, Vocabulary: 32000, Gated: true}
	llama8B  = Architecture{Layers: 32, Hidden: 4096, Heads: 32, KVHeads: 8, Intermediate: 14336, Vocabulary: 128256, Gated: true}.filled()
	gpt2Base = Architecture{Layers: 12, Hidden: 768, Heads: 12, Vocabulary: 50257, Positions: 1024, Tied: true}.filled()
)

// The largest plan that is published to fit is estimated to fit: Llama-2-7B in fp32 states on 8 ×
// 80 GB with ZeRO-3. A plan that is known to fail is estimated to fail: the same on one.
func TestCards(t *testing.T) {
	plan := RankPlan{Weights: "bf16", Compute: "bf16", DeepSpeed: true, Sharding: "zero3", DataParallel: 8, MicroBatch: 1, Sequence: 4096, Checkpointing: "full", Optimizer: "adamw"}
	if c, fits := Estimate(llama7B, plan).Smallest(); !fits || c.Gigabytes > 40 {
		t.Errorf("over 8 GPUs it fits %d GB", c.Gigabytes)
	}
	plan.DataParallel = 1
	e := Estimate(llama7B, plan)
	for _, c := range e.Cards {
		if want := c.Gigabytes >= 141; c.May != want {
			t.Errorf("on one GPU of %d GB: may fit %v with %d", c.Gigabytes, c.May, e.Mean)
		}
	}
	if len(e.Cards) != 7 || e.Cards[0].Gigabytes != 24 || e.Cards[6].Gigabytes != 192 {
		t.Errorf("cards %v", e.Cards)
	}
}

// anyPlan draws a plan that gpurun estimate accepts.
func anyPlan(t *rapid.T) RankPlan {
	p := RankPlan{
		MicroBatch: rapid.IntRange(1, 64).Draw(t, "micro"), Accumulation: rapid.IntRange(1, 3).Draw(t, "accumulation"),
		Sequence: rapid.IntRange(1, 1<<17).Draw(t, "sequence"), DataParallel: rapid.IntRange(1, 4096).Draw(t, "ranks"),
		Compute: rapid.SampledFrom([]string{"fp32", "tf32", "bf16", "fp16"}).Draw(t, "compute"), Weights: rapid.SampledFrom([]string{"fp32", "bf16"}).Draw(t, "weights"),
		DeepSpeed: rapid.Bool().Draw(t, "deepspeed"), Checkpointing: rapid.SampledFrom([]string{"none", "selective", "full"}).Draw(t, "checkpointing"),
		Attention: rapid.SampledFrom([]string{"eager", "sdpa", "flash"}).Draw(t, "attention"), Optimizer: rapid.SampledFrom(Optimizers()).Draw(t, "optimizer"),
		Sharding:         rapid.SampledFrom([]string{"none", "zero1", "zero2", "zero3", "fsdp"}).Draw(t, "sharding"),
		OffloadOptimizer: rapid.SampledFrom([]string{"none", "cpu", "nvme"}).Draw(t, "offload optimizer"), OffloadParam: rapid.SampledFrom([]string{"none", "cpu", "nvme"}).Draw(t, "offload param"),
		OffloadActivations: rapid.SampledFrom([]string{"none", "cpu"}).Draw(t, "offload activations"),
	}
	if p.DeepSpeed && p.Compute != "fp32" && p.Compute != "tf32" {
		p.Weights = p.Compute
	}
	return p
}

// figures returns all figures of an estimate in bytes.
func figures(e Estimated) map[string]int64 {
	all := map[string]int64{"mean": e.Mean, "bound": e.Bound, "host": e.Host, "nvme": e.NVMe, "outside": e.Outside}
	for name, i := range map[string]Instants{"": e.Instants, "bound ": e.Bounds} {
		for n, p := range i.All() {
			all[name+Names[n]] = p.Sum()
		}
		all[name+"weights"], all[name+"gradients"], all[name+"optimizer part"] = i.Most.Weights, i.Most.Gradients, i.Most.Optimizer
		all[name+"activations"], all[name+"buffers"] = i.Most.Activations, i.Most.Buffers
	}
	return all
}

// neverLower fails if a figure of the larger plan is lower.
func neverLower(t *rapid.T, what string, less, more Estimated) {
	was, is := figures(less), figures(more)
	for name, before := range was {
		if is[name] < before {
			t.Fatalf("%s: %s fell from %d to %d", what, name, before, is[name])
		}
	}
}

// More parameters, longer sequences and larger micro batches never lower a figure, and a bound is
// never below its mean.
func TestLargerPlansNeedMoreMemory(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan(t)
		size := int64(math.Exp(rapid.Float64Range(math.Log(1e6), math.Log(2e12)).Draw(t, "log size")))
		grown := size + int64(float64(size)*rapid.Float64Range(0, 2).Draw(t, "growth"))
		e := Estimate(OfSize(size), p)
		if e.Bound < e.Mean || e.Mean <= 0 {
			t.Fatalf("bound %d, mean %d", e.Bound, e.Mean)
		}
		neverLower(t, "more parameters", e, Estimate(OfSize(grown), p))
		longer, larger := p, p
		longer.Sequence += rapid.IntRange(1, 5000).Draw(t, "more tokens")
		larger.MicroBatch += rapid.IntRange(1, 50).Draw(t, "more samples")
		neverLower(t, "longer sequence", e, Estimate(OfSize(size), longer))
		neverLower(t, "larger micro batch", e, Estimate(OfSize(size), larger))
		for n, c := range e.Cards {
			if c.Fits && !c.May || n > 0 && e.Cards[n-1].Fits && !c.Fits {
				t.Fatalf("cards %+v", e.Cards)
			}
		}
	})
}

// More GPUs under ZeRO or FSDP never raise the bytes of the states.
func TestMoreGPUsNeverRaiseTheStates(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		p := anyPlan(t)
		if p.Sharding == "none" {
			p.Sharding = "zero1"
		}
		more := p
		more.DataParallel += rapid.IntRange(1, 5000).Draw(t, "more ranks")
		a := OfSize(rapid.Int64Range(1e6, 1e12).Draw(t, "size"))
		before, after := Estimate(a, p), Estimate(a, more)
		for n, was := range before.Instants.All() {
			if is := after.Instants.All()[n]; Names[n] != "backward" && is.States() > was.States() {
				t.Fatalf("%s: states rose from %d to %d", Names[n], was.States(), is.States())
			}
		}
		if after.Instants.Most.States() > before.Instants.Most.States() || after.Bounds.Most.States() > before.Bounds.Most.States() {
			t.Fatalf("states rose from %d to %d", before.Instants.Most.States(), after.Instants.Most.States())
		}
	})
}
