package strategy

import (
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

// An offload adds a ZeRO stage if the job shards by ZeRO. A framework's own switch for it, as in
// torchtitan and Megatron-LM, is changed alone.
func TestOffloadChangesStage(t *testing.T) {
	for _, test := range []struct {
		name     string
		sharding Range
		plan     Plan // its sharding
		want     Plan
	}{
		{"ZeRO", Range{Values: []Value{"none", "zero1", "zero2", "zero3"}}, Plan{Sharding: "none"}, Plan{OffloadOptimizer: "cpu", Sharding: "zero2"}},
		{"ZeRO that is there", Range{Values: []Value{"zero1", "zero2", "zero3"}}, Plan{Sharding: "zero3"}, Plan{OffloadOptimizer: "cpu"}},
		{"no sharding knob", Range{Absent: "the configuration decides"}, nil, Plan{OffloadOptimizer: "cpu"}},
		{"FSDP alone", Range{Values: []Value{"fsdp"}}, Plan{Sharding: "fsdp"}, Plan{OffloadOptimizer: "cpu"}},
		{"ZeRO without the stage", Range{Values: []Value{"none", "zero1"}}, Plan{Sharding: "none"}, nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			j := zero(1)
			j.Knobs[Sharding] = test.sharding
			plan := Plan{OffloadOptimizer: "none", OffloadParam: "none"}.With(test.plan)
			s := &situation{policy: defaults, job: j, inventory: h100, plan: plan, diagnosis: oom(cause.Optimizer)}
			got, reason := RemedyOffloadOptimizer.row().changes(s)
			if test.want == nil {
				if reason != "it needs sharding zero2, which the job does not have" {
					t.Errorf("%v, %q", got, reason)
				}
				return
			}
			if diff := cmp.Diff([]Plan{test.want}, got); diff != "" || reason != "" {
				t.Errorf("%s%s", reason, diff)
			}
		})
	}
}

// NVMe is skipped if the disk has less space than the ranks hold on their devices.
func TestDiskTooSmallForOffload(t *testing.T) {
	for free, want := range map[int64]string{
		0:        "",
		40 << 30: "",
		30 << 30: "the ranks hold 40.0 GiB on their devices, and recovery.nvme_path has 30.0 GiB left",
	} {
		j, policy, inv, d := zero(2), defaults, h100, oom(cause.Optimizer)
		policy.NVMePath, inv.NVMeFree, d.Allocated = "/scratch", free, bytes(20<<30)
		s := &situation{policy: policy, job: j, inventory: inv, plan: sharded, diagnosis: d}
		_, skip := s.consider(RemedyNVMe)
		if (skip != nil) != (want != "") || skip != nil && (skip.Code != SkipDisk || skip.Reason != want) {
			t.Errorf("%d bytes free: %+v, want %q", free, skip, want)
		}
	}
}
