package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
)

// handled quotes the out-of-memory errors that the job handled itself.
func (c *fold) handled(d *Diagnosis) {
	for _, s := range c.findings {
		if s.finding.Code.OutOfMemory() {
			d.Because = append(d.Because, s.fact)
		}
	}
	d.Advice = c.adviseHandled()
}

// adviseHandled is the advice about out-of-memory errors that the job handled. A warning without
// an amount only mentions such errors.
func (c *fold) adviseHandled() string {
	for _, s := range c.findings {
		if s.finding.Says(cause.SaysNotCopied) {
			return "FSDP had no memory to copy a tensor into the state dict, so the checkpoint may be broken: save with offload to the CPU, or a sharded state dict"
		}
		oom := s.finding.Code.OutOfMemory()
		if oom && (!s.finding.Weight.Warning() || s.finding.Figures.Requested != nil) {
			return "the job handled an out-of-memory error itself, by skipping, retrying or falling back: begin with a smaller batch where that matters"
		}
	}
	return ""
}

// advise is the advice for the user, in one sentence.
func (c *fold) advise(d *Diagnosis, ev Evidence, best candidate) string {
	explained := c.explained(d)
	switch {
	case d.Cause == cause.Unknown && c.saysKilled(best):
		return c.adviseKill()
	case d.Impossible && d.Requested != nil:
		return fmt.Sprintf("a single request of %s is more than the memory there is: look for a wrong shape, a batch or a sequence that is far too long", GiB(*d.Requested))
	case d.Growth != nil:
		return d.leak()
	case d.refusedWithRoom():
		return fmt.Sprintf("the device is not full, %s are free: look for a limit of this process (set_per_process_memory_fraction, ulimit -v, vm.max_map_count, MPS), for a process that gave its memory back just then, or for a fault of the driver (dmesg)", GiB(*d.Free))
	case d.Cause == cause.HostOOM && len(c.kills) == 0 && best.finding != nil && best.finding.Says(cause.SaysWorker):
		return "SIGKILL ended a loader's worker, probably by the kernel for want of memory, which dmesg shows: " +
			hint(d.Cause)
	case d.Cause.OutOfMemory() && best.finding != nil && best.finding.Weight.Dismissed():
		return "the job handled the error itself, and failed after all: " + hint(d.Cause)
	case d.Cause.OutOfMemory():
		return cmp.Or(explained, c.spread(d, ev))
	case best.finding != nil && best.code != cause.SharedMemory && c.fileSystem(best.finding) != nil:
		return c.fileSystem(best.finding).advise(best.finding.Code)
	case best.finding != nil && best.finding.Says(cause.SaysCut):
		return "the output ends before the exception is named: look for the rest of it, in another file or in the scheduler's log"
	case d.Cause == cause.GPUHardware && best.finding != nil && cause.HostIn(best.finding.Text) != "":
		return fmt.Sprintf("drain the node %s, and check its GPU and its links before jobs use it again",
			cause.HostIn(best.finding.Text))
	case explained != "":
		return explained
	case d.Cause == cause.GPUOccupied && d.OtherProcess != nil && *d.OtherProcess > 0:
		return fmt.Sprintf("other processes hold %s of %s: wait for them, stop them (nvidia-smi lists them), or use another GPU", GiB(*d.OtherProcess), cmp.Or(d.Device, "the GPU"))
	case d.Cause == cause.GPUOccupied:
		return hint(d.Cause)
	case d.Cause == cause.UserError && best.finding != nil && cause.LacksName(d.Error) && best.finding.BetweenPackages():
		return "two installed packages do not match: upgrade the one that lacks the name, or take an older version of the one that asks for it"
	case d.Place != nil:
		return "look at " + d.Place.Words()
	case (d.Cause == cause.UserError || d.Cause == cause.Unknown) &&
		slices.Contains(cause.Remarks(d.Cause, d.Error), cause.SaysElsewhere):
		return "this is the report of a process about another one, whose own error is not here: look at the failed rank's stderr, which torchrun keeps with --log-dir DIR --redirects 3"
	case d.Cause == cause.DiskFull && cause.PathIn(d.Error) != "":
		return fmt.Sprintf("free space or quota on the file system of %s, or point the job elsewhere (%s)",
			cause.PathIn(d.Error), cause.FolderVariable(cause.PathIn(d.Error)))
	}
	return cmp.Or(c.adviseCause(d, ev, best), hint(d.Cause))
}

// explained is the advice of a message of the cause, the error's own first; empty: none.
func (c *fold) explained(d *Diagnosis) string {
	if advice := cause.Explain(d.Cause, d.Error).Advice; advice != "" {
		return advice
	}
	for _, s := range c.findings {
		if s.finding.Code == d.Cause && !s.finding.Weight.Over() {
			if advice := cause.Explain(d.Cause, s.finding.Text).Advice; advice != "" {
				return advice
			}
		}
	}
	return ""
}

// adviseCause is the advice that depends on the cause and on what else was seen; empty: none.
func (c *fold) adviseCause(d *Diagnosis, ev Evidence, best candidate) string {
	switch d.Cause {
	case cause.NCCLError, cause.NCCLTimeout:
		return c.adviseNetwork(d.Cause)
	case cause.GPUHardware:
		return c.adviseGPU(d)
	case cause.None:
		return c.adviseHandled()
	case cause.Driver:
		if version := cause.DriverVersion(d.Error); version != "" {
			return fmt.Sprintf("the driver supports CUDA %s: install a PyTorch that was built for it or for an older one, or a newer driver", version)
		}
	case cause.Hang:
		if ev.Ranks == 1 {
			return "look at where it was: it waits for something that does not come, such as a lock, a loader's worker, a file or the network"
		}
	case cause.Preempted:
		if slices.ContainsFunc(c.findings, func(s found) bool { return s.finding.Says(cause.SaysTimeLimit) }) {
			return "the scheduler's time limit ended the job: ask for more time, or let the job save checkpoints and start it again from the newest one"
		}
	case cause.PortInUse:
		if c.severalListen() {
			return "several processes of this job listen on the same port, so each believes to be rank 0: start them by torchrun or srun so that each has a different RANK"
		}
	case cause.Diverged:
		if best.finding != nil && best.finding.Step == 0 && len(c.progress) == 0 {
			return "loss or gradients are no longer finite: if the first step's are not, look at the inputs, the labels and the initial weights; otherwise " + lowerRate
		}
	case cause.Unknown:
		switch {
		case len(c.ranks) < 2 && ev.Ranks < 2:
			return "look at the last lines of the output"
		case len(c.stuck) > 0:
			return "a process does not end even by SIGKILL, which points to the driver or to storage: check the kernel log, and restart the node if it stays"
		}
	}
	return ""
}

// lowerRate is what helps a training that diverges after good steps.
const lowerRate = "lower the learning rate, or use a precision with a larger range"

// adviseGPU names the GPU to take out of service; empty if neither it nor its rank is known.
func (c *fold) adviseGPU(d *Diagnosis) string {
	rank := ""
	if reporters := c.reporters(d.Cause); d.Rank >= 0 {
		rank = fmt.Sprintf(" of rank %d", d.Rank)
	} else if len(reporters) == 1 {
		rank = " of rank " + reporters[0]
	}
	if d.Device+rank == "" {
		return ""
	}
	return fmt.Sprintf("take %s%s out of service, and check the kernel log for Xid events", cmp.Or(d.Device, "the GPU"),
		rank)
}

// severalListen reports whether several processes failed to listen on a port: only rank 0 does.
func (c *fold) severalListen() bool {
	n := 0
	for _, s := range c.findings {
		if f := s.finding; f.Code == cause.PortInUse && f.Raised && f.Weight == cause.WeightCause {
			n++
		}
	}
	return n > 1
}

// saysKilled reports whether the candidate is an end by SIGKILL: an exit, or a line of torchrun
// or a shell that reports one.
func (c *fold) saysKilled(best candidate) bool {
	if best.finding == nil {
		return c.facts[best.fact].Exit() != nil && signalOf(c.exitAt(best.fact)) == sigKILL
	}
	return best.finding.Says(cause.SaysKilled)
}

// adviseKill returns where to look for the sender of the signal.
func (c *fold) adviseKill() string {
	text := "a rank was killed by SIGKILL and nothing shows which process sent it: look for oom-kill in the kernel log (dmesg), oom_kill in the cgroup's memory.events, or for a user who killed it"
	for _, i := range c.gaps {
		if c.facts[i].Source == "cgroup" {
			return text + "; the cgroup's counter could not be read here"
		}
	}
	return text
}

// hint is the catalogue's hint for a cause.
func hint(code cause.Code) string {
	entry, _ := cause.Lookup(code)
	return entry.Hint
}

// leak describes the growth, and after how many steps the next attempt will fail.
func (d *Diagnosis) leak() string {
	g := d.Growth
	text := fmt.Sprintf("memory leaks: %q grew by %s a step, from %s at step %d to %s at step %d",
		g.Word, GiB(g.PerStep), GiB(g.From), g.FromStep, GiB(g.To), g.ToStep)
	if d.Again > 0 {
		text += fmt.Sprintf(", and a relaunch runs out again after about %d steps", d.Again)
	}
	if d.Cause == cause.HostOOM && d.Device != "cpu" {
		return text + "; look for samples or results that are kept in lists, and for loader workers that cache what they read"
	}
	return text + "; look for tensors that outlive their step: losses summed without .item(), outputs kept in lists, graphs kept by retain_graph"
}

// adviseNetwork names the peer that was lost, or the ranks that waited.
func (c *fold) adviseNetwork(code cause.Code) string {
	peer, ranks := c.peer(), c.reporters(code)
	switch {
	case code == cause.NCCLError && cause.Loopback(peer):
		return fmt.Sprintf("a connection to %s failed, which is the same node: a rank there ended first, or NCCL chose the wrong interface: name it in NCCL_SOCKET_IFNAME, and look at the host's name in /etc/hosts", peer)
	case code == cause.NCCLError && cause.LinkLocal(peer):
		return fmt.Sprintf("look at %s first: its process ended before this one, or the network to it failed; its address is link-local: set NCCL_SOCKET_FAMILY=AF_INET, or name the interface in NCCL_SOCKET_IFNAME", peer)
	case code == cause.NCCLError && peer != "":
		return fmt.Sprintf("look at %s first: its process ended before this one, or the network to it failed", peer)
	case code == cause.NCCLTimeout && len(ranks) > 0:
		return fmt.Sprintf("reported by rank %s: %s", strings.Join(ranks, ", "), hint(code))
	}
	return hint(code)
}

// peer is the address of the other side of a connection that failed; empty: none is named.
func (c *fold) peer() string {
	for _, s := range c.findings {
		if address := cause.PeerIn(s.finding.Text); address != "" && s.finding.Code == cause.NCCLError {
			return address
		}
	}
	return ""
}

// reporters are the ranks whose watchdogs report a cause.
func (c *fold) reporters(code cause.Code) (ranks []string) {
	for _, s := range c.findings {
		if rank := cause.ReporterIn(s.finding.Text); rank != "" && s.finding.Code == code && !slices.Contains(ranks, rank) {
			ranks = append(ranks, rank)
		}
	}
	slices.Sort(ranks)
	return ranks
}

// spread explains what it means that only some ranks ran out of memory, or that all did; empty if
// only one rank is known.
func (c *fold) spread(d *Diagnosis, ev Evidence) string {
	known, of, shown := ev.Ranks, fmt.Sprintf(" of %d", ev.Ranks), ""
	if known == 0 {
		of, shown = "", " in this output" // there may be others that the output does not show
		for rank := range c.ranks {
			if rank >= 0 {
				known++
			}
		}
	}
	switch {
	case known < 2 || len(d.Ranks) == 0:
		return ""
	case len(d.Ranks) == known:
		return fmt.Sprintf("all %d ranks%s ran out: the plan does not fit; use less memory on every rank", known, shown)
	case len(d.Ranks) == 1:
		return fmt.Sprintf("rank %d%s alone ran out: look for imbalance (longer samples, a larger pipeline stage, work that one rank does for all), or for another process on its device", d.Ranks[0], of)
	}
	return fmt.Sprintf("%d%s ranks ran out, the first on rank %d", len(d.Ranks), of, d.Rank)
}
