package launcher

import (
	"cmp"
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// holdBound is how long ranks wait before their first optimizer step for the other ranks. Ranks of one job
// arrive there together: they exchange gradients in the backward pass before it.
const holdBound = 2 * time.Minute

// A hold keeps ranks from their first optimizer step after a change of the batch in the process, until every
// rank has the change. If one does not get it, no rank may train.
type hold struct {
	over     *time.Timer // fires when the other ranks are late
	set      bool
	released bool
}

func newHold() hold {
	over := time.NewTimer(time.Hour)
	over.Stop()
	return hold{over: over}
}

func (h *hold) stop() { h.over.Stop() }

// compareReported warns of reported settings that differ from the plan.
func (w *watch) compareReported(f strategy.Fact) {
	report := strategy.As[*strategy.ProcessReport](f)
	settings, observed := w.effect.job.Planned(report.Settings, report.World), w.evidence.Observed(w.effect.job)
	for _, k := range strategy.Knobs {
		if v, reported := settings[k]; reported && observed[k] != v {
			by := report.By[k]
			if by == "" {
				by = "the process"
			}
			w.notice(w.effect.compare(strategy.ObservedSetting{Knob: k, Value: v, Text: fmt.Sprintf("rank %d, %s", f.Rank, by)}))
		}
	}
}

// release releases the ranks once each has reported its settings, and starts the time limit where some have not.
func (w *watch) release() {
	waiting, all := w.evidence.Waiting()
	if w.stopped || w.hold.released || len(waiting) == 0 {
		return
	}
	lost := w.effect.lostBatch()
	if len(lost) == 0 && all {
		lost = w.effect.job.Unconfirmed(w.effect.plan, w.evidence.Observed(w.effect.job))
	}
	switch {
	case len(lost) > 0:
		w.halt(cmp.Or(w.effect.unconfirmed(lost), "the ranks would not train with the same batch: all of them are stopped"))
	case all:
		w.letGo()
	case !w.hold.set:
		w.hold.set = true
		w.hold.over.Reset(holdBound)
	}
}

func (w *watch) letGo() {
	w.hold.released = true
	w.hold.stop()
	w.running.Release()
}

// late stops the ranks if some of them may train with another batch than the others. If the change is in the
// job's own configuration, all ranks have it, and they continue.
func (w *watch) late() {
	if w.stopped || w.hold.released {
		return
	}
	if !w.effect.inProcess() {
		w.letGo()
		return
	}
	waiting, _ := w.evidence.Waiting()
	w.halt(fmt.Sprintf("only %d of %d ranks have reported that they run with the changed batch: all ranks are stopped",
		len(waiting), w.evidence.Ranks))
}
