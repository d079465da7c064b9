package strategy

import (
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A remedy lists what a rung could change in the plan of the last attempt, the
// gentlest first, or says why it cannot change anything.
type remedy func(s *situation) (changes []Plan, reason string)

// wait changes nothing. Before any attempt it is possible; a walk begins where an attempt
// failed for another reason than memory that somebody else holds.
func wait(s *situation) ([]Plan, string) {
	if len(s.history) == 0 {
		return []Plan{{}}, ""
	}
	return nil, "no other process holds the memory"
}

// cannot says why the job cannot turn a knob; empty where it can.
func (s *situation) cannot(k Knob) string {
	r, known := s.job.Knobs[k]
	switch {
	case !known:
		return fmt.Sprintf("gpurun does not know where the job sets %s", k)
	case r.Absent != "":
		return r.Absent
	case s.doubts[k] != "":
		return s.doubts[k]
	case k == MicroBatchSize && lossSeen(s.all).Scale == ScaleWrong:
		return lossSeen(s.all).wrong()
	case r.By == ByHook && s.unturnable(k) != "":
		return s.unturnable(k)
	case s.unconfirmed(k) != "":
		return s.unconfirmed(k)
	case s.current(k) == "":
		return fmt.Sprintf("the current %s is not known", k)
	}
	return ""
}

// beyond lists the values of a knob that come after its current one in the
// vocabulary and that the job accepts.
func (s *situation) beyond(k Knob) []Value {
	words := k.words()
	at := slices.Index(words, s.current(k))
	var next []Value
	for _, v := range words[at+1:] {
		if s.job.Knobs[k].Allows(v) {
			next = append(next, v)
		}
	}
	return next
}

// stepRemedy goes through the values of one knob, one after the other.
func stepRemedy(k Knob) remedy {
	return func(s *situation) ([]Plan, string) {
		if reason := s.cannot(k); reason != "" {
			return nil, reason
		}
		next := s.beyond(k)
		if len(next) == 0 {
			return nil, fmt.Sprintf("%s is already %s", k.Short(), s.current(k))
		}
		return singles(k, next), ""
	}
}

func singles(k Knob, values []Value) []Plan {
	plans := make([]Plan, 0, len(values))
	for _, v := range values {
		plans = append(plans, Plan{k: v})
	}
	return plans
}

// attention leaves kernels that materialise the scores; it never trades one
// kernel that does not for another.
func attention(s *situation) ([]Plan, string) {
	if reason := s.cannot(Attention); reason != "" {
		return nil, reason
	}
	if now := s.current(Attention); now != "eager" {
		return nil, fmt.Sprintf("attention is already %s", now)
	}
	next := s.beyond(Attention)
	if len(next) == 0 {
		return nil, "the job has no other attention kernel"
	}
	return singles(Attention, next[:1]), ""
}

func smallerBatch(s *situation) ([]Plan, string) {
	if s.diagnosis.Phase == cause.Eval && !s.evaluatesAlike() {
		return halve(s, EvalBatchSize)
	}
	if reason := s.cannot(MicroBatchSize); reason != "" {
		return nil, reason
	}
	accumulation, known := s.job.Knobs[GradientAccumulationSteps]
	if !known || accumulation.Absent != "" {
		reason := "gradient accumulation cannot be raised, so the global batch would change"
		if accumulation.Absent != "" {
			reason += ": " + accumulation.Absent
		}
		return nil, reason
	}
	if accumulation.Scope != ScopeDerived && s.plan[GradientAccumulationSteps] == "" {
		return nil, "the current gradient accumulation is not known, so the global batch would change"
	}
	now, _ := batchOf(s.plan, s.job)
	floor := max(s.job.Knobs[MicroBatchSize].Min, 1)
	if now.micro <= floor {
		return nil, fmt.Sprintf("the micro batch is at its minimum of %d", floor)
	}
	if now.vast() {
		return nil, fmt.Sprintf("a micro batch of %d with accumulation %d is too large to be split up", now.micro, now.accumulation)
	}
	var plans []Plan
	for _, b := range now.smaller(floor) {
		if limit := accumulation.Max; limit == 0 || b.accumulation <= limit {
			plans = append(plans, b.plan())
		}
	}
	if len(plans) == 0 {
		return nil, fmt.Sprintf("no smaller micro batch of at least %d keeps the global batch whole", floor)
	}
	return plans, ""
}

// evaluatesAlike reports whether an evaluation has the training's micro batch, and no setting
// of its own: its framework says so, or the job's processes called the model with as many
// samples in both.
func (s *situation) evaluatesAlike() bool {
	r, known := s.job.Knobs[EvalBatchSize]
	if known && r.Absent == "" {
		return false
	}
	alike := r.Follows == MicroBatchSize
	for _, a := range s.history {
		for _, m := range a.Measured {
			if m.EvaluationBatch == 0 || m.Batch == 0 || r.Follows != "" {
				continue
			}
			if alike = m.EvaluationBatch == m.Batch; !alike {
				return false
			}
		}
	}
	return alike
}

// halve lists half of a whole-number knob, and half of that, down to its minimum.
func halve(s *situation, k Knob) ([]Plan, string) {
	if reason := s.cannot(k); reason != "" {
		return nil, reason
	}
	n, whole := s.plan.Number(k)
	if !whole {
		return nil, fmt.Sprintf("the current %s is not a whole number", k)
	}
	floor := max(s.job.Knobs[k].Min, 1)
	var plans []Plan
	for n /= 2; n >= floor; n /= 2 {
		plans = append(plans, Plan{k: Number(n)})
	}
	if len(plans) == 0 {
		return nil, fmt.Sprintf("%s is at its minimum", k)
	}
	return plans, ""
}

func lowerPrecision(s *situation) ([]Plan, string) {
	if reason := s.cannot(Precision); reason != "" {
		return nil, reason
	}
	r := s.job.Knobs[Precision]
	if now := s.current(Precision); now != "fp32" && now != "tf32" {
		return nil, fmt.Sprintf("precision is already %s", now)
	}
	if phase := s.diagnosis.Phase; (phase == cause.Load || phase == cause.Optimizer) && !r.Weights {
		return nil, "it would not change the dtype of the weights, and no activations are live"
	}
	switch {
	case s.inventory.BF16 && r.Allows("bf16"):
		return []Plan{{Precision: "bf16"}}, ""
	case r.Allows("fp16"):
		return []Plan{{Precision: "fp16"}}, ""
	case r.Allows("bf16"):
		return nil, "the device does not compute in bfloat16, and the job has no fp16 with loss scaling"
	}
	return nil, "the job has no 16-bit precision"
}

func shard(s *situation) ([]Plan, string) {
	if reason := s.cannot(Sharding); reason != "" {
		return nil, reason
	}
	if s.job.DataParallel < 2 {
		return nil, "there is only one data-parallel rank"
	}
	if s.plan[Sharding] == "fsdp" {
		return nil, "sharding is already fsdp"
	}
	next := s.beyond(Sharding)
	if s.plan[Sharding] != "none" {
		next = slices.DeleteFunc(next, func(v Value) bool { return v == "fsdp" }) // another family: the job would need other code
	}
	if len(next) == 0 {
		return nil, fmt.Sprintf("sharding is already %s", s.plan[Sharding])
	}
	return singles(Sharding, next), ""
}

func leanerOptimizer(s *situation) ([]Plan, string) {
	if reason := s.cannot(Optimizer); reason != "" {
		return nil, reason
	}
	if off := s.plan[OffloadOptimizer]; off != "" && off != "none" {
		return nil, "the optimizer is offloaded, and cannot be replaced there"
	}
	var next []Plan
	for _, v := range []Value{"adamw-8bit", "paged-adamw-8bit", "adafactor"} {
		if v != s.plan[Optimizer] && slices.Contains(s.job.Knobs[Optimizer].Values, v) {
			next = append(next, Plan{Optimizer: v})
		}
	}
	if len(next) == 0 || s.plan[Optimizer] == "adafactor" || s.plan[Optimizer] == "sgd" {
		return nil, fmt.Sprintf("the job has no leaner optimizer than %s", s.plan[Optimizer])
	}
	return next, ""
}

func shorterSequence(s *situation) ([]Plan, string) { return halve(s, SequenceLength) }
