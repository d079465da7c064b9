package launcher

import (
	"fmt"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

// holdBound is how long ranks wait before their first optimizer step for others that have
// not come as far. Ranks of one job come there together: what they compute meets in the
// backward pass before it.
const holdBound = 2 * time.Minute

// A hold is what keeps ranks from their first optimizer step after a change of the batch
// in the process: every rank has it, or none may train.
type hold struct {
	over     *time.Timer // rings when the others are late
	set      bool
	released bool
}

func newHold() hold {
	over := time.NewTimer(time.Hour)
	over.Stop()
	return hold{over: over}
}

func (h *hold) stop() { h.over.Stop() }

// hear tells people what a process says that is not as it was meant.
func (w *watch) hear(f strategy.Fact) {
	settings, observed := w.effect.job.Planned(f.Said.Settings, f.Said.World), w.evidence.Observed(w.effect.job)
	for _, k := range strategy.Knobs {
		if v, said := settings[k]; said && observed[k] != v {
			by := f.Said.By[k]
			if by == "" {
				by = "the process"
			}
			w.tell(w.effect.compare(strategy.ObservedSetting{Knob: k, Value: v, Text: fmt.Sprintf("rank %d, %s", f.Rank, by)}))
		}
	}
}

// release lets the ranks go on once each has said what it runs with, and begins to count
// the time where some have not.
func (w *watch) release() {
	waiting, all := w.evidence.Waiting()
	switch {
	case w.stopped || w.hold.released || len(waiting) == 0:
	case len(w.effect.lostBatch()) > 0:
		w.halt("the ranks would not train with the same batch: all of them are stopped")
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

// unheard stops the ranks where some of them may train with another batch than the others.
// What the job's own configuration says holds for all ranks: they go on.
func (w *watch) unheard() {
	if w.stopped || w.hold.released {
		return
	}
	if !w.effect.inProcess() {
		w.letGo()
		return
	}
	waiting, _ := w.evidence.Waiting()
	w.halt(fmt.Sprintf("%d of %d ranks have said that they run with the batch that they were given, the others nothing: all ranks are stopped", len(waiting), w.evidence.Ranks))
}
