package snapshot

import (
	"cmp"
	"slices"

	"github.com/gpurun/gpurun/strategy"
)

// A leak is seen over so many steps at least, in which the place that leaks leaves a block
// behind; its bytes are so many hundredths of all, or more.
const (
	leakSteps = 3
	leakShare = 1
)

// leaks finds the places whose blocks come with every step and are not freed by any. It
// needs the recorded history, and the times at which steps ended.
func (d *dump) leaks(device int, known places, all int64) []strategy.Allocation {
	born := d.born(device)
	first, last := d.window(device)
	if last-first+1 < leakSteps {
		return nil
	}
	kept := map[key]map[int]int64{}
	counts := map[key]int{}
	for _, b := range d.held(device) {
		if d.patience.over(1) {
			break
		}
		at, recorded := born[b.address]
		if !recorded {
			continue
		}
		p := known.of(b.frames)
		step, _ := slices.BinarySearch(d.told.marks, at)
		if step < first || step > last || p.what != "" {
			continue
		}
		k := keyOf(p, b)
		if kept[k] == nil {
			kept[k] = map[int]int64{}
		}
		kept[k][step] += b.size
		counts[k]++
	}
	var found []strategy.Allocation
	for k, by := range kept {
		sum := int64(0)
		for _, bytes := range by {
			sum += bytes
		}
		// What is kept of one step only until the next is no leak.
		if len(by) < leakSteps || 4*len(by) < 3*(last-first+1) || sum*100 < all*leakShare {
			continue
		}
		a := k.allocation(sum, counts[k])
		a.PerStep = sum / int64(len(by))
		found = append(found, a)
	}
	slices.SortFunc(found, func(a, b strategy.Allocation) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line))
	})
	return found[:min(len(found), mostLeaks)]
}

// born gives when the blocks were allocated whose allocation is in the history, by address.
func (d *dump) born(device int) map[int64]int64 {
	born := map[int64]int64{}
	for _, e := range d.traces[device] {
		switch {
		case e.action == "alloc" && e.time > 0:
			born[e.address] = e.time
		case e.action == "free_completed":
			delete(born, e.address)
		}
	}
	return born
}

// window gives the first and the last step that the history has whole: step n is between
// the marks n-1 and n. The first of all also makes what every other one uses, such as the
// optimizer's state.
func (d *dump) window(device int) (first, last int) {
	trace := d.traces[device]
	i := slices.IndexFunc(trace, func(e entry) bool { return e.time > 0 })
	if i < 0 || len(d.told.marks) == 0 || !slices.IsSorted(d.told.marks) {
		return 0, -1
	}
	before, _ := slices.BinarySearch(d.told.marks, trace[i].time)
	return before + 1, len(d.told.marks) - 1
}
