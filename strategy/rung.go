package strategy

import (
	"fmt"
	"slices"
)

// A Rung is one kind of remedy in the decision tree.
type Rung string

// The rungs for device memory, then those for host memory.
const (
	RungAllocator          Rung = "allocator"
	RungWait               Rung = "wait"
	RungAttention          Rung = "attention"
	RungCheckpointing      Rung = "checkpointing"
	RungMicroBatch         Rung = "micro-batch"
	RungPrecision          Rung = "precision"
	RungShard              Rung = "shard"
	RungOffloadActivations Rung = "offload-activations"
	RungOffloadOptimizer   Rung = "offload-optimizer"
	RungOffloadParam       Rung = "offload-param"
	RungNVMe               Rung = "nvme"
	RungOptimizer          Rung = "optimizer"
	RungSequence           Rung = "sequence"

	RungWorkers      Rung = "workers"
	RungPinnedMemory Rung = "pinned-memory"
	RungUndoOffload  Rung = "undo-offload"
)

// DeviceRungs is the ladder for device memory; HostRungs the walk for host memory.
var DeviceRungs, HostRungs []Rung

// A rungRow is all that there is to know of a rung.
type rungRow struct {
	rung Rung
	// turns are the knobs that the rung changes; naming one of them in recovery.never keeps
	// the rung from being taken, except that a partner knob (accumulation, sharding under
	// offload) only bars what would change it.
	turns []Knob
	// training is what a change of these knobs does to the training. That of a smaller micro
	// batch is the job's own, and Average where nothing proves more.
	training Training
	remedy   remedy
	// plans are the changes that the planner weighs; nil where they are the remedy's.
	plans func(*situation) []Plan
	// takes reports whether the rung leads from one plan to another; nil: it does where its
	// first knob goes to a value that takes less memory.
	takes func(from, to Plan) bool
	// group is that of the plans which the rung leads to.
	group int
	// free: it costs nothing, and rides along with the rung that is taken.
	free bool
	// host: it is for host memory.
	host bool
	// onCPU: it also helps a job that trains on the CPU.
	onCPU bool
	// idle says in which phases it cannot help, and why.
	idle idleIn
}

// rungRows has one row for each rung, in the order in which they are walked. It is set by
// init since the remedies look into it.
var rungRows []rungRow

func init() { setRungs(slices.Concat(deviceRows(), hostRows())) }

// setRungs makes rows the rungs that there are.
func setRungs(rows []rungRow) {
	rungRows, DeviceRungs, HostRungs = rows, nil, nil
	for _, row := range rows {
		if row.host {
			HostRungs = append(HostRungs, row.rung)
		} else {
			DeviceRungs = append(DeviceRungs, row.rung)
		}
	}
}

// row is the rung's.
func (r Rung) row() *rungRow {
	at := slices.IndexFunc(rungRows, func(row rungRow) bool { return row.rung == r })
	if at < 0 {
		panic(fmt.Sprintf("strategy: the rung %s has no row: add one to rungrows.go", r))
	}
	return &rungRows[at]
}

// Turns lists the knobs that a rung may change.
func (r Rung) Turns() []Knob { return slices.Clone(r.row().turns) }

// leads reports whether the rung leads from one plan to another.
func (r *rungRow) leads(from, to Plan) bool {
	if r.takes != nil {
		return r.takes(from, to)
	}
	return lowers(r.turns[0])(from, to)
}

// needs are the rungs for device memory that lead from one plan to another, in the tree's
// order.
func needs(from, to Plan) (rungs []Rung) {
	for i := range rungRows {
		if row := &rungRows[i]; !row.host && row.leads(from, to) {
			rungs = append(rungs, row.rung)
		}
	}
	return rungs
}

// A Skip is a rung that was not taken, and why.
type Skip struct {
	Rung   Rung   `json:"rung"`
	Reason string `json:"reason"`
	// Refused says that only the policy stood in the way.
	Refused bool `json:"refused,omitempty"`
	// Passing: the reason may be gone tomorrow, as host memory that others hold, or a part
	// that is installed meanwhile.
	Passing bool `json:"-"`
}
