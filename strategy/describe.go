package strategy

import (
	"fmt"
	"maps"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
)

// lateSteps is the number of steps after which an out-of-memory error is late. By then the
// allocator is warm, the optimizer's state exists, and every part of a step has run: the plan
// fitted, and memory use grew.
const lateSteps = 20

// describe fills in everything that is known beyond the cause.
func (c *fold) describe(d *Diagnosis, ev Evidence, all []candidate, best candidate) {
	for _, o := range all {
		if o.code != best.code || o.finding == nil {
			continue
		}
		if o.rank >= 0 && !slices.Contains(d.Ranks, o.rank) {
			d.Ranks = append(d.Ranks, o.rank)
		}
		c.quote(d, o, best)
	}
	slices.Sort(d.Ranks)
	if best.finding == nil && best.rank >= 0 && !slices.Contains(d.Ranks, best.rank) {
		d.Ranks = append(d.Ranks, best.rank)
	}
	if exit := c.exitOf(best.rank); exit != nil && failed(exit) {
		d.ExitCode = exit.Code
	} else if c.event(best) && best.rank < 0 {
		d.ExitCode = c.firstExitCode()
	}
	d.Error, d.Lost = c.lastError(all, best), c.facts[best.fact].Lost
	d.Place, d.Node = place(d, all, best), c.nodeOf(ev, d.Rank)
	if best.code == cause.Hang {
		d.Ranks, d.Error = c.awaited(), c.whoWaits()
	}
	if d.Cause == cause.GPUHardware || slices.Contains(transientCauses, d.Cause) {
		d.Hardware = c.hardware()
	}
	c.memory(d, ev, best)
	d.Advice = c.advise(d, ev, best)
	d.Because = c.because(d, all, best)
}

// quote copies figures, device and phase from a finding of the cause, preferably the chosen one.
func (c *fold) quote(d *Diagnosis, o, best candidate) {
	if o.rank != best.rank && best.finding != nil && d.Requested != nil {
		return
	}
	f := o.finding.Figures
	fuller := d.Requested != nil && f.Requested != nil && *d.Requested == *f.Requested && d.Free == nil && f.Free != nil
	if d.Requested == nil && (f.Requested != nil || o.fact == best.fact) || fuller {
		d.Figures = f
	}
	if d.Device == "" {
		d.Device = o.finding.Device
	}
	if d.Phase == cause.NoPhase && o.finding.Phase != "" {
		d.Phase = o.finding.Phase
	}
}

// lastError is the exception that the failed rank reported itself, or else the last one in its
// output.
func (c *fold) lastError(all []candidate, best candidate) string {
	text, at := "", -1
	for _, o := range all {
		if o.finding == nil || o.rank != best.rank {
			continue
		}
		if o.rank >= 0 && o.tier <= tierSymptom && ownWord(c.facts[o.fact].Source) {
			return o.finding.Text
		}
		if o.finding.Raised && o.fact > at && (!passedOn(o.finding) || best.finding == nil || best.finding.Raised || best.finding.Weight != cause.WeightCause) {
			text, at = o.finding.Text, o.fact
		}
	}
	if text == "" && best.finding != nil {
		text = best.finding.Text
	}
	return text
}

// place is the source line at which the rank's error was raised; nil if no traceback shows it.
// For an out-of-memory error it is always a line of the job's own code.
func place(d *Diagnosis, all []candidate, best candidate) (found *cause.SourceLine) {
	oom := d.Cause.OutOfMemory()
	if d.Cause != cause.UserError && !oom || d.Error == "" {
		return nil
	}
	for _, o := range all {
		if o.finding == nil || o.rank != best.rank || o.finding.Text != d.Error || passedOn(o.finding) {
			continue
		}
		if at := o.finding.Place(); at != nil && (at.Own() || !oom) {
			found = at
		}
	}
	return found
}

// nodeOf names the node of a rank if there are several nodes; all have the same number of ranks.
func (c *fold) nodeOf(ev Evidence, rank int) string {
	n := len(c.nodes)
	if n < 2 || rank < 0 || ev.Ranks < n {
		return ""
	}
	node := rank / (ev.Ranks / n)
	return NodeName(node, c.nodes[min(node, n-1)])
}

// memory interprets the figures of an out-of-memory error.
func (c *fold) memory(d *Diagnosis, ev Evidence, best candidate) {
	if !d.Cause.OutOfMemory() {
		return
	}
	if c.crashed(best) {
		d.Device = "cpu"
	}
	d.Late = c.late(best)
	c.grew(d, ev, best)
	if d.Requested == nil {
		return
	}
	room := d.Capacity
	if d.Allowed != nil && (room == nil || *d.Allowed < *room) {
		room = d.Allowed
	}
	d.Impossible = room != nil && *d.Requested > *room
	d.Fragmented = d.ReservedUnallocated != nil && *d.ReservedUnallocated >= *d.Requested
	if d.Cause == cause.CUDAOOM && !d.Impossible && c.occupied(d) {
		d.Cause = cause.GPUOccupied
	}
}

// late reports whether the rank had made at least lateSteps steps.
func (c *fold) late(best candidate) bool {
	i, ok := c.progress[best.rank]
	if !ok && best.rank < 0 && len(c.progress) == 1 {
		i, ok = slices.Collect(maps.Values(c.progress))[0], true
	}
	if ok {
		p := c.facts[i].Progress
		return max(p.Steps, p.Last-p.First) >= lateSteps
	}
	return len(c.progress) == 0 && best.finding != nil && best.finding.Step >= lateSteps
}

// grew fills in memory use that rose up to an out-of-memory error, from the error's own output or
// else from the rank's.
func (c *fold) grew(d *Diagnosis, ev Evidence, best candidate) {
	var g *cause.Growth
	if best.finding != nil {
		g = best.finding.Growth
	}
	for _, rank := range []int{best.rank, -1} {
		if i, ok := c.growth[rank]; ok && g == nil {
			g = c.facts[i].Growth
		}
	}
	if g == nil {
		return
	}
	// The word "mem" may mean a device's memory, which does not show the host's.
	onHost := g.Host || d.Device == "cpu" || ev.Accelerator == "cpu" && d.Cause == cause.HostOOM
	if (d.Cause == cause.HostOOM) != onHost {
		return
	}
	d.Growth = g
	// The next attempt starts as low as this one, and makes as many steps. An unknown first step
	// counts as step 0, unless the slope contradicts that.
	if i, ok := c.progress[best.rank]; ok && c.facts[i].Progress.Last > c.facts[i].Progress.First {
		d.Again = c.facts[i].Progress.Last - c.facts[i].Progress.First
	} else if g.PerStep > 0 && g.To-int64(g.ToStep)*g.PerStep >= 0 {
		d.Again = g.ToStep
	}
}

// occupied reports whether other processes fill the device: they hold at least half of it, and
// more than this process. Tenants are known not to be ranks; the message's own list may be wrong.
func (c *fold) occupied(d *Diagnosis) bool {
	if d.Capacity == nil {
		return false
	}
	var others, own int64
	for _, i := range c.tenants {
		if t := c.facts[i].Tenant; t.Device == d.Device {
			others += t.Bytes
		}
	}
	if len(c.tenants) == 0 && d.OtherProcess != nil {
		others = *d.OtherProcess
	}
	switch {
	case d.Process != nil:
		own = *d.Process
	case d.Allocated != nil:
		own = *d.Allocated
	}
	return others >= *d.Capacity/2 && others > own
}

// because lists the facts that support the diagnosis, the strongest first.
func (c *fold) because(d *Diagnosis, all []candidate, best candidate) []int {
	facts := []int{best.fact}
	add := func(more ...int) {
		for _, i := range more {
			if !slices.Contains(facts, i) {
				facts = append(facts, i)
			}
		}
	}
	if i, ok := c.exits[best.rank]; ok {
		add(i)
	}
	switch d.Cause {
	case cause.HostOOM:
		add(c.kills...)
	case cause.GPUOccupied:
		add(c.tenants...)
	}
	if i, ok := c.progress[best.rank]; ok && d.Late {
		add(i)
	}
	if d.Cause == cause.Unknown {
		add(c.stuck...)
	}
	for _, o := range all {
		if o.code == best.code || slices.Contains(d.Symptoms, o.code) {
			add(o.fact)
		}
	}
	if best.code == cause.Hang {
		facts = append(facts, c.stackFacts()...)
	}
	return facts
}

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
	switch {
	case d.Cause == cause.Unknown && c.saysKilled(best):
		return c.adviseKill()
	case d.Impossible && d.Requested != nil:
		return fmt.Sprintf("a single request of %s is more than the memory there is: look for a wrong shape, a batch or a sequence that is far too long", GiB(*d.Requested))
	case d.Growth != nil:
		return d.leak()
	case d.Cause == cause.HostOOM && len(c.kills) == 0 && best.finding != nil && best.finding.Says(cause.SaysWorker):
		return "SIGKILL ended a loader's worker, probably by the kernel for want of memory, which dmesg shows: " + hint(d.Cause)
	case d.Cause.OutOfMemory():
		return c.spread(d, ev)
	case best.finding != nil && best.code != cause.SharedMemory && c.fileSystem(best.finding) != nil:
		return c.fileSystem(best.finding).advise(best.code)
	case best.finding != nil && best.finding.Says(cause.SaysDamaged):
		return "the file that the job reads is incomplete, or another file than it expects: start from an older checkpoint, or fetch the file again"
	case best.finding != nil && best.finding.Says(cause.SaysNotOpened):
		return "the file that the job saves could not be made: its folder has to exist, to be writable and to have space"
	case best.finding != nil && best.finding.Says(cause.SaysCut):
		return "the output ends before the exception is named: look for the rest of it, in another file or in the scheduler's log"
	case best.finding != nil && best.finding.Says(cause.SaysLocalRank):
		return "torch.distributed.launch passes --local-rank: start the script by torchrun, which sets LOCAL_RANK, or let it accept the argument"
	case d.Place != nil:
		return "look at " + d.Place.Words()
	case (d.Cause == cause.UserError || d.Cause == cause.Unknown) && slices.Contains(cause.Remarks(d.Cause, d.Error), cause.SaysElsewhere):
		return "this is the report of a process about another one, whose own error is not here: look at the failed rank's stderr, which torchrun keeps with --log-dir DIR --redirects 3"
	case d.Cause == cause.NCCLError || d.Cause == cause.NCCLTimeout:
		return c.adviseNetwork(d.Cause)
	case d.Cause == cause.Driver && cause.DriverVersion(d.Error) != "":
		return fmt.Sprintf("the driver supports CUDA %s: install a PyTorch that was built for it or for an older one, or a newer driver", cause.DriverVersion(d.Error))
	case d.Cause == cause.Hang && ev.Ranks == 1:
		return "look at where it was: it waits for something that does not come, such as a lock, a loader's worker, a file or the network"
	case d.Cause == cause.None:
		return c.adviseHandled()
	case d.Cause == cause.Preempted && slices.ContainsFunc(c.findings, func(s found) bool { return s.finding.Says(cause.SaysTimeLimit) }):
		return "the scheduler's time limit ended the job: ask for more time, or let the job save checkpoints and start it again from the newest one"
	case best.finding != nil && best.finding.Says(cause.SaysNode):
		return "a node of the job failed: start the job again on other nodes, and report it to the cluster's administrators"
	case d.Cause == cause.Unknown && best.finding != nil && best.finding.Says(cause.SaysStorage):
		return "the file system failed to read or write: look at the kernel log and at the state of the disk or the file server, before the job is started again"
	case d.Cause == cause.DiskFull && cause.PathIn(d.Error) != "":
		return fmt.Sprintf("free space or quota on the file system of %s, or point the job elsewhere (TMPDIR for temporary files)", cause.PathIn(d.Error))
	case d.Cause == cause.PortInUse && c.severalListen():
		return "several processes of this job listen on the same port, so each believes to be rank 0: start them by torchrun or srun so that each has a different RANK"
	case d.Cause == cause.GPUHardware && best.finding != nil && cause.HostIn(best.finding.Text) != "":
		return fmt.Sprintf("drain the node %s, and check its GPU and its links before jobs use it again", cause.HostIn(best.finding.Text))
	case d.Cause == cause.GPUHardware && best.finding != nil && best.finding.Says(cause.SaysXid):
		return "drain the node, and reset or power off its GPU before jobs use it again; errors of its PCIe slot before this line point to the slot, the riser or the power"
	case d.Cause == cause.Unknown && len(c.ranks) < 2 && ev.Ranks < 2:
		return "look at the last lines of the output"
	case d.Cause == cause.Unknown && len(c.stuck) > 0:
		return "a process does not end even by SIGKILL, which points to the driver or to storage: check the kernel log, and restart the node if it stays"
	}
	return hint(d.Cause)
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
		return c.facts[best.fact].Exit != nil && signalOf(c.exitAt(best.fact)) == sigKILL
	}
	return best.finding.Says(cause.SaysKilled)
}

// adviseKill returns where to look for the sender of the signal.
func (c *fold) adviseKill() string {
	text := "a rank was killed by SIGKILL and nothing shows which process sent it: look for oom-kill in the kernel log (dmesg), oom_kill in the cgroup's memory.events, or for a user who killed it"
	for _, i := range c.gaps {
		if strings.Contains(c.facts[i].Gap, "cgroup") {
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
	peer, ranks := c.peer(), c.reporters()
	switch {
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

// reporters are the ranks whose watchdogs report that a collective timed out.
func (c *fold) reporters() (ranks []string) {
	for _, s := range c.findings {
		if rank := cause.ReporterIn(s.finding.Text); rank != "" && s.finding.Code == cause.NCCLTimeout && !slices.Contains(ranks, rank) {
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

// Sentence is the diagnosis in a few words, without a full stop: "CUDA out of memory in backward
// on rank 5 at train.py:25 (wanted 2.0 GiB, 0.3 GiB free of 80 GiB)".
func (d Diagnosis) Sentence() string {
	if !d.Fatal {
		return "nothing fatal"
	}
	var b strings.Builder
	b.WriteString(d.title())
	if d.Late {
		b.WriteString(" late in the run")
	}
	// A port is taken, and a collective fails, where each job starts and waits.
	if d.Phase != "" && d.Phase != cause.NoPhase && d.Phase != cause.Collective && d.Cause != cause.PortInUse {
		fmt.Fprintf(&b, " in %s", d.Phase)
	}
	if d.Rank >= 0 {
		fmt.Fprintf(&b, " on rank %d", d.Rank)
		if d.Node != "" {
			b.WriteString(" of " + d.Node)
		}
	}
	if d.Place != nil && d.Cause.OutOfMemory() {
		fmt.Fprintf(&b, " at %s", clip(d.Place.String(), 80))
	}
	if figures := d.figures(); figures != "" {
		fmt.Fprintf(&b, " (%s)", figures)
	}
	return b.String()
}

// troubles begin the sentences about failures that are named, but have no cause.
var troubles = map[cause.Remark]string{
	cause.SaysStorage: "the storage failed", cause.SaysDamaged: "a file cannot be read", cause.SaysNotOpened: "a file cannot be saved",
}

// trouble is the beginning of the sentence about a failure that has no cause; empty: none.
func (d Diagnosis) trouble() string {
	for _, r := range cause.Remarks(d.Cause, d.Error) {
		if words := troubles[r]; words != "" {
			return words
		}
	}
	return ""
}

// Named reports whether the output names the failure, though its cause is unknown.
func (d Diagnosis) Named() bool { return d.trouble() != "" }

func (d Diagnosis) title() string {
	if d.Lost != nil {
		return d.Lost.String()
	}
	switch d.Cause {
	case cause.CUDAOOM:
		return cause.Accelerator(d.Error) + " out of memory"
	case cause.HostOOM:
		if d.Device == "cpu" {
			return "CPU out of memory"
		}
		return "host out of memory"
	case cause.UserError:
		switch {
		case d.Place != nil:
			return clip(d.Place.String(), 80) + ": " + clip(d.Error, 160)
		case d.Error != "":
			return clip(d.Error, 160)
		}
	case cause.GPUHardware:
		if slices.Contains(cause.Remarks(d.Cause, d.Error), cause.SaysNode) {
			return "a node failed"
		}
		fallthrough
	case cause.NCCLTimeout, cause.NCCLError:
		c, _ := cause.Lookup(d.Cause)
		if words := cause.Failed(d.Error); words != "" {
			return c.Title + ": " + clip(words, 160)
		}
	case cause.Unknown:
		if words := d.trouble(); words != "" {
			return words + ": " + clip(d.Error, 160)
		}
		if d.ExitCode == 0 {
			return "ended for an unknown reason"
		}
		if d.ExitCode > 128 && d.ExitCode <= 128+sigSYS {
			return fmt.Sprintf("ended by signal %d for an unknown reason", d.ExitCode-128)
		}
		return fmt.Sprintf("ended with exit code %d for an unknown reason", d.ExitCode)
	}
	if c, known := cause.Lookup(d.Cause); known {
		return c.Title
	}
	return string(d.Cause)
}

func (d Diagnosis) figures() string {
	var words []string
	if d.Hardware != nil {
		words = append(words, clip(strings.TrimSpace(d.Hardware.Text), 240))
	}
	if d.Requested != nil {
		words = append(words, "wanted "+GiB(*d.Requested))
	}
	switch {
	case d.Free != nil && d.Capacity != nil:
		words = append(words, fmt.Sprintf("%s free of %s", GiB(*d.Free), GiB(*d.Capacity)))
	case d.Capacity != nil:
		words = append(words, "of "+GiB(*d.Capacity))
	}
	if d.Allowed != nil {
		words = append(words, GiB(*d.Allowed)+" allowed")
	}
	if d.Growth != nil {
		words = append(words, fmt.Sprintf("a leak: %s grew by %s a step", d.Growth.Word, GiB(d.Growth.PerStep)))
	}
	if d.Cause == cause.Hang && d.Error != "" {
		words = append(words, clip(d.Error, 240))
	}
	if d.Impossible {
		words = append(words, "one request larger than the device can hold")
	}
	return strings.Join(words, ", ")
}

// clip shortens a line for a sentence. It cuts before a word, because half of a secret would not
// be redacted.
func clip(s string, n int) string {
	if len(s) <= n {
		return s
	}
	if blank := strings.LastIndexByte(s[:n+1], ' '); blank > 0 {
		return s[:blank] + " …"
	}
	return strings.ToValidUTF8(s[:n], "") + "…"
}
