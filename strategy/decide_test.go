package strategy

import (
	"fmt"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// gpt is a job with the knobs of an ordinary training script.
func gpt(ranks int) Job {
	return Job{
		Ranks: ranks, LocalRanks: ranks, DataParallel: ranks,
		Knobs: map[Knob]Range{
			MicroBatchSize:            {Min: 1},
			GradientAccumulationSteps: {Min: 1},
			ActivationCheckpointing:   {Values: []Value{"none", "full"}},
			Precision:                 {Values: []Value{"fp32", "bf16"}},
			Allocator:                 {Values: []Value{"default", "expandable"}},
		},
	}
}

// generating is a job that generates samples by an engine beside the training.
func generating() Job {
	j := gpt(1)
	j.Knobs[RolloutMemory], j.Knobs[RolloutBatchSize], j.Knobs[RolloutSleep] = Range{}, Range{Min: 1}, Range{Values: []Value{"off", "on"}}
	return j
}

var engine = Plan{RolloutMemory: "0.5", RolloutBatchSize: "8", RolloutSleep: "off"}

// zero is a DeepSpeed job with all settings of ZeRO.
func zero(ranks int) Job {
	j := gpt(ranks)
	j.Knobs[ActivationCheckpointing] = Range{Absent: "the script decides"}
	j.Knobs[Sharding] = Range{Values: []Value{"none", "zero1", "zero2", "zero3"}}
	j.Knobs[OffloadOptimizer] = Range{Values: []Value{"none", "cpu", "nvme"}}
	j.Knobs[OffloadParam] = Range{Values: []Value{"none", "cpu", "nvme"}}
	return j
}

var (
	defaults = Policy{Mode: Ladder, MaxAttempts: 20, Numerics: MixedPrecision, TransientRetries: 3, RestartFromZero: Seconds(30 * time.Minute)}
	h100     = Inventory{Accelerator: "cuda", BF16: true}
	plain    = Plan{MicroBatchSize: "8", GradientAccumulationSteps: "2", ActivationCheckpointing: "none", Precision: "fp32", Allocator: "default"}
	sharded  = Plan{MicroBatchSize: "1", GradientAccumulationSteps: "8", Precision: "bf16", Sharding: "none", OffloadOptimizer: "none", OffloadParam: "none", Allocator: "expandable"}
)

func oom(phase cause.Phase) Diagnosis {
	return Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: phase, Rank: 0, ExitCode: 1, Error: "OutOfMemoryError: CUDA out of memory."}
}

func ended(n int, plan Plan, d Diagnosis) Attempt {
	start := time.Date(2026, 1, 2, 3, 0, 0, 0, time.UTC).Add(time.Duration(n) * time.Hour)
	return Attempt{N: n, Plan: plan, Diagnosis: d, Started: start, Ended: start.Add(time.Minute)}
}

func bytes(n int64) *int64 { return &n }

func TestDecide(t *testing.T) {
	host := Diagnosis{Cause: cause.HostOOM, Fatal: true, Rank: 0, ExitCode: 137}
	cpu := Diagnosis{Cause: cause.HostOOM, Fatal: true, Rank: 0, Device: "cpu", Phase: cause.Forward}
	fragmented := oom(cause.Forward)
	fragmented.Fragmented = true
	big := oom(cause.Optimizer)
	big.Allocated = bytes(70 << 30)

	tests := []struct {
		name    string
		policy  func(*Policy)
		job     Job
		history []Attempt
		inv     func(*Inventory)
		rule    string
		remedy  Remedy
		code    int
		changed string
		reason  string // a part of it
		skipped string // a part of "remedy: reason; …"
	}{
		{name: "activations: checkpointing first", job: gpt(2), history: []Attempt{ended(0, plain, oom(cause.Backward))},
			remedy: RemedyCheckpointing, changed: "checkpointing none→full, allocator default→expandable", skipped: "allocator: free: it is applied together"},
		{name: "then the micro batch, with the global batch kept", job: gpt(2),
			history: []Attempt{ended(0, plain, oom(cause.Backward)), ended(1, plain.With(Plan{ActivationCheckpointing: "full", Allocator: "expandable"}), oom(cause.Backward))},
			remedy:  RemedyMicroBatch, changed: "micro batch 8→4, accumulation 2→4", reason: "(global batch 32 kept)", skipped: "checkpointing: checkpointing is already full"},
		{name: "an odd micro batch goes to a divisor", job: gpt(1),
			history: []Attempt{ended(0, Plan{MicroBatchSize: "7", GradientAccumulationSteps: "1"}, oom(cause.Forward))},
			remedy:  RemedyMicroBatch, changed: "micro batch 7→1, accumulation 1→7"},
		{name: "a divisor of the whole, not of the micro batch", job: gpt(1),
			history: []Attempt{ended(0, Plan{MicroBatchSize: "9", GradientAccumulationSteps: "4"}, oom(cause.Forward))},
			remedy:  RemedyMicroBatch, changed: "micro batch 9→4, accumulation 4→9"},
		{name: "optimizer step: neither checkpointing nor batch nor autocast", job: zero(2), history: []Attempt{ended(0, sharded, oom(cause.Optimizer))},
			remedy: RemedyShard, changed: "sharding none→zero1", skipped: "micro-batch: the optimizer step holds no live activations"},
		{name: "one rank cannot shard, and offloads from ZeRO-2", job: zero(1), history: []Attempt{ended(0, sharded, oom(cause.Load))},
			remedy: RemedyOffloadOptimizer, changed: "sharding none→zero2, optimizer offload none→cpu", skipped: "shard: there is only one data-parallel rank"},
		{name: "then ZeRO-3 with everything", job: zero(1),
			history: []Attempt{ended(0, sharded, oom(cause.Load)), ended(1, sharded.With(Plan{Sharding: "zero2", OffloadOptimizer: "cpu"}), oom(cause.Load))},
			remedy:  RemedyOffloadParam, changed: "sharding zero2→zero3, parameter offload none→cpu"},
		{name: "host memory is checked before offload", job: zero(1), history: []Attempt{ended(0, sharded, big)},
			inv: func(i *Inventory) { i.HostAvailable = 32 << 30 }, rule: "out-of-memory", code: CodeExhausted, skipped: "offload-optimizer: the ranks hold 70.0 GiB on their devices, and the host has 32.0 GiB left"},
		{name: "NVMe when it is set", job: zero(1), policy: func(p *Policy) { p.NVMePath = "/scratch" },
			history: []Attempt{ended(0, sharded.With(Plan{Sharding: "zero3", OffloadOptimizer: "cpu", OffloadParam: "cpu"}), oom(cause.Optimizer))},
			remedy:  RemedyNVMe, changed: "optimizer offload cpu→nvme, parameter offload cpu→nvme"},
		{name: "a missing part skips its rung", job: zero(1), inv: func(i *Inventory) {
			i.Missing = map[Remedy]string{RemedyOffloadOptimizer: "no compiler for CPU Adam"}
		}, history: []Attempt{ended(0, sharded, oom(cause.Load))}, remedy: RemedyOffloadParam, skipped: "offload-optimizer: no compiler for CPU Adam"},
		{name: "fragmentation: the allocator alone", job: gpt(1), history: []Attempt{ended(0, plain, fragmented)}, remedy: RemedyAllocator, changed: "allocator default→expandable"},
		{name: "what ran out of memory is not run again", job: gpt(1), history: []Attempt{
			ended(0, Plan{MicroBatchSize: "2", GradientAccumulationSteps: "1", ActivationCheckpointing: "full"}, oom(cause.Forward)),
			ended(1, Plan{MicroBatchSize: "4", GradientAccumulationSteps: "1", ActivationCheckpointing: "full"}, oom(cause.Forward)),
		}, remedy: RemedyMicroBatch, changed: "micro batch 4→1, accumulation 1→4"},
		{name: "never", job: gpt(1), policy: func(p *Policy) { p.Never = []string{"checkpointing", "gradient_accumulation_steps"} },
			history: []Attempt{ended(0, plain, oom(cause.Forward))}, remedy: RemedyPrecision, skipped: `micro-batch: recovery.never lists "gradient_accumulation_steps"`},
		{name: "a rung that only the policy refused is skipped with its reason", job: gpt(1), policy: func(p *Policy) { p.Numerics = Preserve },
			history: []Attempt{ended(0, Plan{MicroBatchSize: "1", GradientAccumulationSteps: "8", ActivationCheckpointing: "full", Precision: "fp32", Allocator: "expandable"}, oom(cause.Forward))},
			rule:    "out-of-memory", code: CodeExhausted, reason: "; every allowed remedy was tried or is impossible", skipped: `precision: recovery.numerics = "preserve" keeps the precision`},
		{name: "a GPU without bfloat16", job: gpt(1), inv: func(i *Inventory) { i.BF16 = false }, policy: func(p *Policy) { p.Never = []string{"checkpointing", "micro-batch"} },
			history: []Attempt{ended(0, plain.With(Plan{Allocator: "expandable"}), oom(cause.Forward))}, rule: "out-of-memory", code: CodeExhausted, skipped: "precision: the device does not compute in bfloat16"},
		{name: "no accumulation, no smaller micro batch", job: Job{Ranks: 1, LocalRanks: 1, DataParallel: 1, Knobs: map[Knob]Range{MicroBatchSize: {}}},
			history: []Attempt{ended(0, Plan{MicroBatchSize: "8"}, oom(cause.Forward))}, rule: "out-of-memory", code: CodeExhausted, skipped: "micro-batch: gradient accumulation cannot be raised"},
		{name: "derived accumulation: only divisors of the micro batch", job: Job{DataParallel: 2, Ranks: 2, LocalRanks: 2, Knobs: map[Knob]Range{MicroBatchSize: {}, GradientAccumulationSteps: {Scope: ScopeDerived}}},
			history: []Attempt{ended(0, Plan{MicroBatchSize: "6"}, oom(cause.Forward))}, remedy: RemedyMicroBatch, changed: "micro batch 6→3", reason: "(global batch kept)"},
		{name: "accumulation counted over all ranks", job: Job{DataParallel: 4, Ranks: 4, LocalRanks: 4, Knobs: map[Knob]Range{MicroBatchSize: {}, GradientAccumulationSteps: {Scope: ScopeGlobal}}},
			history: []Attempt{ended(0, Plan{MicroBatchSize: "12", GradientAccumulationSteps: "40"}, oom(cause.Forward))}, remedy: RemedyMicroBatch, changed: "micro batch 12→6, accumulation 40→80", reason: "(global batch 480 kept)"},
		{name: "a floor above half", job: Job{DataParallel: 1, Ranks: 1, LocalRanks: 1, Knobs: map[Knob]Range{MicroBatchSize: {Min: 5}, GradientAccumulationSteps: {}}},
			history: []Attempt{ended(0, Plan{MicroBatchSize: "8", GradientAccumulationSteps: "3"}, oom(cause.Forward))}, remedy: RemedyMicroBatch, changed: "micro batch 8→6, accumulation 3→4"},
		{name: "evaluation touches the evaluation batch only", job: Job{DataParallel: 1, Knobs: map[Knob]Range{EvalBatchSize: {}, MicroBatchSize: {}, GradientAccumulationSteps: {}, ActivationCheckpointing: {Values: []Value{"none", "full"}}}},
			history: []Attempt{ended(0, Plan{EvalBatchSize: "16", MicroBatchSize: "8", GradientAccumulationSteps: "1", ActivationCheckpointing: "none"}, oom(cause.Eval))}, remedy: RemedyMicroBatch, changed: "eval batch 16→8"},
		{name: "host memory: loader workers", job: Job{Knobs: map[Knob]Range{DataloaderWorkers: {}, MicroBatchSize: {}}}, history: []Attempt{ended(0, Plan{DataloaderWorkers: "8", MicroBatchSize: "8"}, host)},
			remedy: RemedyWorkers, changed: "loader workers 8→4"},
		{name: "host memory: never a rung for the device", job: gpt(1), history: []Attempt{ended(0, plain, host)}, rule: "out-of-memory", code: CodeExhausted, reason: "host out of memory on rank 0", skipped: "undo-offload: no offload to host memory is known"},
		{name: "a job on the CPU takes rungs 1 to 3", job: gpt(2), inv: func(i *Inventory) { i.Accelerator = "cpu" }, history: []Attempt{ended(0, plain, cpu)},
			remedy: RemedyCheckpointing, changed: "checkpointing none→full", skipped: "allocator: the job trains on the CPU"},
		{name: "mode off", job: gpt(1), policy: func(p *Policy) { p.Mode = Off }, history: []Attempt{ended(0, plain, oom(cause.Forward))}, rule: "recovery-off", code: CodeExhausted},
		{name: "too few attempts left", job: gpt(1), policy: func(p *Policy) { p.MaxAttempts = 1 }, history: []Attempt{ended(0, plain, oom(cause.Forward))}, rule: "max-attempts", code: CodeExhausted, reason: "recovery.max_attempts = 1"},
		{name: "a user's error gets no rung", job: gpt(1), history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 1, ExitCode: 1, Error: "KeyError: 'x'"})},
			rule: "job-failed", code: CodeFailed, reason: "KeyError: 'x' on rank 1"},
		{name: "torchrun's restarts", job: gpt(1), policy: func(p *Policy) { p.Restarts = 1 }, history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.UserError, Fatal: true})}, rule: "restart"},
		{name: "and not more of them", job: gpt(1), policy: func(p *Policy) { p.Restarts = 1 }, history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.UserError, Fatal: true}), ended(1, plain, Diagnosis{Cause: cause.UserError, Fatal: true})},
			rule: "job-failed", code: CodeFailed},
		{name: "nor where it died the same way twice", job: gpt(1), policy: func(p *Policy) { p.Restarts = 5 }, history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.UserError, Fatal: true, Error: "KeyError: 1"}), ended(1, plain, Diagnosis{Cause: cause.UserError, Fatal: true, Error: "KeyError: 1"})},
			rule: "deterministic", code: CodeFailed},
		{name: "a stopped attempt is not counted", job: gpt(1), policy: func(p *Policy) { p.MaxAttempts = 2 }, history: []Attempt{{Plan: plain, Diagnosis: Diagnosis{Fatal: true}, StopSignal: 15}, ended(1, plain, oom(cause.Forward))}, rule: RuleOutOfMemory, remedy: RemedyCheckpointing},
		{name: "a busy port is not counted", job: gpt(1), policy: func(p *Policy) { p.MaxAttempts = 1 }, history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.PortInUse, Fatal: true})}, rule: "another-port"},
		{name: "the network has its own budget", job: gpt(2), history: []Attempt{ended(0, plain, oom(cause.Forward)), ended(1, plain.With(Plan{ActivationCheckpointing: "full"}), Diagnosis{Cause: cause.NCCLError, Fatal: true})},
			rule: "transient", reason: "again (1 of 3)"},
		{name: "storage that fails passes", job: gpt(1), history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.Storage, Fatal: true, Phase: cause.Save, Error: "OSError: [Errno 5] Input/output error"})},
			rule: "transient", reason: "again (1 of 3)"},
		{name: "and resumes from the checkpoint before", job: gpt(1), inv: func(i *Inventory) { i.Checkpoint = "ckpt-7" }, history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.Storage, Fatal: true})}, rule: "transient"},
		{name: "as often as allowed", job: gpt(1), policy: func(p *Policy) { p.TransientRetries = 1 }, history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.Storage, Fatal: true}), ended(1, plain, Diagnosis{Cause: cause.Storage, Fatal: true})},
			rule: "transient", code: CodeRetry, reason: "are used up"},
		{name: "a full disk is tried once more", job: gpt(1), history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.DiskFull, Fatal: true})}, rule: "disk-full", reason: "once more"},
		{name: "and no second time", job: gpt(1), history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.DiskFull, Fatal: true}), ended(1, plain, Diagnosis{Cause: cause.DiskFull, Fatal: true})},
			rule: "disk-full", code: CodeDisk, reason: "once there is space"},
		{name: "nor without retries", job: gpt(1), policy: func(p *Policy) { p.TransientRetries = 0 }, history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.DiskFull, Fatal: true})}, rule: "disk-full", code: CodeDisk},
		{name: "an engine gets a smaller share", job: generating(), history: []Attempt{ended(0, plain.With(engine), oom(cause.Rollout))}, rule: RuleOutOfMemory, remedy: RemedyRollout, changed: "engine's share of the device 0.5→0.4",
			reason: "CUDA out of memory in rollout"},
		{name: "then fewer samples at once", job: generating(), history: []Attempt{ended(0, plain.With(engine).With(Plan{RolloutMemory: "0.15"}), oom(cause.Rollout))}, rule: RuleOutOfMemory, remedy: RemedyRollout, changed: "rollout batch 8→4"},
		{name: "then it sleeps while the model trains", job: generating(), history: []Attempt{ended(0, plain.With(engine).With(Plan{RolloutMemory: "0.1", RolloutBatchSize: "1"}), oom(cause.Rollout))}, rule: RuleOutOfMemory, remedy: RemedyRollout, changed: "engine's sleep off→on"},
		{name: "generation has no remedy of the training", job: gpt(1), history: []Attempt{ended(0, plain, oom(cause.Rollout))}, rule: RuleOutOfMemory, code: CodeExhausted, skipped: "checkpointing: generation keeps no activations"},
		{name: "and the training none of generation", job: generating(), history: []Attempt{ended(0, plain.With(engine), oom(cause.Forward))}, rule: RuleOutOfMemory, remedy: RemedyCheckpointing},
		{name: "a foreign tenant is waited for", job: gpt(1), history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.GPUOccupied, Fatal: true})}, rule: "gpu-occupied", remedy: RemedyWait},
		{name: "faulty hardware", job: gpt(1), history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.GPUHardware, Fatal: true})}, rule: "hardware", code: CodeRetry},
		{name: "a process that cannot be killed", job: gpt(1), history: []Attempt{{Plan: plain, Diagnosis: oom(cause.Forward), Stuck: &Stuck{PID: 7, Channel: "uvm_lock"}}},
			rule: "unkillable", code: CodeRetry, reason: "process 7 waits in uvm_lock and cannot be killed"},
		{name: "trained", job: gpt(1), history: []Attempt{ended(0, plain, Diagnosis{Cause: cause.None})}, rule: "trained", code: CodeTrained},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			policy, inv := defaults, h100
			if test.policy != nil {
				test.policy(&policy)
			}
			if test.inv != nil {
				test.inv(&inv)
			}
			got := Decide(policy, test.job, test.history, inv)
			if test.rule == "" {
				test.rule = "out-of-memory"
			}
			if got.Rule != test.rule || got.Remedy != test.remedy || got.Code != test.code {
				t.Errorf("rule, rung, code = %q, %q, %d; want %q, %q, %d\n%s\n%v", got.Rule, got.Remedy, got.Code, test.rule, test.remedy, test.code, got.Reason, got.Skipped)
			}
			if test.changed != "" && got.Changed.String() != test.changed {
				t.Errorf("changed %q, want %q", got.Changed, test.changed)
			}
			if !strings.Contains(got.Reason, test.reason) {
				t.Errorf("reason %q, want %q in it", got.Reason, test.reason)
			}
			var skips []string
			for _, k := range got.Skipped {
				skips = append(skips, string(k.Remedy)+": "+k.Reason)
			}
			if all := strings.Join(skips, "; "); !strings.Contains(all, test.skipped) {
				t.Errorf("skipped %q, want %q in it", all, test.skipped)
			}
		})
	}
}

func TestFailedRelaunchIsNotBlamedOnTheJob(t *testing.T) {
	first := ended(0, plain, oom(cause.Forward))
	second := ended(1, plain.With(Plan{Precision: "bf16"}), Diagnosis{Cause: cause.UserError, Fatal: true, ExitCode: 2, Error: "error: unrecognized arguments: --amp"})
	second.Remedy = RemedyPrecision
	second.Ended = second.Started.Add(time.Second)
	got := Decide(defaults, gpt(1), []Attempt{first, second}, h100)
	if got.Rule != "failed-relaunch" || got.Outcome != Failed || !strings.Contains(got.Reason, "precision fp32→bf16") {
		t.Errorf("got %q, %q: %s", got.Rule, got.Outcome, got.Reason)
	}
}

// A folder that an earlier attempt made stops the next one. Neither the change nor memory is the
// cause, and the job's first attempt had no such trouble.
func TestExistingFolderOfAnEarlierAttempt(t *testing.T) {
	exists := Diagnosis{Cause: cause.UserError, Fatal: true, ExitCode: 1, Error: "FileExistsError: [Errno 17] File exists: 'runs/a'"}
	first := ended(0, plain, oom(cause.Forward))
	second := ended(1, plain.With(Plan{Precision: "bf16"}), exists)
	second.Remedy = RemedyPrecision
	if got := Decide(defaults, gpt(1), []Attempt{first, second}, h100); got.Rule != "folder-exists" || got.Code != CodeFailed || !strings.Contains(got.Reason, "exist_ok=True") {
		t.Errorf("got %q, %d: %s", got.Rule, got.Code, got.Reason)
	}
	for _, history := range [][]Attempt{{ended(0, plain, exists)}, {ended(0, plain, exists), ended(1, plain, exists)}} {
		if got := Decide(defaults, gpt(1), history, h100); got.Rule == "folder-exists" {
			t.Errorf("%d attempts: %s", len(history), got.Reason)
		}
	}
}

func TestRestartFromZero(t *testing.T) {
	late := ended(0, plain, oom(cause.Forward))
	late.Ended = late.Started.Add(2 * time.Hour)
	if got := Decide(defaults, gpt(1), []Attempt{late}, h100); got.Code != CodeExhausted || !strings.Contains(got.Reason, "set [resume]") {
		t.Errorf("without a checkpoint: code %d, %s", got.Code, got.Reason)
	}
	saved := h100
	saved.Checkpoint = "out/ckpt-100"
	if got := Decide(defaults, gpt(1), []Attempt{late}, saved); !got.Relaunch || got.Resume != "out/ckpt-100" {
		t.Errorf("with a checkpoint: relaunch %v from %q", got.Relaunch, got.Resume)
	}
}

func TestUnreadableCheckpointBarsAPlan(t *testing.T) {
	job := zero(2)
	sharding := job.Knobs[Sharding]
	sharding.Checkpoint = &Survival{Groups: [][]Value{{"zero1", "zero2"}}, Reason: "ZeRO-3 keeps its shards in another form"}
	job.Knobs[Sharding] = sharding
	plan := sharded.With(Plan{Sharding: "zero2"})
	history := []Attempt{ended(0, plan, oom(cause.Optimizer))}
	if got := Decide(defaults, job, history, h100); got.Changed[Sharding] != [2]Value{"zero2", "zero3"} {
		t.Errorf("without a checkpoint: %s", got.Reason)
	}
	saved := h100
	saved.Checkpoint = "out/global_step10"
	got := Decide(defaults, job, history, saved)
	if _, changed := got.Changed[Sharding]; changed || got.Remedy != RemedyOffloadOptimizer {
		t.Errorf("with a checkpoint: rung %s, %s", got.Remedy, got.Reason)
	}
	if all := fmt.Sprint(got.Skipped); !strings.Contains(all, "the checkpoint out/global_step10 does not survive sharding zero2→zero3: ZeRO-3 keeps") {
		t.Errorf("skipped %s", all)
	}
}

func TestSentence(t *testing.T) {
	d := oom(cause.Backward)
	d.Rank = 5
	d.Requested, d.Free, d.Capacity = bytes(2<<30), bytes(300<<20), bytes(80<<30)
	want := "CUDA out of memory in backward on rank 5 (wanted 2.0 GiB, 300 MiB free of 80.0 GiB)"
	if diff := cmp.Diff(want, d.Sentence()); diff != "" {
		t.Error(diff)
	}
}

// A decision names its rule, so all rules have different names.
func TestRuleNamesAreUnique(t *testing.T) {
	seen := map[string]bool{}
	for _, r := range rules() {
		if seen[r.name] {
			t.Errorf("two rules are named %q", r.name)
		}
		seen[r.name] = true
	}
}
