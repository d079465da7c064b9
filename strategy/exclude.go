package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/strategy/memory"
)

// excludes reports whether the prediction of a plan rules it out.
func (w *weighing) excludes(plan memory.RankPlan) bool {
	p := w.fit.Predict(plan)
	return w.fit.Excludes(plan, &p)
}

// excluded returns why the prediction rules a change out, after no plan was predicted to fit. A micro batch that is
// lowered for an evaluation has to fit in training, too.
func (s *situation) excluded(change Plan) string {
	plan := s.plan.With(change)
	trains := s.diagnosis.Phase == cause.Eval && s.weighing != nil && change[MicroBatchSize] != ""
	if !s.excluding && !trains || !s.weighing.excludes(s.weighing.memory(plan)) {
		return ""
	}
	return "predicted " + span(s.weighing.predict(plan), s.weighing.fit.Capacity(s.weighing.memory(plan)))
}

// unmeasured returns the excluded plan that is predicted to need least by assumptions that were
// not measured; -1: there is none, or this run has tried one already.
func (s *situation) unmeasured() (best int) {
	w := s.weighing
	tried := func(a Attempt) bool {
		plan := w.memory(a.Plan)
		return a.Expected != nil && !a.Expected.Measured() && w.fit.Capacity(plan) > 0 && w.fit.Excludes(plan, a.Expected)
	}
	best = -1
	if slices.ContainsFunc(s.history[1:], tried) {
		return best
	}
	least := int64(0)
	for i, c := range w.candidates {
		p := w.fit.Predict(c.Plan)
		if p.Unknown != "" || p.Measured() || w.fit.Impossible(c.Plan, &p) || !w.fit.FitsHost(&p) {
			continue
		}
		if best < 0 || p.Mean < least {
			best, least = i, p.Mean
		}
	}
	return best
}

// A shortage explains why no allowed plan fits.
type shortage struct {
	words string // the arithmetic of the plan that needs least
	// enough is a clause about the memory that would do, and need its bytes for each rank; empty
	// and 0: not known.
	enough   string
	need     int64
	expected *memory.Prediction // of that plan; nil: not known
}

// shortage compares the plan that needs least with the memory; false if that is not known, or if
// it may fit.
func (s *situation) shortage() (shortage, bool) {
	w := s.weighing
	plans, words := []memory.RankPlan{w.memory(s.plan)}, []string{"the plan that ran"}
	for i, c := range w.candidates {
		plans, words = append(plans, c.Plan), append(words, s.plan.Changed(w.plans[i]).String())
	}
	for _, change := range s.tooLarge() {
		plan := s.plan.With(change)
		plans, words = append(plans, w.memory(plan)), append(words, s.plan.Changed(plan).String())
	}
	held := func(i int) int64 { return w.fit.Held(plans[i]).Sum() }
	holds, least := 0, -1
	for i, plan := range plans {
		if held(i) < held(holds) {
			holds = i
		}
		if w.excludes(plan) && (least < 0 || w.fit.Predict(plan).Mean < w.fit.Predict(plans[least]).Mean) {
			least = i
		}
	}
	short := s.enough(plans[max(least, 0)])
	switch room := w.fit.Room(plans[holds]); {
	case room > 0 && held(holds) > room:
		short.words = fmt.Sprintf("%s, after every allowed shard and offload", heldWords(w.fit.Held(plans[holds]), room))
	case least >= 0:
		short.words = fmt.Sprintf("%s needs least, and is predicted to need %s, %s of it between steps",
			words[least], span(w.fit.Predict(plans[least]), w.fit.Capacity(plans[least])), GiB(w.fit.Held(plans[least]).Sum()))
	}
	return short, short.words != ""
}

// tooLarge lists the changes of the remedies that only their prediction excludes.
func (s *situation) tooLarge() (all []Plan) {
	possible := *s
	possible.excluding = false
	for _, row := range remedyRows {
		if changes, skip := possible.consider(row.remedy); skip == nil && len(changes) > 0 {
			all = append(all, changes[0])
		}
	}
	return all
}

// heldWords is a sum: "held between steps: parameters 12.0 + gradients 12.0 + optimizer states
// 24.0 = 48.0 of 38.9 GiB usable".
func heldWords(h memory.Held, room int64) string {
	size, unit := memory.Unit(h.Sum(), room)
	var parts []string
	for _, part := range []struct {
		name  string
		bytes int64
	}{{"parameters", h.Parameters}, {"gradients", h.Gradients}, {"optimizer states", h.Optimizer},
		{"PyTorch and data, before the model,", h.Other}} {
		if part.bytes > 0 {
			parts = append(parts, part.name+" "+size(part.bytes))
		}
	}
	return fmt.Sprintf("held between steps: %s = %s of %s%s usable", strings.Join(parts, " + "), size(h.Sum()),
		size(room), unit)
}

// enough returns how much memory would do for a plan.
func (s *situation) enough(plan memory.RankPlan) (short shortage) {
	fit := s.weighing.fit
	p, d := fit.Predict(plan), s.device()
	if p.Unknown != "" {
		return short
	}
	short.need, short.expected = fit.Suffices(plan, p.Bound), &p
	outside := fit.Outside(plan)
	card, found := memory.SmallestCard(short.need + outside)
	switch {
	case d.CPU || d.Allowed > 0 && short.need+outside <= d.Total:
		short.enough = fmt.Sprintf("; %s for each rank would do", GiB(short.need))
	case found:
		short.enough = fmt.Sprintf("; a card of %d GB would do", card.Gigabytes)
	}
	return short
}
