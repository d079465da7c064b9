package job

import (
	"fmt"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/recipes/document"
	"github.com/gpurun/gpurun/strategy"
)

// readLaunch reads [launch] over what torchrun's flags in the command said.
func (r *reader) readLaunch() {
	l := &r.job.Launch
	port := l.MasterPort
	t := r.readKeys("launch")
	r.contradiction(t, "master_port", "master-port", port != l.MasterPort)
	l.Self = t.Choice("ranks", "gpurun", launchers...) == "self"
	r.readNproc(t)
	r.readNodes(t)
	l.Stalls = readStalls(t)
	l.Preflight = readPreflight(t)
	l.LogLimit = readLogLimit(t, l.LogLimit)
	r.checkDataParallel(t)
}

// mostNodes bounds the nodes of a launch.
const mostNodes = 1 << 16

// readNodes reads how many nodes there have to be.
func (r *reader) readNodes(t *table) {
	v, set := t.Get("nnodes")
	if !set || v == "auto" {
		return
	}
	n, isNumber := v.(int64)
	if !isNumber || n < 1 || n > mostNodes {
		t.Bad("nnodes", "want a number of nodes from 1 to %d, or \"auto\", found %s", mostNodes, shown(v))
		return
	}
	count := strconv.FormatInt(n, 10)
	if said := r.job.nodes.Count; said.Value != "" && said.Value != count {
		t.Bad("nnodes", "contradicts %s in the command, which says %s; keep one", said.By, said.Value)
	}
	r.job.nodes.Count = commandline.Said{Value: count, By: "launch.nnodes"}
}

// leastStall leaves a job room for a step of usual length.
const leastStall = time.Second

// readStalls reads "off", "auto" or a duration.
func readStalls(t *table) *strategy.StallRule {
	switch v, set := t.Get("stall_timeout"); {
	case !set || v == "off":
		return nil
	case v == "auto":
		return &strategy.StallRule{}
	}
	after := t.duration("stall_timeout", 0, leastStall)
	if after == 0 {
		return nil // the problem is noted
	}
	return &strategy.StallRule{After: strategy.Seconds(after)}
}

// DefaultLogLimit is the cap of one log of a rank, in bytes: some millions of lines, which
// is a week of a job that prints a few each second, while the two logs of eight ranks that
// go astray take 4 GiB of the disk at most.
const DefaultLogLimit = 256 << 20

// leastLogLimit leaves room for a head, a tail, and the line between them.
const leastLogLimit = 4 << 10

// readLogLimit reads a size, or "off".
func readLogLimit(t *table, fallback int64) int64 {
	v, set := t.Get("log_limit")
	if !set {
		return fallback
	}
	if v == "off" {
		return 0
	}
	bytes := t.size("log_limit")
	if bytes > 0 && bytes < leastLogLimit {
		t.Bad("log_limit", "%s is less than 4KiB; \"off\" is no limit", shown(v))
	}
	return bytes
}

// readNproc reads a word or a number.
func (r *reader) readNproc(t *table) {
	v, set := t.Get("nproc_per_node")
	if !set {
		return
	}
	count, l := "", &r.job.Launch
	switch v := v.(type) {
	case string:
		switch v {
		case "auto", "gpu", "cpu":
			count = v
		default:
			if _, err := strconv.Atoi(v); err == nil {
				t.Bad("nproc_per_node", "want a number, found text; write %s without quotes", v)
				return
			}
			t.Report(Problem{
				Key: t.Path("nproc_per_node"), AtValue: true, Suggest: Nearest(v, counts),
				Message: fmt.Sprintf("unknown value %q, want a number, %s", v, document.Either(counts)),
			})
			return
		}
	case int64:
		if v < 1 {
			t.Bad("nproc_per_node", "%d is less than 1", v)
			return
		}
		if v > mostRanks {
			t.Bad("nproc_per_node", "%d is more than the %d ranks that gpurun starts on a node", v, mostRanks)
			return
		}
		count = strconv.FormatInt(v, 10)
	default:
		t.Bad("nproc_per_node", "want a whole number or \"auto\", found %s", document.Describe(v))
		return
	}
	r.contradiction(t, "nproc_per_node", "nproc-per-node", count != l.NprocPerNode)
	l.NprocPerNode = count
	l.askedFor(r.line != nil)
}

// contradiction reports a key that says something else than a flag in the command.
func (r *reader) contradiction(t *table, key, flag string, differ bool) {
	if r.line == nil || !differ || !t.Has(key) {
		return
	}
	if source, set := r.line.Set[flag]; set {
		t.Bad(key, "contradicts %s in the command; keep one", source)
	}
}

// checkDataParallel reports data-parallel ranks that the number of ranks, where
// it is known by now, cannot be made of.
func (r *reader) checkDataParallel(t *table) {
	l := r.job.Launch
	ranks, err := strconv.Atoi(l.NprocPerNode)
	if err == nil && l.DataParallel > 0 && !l.Self && ranks%l.DataParallel != 0 {
		t.Bad("data_parallel", "%d ranks cannot be divided by %d", ranks, l.DataParallel)
	}
}

// shown is a value as it is written, as far as a person needs it.
func shown(v any) string {
	if s, ok := v.(string); ok {
		return strconv.Quote(s)
	}
	if n, ok := document.Number(v); ok {
		return n
	}
	return document.Describe(v)
}

// A Preflight says what is looked at before the first attempt.
type Preflight string

// The settings of launch.preflight.
const (
	PreflightAuto Preflight = "auto"  // what the driver says of the GPUs, beside the ranks' start
	PreflightOn   Preflight = "true"  // before it, and each GPU is tried
	PreflightOff  Preflight = "false" // nothing
)

// readPreflight reads "auto", true or false.
func readPreflight(t *table) Preflight {
	switch v, set := t.Get("preflight"); v := v.(type) {
	case bool:
		return Preflight(fmt.Sprint(v))
	case string:
		if v == string(PreflightAuto) {
			return PreflightAuto
		}
		t.Bad("preflight", "%q: want %q, true or false", v, PreflightAuto)
	default:
		if set {
			t.Bad("preflight", "want %q, true or false, found %s", PreflightAuto, document.Describe(v))
		}
	}
	return PreflightAuto
}

// Examined is how many GPUs are looked at before the first attempt, the first that the job
// sees: one a rank. A process that starts no ranks uses one for certain. It is 0 where nobody
// is to look, and for a job that trains on the CPU.
func (p *Prepared) Examined() int {
	if l := p.Job.Launch; l.Preflight == PreflightOff || l.NprocPerNode == "cpu" || p.Accelerator() != "cuda" {
		return 0
	}
	return min(p.GPUs.Count, p.Ranks)
}
