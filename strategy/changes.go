package strategy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// A remedy lists the changes to the plan that a Remedy can make, the gentlest change first, or
// returns why there is none.
type changes func(s *situation) (changes []Plan, reason string)

// wait changes nothing. It is possible before the first attempt only: later, a separate rule
// handles memory that another process holds.
func wait(s *situation) ([]Plan, string) {
	if len(s.history) == 0 {
		return []Plan{{}}, ""
	}
	return nil, "no other process holds the memory"
}

// cannot returns why the job cannot change a knob; empty if it can.
func (s *situation) cannot(k Knob) string {
	r, known := s.job.Knobs[k]
	switch {
	case !known:
		return fmt.Sprintf("gpurun does not know where the job sets %s", k)
	case r.Absent != "":
		return r.Absent
	case s.doubts[k] != "":
		return s.doubts[k]
	case k == MicroBatchSize && undividable(s.all) != "":
		return undividable(s.all)
	case r.By == ByHook && s.unturnable(k) != "":
		return s.unturnable(k)
	case s.unconfirmed(k) != "":
		return s.unconfirmed(k)
	case s.current(k) == "":
		return fmt.Sprintf("the current %s is not known", k)
	}
	return ""
}

// beyond lists the values of a knob that need less memory than the current one and that the job
// accepts.
func (s *situation) beyond(k Knob) []Value {
	words := k.words()
	var next []Value
	for _, v := range words[slices.Index(words, s.current(k))+1:] {
		if s.job.Knobs[k].Allows(v) {
			next = append(next, v)
		}
	}
	return next
}

// stepRemedy tries the values of one knob, one after the other.
func stepRemedy(k Knob) changes {
	return func(s *situation) ([]Plan, string) { return s.steps(k, s.beyond(k)) }
}

// steps returns one change for each value, or the reason why there is none.
func (s *situation) steps(k Knob, values []Value) (plans []Plan, reason string) {
	if len(values) == 0 {
		return nil, fmt.Sprintf("%s is already %s", k.Short(), s.current(k))
	}
	for _, v := range values {
		plans = append(plans, Plan{k: v})
	}
	return plans, ""
}

// attention replaces a kernel that stores the scores; it never exchanges kernels that do not.
func attention(s *situation) ([]Plan, string) {
	if s.current(Attention) != "eager" {
		return s.steps(Attention, nil)
	}
	next := s.beyond(Attention)
	if len(next) == 0 {
		return nil, "the job has no other attention kernel"
	}
	return s.steps(Attention, next[:1])
}

// inParts runs each call of the model in parts of its batch, of at least one sample.
func inParts(s *situation) ([]Plan, string) {
	if s.diagnosis.Phase == cause.Eval && s.cannot(EvalBatchSize) == "" {
		return nil, "the evaluation has its own batch size"
	}
	if v := s.plan[Sharding]; v != "" && v != "none" {
		return nil, wholeModel
	}
	micro, known := s.plan.Number(MicroBatchSize)
	parts, failed := s.beyond(ForwardParts), s.partsRanOut()
	switch {
	case failed >= mostPartedFailures:
		return nil, fmt.Sprintf("%d attempts in parts of the batch ran out of memory, too", failed)
	case failed > 0 && len(parts) > 1:
		parts = parts[1:] // twice as many were no help
	}
	if known && len(parts) > 0 {
		parts = slices.DeleteFunc(parts, func(v Value) bool { n, _ := v.Number(); return n > micro })
		if len(parts) == 0 {
			return nil, fmt.Sprintf("a micro batch of %d has no more parts", micro)
		}
	}
	return s.steps(ForwardParts, parts)
}

// mostPartedFailures is the number of attempts in parts of the batch after which the memory is
// taken to be held outside of the model's calls. Each costs a relaunch.
const mostPartedFailures = 2

// partsRanOut counts the attempts in parts of the batch that ran out of memory.
func (s *situation) partsRanOut() (n int) {
	for _, a := range s.history {
		if parts, known := s.ran(a).Number(ForwardParts); known && parts > 1 && a.Diagnosis.OutOfMemory() {
			n++
		}
	}
	return n
}

// wholeModel is the reason why sharding and parts of the forward exclude each other.
const wholeModel = "each part of the batch has its own backward pass, and the ranks share gradients or parameters"

func smallerBatch(s *situation) ([]Plan, string) {
	evaluates := s.diagnosis.Phase == cause.Eval && !s.evaluatesAlike() || s.diagnosis.Phase == cause.Rollout && s.serves()
	knob := MicroBatchSize
	if evaluates {
		knob = EvalBatchSize
	}
	if reason := s.cannot(knob); reason != "" {
		return nil, reason
	}
	if evaluates {
		return halve(EvalBatchSize)(s)
	}
	accumulation, known := s.job.Knobs[GradientAccumulationSteps]
	now, _ := batchOf(s.plan, s.job)
	floor := max(s.job.Knobs[MicroBatchSize].Min, 1)
	switch {
	case !known || accumulation.Absent != "" || s.unconfirmed(GradientAccumulationSteps) != "":
		reason := "gradient accumulation cannot be raised, so the global batch would change"
		if why := cmp.Or(accumulation.Absent, s.unconfirmed(GradientAccumulationSteps)); why != "" {
			reason += ": " + why
		}
		return nil, reason
	case accumulation.Scope != ScopeDerived && s.plan[GradientAccumulationSteps] == "":
		return nil, "the current gradient accumulation is not known, so the global batch would change"
	case now.micro <= floor:
		return nil, fmt.Sprintf("the micro batch is at its minimum of %d", floor)
	case now.vast():
		return nil, fmt.Sprintf("a micro batch of %d with accumulation %d is too large to be split up", now.micro,
			now.accumulation)
	}
	plans := s.accumulable(now.smaller(floor))
	if len(plans) == 0 {
		return nil, fmt.Sprintf("no smaller micro batch of at least %d keeps the global batch whole", floor)
	}
	return plans, ""
}

// divided lists all smaller micro batches with which the global batch stays whole.
func (s *situation) divided() []Plan {
	now, _ := batchOf(s.plan, s.job)
	return s.accumulable(now.below(max(s.job.Knobs[MicroBatchSize].Min, 1)))
}

// accumulable lists the batches, as changes, whose accumulation the job accepts.
func (s *situation) accumulable(batches []batch) (plans []Plan) {
	limit := s.job.Knobs[GradientAccumulationSteps].Max
	for _, b := range batches {
		change := b.plan()
		if limit > 0 && b.accumulation > limit || !s.accepts(MicroBatchSize, change[MicroBatchSize]) ||
			!s.accepts(GradientAccumulationSteps, change[GradientAccumulationSteps]) {
			continue
		}
		plans = append(plans, change)
	}
	return plans
}

// evaluatesAlike reports whether evaluations use the training's micro batch and have no setting
// for it. It follows from the framework's recipe, or from processes that called the model with as
// many samples in both.
func (s *situation) evaluatesAlike() bool {
	r, known := s.job.Knobs[EvalBatchSize]
	if known && r.Absent == "" {
		return false
	}
	alike := r.Follows == MicroBatchSize
	for _, a := range s.history {
		for _, m := range s.job.Measured(a) {
			trains := cmp.Or(m.Batch, m.Plan.MicroBatch) // none in training was seen before the first evaluation failed
			if m.EvaluationBatch == 0 || trains == 0 || r.Follows != "" {
				continue
			}
			if alike = m.EvaluationBatch == trains; !alike {
				return false
			}
		}
	}
	return alike
}

// halve lists half of a whole-number knob, and half of that, down to its minimum.
func halve(k Knob) changes {
	return func(s *situation) (plans []Plan, reason string) {
		n, whole := s.plan.Number(k)
		if !whole {
			return nil, fmt.Sprintf("the current %s is not a whole number", k)
		}
		floor := max(s.job.Knobs[k].Min, 1)
		for n /= 2; n >= floor; n /= 2 {
			plans = append(plans, Plan{k: Number(n)})
		}
		if len(plans) == 0 {
			return nil, fmt.Sprintf("%s is at its minimum", k)
		}
		return plans, ""
	}
}

func lowerPrecision(s *situation) ([]Plan, string) {
	r := s.job.Knobs[Precision]
	now, phase := s.current(Precision), s.diagnosis.Phase
	switch {
	case now != "fp32" && now != "tf32":
		return s.steps(Precision, nil)
	case (phase == cause.Load || phase == cause.Optimizer) && !r.Weights:
		return nil, "it would not change the dtype of the weights, and no activations are live"
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
	if s.job.DataParallel < 2 {
		return nil, "there is only one data-parallel rank"
	}
	if v := s.plan[ForwardParts]; v != "" && v != "1" {
		return nil, wholeModel
	}
	next := s.beyond(Sharding)
	if s.plan[Sharding] != "none" { // FSDP in place of ZeRO would need other code
		next = slices.DeleteFunc(next, func(v Value) bool { return v == "fsdp" })
	}
	return s.steps(Sharding, next)
}

func leanerOptimizer(s *situation) ([]Plan, string) {
	if off := s.plan[OffloadOptimizer]; off != "" && off != "none" {
		return nil, "the optimizer is offloaded, and cannot be replaced there"
	}
	now := s.plan[Optimizer]
	var next []Plan
	for _, v := range []Value{"adamw-8bit", "paged-adamw-8bit", "adafactor"} {
		if v != now && slices.Contains(s.job.Knobs[Optimizer].Values, v) {
			next = append(next, Plan{Optimizer: v})
		}
	}
	if len(next) == 0 || now == "adafactor" || now == "sgd" {
		return nil, fmt.Sprintf("the job has no leaner optimizer than %s", now)
	}
	return next, ""
}

// offload moves the optimizer, or everything, to host memory. ZeRO offloads only from certain
// stages: stage 2 keeps the parameters on the device, stage 3 does not.
func offload(k Knob, stages ...Value) changes {
	return func(s *situation) ([]Plan, string) {
		switch {
		case s.job.Knobs[k].By == ByHook: // in the process, whatever shards the job
			return s.steps(k, s.beyond(k))
		case s.plan[k] != "none":
			return s.steps(k, nil)
		case !s.job.Knobs[k].Allows("cpu"):
			return nil, fmt.Sprintf("the job has no %s to host memory", k.Short())
		}
		changes := Plan{k: "cpu"}
		if s.plan[OffloadOptimizer] == "none" && s.job.Knobs[OffloadOptimizer].Allows("cpu") {
			changes[OffloadOptimizer] = "cpu"
		}
		return s.withStage(changes, stages...)
	}
}

// toNVMe moves to disk what is offloaded to host memory, or would be.
func toNVMe(s *situation) ([]Plan, string) {
	if s.policy.NVMePath == "" {
		return nil, "recovery.nvme_path is not set"
	}
	changes := Plan{}
	for _, k := range []Knob{OffloadOptimizer, OffloadParam} {
		if s.cannot(k) == "" && s.plan[k] != "nvme" && s.job.Knobs[k].Allows("nvme") {
			changes[k] = "nvme"
		}
	}
	if len(changes) == 0 {
		if reason := s.cannot(OffloadOptimizer); reason != "" {
			return nil, reason
		}
		return nil, "nothing more can be moved to NVMe"
	}
	return s.withStage(changes, "zero3")
}

// withStage adds the first of the stages to an offload if ZeRO shards the job and has none of
// them yet. A job with a switch for offload alone needs no stage.
func (s *situation) withStage(changes Plan, stages ...Value) ([]Plan, string) {
	zero := slices.ContainsFunc(zeroStages, func(stage Value) bool {
		return s.plan[Sharding] == stage || slices.Contains(s.job.Knobs[Sharding].Values, stage)
	})
	if !zero || slices.Contains(stages, s.plan[Sharding]) {
		return []Plan{changes}, ""
	}
	if v := s.plan[ForwardParts]; v != "" && v != "1" {
		return nil, wholeModel
	}
	for _, stage := range stages {
		if s.job.Knobs[Sharding].Allows(stage) {
			return []Plan{changes.With(Plan{Sharding: stage})}, ""
		}
	}
	return nil, fmt.Sprintf("it needs sharding %s, which the job does not have", stages[0])
}

// hostTooSmall returns why host memory does not take what a change moves there.
func (s *situation) hostTooSmall(change Plan) string {
	return s.tooSmall(change, "cpu", "the host", s.inventory.HostAvailable)
}

// diskTooSmall returns why the disk does not take what a change moves there.
func (s *situation) diskTooSmall(change Plan) string {
	return s.tooSmall(change, "nvme", "recovery.nvme_path", s.inventory.NVMeFree)
}

// tooSmall compares the free bytes of a place, 0 if unknown, with the bytes that the ranks of one
// node hold in tensors: an upper bound of what offload can move.
func (s *situation) tooSmall(change Plan, to Value, where string, left int64) string {
	offloads := []Knob{OffloadActivations, OffloadOptimizer, OffloadParam}
	moves := slices.ContainsFunc(offloads, func(k Knob) bool { return change[k] == to })
	if !moves || left == 0 || s.diagnosis.Allocated == nil {
		return ""
	}
	need := *s.diagnosis.Allocated * int64(max(s.job.LocalRanks, 1))
	if need <= left {
		return ""
	}
	return fmt.Sprintf("the ranks hold %s on their devices, and %s has %s left", GiB(need), where, GiB(left))
}

func fewerWorkers(s *situation) (plans []Plan, reason string) {
	n, whole := s.plan.Number(DataloaderWorkers)
	floor := s.job.Knobs[DataloaderWorkers].Min
	switch {
	case !whole:
		return nil, fmt.Sprintf("the current number of loader workers is %s", s.plan[DataloaderWorkers])
	case n == 0:
		return nil, "the job has no loader workers"
	case n <= floor:
		return nil, fmt.Sprintf("the loader workers are at their minimum of %d", floor)
	}
	for n > floor {
		n = max(n/2, floor)
		plans = append(plans, Plan{DataloaderWorkers: Number(n)})
	}
	return plans, ""
}

// undoOffload undoes the last offload, or moves it to NVMe if that is allowed.
func undoOffload(s *situation) ([]Plan, string) {
	for _, k := range []Knob{OffloadParam, OffloadOptimizer} {
		if s.cannot(k) != "" || s.plan[k] != "cpu" {
			continue
		}
		plans := []Plan{{k: "none"}}
		if nvme, _ := toNVMe(s); s.refused(RemedyNVMe) == "" && s.inventory.Missing[RemedyNVMe] == "" {
			plans = append(plans, nvme...)
		}
		return plans, ""
	}
	return nil, "no offload to host memory is known"
}
