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

// leastLogLimit leaves room for a head, a tail, and the line between them. The default is
// some millions of lines: a week of a job that prints a few each second, while the two logs
// of eight ranks that print without end take 4 GiB of the disk at most.
const leastLogLimit = 4 << 10

// readLaunch reads [launch] over torchrun's flags in the command.
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

// readNodes reads how many nodes there have to be.
func (r *reader) readNodes(t *fileTable) {
	v, ok := r.value(t, *Said("launch", "nnodes"))
	if !ok || v == "auto" {
		return
	}
	count := fmt.Sprint(v)
	if given := r.job.nodes.Count; given.Value != "" && given.Value != count {
		t.Bad("nnodes", "contradicts %s in the command, which says %s; keep one", given.By, given.Value)
	}
	r.job.nodes.Count = commandline.NodeValue{Value: count, By: "launch.nnodes"}
}

// stallRule is the rule for "off", "auto" or a duration.
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

// contradiction reports a key that says something else than a flag in the command.
func (r *reader) contradiction(t *fileTable, key, flag string, differ bool) {
	if r.line == nil || !differ || !t.Has(key) {
		return
	}
	if source, set := r.line.Set[flag]; set {
		t.Bad(key, "contradicts %s in the command; keep one", source)
	}
}

// checkDataParallel reports data-parallel ranks that the number of ranks, where
// it is known by now, cannot be made of.
func (r *reader) checkDataParallel(t *fileTable) {
	l := r.job.Launch
	ranks, err := strconv.Atoi(l.NprocPerNode)
	if err == nil && l.DataParallel > 0 && !l.Self && ranks%l.DataParallel != 0 {
		t.Bad("data_parallel", "%d ranks cannot be divided by %d", ranks, l.DataParallel)
	}
}

// The settings of launch.preflight: what is examined before the first attempt.
const (
	PreflightAuto = "auto"  // the driver's view of the GPUs, while the ranks start
	PreflightOn   = "true"  // the same before they start, and each GPU is tried
	PreflightOff  = "false" // nothing
)

// Examined is how many GPUs are looked at before the first attempt, the first that the job
// sees: one a rank. A process that starts no ranks uses one for certain. It is 0 where nobody
// is to look, and for a job that trains on the CPU.
func (p *Prepared) Examined() int {
	if l := p.Job.Launch; l.Preflight == PreflightOff || l.NprocPerNode == "cpu" || p.Accelerator() != "cuda" {
		return 0
	}
	return min(p.GPUs.Count, p.Ranks)
}
