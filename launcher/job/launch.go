package job

import (
	"fmt"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// mostNodes bounds the nodes of a launch.
const mostNodes = 1 << 16

// leastLogLimit is enough for a head, a tail, and the line between them. The default holds some millions of
// lines: a week of a job that prints a few per second. With it, the two logs of each of eight ranks that
// print without end take at most 4 GiB.
const leastLogLimit = 4 << 10

// readLaunch reads [launch], which adds to torchrun's flags in the command.
func (r *reader) readLaunch() {
	l := &r.job.Launch
	port, ranks := l.MasterPort, l.NprocPerNode
	t := r.readKeys("launch")
	r.contradiction(t, "master_port", "master-port", port != l.MasterPort)
	r.contradiction(t, "nproc_per_node", "nproc-per-node", ranks != l.NprocPerNode)
	if t.Has("nproc_per_node") {
		l.askedFor(r.line != nil)
	}
	r.readNodes(t)
	r.checkDataParallel(t)
}

// readNodes reads the required number of nodes.
func (r *reader) readNodes(t *fileTable) {
	v, ok := r.value(t, *Said("launch", "nnodes"))
	if !ok || v == "auto" {
		return
	}
	count := fmt.Sprint(v)
	if given := r.job.nodes.Count; given.Value != "" && given.Value != count {
		t.Bad("nnodes", "contradicts %s in the command, which is %s; keep one", given.By, given.Value)
	}
	r.job.nodes.Count = commandline.NodeValue{Value: count, By: "launch.nnodes"}
}

// stallRule returns the rule for "off", "auto" or a duration.
func stallRule(v any) *strategy.StallRule {
	switch v := v.(type) {
	case time.Duration:
		return &strategy.StallRule{After: strategy.Seconds(v)}
	case string:
		if v == "auto" {
			return &strategy.StallRule{}
		}
	}
	return nil
}

// contradiction reports a key that contradicts a flag in the command.
func (r *reader) contradiction(t *fileTable, key, flag string, differ bool) {
	if r.line == nil || !differ || !t.Has(key) {
		return
	}
	if source, set := r.line.Set[flag]; set {
		t.Bad(key, "contradicts %s in the command; keep one", source)
	}
}

// checkDataParallel reports a number of data-parallel ranks that does not divide the number of ranks, if that
// is known.
func (r *reader) checkDataParallel(t *fileTable) {
	l := r.job.Launch
	ranks, err := strconv.Atoi(l.NprocPerNode)
	if err == nil && l.DataParallel > 0 && !l.Self && ranks%l.DataParallel != 0 {
		t.Bad("data_parallel", "%d ranks cannot be divided by %d", ranks, l.DataParallel)
	}
}

// The values of launch.preflight: the checks before the first attempt.
const (
	PreflightAuto = "auto"  // what the driver reports about the GPUs, while the ranks start
	PreflightOn   = "true"  // the same before the ranks start, and a trial of each GPU
	PreflightOff  = "false" // nothing
)

// Examined returns how many GPUs are checked before the first attempt, beginning with the first that the job
// sees: one per rank. A process that starts no ranks uses at least one. It is 0 if checks are off, and for a
// job on the CPU.
func (p *Prepared) Examined() int {
	if l := p.Job.Launch; l.Preflight == PreflightOff || l.NprocPerNode == "cpu" || p.Accelerator() != "cuda" {
		return 0
	}
	return min(p.GPUs.Count, p.Ranks)
}
