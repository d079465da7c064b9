package estimate

import (
	"cmp"
	"fmt"
	"strings"

	"github.com/gpurun/gpurun/launcher/job"
)

// An fsdpKind is what a job's settings of FSDP say about the weights between forward and backward, and about the
// ranks that share them.
type fsdpKind struct {
	// strategy is FSDP 1's: full_shard, shard_grad_op, hybrid_shard, hybrid_shard_zero2 …, or its number.
	strategy string
	// reshard is FSDP 2's: false keeps the gathered weights until the backward.
	reshard string
}

// fsdpNumbers are the strategies that torch numbers (torch/distributed/fsdp/api.py, ShardingStrategy).
var fsdpNumbers = map[string]string{"1": "full_shard", "2": "shard_grad_op", "3": "no_shard", "4": "hybrid_shard",
	"5": "hybrid_shard_zero2"}

// fsdpOf reads the variables of accelerate launch, and the settings of the job itself.
func fsdpOf(p *job.Prepared) fsdpKind {
	env := p.Environ()
	var kind fsdpKind
	if env["FSDP_VERSION"] == "2" {
		kind.reshard = env["FSDP_RESHARD_AFTER_FORWARD"]
	} else {
		kind.strategy = strings.ToLower(env["FSDP_SHARDING_STRATEGY"])
	}
	settings(p.Job, func(key, value string) {
		switch key {
		case "fsdp", "fsdp_sharding_strategy", "sharding_strategy":
			kind.strategy = cmp.Or(kind.strategy, strings.ToLower(value))
		case "reshard_after_forward", "fsdp_reshard_after_forward":
			kind.reshard = cmp.Or(kind.reshard, value)
		}
	})
	kind.strategy = cmp.Or(fsdpNumbers[kind.strategy], kind.strategy)
	return kind
}

// keepsWhole reports whether the gathered weights stay until the backward.
func (k fsdpKind) keepsWhole() bool {
	return strings.Contains(k.strategy, "shard_grad_op") || strings.Contains(k.strategy, "zero2") ||
		strings.EqualFold(k.reshard, "false")
}

// ofFSDP sets what a plan's sharding by FSDP does not show.
func (r *Request) ofFSDP(p *job.Prepared) {
	if r.plan.Sharding != "fsdp" {
		return
	}
	kind := fsdpOf(p)
	r.plan.KeepGathered = kind.keepsWhole()
	if r.plan.KeepGathered {
		r.notes = append(r.notes, "FSDP: the gathered weights stay from the forward to the backward")
	}
	if n := p.Where.Nodes; strings.Contains(kind.strategy, "hybrid") && n > 1 && r.plan.DataParallel > n {
		r.plan.DataParallel /= n
		r.notes = append(r.notes, fmt.Sprintf("FSDP: the %d GPUs of a node share the weights, and the nodes repeat them",
			r.plan.DataParallel))
	}
}
