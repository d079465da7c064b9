package strategy

import (
	"cmp"
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
	d.Error, d.Lost = c.lastError(all, best), As[*Lost](c.facts[best.fact])
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
	if d.Requested == nil && (f.Requested != nil || o.fact == best.fact || d.Figures == (cause.Figures{})) || fuller {
		d.Figures = f
	}
	if d.Device == "" {
		d.Device = o.finding.Device
	}
	if d.Phase == cause.NoPhase && o.finding.Phase != "" {
		d.Phase = o.finding.Phase
	}
}

// lastError is the exception that the failed rank reported itself, or else the one in its output that
// ended it: the last of those that Python joined to the chosen one. A launcher's report is none.
func (c *fold) lastError(all []candidate, best candidate) string {
	if best.finding != nil && best.finding.Weight.Dismissed() {
		return best.finding.Text // the exceptions after it follow from it
	}
	own := ofRank(all, best)
	for _, o := range own {
		if o.rank >= 0 && o.tier <= tierSymptom && ownWord(c.facts[o.fact].Source) {
			return o.finding.Text
		}
	}
	if f := best.finding; f != nil && f.Raised && !passedOn(f) {
		if best.code == cause.Preempted {
			return f.Text // what is raised from an interrupt does not name it
		}
		return outermost(own, f).Text
	}
	text, at := "", -1
	for _, o := range own {
		if o.finding.Raised && o.fact > at && (!passedOn(o.finding) || text == "" &&
			(best.finding == nil || best.finding.Weight != cause.WeightCause)) {
			text, at = o.finding.Text, o.fact
		}
	}
	if text == "" && best.finding != nil {
		text = best.finding.Text
	}
	return text
}

// ofRank lists the messages of the chosen one's rank that may name its error.
func ofRank(all []candidate, best candidate) (own []candidate) {
	for _, o := range all {
		if o.finding != nil && o.rank == best.rank && (o.code != cause.Preempted || best.code == cause.Preempted) {
			own = append(own, o)
		}
	}
	return own
}

// outermost follows an exception to the last one that was raised from it, or while it was handled.
func outermost(own []candidate, f *cause.Finding) *cause.Finding {
	for range own {
		at := slices.IndexFunc(own, func(o candidate) bool {
			return o.finding.After > 0 && o.finding.After == f.Seq && o.finding.Stream == f.Stream && !passedOn(o.finding)
		})
		if at < 0 {
			break
		}
		f = own[at].finding
	}
	return f
}

// place is the source line at which the rank's error was raised; nil if no traceback shows it.
// For an out-of-memory error it is always a line of the job's own code.
func place(d *Diagnosis, all []candidate, best candidate) (found *cause.SourceLine) {
	oom := d.Cause.OutOfMemory()
	if d.Cause != cause.UserError && !oom || d.Error == "" {
		return nil
	}
	for _, o := range all {
		if o.finding == nil || o.rank != best.rank || o.finding.Text != d.Error || passedOn(o.finding) &&
			(oom || o.finding.ByLauncher()) {
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
	d.Fragmented = d.ReservedUnallocated != nil && *d.ReservedUnallocated >= *d.Requested && !d.refusedWithRoom()
	if d.Cause == cause.CUDAOOM && !d.Impossible && c.occupied(d) {
		d.Cause = cause.GPUOccupied
	}
}

// OutsidePyTorch is the device's memory that PyTorch does not hold in this process, in bytes; 0 if
// the message does not show it, or names other processes.
func (d *Diagnosis) OutsidePyTorch(ev Evidence) int64 {
	if d.Capacity == nil || d.Free == nil || d.Allocated == nil || d.OtherProcess != nil || d.Process != nil ||
		d.Allowed != nil {
		return 0
	}
	reserved := int64(-1)
	if d.ReservedUnallocated != nil {
		reserved = *d.Allocated + *d.ReservedUnallocated
	}
	for _, f := range d.Facts(&ev) {
		if f.Finding() == nil {
			continue
		}
		if total := cause.ReservedIn(f.Finding().Text); total != nil { // PyTorch to 2.0
			reserved = *total
			break
		}
	}
	if reserved < *d.Allocated {
		return 0
	}
	return max(0, *d.Capacity-*d.Free-reserved)
}

// refusedWithRoom reports whether the device had far more free memory than the request, and the
// message names no limit: it is not full.
func (d *Diagnosis) refusedWithRoom() bool {
	const spare = 1 << 30 // bytes; PyTorch rounds a request up by less
	return d.Cause == cause.CUDAOOM && d.Requested != nil && d.Free != nil && d.Allowed == nil &&
		*d.Free > 2**d.Requested+spare
}

// late reports whether the rank had made at least lateSteps steps.
func (c *fold) late(best candidate) bool {
	i, ok := c.progress[best.rank]
	if !ok && best.rank < 0 && len(c.progress) == 1 {
		i, ok = slices.Collect(maps.Values(c.progress))[0], true
	}
	if ok {
		p := As[*Progress](c.facts[i])
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
			g = c.facts[i].Growth()
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
	if i, ok := c.progress[best.rank]; ok && As[*Progress](c.facts[i]).Last > As[*Progress](c.facts[i]).First {
		d.Again = As[*Progress](c.facts[i]).Last - As[*Progress](c.facts[i]).First
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
		if t := As[*Tenant](c.facts[i]); t.Device == d.Device {
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
	// A port is taken, and a collective fails, where each job starts and waits; a GPU, a disk and a
	// driver do not depend on the phase.
	if d.Phase != "" && d.Phase != cause.NoPhase && d.Phase != cause.Collective && !slices.Contains(phaseless, d.Cause) {
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

// Named reports whether the output names the failure, though its cause is unknown.
func (d Diagnosis) Named() bool { return cause.Explain(d.Cause, d.Error).Title != "" }

// phaseless are the causes that do not depend on the phase of the training.
var phaseless = []cause.Code{cause.PortInUse, cause.GPUOccupied, cause.DiskFull, cause.SharedMemory, cause.Driver}

func (d Diagnosis) title() string {
	if d.Lost != nil {
		return d.Lost.String()
	}
	explained := cause.Explain(d.Cause, d.Error).Title
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
		case explained != "":
			return explained + ": " + clip(d.Error, 160)
		case d.Place != nil:
			return clip(d.Place.String(), 80) + ": " + clip(d.Error, 160)
		case d.Error != "":
			return clip(d.Error, 160)
		}
	case cause.Storage:
		if c, _ := cause.Lookup(d.Cause); d.Error != "" {
			return c.Title + ": " + clip(d.Error, 160)
		}
	case cause.GPUHardware:
		if explained != "" {
			return explained
		}
		fallthrough
	case cause.NCCLTimeout, cause.NCCLError:
		c, _ := cause.Lookup(d.Cause)
		if words := cause.Failed(d.Error); words != "" {
			return c.Title + ": " + clip(words, 160)
		}
	case cause.Unknown:
		if explained != "" {
			return explained + ": " + clip(d.Error, 160)
		}
		if d.ExitCode == 0 {
			d.ExitCode = cause.ExitIn(d.Error)
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
		return cmp.Or(explained, c.Title)
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
