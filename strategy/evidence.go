package strategy

import (
	"cmp"
	"maps"
	"slices"
	"time"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Evidence is everything that is known about one attempt.
type Evidence struct {
	Attempt     int       `json:"attempt"`
	Plan        Plan      `json:"plan"`
	Started     time.Time `json:"started"`
	Ended       time.Time `json:"ended"`
	Ranks       int       `json:"ranks"`
	Accelerator string    `json:"accelerator"` // "cuda" or "cpu"
	// Facts are in the order in which they came. Add adds one; the methods below and Diagnose
	// interpret them.
	Facts []Fact `json:"facts"`
	// HangTimeout is the silence after an out-of-memory traceback from which a rank counts as
	// hanging; 0: the ranks were not watched.
	HangTimeout Seconds `json:"hang_timeout_seconds,omitempty"`
	// Questions is how long a failed process may be asked about its model; 0: not at all.
	Questions Seconds `json:"questions_seconds,omitempty"`
	// Stalls is the rule by which the job counts as hanging; nil: never.
	Stalls *StallRule `json:"stalls,omitempty"`
	// StopSignal is the signal by which a user stopped gpurun; 0: none.
	StopSignal int     `json:"stop_signal,omitempty"`
	Notice     *Notice `json:"notice,omitempty"` // of the end of the time; nil for none
	// Halted: gpurun stopped the ranks because a change had no effect.
	Halted bool `json:"halted,omitempty"`
	// Speedup is the decision to continue with a faster plan, for which gpurun stopped the ranks.
	// Kept is the reason why the plan was kept though a faster one would fit.
	Speedup *Decision `json:"climb,omitempty"`
	Kept    string    `json:"kept,omitempty"`

	// Unstarted is the reason why no rank ran; nil if they did.
	Unstarted *Unstarted `json:"unstarted,omitempty"`

	fold *fold // of Facts; nil: not folded yet
}

// EvidenceFromLog makes evidence of the findings in saved output, if nothing else was observed. A
// nil exit code is unknown; a negative one is a signal's number, as in Python.
func EvidenceFromLog(findings []cause.Finding, exitCode *int) Evidence {
	var ev Evidence
	for i := range findings {
		ev.Facts = append(ev.Facts, Fact{Rank: findings[i].Rank, Source: findings[i].Stream,
			Content: (*Finding)(&findings[i])})
	}
	if exitCode != nil {
		exit := &Exit{Code: *exitCode}
		if *exitCode < 0 {
			exit.Signal = -*exitCode
			exit.Code = 128 + exit.Signal
		}
		ev.Facts = append(ev.Facts, Fact{Rank: -1, Source: "exit", Content: exit})
	}
	return ev
}

// Add adds one more fact. A finding in a new state replaces the earlier one, and keeps the time
// of the first. A newer sign of life or report replaces the older one.
func (e *Evidence) Add(f Fact) {
	c, i := e.folded(), len(e.Facts)
	e.Facts = append(e.Facts, f)
	c.facts = e.Facts
	if earlier := c.take(i); earlier != first {
		e.Facts[earlier] = e.Facts[earlier].Updated(f)
		e.Facts = e.Facts[:i]
		c.facts = e.Facts
		c.take(earlier)
	}
}

// Same reports whether another fact is about the same finding, in another state.
func (f Fact) Same(other Fact) bool {
	return f.Finding() != nil && other.Finding() != nil && f.Finding().Seq > 0 && identityOf(&f) == identityOf(&other)
}

// Updated returns the fact in a later state. One with a finding keeps the time of the first.
func (f Fact) Updated(later Fact) Fact {
	if later.Finding() == nil {
		return later
	}
	if at := latest(later.Time, later.Again); at.After(f.Time) && !f.Time.IsZero() {
		later.Again = at
	}
	if !f.Time.IsZero() {
		later.Time = f.Time
	}
	return later
}

// A fold is the state of an attempt's facts. It refers to facts by their index, so that a
// diagnosis can list the facts that support it.
type fold struct {
	facts []Fact

	findings    []found
	known       map[findingID]int // index into findings
	exits       map[int]int       // rank to fact, as progress, growth, signs, snapshots and stacks
	progress    map[int]int
	growth      map[int]int
	signs       map[int]int
	snapshots   map[int]int
	stacks      map[int]int
	reported    map[processID]int
	measured    map[processID]int
	kills       []int
	tenants     []int
	stuck       []int
	lost        []int
	gaps        []int
	processEnds []int
	fileSystems []*FileSystem
	nodes       []string     // the hosts of several nodes
	ranks       map[int]bool // that some fact is about

	steps    int
	observed Plan
	fresh    bool
	nothing  string
}

// A found is a finding in its last state, with the first fact that had it.
type found struct {
	fact    int
	rank    int
	finding *cause.Finding
}

// A findingID identifies a finding through all its states.
type findingID struct {
	rank           int
	source, stream string
	seq            int
}

// A processID is a process of a rank, or one that the rank started.
type processID struct{ rank, pid int }

// folded returns the state of the facts. Facts that did not come through Add, such as those from
// a journal, are folded at the first call.
func (e *Evidence) folded() *fold {
	if e.fold != nil && len(e.fold.facts) == len(e.Facts) {
		return e.fold
	}
	e.fold = &fold{
		facts: e.Facts, exits: map[int]int{}, progress: map[int]int{}, growth: map[int]int{}, ranks: map[int]bool{},
		signs:    map[int]int{},
		reported: map[processID]int{}, measured: map[processID]int{}, snapshots: map[int]int{}, stacks: map[int]int{},
		known: map[findingID]int{},
	}
	for i := range e.Facts {
		e.fold.take(i)
	}
	return e.fold
}

// rankOf is the rank of a fact. In output that several ranks share, the line may name it.
func rankOf(f *Fact) int {
	if f.Rank < 0 && f.Finding() != nil {
		return f.Finding().Rank
	}
	return f.Rank
}

func identityOf(f *Fact) findingID {
	return findingID{rankOf(f), f.Source, f.Finding().Stream, f.Finding().Seq}
}

// take adds fact i, or its new state. It returns the index of the fact that this one replaces, or first.
func (c *fold) take(i int) (earlier int) {
	f := &c.facts[i]
	c.ranks[rankOf(f)] = true
	if f.Content == nil { // of a later version
		return first
	}
	return f.Content.fold(c, f, i)
}

// exitFacts are the facts of the ranks' exits, in their order.
func (c *fold) exitFacts() []int { return slices.Sorted(maps.Values(c.exits)) }

// exitOf returns how the rank ended; a saved log has one exit code for all ranks.
func (c *fold) exitOf(rank int) *Exit {
	for _, r := range []int{rank, -1} {
		if i, ok := c.exits[r]; ok {
			return c.exitAt(i)
		}
	}
	return nil
}

// processes lists the processes that reported, in the order of ranks.
func (c *fold) processes() []processID {
	return slices.SortedStableFunc(maps.Keys(c.reported),
		func(a, b processID) int { return cmp.Or(a.rank-b.rank, a.pid-b.pid) })
}

// reports lists the last reports of all processes, in the same order.
func (c *fold) reports() []*ProcessReport {
	order := c.processes()
	all := make([]*ProcessReport, len(order))
	for i, id := range order {
		all[i] = As[*ProcessReport](c.facts[c.reported[id]])
	}
	return all
}

// reporting counts the processes whose report meets a condition, and lists their ranks.
func (c *fold) reporting(meets func(*ProcessReport) bool) (ranks []int, processes int) {
	of := map[int]bool{}
	for id, i := range c.reported {
		if meets(As[*ProcessReport](c.facts[i])) {
			of[id.rank] = true
			processes++
		}
	}
	return slices.Sorted(maps.Keys(of)), processes
}

// Steps is the largest number of training steps that a rank reported.
func (e *Evidence) Steps() int { return e.folded().steps }

// Observed is the plan that the job reports. Reports of its processes outrank its output and
// files.
func (e *Evidence) Observed(j Job) Plan { return e.folded().observed.With(e.inProcess(j)) }

// Fresh reports whether the job printed that it starts from the beginning.
func (e *Evidence) Fresh() bool { return e.folded().fresh }

// Nothing is the line in which the job reports that it found nothing to do; empty: none.
func (e *Evidence) Nothing() string { return e.folded().nothing }

// Stuck is a process that SIGKILL did not end; nil: none.
func (e *Evidence) Stuck() *Stuck {
	c := e.folded()
	if n := len(c.stuck); n > 0 {
		return As[*Stuck](c.facts[c.stuck[n-1]])
	}
	return nil
}

// Snapshots are the contents of the ranks' allocators when memory ran out, by rank.
func (e *Evidence) Snapshots() []Snapshot {
	c := e.folded()
	var all []Snapshot
	for _, rank := range slices.Sorted(maps.Keys(c.snapshots)) {
		s := *As[*Snapshot](c.facts[c.snapshots[rank]])
		if raised := c.requested(rank); raised > 0 && s.Requested > 0 && !s.OfRequest(raised) {
			s = s.ofOther(raised)
		}
		all = append(all, s)
	}
	return all
}

// requested is the size of the request in a rank's last error of GPU memory; 0: not known.
func (c *fold) requested(rank int) (bytes int64) {
	for _, s := range c.findings {
		if s.rank == rank && s.finding.Code == cause.CUDAOOM && s.finding.Raised && s.finding.Figures.Requested != nil {
			bytes = *s.finding.Figures.Requested
		}
	}
	return bytes
}

// ExitOf returns how a rank ended, or the failed training below it if the rank hides that; nil:
// not known.
func (e *Evidence) ExitOf(rank int) *Exit {
	c := e.folded()
	if i, ended := c.exits[rank]; ended {
		return c.exitAt(i)
	}
	return nil
}

// Exits is the number of ranks that have ended.
func (e *Evidence) Exits() int { return len(e.folded().exits) }

// EndedWell reports whether every rank ended with 0 without being stopped, and hides no failure.
func (e *Evidence) EndedWell() bool {
	c := e.folded()
	well := 0
	for _, i := range c.exits {
		if exit := c.exitAt(i); exit.Code == 0 && !exit.Stopped {
			well++
		}
	}
	return well > 0 && well >= e.Ranks
}

// StoppedForSpeedup is the decision for which the ranks were stopped; nil if they ended before, or
// the run was stopped meanwhile.
func (e *Evidence) StoppedForSpeedup() *Decision {
	if e.StopSignal != 0 || e.CutShort() != "" || e.EndedWell() {
		return nil
	}
	return e.Speedup
}

// Waiting lists the ranks whose processes wait for gpurun before their first optimizer step.
// all: every rank does.
func (e *Evidence) Waiting() (ranks []int, all bool) {
	ranks, processes := e.folded().reporting(func(r *ProcessReport) bool { return r.Waiting })
	return ranks, len(ranks) > 0 && len(ranks) == e.Ranks && processes >= e.World()
}

// AppliedBatch reports whether gpurun's hook has changed the batch in a process.
func (e *Evidence) AppliedBatch() bool {
	_, processes := e.folded().reporting(func(r *ProcessReport) bool {
		_, micro := r.Applied[MicroBatchSize]
		_, accumulation := r.Applied[GradientAccumulationSteps]
		return micro || accumulation
	})
	return processes > 0
}

// Asked reports whether a process has reported the model that it trains.
func (e *Evidence) Asked() bool {
	_, processes := e.folded().reporting(func(r *ProcessReport) bool { return r.Model != nil })
	return processes > 0
}

// silent reports whether a rank, or a process that a rank started as one, reported no model
// though others did. A process that ran out of memory in an evaluation before its first step had
// none to report.
func (e *Evidence) silent() bool {
	c := e.folded()
	reported := map[int]bool{}
	training, early := 0, 0
	for id, i := range c.reported {
		reported[id.rank] = true
		if As[*ProcessReport](c.facts[i]).Model != nil {
			training++
		}
	}
	for id, i := range c.measured {
		if m := c.facts[i].Memory(); m.Failed == "evaluation" && m.Model == nil {
			reported[id.rank] = true
			early++
		}
	}
	ranks := 0
	for rank := range reported {
		if rank >= 0 && rank < e.Ranks {
			ranks++
		}
	}
	return len(c.reported) > 0 && ranks < e.Ranks || training > 0 && training+early < e.World()
}

// Alone is the number of ranks if there are several, each has reached its first optimizer step,
// and none has joined a process group: each trains the whole job. Otherwise it is 0.
func (e *Evidence) Alone() int {
	stepping, _ := e.folded().reporting(func(r *ProcessReport) bool { return r.Stepping })
	if e.Ranks < 2 || len(stepping) < e.Ranks || e.World() > 1 {
		return 0
	}
	return e.Ranks
}

// World is the number of ranks that the job's processes see; 0: none reports it.
func (e *Evidence) World() int {
	world := 0
	for _, r := range e.folded().reports() {
		world = max(world, r.World)
	}
	return world
}

// inProcess is the plan that the job's processes report. A change had no effect if their values
// differ, or if some rank never reported a value that others changed in the process: then
// inProcess has the value that the plan does not have.
func (e *Evidence) inProcess(j Job) Plan {
	c := e.folded()
	if len(c.reported) == 0 {
		return nil
	}
	settings, silent := Plan{}, !e.Ended.IsZero() && e.silent()
	for _, r := range c.reports() {
		for k, v := range j.Planned(r.Settings, e.World()) {
			if r.usesInPlace(k) {
				continue // each rank does so by itself, and not for all calls
			}
			if pair, turned := r.Applied[k]; turned && silent && pair[0] != "" {
				v = pair[0]
			}
			if old, known := settings[k]; !known || old == e.Plan[k] {
				settings[k] = v
			}
		}
	}
	return settings
}

// Refused returns the reasons why knobs cannot be changed in the job's processes, or were not.
func (e *Evidence) Refused() map[Knob]string {
	var refused map[Knob]string
	for _, r := range e.folded().reports() {
		for _, reasons := range []map[Knob]string{r.Refused, r.Failed} {
			if refused == nil && len(reasons) > 0 {
				refused = map[Knob]string{}
			}
			maps.Copy(refused, reasons)
		}
	}
	return refused
}

// mostMeasured bounds the measurements that are kept of an attempt: ranks of one job hold about
// the same amount.
const mostMeasured = 4

// Measured lists the most informative measurements: first of the rank that ran out of memory,
// then those with the highest peaks. Their plans are not set: see Job.Measured.
func (e *Evidence) Measured() []memory.Measurement {
	c := e.folded()
	facts := slices.SortedStableFunc(maps.Values(c.measured),
		func(a, b int) int { return compareMeasured(c.facts[a], c.facts[b]) })
	var all []memory.Measurement
	for _, i := range facts[:min(len(facts), mostMeasured)] {
		m := *c.facts[i].Memory()
		m.Rank = c.facts[i].Rank
		all = append(all, m)
	}
	return all
}

func compareMeasured(a, b Fact) int {
	failed := a.Memory().Failed != ""
	switch {
	case failed != (b.Memory().Failed != "") && failed:
		return -1
	case failed != (b.Memory().Failed != ""):
		return 1
	case failed && !a.Time.Equal(b.Time):
		return a.Time.Compare(b.Time)
	}
	return cmp.Or(cmp.Compare(highest(b.Memory()), highest(a.Memory())), a.Rank-b.Rank, a.Memory().PID-b.Memory().PID)
}

// highest is the most that a process is known to have held.
func highest(m *memory.Measurement) int64 { return max(m.Peak, m.Allocated) }

// Clock returns a moment by the wall clock as it was when the attempt started: evidence is journaled by the wall
// clock, and one that is set meanwhile must not change how long things took. A moment without a monotonic
// clock, such as the time of a file, is returned unchanged.
func (e *Evidence) Clock(moment time.Time) time.Time {
	if e.Started.IsZero() || moment == moment.Round(0) {
		return moment
	}
	return e.Started.Add(moment.Sub(e.Started))
}

// RecordAllAllocations reports whether the next attempt records its allocations from start to
// end. It does if the last one ran out of a GPU's memory late, by a leak, or in an unknown phase,
// which a record of the first steps does not explain.
func RecordAllAllocations(history []Attempt) bool {
	for _, a := range slices.Backward(history) {
		if d := a.Diagnosis; d.Fatal && d.Cause == cause.CUDAOOM {
			return d.Late || d.Growth != nil || d.Phase == cause.NoPhase
		}
	}
	return false
}

// earlier returns the earlier of two times; zero means no time.
func earlier(a, b time.Time) time.Time {
	if a.IsZero() || !b.IsZero() && b.Before(a) {
		return b
	}
	return a
}

func latest(a, b time.Time) time.Time {
	if b.After(a) {
		return b
	}
	return a
}
