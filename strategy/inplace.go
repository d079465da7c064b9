package strategy

import (
	"cmp"
	"fmt"
	"maps"
	"slices"
	"strconv"
	"strings"
	"time"
)

// An InPlace is a step that a process did again, with less memory, after it had run out of memory
// in it. Repeats with one remedy in one phase are one entry: Step, Requested and At are of the
// first.
type InPlace struct {
	Rank   int    `json:"rank"`
	Remedy Remedy `json:"rung"`
	Phase  string `json:"phase"` // one of InPlacePhases
	// Step is the number of optimizer steps that the process had made, LastStep that of the last
	// repeat.
	Step      int     `json:"step"`
	LastStep  int     `json:"last_step"`
	Times     int     `json:"times"`
	Requested int64   `json:"requested_bytes"`      // 0: not known
	Held      int64   `json:"held_bytes,omitempty"` // the most that was held when memory ran out; 0: not known
	Seconds   Seconds `json:"seconds"`              // of all repeats together
	// Calls with as many elements in their inputs, or with as long a longest dimension, use the
	// remedy from then on, in Parts where it divides the batch.
	Elements int64 `json:"elements"`
	Longest  int64 `json:"longest"`
	Parts    int   `json:"parts"`
	// Allocator is "expandable" where the process has its allocator use expandable segments since; empty: as before.
	Allocator Value     `json:"allocator,omitempty"`
	At        time.Time `json:"at,omitzero"`
	// Trials are the exact ways to do a step that the process tried since, the latest repeat's; nil: none.
	Trials []Trial `json:"trials,omitempty"`
}

// InPlacePhases are the phases of a step that a process can do again. In the phase "loss" nothing
// has failed yet: the forward pass is done again because little memory is left for the loss.
var InPlacePhases = []string{"forward", "backward", "optimizer", "loss"}

// An InPlaceRefusal is an error of memory that a process did not answer by doing the step again.
type InPlaceRefusal struct {
	Phase  string `json:"phase"`
	Step   int    `json:"step"`
	Reason string `json:"reason"`
	// Remedies are the remedies that were on when memory ran out: they did not suffice.
	Remedies []Remedy `json:"rungs,omitempty"`
}

// mostReason bounds the characters of a reason in a sentence.
const mostReason = 120

// Sentence is for people, after the sentence about the failure.
func (r *InPlaceRefusal) Sentence() string {
	reason := strings.ReplaceAll(r.Reason, "\n", " ")
	if runes := []rune(reason); len(runes) > mostReason {
		reason = string(runes[:mostReason]) + "…"
	}
	if len(r.Remedies) > 0 {
		var with []string
		for _, remedy := range r.Remedies {
			how, _ := InPlace{Remedy: remedy}.changes()
			with = append(with, how)
		}
		reason = "memory ran out " + strings.Join(with, " and ") + ", too (" + reason + ")"
	}
	return "the step could not be repeated in place: " + reason
}

// InPlaceOrders permit the processes of an attempt to do a step again after they ran out of
// memory in it.
type InPlaceOrders struct {
	Remedies []Remedy `json:"rungs"` // in the order in which they are tried
	// Armed remedies are on from the beginning.
	Armed      []ArmedRemedy `json:"armed,omitempty"`
	BeforeLoss bool          `json:"before_loss"`
	Optimizer  bool          `json:"optimizer"`
	// Allocator permits to have PyTorch's allocator use expandable segments.
	Allocator bool `json:"allocator,omitempty"`
	// Tune permits to try other exact ways in the steps after a repeat, and to keep the fastest.
	Tune bool `json:"tune,omitempty"`
}

// String lists the remedies: "checkpointing from 4096 elements, offload-activations".
func (o *InPlaceOrders) String() string {
	var words []string
	for _, remedy := range o.Remedies {
		word := string(remedy)
		if i := slices.IndexFunc(o.Armed, func(a ArmedRemedy) bool { return a.Remedy == remedy }); i >= 0 {
			word = o.Armed[i].words()
		}
		words = append(words, word)
	}
	if len(words) == 0 {
		return "the optimizer's step only"
	}
	return strings.Join(words, ", ")
}

// ArmedWords lists the remedies that are on from the beginning, not those that are only permitted; empty for none.
func (o *InPlaceOrders) ArmedWords() string {
	if o == nil {
		return ""
	}
	var words []string
	for i, a := range o.Armed {
		if i+1 == len(o.Armed) || o.Armed[i+1].Remedy != a.Remedy { // the most parts
			words = append(words, a.words())
		}
	}
	return strings.Join(words, ", ")
}

func (a ArmedRemedy) words() string {
	word := string(a.Remedy)
	if a.Blocks > 0 {
		word += fmt.Sprintf(" of the first %s", Count(a.Blocks, "block"))
	}
	if a.Parts > 0 {
		word += fmt.Sprintf(" in %d parts", a.Parts)
	}
	if a.Elements <= 1 {
		return word // for all inputs
	}
	return fmt.Sprintf("%s (for inputs of at least %d elements, or a dimension of %d)", word, a.Elements, a.Longest)
}

// An ArmedRemedy is a remedy in place that calls of these sizes need: see InPlace.
type ArmedRemedy struct {
	Remedy   Remedy `json:"rung"`
	Elements int64  `json:"elements"`
	Longest  int64  `json:"longest"`
	Parts    int    `json:"parts"`
	// Blocks are so many of the repeated blocks, from the first on, that were enough to recompute; 0: all, or it is not
	// known.
	Blocks int `json:"blocks,omitempty"`
}

// AllowInPlace returns what the processes of the next attempt may do in place; nil: nothing. The
// remedies that an earlier attempt, or an earlier run, needed with the same plan are armed.
func AllowInPlace(p Policy, j Job, history []Attempt, next Plan, accelerator string) *InPlaceOrders {
	if !p.InPlace || p.Mode == Off || j.NotInside != "" {
		return nil
	}
	orders := &InPlaceOrders{Remedies: []Remedy{}, Optimizer: true, Tune: p.Tune}
	for i := range remedyRows {
		row := &remedyRows[i]
		if row.inPlace() != nil && (accelerator != "cpu" || row.onCPU) && row.allowedInPlace(p, j, next) {
			orders.Remedies = append(orders.Remedies, row.remedy)
		}
	}
	orders.BeforeLoss = len(orders.Remedies) > 0
	own, known := j.Knobs[Allocator]
	orders.Allocator = known && own.Absent == "" && next[Allocator] == "default" && accelerator == "cuda" &&
		!slices.Contains(p.Never, string(RemedyAllocator))
	for _, a := range ArmedFor(j, history, next) {
		if slices.Contains(orders.Remedies, a.Remedy) {
			orders.Armed = append(orders.Armed, a)
		}
	}
	return orders
}

// leavesInPlace reports whether a plan does not have the remedy already.
func (r *remedyRow) leavesInPlace(p Plan) bool { return r.whole() == "" || p[r.turns[0]] != r.whole() }

// whole is the value of the remedy's knob where the remedy is on in a process; empty for a number.
func (r *remedyRow) whole() Value {
	if len(r.turns[0].words()) == 0 {
		return ""
	}
	return r.inside.Values[len(r.inside.Values)-1]
}

// allowedInPlace reports whether policy, job and plan leave a remedy to the process.
func (r *remedyRow) allowedInPlace(p Policy, j Job, next Plan) bool {
	knob := r.turns[0]
	own, known := j.Knobs[knob]
	return known && own.Absent == "" && r.leavesInPlace(next) && !slices.Contains(p.Never, string(r.remedy)) &&
		!slices.Contains(p.Never, string(knob))
}

// ArmedFor lists the remedies in place that calls needed with a plan, in the attempts of this run
// and in earlier ones. With another plan the same calls need other amounts of memory.
func ArmedFor(j Job, history []Attempt, plan Plan) (all []ArmedRemedy) {
	if j.Armed != nil && maps.Equal(j.Armed.Plan, plan) {
		all = slices.Clone(j.Armed.Remedies)
	}
	for _, a := range history {
		if maps.Equal(a.Plan, plan) {
			all = Arm(all, a.InPlace)
		}
	}
	return all
}

// An ArmedPlan has the remedies in place that an earlier run needed with a plan.
type ArmedPlan struct {
	Plan     Plan          `json:"plan"`
	Remedies []ArmedRemedy `json:"rungs"`
}

// Arm adds the remedies that ranks needed in place to a list, with the smallest sizes of all.
func Arm(to []ArmedRemedy, ranks []InPlace) []ArmedRemedy {
	blocks, few := blocksNeeded(ranks)
	for _, r := range ranks {
		if r.Elements <= 0 && r.Longest <= 0 || !r.Remedy.known() || r.Remedy == RemedyCheckpointing && few && blocks == 0 {
			continue
		}
		i := slices.IndexFunc(to, func(a ArmedRemedy) bool { return a.Remedy == r.Remedy && a.Parts == r.Parts })
		if i < 0 {
			to = append(to, ArmedRemedy{Remedy: r.Remedy, Elements: r.Elements, Longest: r.Longest, Parts: r.Parts})
			i = len(to) - 1
		}
		if r.Remedy == RemedyCheckpointing {
			to[i].Blocks = blocks
		}
		to[i].Elements, to[i].Longest = smaller(to[i].Elements, r.Elements), smaller(to[i].Longest, r.Longest)
	}
	order := func(a ArmedRemedy) int { return slices.Index(DeviceRemedies, a.Remedy) }
	slices.SortStableFunc(to, func(a, b ArmedRemedy) int { return cmp.Or(order(a)-order(b), a.Parts-b.Parts) })
	return to
}

// blocksNeeded is the number of blocks that are enough to recompute in all ranks, and whether it is known in each
// that needs it.
func blocksNeeded(ranks []InPlace) (most int, known bool) {
	kept := map[int]bool{}
	for _, r := range ranks {
		if _, seen := kept[r.Rank]; !seen && r.Remedy == RemedyCheckpointing {
			kept[r.Rank] = false
		}
		if k := r.Kept(); k != nil && k.Blocks > 0 {
			kept[r.Rank], most = true, max(most, k.Recomputed)
		}
	}
	for _, found := range kept {
		if !found {
			return 0, false
		}
	}
	return most, len(kept) > 0
}

// smaller is the smaller of two sizes; 0 is not known.
func smaller(a, b int64) int64 {
	if a == 0 || b > 0 && b < a {
		return b
	}
	return a
}

// MostInPlace bounds the kinds of repeats that a process may report, and that are kept of an attempt: a job can write
// anything into its report.
const MostInPlace = 64

// InPlace lists the steps that the ranks did again, in the order of ranks: one entry of a rank for
// each kind, also if the rank has started several processes.
func (e *Evidence) InPlace() (all []InPlace) {
	c := e.folded()
	for _, id := range c.processes() {
		for _, one := range As[*ProcessReport](c.facts[c.reported[id]]).InPlace {
			one.Rank = id.rank
			if i := slices.IndexFunc(all, one.SameKind); i >= 0 {
				one.add(all[i])
			}
			all = FoldInPlace(all, one)
		}
	}
	return all
}

// FoldInPlace adds repeats to those of an attempt. A later entry of one kind replaces the earlier one.
func FoldInPlace(all []InPlace, one InPlace) []InPlace {
	if i := slices.IndexFunc(all, one.SameKind); i >= 0 {
		all[i] = one
	} else if len(all) < MostInPlace {
		all = append(all, one)
	}
	return all
}

// SameKind reports whether two entries are repeats of one rank with one remedy in one phase.
func (r InPlace) SameKind(other InPlace) bool {
	return r.Rank == other.Rank && r.Remedy == other.Remedy && r.Phase == other.Phase && r.Parts == other.Parts
}

// add adds the repeats of another process.
func (r *InPlace) add(other InPlace) {
	r.Times, r.Seconds, r.LastStep = r.Times+other.Times, r.Seconds+other.Seconds, max(r.LastStep, other.LastStep)
	r.Elements, r.Longest = smaller(r.Elements, other.Elements), smaller(r.Longest, other.Longest)
	r.Step, r.Requested, r.Held = min(r.Step, other.Step), max(r.Requested, other.Requested), max(r.Held, other.Held)
	r.At = earlier(r.At, other.At)
	if len(r.Trials) == 0 {
		r.Trials = other.Trials
	}
}

// CountInPlace is how often steps were done again, and the most that a rank held when memory ran out in them; 0: not
// known. A process forgets the peak of a pass that it repeats.
func CountInPlace(all []InPlace) (times int, held int64) {
	for _, one := range all {
		times, held = times+one.Times, max(held, one.Held)
	}
	return times, held
}

// InPlaceRefused is the latest error of memory that a process did not answer in place, and its
// rank; nil: none.
func (e *Evidence) InPlaceRefused() (rank int, refused *InPlaceRefusal) {
	c := e.folded()
	for _, id := range c.processes() {
		if r := As[*ProcessReport](c.facts[c.reported[id]]).InPlaceRefused; r != nil &&
			(refused == nil || r.Step > refused.Step) {
			rank, refused = id.rank, r
		}
	}
	return rank, refused
}

// InPlaceCost sums up the steps that ranks did again: how many steps, and the time that they took
// more. Ranks that repeat one step do so at the same time. A step may be done again several times, with
// one remedy after another.
func InPlaceCost(all []InPlace) (steps int, took Seconds) {
	type entry struct {
		phase string
		step  int
	}
	from, longest := map[int]int{}, map[entry]Seconds{} // steps by the first of them
	for _, one := range all {
		at := entry{one.Phase, one.Step}
		longest[at] = max(longest[at], one.Seconds)
		from[one.Step] = max(from[one.Step], min(one.Times, max(one.LastStep-one.Step, 0)+1))
	}
	for _, n := range from {
		steps += n
	}
	for _, seconds := range longest {
		took += seconds
	}
	return steps, took
}

// InPlaceWords sums up steps that were done again, for the middle of a sentence; empty for none.
func InPlaceWords(all []InPlace) string {
	if len(all) == 0 {
		return ""
	}
	steps, took := InPlaceCost(all)
	var with []string
	few, many := 0, 0 // parts
	for _, one := range all {
		how, from := one.changes()
		switch {
		case from == "split":
			few, many = int(smaller(int64(few), int64(one.Parts))), max(many, one.Parts)
		case !slices.Contains(with, how):
			with = append(with, how)
		}
	}
	if slices.ContainsFunc(all, InPlace.expands) {
		with = append(with, "with expandable segments")
	}
	switch {
	case few < many:
		with = append(with, fmt.Sprintf("in %d to %d parts", few, many))
	case many > 0:
		with = append(with, fmt.Sprintf("in %d parts", many))
	}
	words := "%s repeated in place %s (%.2f s)"
	if !slices.ContainsFunc(all, InPlace.failed) {
		words = "%s done in place %s (%.2f s)"
	}
	return fmt.Sprintf(words, Count(steps, "step"), strings.Join(with, " and "), took.Duration().Seconds())
}

// KeptInPlace is what remains changed in the processes after steps were done again, with the same training: a plan of
// these settings, and words for people. Both are empty for nothing.
func KeptInPlace(all []InPlace) (kept Plan, words string) {
	var lines []string
	armed := Arm(nil, all)
	for i, sizes := range armed {
		if i+1 < len(armed) && armed[i+1].Remedy == sizes.Remedy {
			continue // fewer parts did not suffice
		}
		did := sizes.effect()
		if row := sizes.Remedy.row(); sizes.Remedy == RemedySplit {
			kept = kept.With(Plan{ForwardParts: Number(sizes.Parts)})
		} else if value := row.whole(); value != "" {
			kept = kept.With(Plan{row.turns[0]: value})
		}
		if sizes.Elements > 1 {
			lines = append(lines, "large inputs now "+did)
		} else {
			lines = append(lines, "all steps now "+did)
		}
	}
	if slices.ContainsFunc(all, InPlace.expands) {
		kept = kept.With(Plan{Allocator: "expandable"})
		lines = append(lines, "all steps now use expandable segments")
	}
	words = strings.ReplaceAll(strings.Join(lines, " and "), " and large inputs now ", " and ")
	return kept, words
}

// effect is what calls do with a remedy in place.
func (a ArmedRemedy) effect() string { return withParts(a.Remedy.inPlaceWords().does, a.Parts) }

// inPlaceWords are the words about a remedy in place, also about one that is not known as such.
func (r Remedy) inPlaceWords() inPlaceWords {
	if r.known() && r.row().inPlace() != nil {
		return *r.row().inPlace()
	}
	return inPlaceWords{"with less memory", "done so", "use less memory"}
}

// withParts adds the number of parts to words about a remedy.
func withParts(words string, parts int) string {
	return strings.ReplaceAll(words, "%d", strconv.Itoa(parts))
}

// expands reports whether the process's allocator uses expandable segments since.
func (r InPlace) expands() bool { return r.Allocator == "expandable" }

// failed reports whether memory ran out. In the loss and in the optimizer's step it may have been
// foreseen.
func (r InPlace) failed() bool {
	return r.Requested > 0 || r.Phase != "loss" && r.Phase != "optimizer"
}

// Sentence is for people, as PyTorch writes: "rank 0: out of memory in forward at step 7 (tried to allocate 384 MiB);
// step repeated with activation checkpointing (0.35 s)".
func (r InPlace) Sentence() string {
	tried, took := "", ""
	if r.Requested > 0 {
		tried = fmt.Sprintf(" (tried to allocate %s)", GiB(r.Requested))
	}
	if r.Seconds > 0 {
		took = fmt.Sprintf(" (%.2f s)", r.Seconds.Duration().Seconds())
	}
	what, done := "out of memory in "+r.Phase, "step repeated"
	switch foreseen := !r.failed(); {
	case r.Phase == "loss" && r.Remedy == RemedyLossParts:
		what, done = "not enough memory for the loss", "step done"
	case r.Phase == "loss" && foreseen:
		what, done = "little memory left for the loss", "forward repeated"
	case r.Phase == "optimizer" && foreseen:
		what, done = "little memory left for the optimizer", "step done"
	}
	with, _ := r.changes()
	return fmt.Sprintf("rank %d: %s at step %d%s; %s %s%s", r.Rank, what, r.Step, tried, done, with, took)
}

// Later is a sentence about the later calls that are changed without running out of memory first; empty for none.
func (r InPlace) Later() string {
	_, from := r.changes()
	if from == "" || r.Elements == 0 && r.Longest == 0 {
		return ""
	}
	return fmt.Sprintf("from then on, inputs as large as these (%d elements, longest dimension %d) are %s at once",
		r.Elements, r.Longest, from)
}

// remedy names the remedy of a repeat, and what later steps of its size are; from is empty if
// later steps are as before.
func (r InPlace) changes() (with, from string) {
	switch {
	case r.Phase == "optimizer" && r.Remedy == "":
		return "a few parameters at a time", ""
	case r.Parts > 0 && !r.Remedy.known(): // of a remedy that this version does not know
		return withParts("in %d parts", r.Parts), "split"
	case r.Remedy == RemedySplit && r.Parts == 0:
		return Remedy("").inPlaceWords().with, Remedy("").inPlaceWords().from
	}
	words := r.Remedy.inPlaceWords()
	return withParts(words.with, r.Parts), words.from
}

// Repeats is a sentence about all repeats of one kind.
func (r InPlace) Repeats() string {
	with, _ := r.changes()
	return fmt.Sprintf("rank %d: out of memory in %s %d times, from step %d to %d; steps repeated %s (%.2f s in all)",
		r.Rank, r.Phase, r.Times, r.Step, r.LastStep, with, r.Seconds.Duration().Seconds())
}

// insufficient lists the changes that were in force in place when memory ran out for good.
func (a Attempt) insufficient() (all []Plan) {
	if a.InPlaceRefused == nil {
		return nil
	}
	inParts := slices.ContainsFunc(a.InPlace, func(r InPlace) bool {
		return r.Remedy == RemedyLossParts && r.Rank == a.Diagnosis.Rank
	})
	for i := range remedyRows {
		row := &remedyRows[i]
		// it stays on
		on := slices.Contains(a.InPlaceRefused.Remedies, row.remedy) || row.remedy == RemedyLossParts && inParts
		// the number of parts is not known
		if !on || row.inPlace() == nil || row.remedy == RemedySplit {
			continue
		}
		if value := row.whole(); value != "" {
			all = append(all, Plan{row.turns[0]: value})
		}
	}
	return all
}

// usesInPlace reports whether the process changed a knob's value in place.
func (r *ProcessReport) usesInPlace(k Knob) bool {
	return slices.ContainsFunc(r.InPlace, func(one InPlace) bool {
		return one.Remedy.known() && slices.Contains(one.Remedy.row().turns, k)
	})
}
