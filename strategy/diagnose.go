package strategy

import (
	"cmp"
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
)

// lateSteps is after how many steps an out-of-memory error is late. By then the
// allocator is warm, the optimizer's state exists, and every part of a step has
// run: the plan fitted, and something grew.
const lateSteps = 20

// The signals that say something about a cause.
const (
	sigILL  = 4
	sigTRAP = 5
	sigABRT = 6
	sigBUS  = 7
	sigFPE  = 8
	sigKILL = 9
	sigSEGV = 11
	sigPIPE = 13
	sigALRM = 14
	sigXCPU = 24
	sigXFSZ = 25
	sigSYS  = 31
)

// Diagnose says why an attempt ended. It ranks what the facts of all ranks show:
// a cause that the words prove before an exception of the job's own, that before
// the symptoms that a dying rank brings about in the others, and those before
// warnings and bare exits; within a kind, the first in time. A cause that brings
// about another's marks goes before it.
func Diagnose(ev Evidence) Diagnosis {
	if ev.Unstarted != nil {
		return ev.Unstarted.diagnosis()
	}
	c := gather(ev)
	if c.fine(ev) {
		d := Diagnosis{Cause: cause.None, Phase: cause.NoPhase, Rank: -1, Symptoms: []cause.Code{}, Because: c.exitFacts()}
		c.handled(&d)
		return d
	}
	all := c.candidates(ev)
	if len(all) == 0 {
		return c.nothing()
	}
	slices.SortStableFunc(all, func(a, b candidate) int {
		return cmp.Or(cmp.Compare(a.tier, b.tier), cmp.Compare(c.hollow(a), c.hollow(b)), a.compareTime(ev, b))
	})
	best := c.attribute(deeper(all), all)
	d := Diagnosis{Cause: best.code, Fatal: true, Phase: cause.NoPhase, Rank: best.rank, Symptoms: symptoms(all, best)}
	if best.tier == tierWeak && len(c.exits) == 0 && !slices.ContainsFunc(all, func(a candidate) bool { return a.tier == tierExit }) {
		d.Fatal = false // a warning, and nobody saw the job fail
		if best.code == cause.CUDAOOM || best.code == cause.HostOOM {
			d.Cause = cause.None
		}
	}
	c.describe(&d, ev, all, best)
	return d
}

// A tier is how much a candidate proves, the strongest first.
type tier int

const (
	tierProof   tier = iota // words or counters that name a cause
	tierOwn                 // the job's own exception, a crash, a kill by nobody knows whom
	tierSymptom             // what the death of another rank brings about
	tierWeak                // a warning
	tierExit                // an exit code and no word, or words that tell no more
)

// A candidate is one thing that may have ended the attempt.
type candidate struct {
	fact  int // index into the evidence
	code  cause.Code
	tier  tier
	rank  int
	said  *cause.Sighting // nil for an exit or a counter
	order int
}

// hollow is 1 for words that announce what further words say better.
func (c *file) hollow(a candidate) int {
	if c.vague(a) {
		return 1
	}
	if a.said != nil && a.tier == tierExit {
		return 1 // the exit itself knows better
	}
	if a.said == nil || a.tier != tierSymptom {
		return 0
	}
	for _, w := range []string{"multiprocessing.errors.ChildFailedError", "Some NCCL operations have failed or timed out"} {
		if strings.Contains(a.said.Text, w) {
			return 1
		}
	}
	return 0
}

func (a candidate) compareTime(ev Evidence, b candidate) int {
	ta, tb := ev.Facts[a.fact].Time, ev.Facts[b.fact].Time
	if !ta.IsZero() && !tb.IsZero() {
		if n := ta.Compare(tb); n != 0 {
			return n
		}
	}
	return cmp.Compare(a.order, b.order)
}

// A file is the evidence of one attempt, sorted by kind.
type file struct {
	facts     []Fact
	sightings []sighted
	exits     map[int]int // rank to fact
	kills     []int
	tenants   []int
	progress  map[int]int
	stuck     []int
	gaps      []int
	growth    map[int]int
	ranks     map[int]bool // that some fact is about
}

// A sighted is a sighting with the index of the fact that told it first.
type sighted struct {
	fact int
	rank int
	said *cause.Sighting
}

// gather sorts the facts, and lets a sighting that was given again replace the
// earlier one in its place.
func gather(ev Evidence) *file {
	c := &file{facts: ev.Facts, exits: map[int]int{}, progress: map[int]int{}, growth: map[int]int{}, ranks: map[int]bool{}}
	type identity struct {
		rank        int
		source, str string
		seq         int
	}
	seen := map[identity]int{}
	for i := range ev.Facts {
		f := &ev.Facts[i]
		rank := f.Rank
		if rank < 0 && f.Sighting != nil {
			rank = f.Sighting.Rank
		}
		c.ranks[rank] = true
		switch {
		case f.Sighting != nil:
			id := identity{rank, f.Source, f.Sighting.Stream, f.Sighting.Seq}
			if at, ok := seen[id]; ok && id.seq > 0 {
				c.sightings[at].said = f.Sighting
				continue
			}
			seen[id] = len(c.sightings)
			c.sightings = append(c.sightings, sighted{fact: i, rank: rank, said: f.Sighting})
		case f.DriverEvent != nil:
			if said, ok := f.DriverEvent.Sighting(); ok {
				c.sightings = append(c.sightings, sighted{fact: i, rank: f.Rank, said: &said})
			}
		case f.Exit != nil:
			c.exits[f.Rank] = i
		case f.Kills != nil && f.Kills.Count > 0:
			c.kills = append(c.kills, i)
		case f.Tenant != nil:
			c.tenants = append(c.tenants, i)
		case f.Progress != nil:
			c.progress[f.Rank] = i
		case f.Stuck != nil:
			c.stuck = append(c.stuck, i)
		case f.Growth != nil:
			c.growth[f.Rank] = i
		case f.Gap != "":
			c.gaps = append(c.gaps, i)
		}
	}
	return c
}

// fine reports whether nothing failed: every rank ended with 0, or somebody
// stopped the attempt and no rank had failed before.
func (c *file) fine(ev Evidence) bool {
	if len(c.exits) == 0 {
		return ev.StopSignal != 0
	}
	stopped := false
	for _, i := range c.exits {
		exit := c.facts[i].Exit
		if failed(exit) {
			return false
		}
		stopped = stopped || exit.Stopped
	}
	return !stopped || ev.StopSignal != 0
}

// failed reports whether a rank ended badly by itself.
func failed(e *Exit) bool { return !e.Stopped && (e.Code != 0 || signalOf(e) != 0) }

// signalOf returns the signal that ended a process, also where a shell between
// the process and its observer turned it into an exit code.
func signalOf(e *Exit) int {
	if e.Signal == 0 && e.Code > 128 && e.Code <= 128+64 {
		return e.Code - 128
	}
	return e.Signal
}

func (c *file) exitFacts() []int {
	facts := make([]int, 0, len(c.exits))
	for _, i := range c.exits {
		facts = append(facts, i)
	}
	slices.Sort(facts)
	return facts
}

// exitOf finds how the rank ended; a saved log has one exit code for all.
func (c *file) exitOf(rank int) *Exit {
	if i, ok := c.exits[rank]; ok {
		return c.facts[i].Exit
	}
	if i, ok := c.exits[-1]; ok {
		return c.facts[i].Exit
	}
	return nil
}

// nothing is the diagnosis where nothing was seen to fail, or nothing says why.
func (c *file) nothing() Diagnosis {
	d := Diagnosis{Cause: cause.None, Phase: cause.NoPhase, Rank: -1, Symptoms: []cause.Code{}, Because: c.exitFacts()}
	c.handled(&d)
	if len(c.exits) > 0 {
		d.Cause, d.Fatal = cause.Unknown, true
		d.Advice = advice(cause.Unknown)
	}
	return d
}

// handled quotes the out-of-memory errors that the job outlived.
func (c *file) handled(d *Diagnosis) {
	for _, s := range c.sightings {
		if s.said.Code == cause.CUDAOOM || s.said.Code == cause.HostOOM {
			d.Because = append(d.Because, s.fact)
		}
	}
	d.Advice = c.adviseHandled()
}

// adviseHandled is about out-of-memory errors that the job outlived, if there are
// any: a warning without an amount only speaks of such.
func (c *file) adviseHandled() string {
	for _, s := range c.sightings {
		oom := s.said.Code == cause.CUDAOOM || s.said.Code == cause.HostOOM
		if oom && (!s.said.Weak || s.said.Figures.Requested != nil) {
			return "the job handled an out-of-memory error itself, by skipping, retrying or falling back: begin with a smaller batch where that matters"
		}
	}
	return ""
}

// candidates lists everything that may have ended the attempt.
func (c *file) candidates(ev Evidence) []candidate {
	var all []candidate
	for _, s := range c.sightings {
		if c.outlived(s) {
			continue
		}
		all = append(all, candidate{fact: s.fact, code: s.said.Code, tier: tierOf(s.said), rank: s.rank, said: s.said})
	}
	for rank, i := range c.exits {
		if exit := c.facts[i].Exit; failed(exit) {
			code, t := c.exitMeans(exit)
			all = append(all, candidate{fact: i, code: code, tier: t, rank: rank})
		}
	}
	for _, i := range c.kills {
		k := candidate{fact: i, code: cause.HostOOM, tier: tierWeak, rank: c.facts[i].Rank}
		if rank, ok := c.killed(); ok {
			k.tier = tierProof
			if k.rank < 0 {
				k.rank = rank
			}
		}
		all = append(all, k)
	}
	slices.SortStableFunc(all, func(a, b candidate) int { return cmp.Compare(a.fact, b.fact) })
	for i := range all {
		all[i].order = i
	}
	return c.ownEvents(all)
}

// outlived reports whether the job went on after a sighting: by its own words,
// by its steps, or because the rank ended well.
func (c *file) outlived(s sighted) bool {
	if s.said.Handled {
		return true
	}
	if exit, ok := c.exits[s.rank]; ok && s.rank >= 0 {
		// The stream is this rank's own, so the steps are too.
		if s.said.WentOn {
			return true
		}
		e := c.facts[exit].Exit
		return !e.Stopped && !failed(e)
	}
	return false
}

// endings are how shells, launchers and runtimes say that a process failed.
var endings = []string{
	"Aborted (core dumped)", "zsh: abort", "terminate called after throwing an instance of", "Exited with exit code", "exited on signal 6 (Aborted)",
	"detected that one or more processes exited with non-zero status", "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "make: *** [",
	"finished with exit code 1", "terminated with exit code 1", "exited with code 1",
}

func isEnding(s *cause.Sighting) bool {
	return s.Symptom && s.Code == cause.Unknown && !strings.Contains(s.Text, " code 137") &&
		slices.ContainsFunc(endings, func(words string) bool { return strings.Contains(s.Text, words) })
}

func tierOf(s *cause.Sighting) tier {
	switch {
	case isEnding(s):
		return tierExit
	case s.Weak:
		return tierWeak
	case s.Symptom:
		return tierSymptom
	case s.Code == cause.UserError || s.Code == cause.Unknown:
		return tierOwn
	}
	return tierProof
}

// exitMeans tells what an exit says by itself.
func (c *file) exitMeans(e *Exit) (cause.Code, tier) {
	switch signalOf(e) {
	case 0:
		if e.Code == 1 || e.Code == 2 {
			return cause.UserError, tierExit // how Python and argument parsers give up
		}
		return cause.Unknown, tierExit
	case sigSEGV, sigBUS, sigILL, sigFPE:
		return cause.Segfault, tierOwn
	case sigKILL:
		return cause.Unknown, tierOwn
	case sigABRT, sigTRAP, sigSYS, sigXCPU, sigXFSZ, sigPIPE, sigALRM:
		return cause.Unknown, tierExit // the process brought it upon itself; the output may explain it
	default:
		return cause.Preempted, tierSymptom // somebody sent it
	}
}

// killed reports whether something of the job died by SIGKILL: a rank, or a
// loader's worker whose parent says so.
func (c *file) killed() (rank int, ok bool) {
	for _, i := range c.exitFacts() {
		if e := c.facts[i].Exit; !e.Stopped && signalOf(e) == sigKILL {
			return c.facts[i].Rank, true
		}
	}
	for _, s := range c.sightings {
		if strings.Contains(s.said.Text, "DataLoader worker") {
			return s.rank, true
		}
	}
	return -1, false
}

// deeper returns the first candidate, or the one of the same tier that brings
// about what the first one shows.
func deeper(all []candidate) candidate {
	best := all[0]
	for _, other := range all[1:] {
		if other.tier != best.tier || best.tier > tierOwn {
			break
		}
		if entry, ok := cause.Lookup(other.code); ok && slices.Contains(entry.Explains, best.code) {
			if back, _ := cause.Lookup(best.code); !slices.Contains(back.Explains, other.code) {
				best = other
			}
		}
	}
	return best
}

// symptoms are the other causes' marks that the chosen one brings about.
func symptoms(all []candidate, best candidate) []cause.Code {
	entry, _ := cause.Lookup(best.code)
	found := []cause.Code{}
	for _, c := range all {
		mark := c.tier == tierSymptom || c.tier <= tierOwn && slices.Contains(entry.Explains, c.code)
		if mark && c.code != best.code && c.code != cause.Unknown && c.code != cause.UserError && !slices.Contains(found, c.code) {
			found = append(found, c.code)
		}
	}
	return found
}

// describe fills in what is known beyond the cause.
func (c *file) describe(d *Diagnosis, ev Evidence, all []candidate, best candidate) {
	d.Because = []int{best.fact}
	for _, o := range all {
		if o.code != best.code || o.said == nil {
			continue
		}
		if o.rank >= 0 && !slices.Contains(d.Ranks, o.rank) {
			d.Ranks = append(d.Ranks, o.rank)
		}
		c.quote(d, o, best)
	}
	slices.Sort(d.Ranks)
	if best.said == nil && best.rank >= 0 && !slices.Contains(d.Ranks, best.rank) {
		d.Ranks = append(d.Ranks, best.rank)
	}
	if exit := c.exitOf(best.rank); exit != nil && failed(exit) {
		d.ExitCode = exit.Code
	} else if c.event(best) && best.rank < 0 {
		d.ExitCode = c.firstExitCode()
	}
	d.Error = lastError(all, best)
	c.memory(d, ev, best)
	d.Advice = c.advise(d, ev, best)
	d.Because = c.because(d, all, best)
}

// quote takes figures, device and phase from a sighting of the cause, the chosen
// one's first, unless an earlier sighting gave them.
func (c *file) quote(d *Diagnosis, o, best candidate) {
	if o.rank != best.rank && best.said != nil && d.Requested != nil {
		return
	}
	if d.Requested == nil && (o.said.Figures.Requested != nil || o.fact == best.fact) {
		d.Figures = o.said.Figures
	}
	if d.Device == "" {
		d.Device = o.said.Device
	}
	if d.Phase == cause.NoPhase && o.said.Phase != "" {
		d.Phase = o.said.Phase
	}
}

// lastError is the last exception of the rank that failed.
func lastError(all []candidate, best candidate) string {
	text, at := "", -1
	for _, o := range all {
		if o.said != nil && o.said.Raised && o.rank == best.rank && o.fact > at {
			text, at = o.said.Text, o.fact
		}
	}
	if text == "" && best.said != nil {
		text = best.said.Text
	}
	return text
}

// memory works out what the figures of an out-of-memory error say.
func (c *file) memory(d *Diagnosis, ev Evidence, best candidate) {
	if d.Cause != cause.CUDAOOM && d.Cause != cause.HostOOM {
		return
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

// late reports whether the rank had made many good steps.
func (c *file) late(best candidate) bool {
	i, ok := c.progress[best.rank]
	if !ok && best.rank < 0 && len(c.progress) == 1 {
		for _, i = range c.progress {
			ok = true
		}
	}
	if ok {
		p := c.facts[i].Progress
		return max(p.Steps, p.Last-p.First) >= lateSteps
	}
	return len(c.progress) == 0 && best.said != nil && best.said.Step >= lateSteps
}

// occupied reports whether others than the job fill the device: they hold at
// least half of it, and more than this process does. Where the ranks' processes
// are known, a tenant is none of them; the message's own list is not so sure.
func (c *file) occupied(d *Diagnosis) bool {
	if d.Capacity == nil {
		return false
	}
	var others int64
	for _, i := range c.tenants {
		if t := c.facts[i].Tenant; t.Device == d.Device {
			others += t.Bytes
		}
	}
	if len(c.tenants) == 0 && d.OtherProcess != nil {
		others = *d.OtherProcess
	}
	own := int64(0)
	switch {
	case d.Process != nil:
		own = *d.Process
	case d.Allocated != nil:
		own = *d.Allocated
	}
	return others >= *d.Capacity/2 && others > own
}

// because lists the facts that the diagnosis rests on, the strongest first.
func (c *file) because(d *Diagnosis, all []candidate, best candidate) []int {
	facts := []int{best.fact}
	add := func(i int) {
		if !slices.Contains(facts, i) {
			facts = append(facts, i)
		}
	}
	if i, ok := c.exits[best.rank]; ok {
		add(i)
	}
	if d.Cause == cause.HostOOM {
		for _, i := range c.kills {
			add(i)
		}
	}
	if d.Cause == cause.GPUOccupied {
		for _, i := range c.tenants {
			add(i)
		}
	}
	if i, ok := c.progress[best.rank]; ok && d.Late {
		add(i)
	}
	if d.Cause == cause.Unknown {
		for _, i := range c.stuck {
			add(i)
		}
	}
	for _, o := range all {
		if o.code == best.code || slices.Contains(d.Symptoms, o.code) {
			add(o.fact)
		}
	}
	return facts
}

// advise is the sentence for a person, where no rung answers the cause.
func (c *file) advise(d *Diagnosis, ev Evidence, best candidate) string {
	switch {
	case d.Cause == cause.Unknown && c.saysKilled(best):
		return c.adviseKill()
	case d.Impossible && d.Requested != nil:
		return fmt.Sprintf("a single request of %s is more than the memory there is: look for a wrong shape, a batch or a sequence that is far too long", GiB(*d.Requested))
	case d.Growth != nil:
		return d.leak()
	case d.Cause == cause.CUDAOOM || d.Cause == cause.HostOOM:
		return c.spread(d, ev)
	case d.Cause == cause.None:
		return c.adviseHandled()
	case d.Cause == cause.Unknown && len(c.stuck) > 0:
		return "a process does not end even by SIGKILL, which points to the driver or to storage: check the kernel log, and restart the node if it stays"
	}
	return advice(d.Cause)
}

// saysKilled reports whether the candidate is an end by SIGKILL: an exit, or what
// torchrun and shells say of one.
func (c *file) saysKilled(best candidate) bool {
	if best.said == nil {
		exit := c.facts[best.fact].Exit
		return exit != nil && signalOf(exit) == sigKILL
	}
	for _, w := range []string{"SIGKILL", "exitcode: -9", "Killed"} {
		if strings.Contains(best.said.Text, w) {
			return true
		}
	}
	return false
}

// adviseKill says what would prove who killed the rank.
func (c *file) adviseKill() string {
	text := "a rank was killed by SIGKILL and nothing proves by whom: look for oom-kill in the kernel log (dmesg), oom_kill in the cgroup's memory.events, or an operator's kill"
	for _, i := range c.gaps {
		if strings.Contains(c.facts[i].Gap, "cgroup") {
			return text + "; the cgroup's counter could not be read here"
		}
	}
	return text
}

// advice is the catalogue's hint for a cause.
func advice(code cause.Code) string {
	entry, _ := cause.Lookup(code)
	return entry.Hint
}

// EvidenceFromLog makes evidence of the sightings in saved output, where nothing
// else was observed. A nil exit code is one that nobody knows; a negative one is
// a signal's number, as Python reports it.
func EvidenceFromLog(sightings []cause.Sighting, exitCode *int) Evidence {
	var ev Evidence
	for i := range sightings {
		ev.Facts = append(ev.Facts, Fact{Rank: sightings[i].Rank, Source: sightings[i].Stream, Sighting: &sightings[i]})
	}
	if exitCode != nil {
		exit := &Exit{Code: *exitCode}
		if *exitCode < 0 {
			exit.Signal = -*exitCode
			exit.Code = 128 + exit.Signal
		}
		ev.Facts = append(ev.Facts, Fact{Rank: -1, Source: "exit", Exit: exit})
	}
	return ev
}
