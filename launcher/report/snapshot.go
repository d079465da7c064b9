package report

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/runstate"
	"github.com/gpurun/gpurun/strategy"
)

// A snapshotView is what the allocator held when memory ran out, by what allocated it.
type snapshotView struct {
	Rank    int
	Words   string
	Places  []holder
	Leaks   []holder
	Missing string
	File    string // a path in the attempt's folder, which memory_viz opens
}

// A holder is what one place in the code holds.
type holder struct {
	Bytes  int64
	Part   string // of all that is allocated
	Where  string
	What   string
	Advice string
}

// snapshots are those of two ranks, that of the one that failed first.
func (d *Data) snapshots(a *Attempt) (views []snapshotView) {
	all := a.Evidence.Snapshots()
	own := func(s strategy.Snapshot) int {
		if a.Phase == runstate.Decided && s.Rank == a.Diagnosis.Rank {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(x, y strategy.Snapshot) int { return own(x) - own(y) })
	for i := range all[:min(len(all), 2)] {
		views = append(views, d.snapshot(a, &all[i]))
	}
	return views
}

func (d *Data) snapshot(a *Attempt, s *strategy.Snapshot) snapshotView {
	v := snapshotView{Rank: s.Rank, Missing: d.say.sentence(s.Missing)}
	if s.Reserved == 0 { // nothing but the reason is known
		return v
	}
	v.Words = fmt.Sprintf("%s in tensors of %s held", gib(s.Allocated), gib(s.Reserved))
	if s.Free > 0 {
		v.Words += fmt.Sprintf("; %s lay free in pieces of at most %s", gib(s.Free), gib(s.Largest))
	}
	if s.Requested > 0 {
		v.Words += "; " + gib(s.Requested) + " were asked for"
	}
	if s.Requested > 0 && s.Free >= s.Requested && s.Largest < s.Requested {
		v.Words += ", which the pieces together would have served: fragmentation"
	}
	if s.Giant != nil {
		giant := d.holder(*s.Giant, s.Allocated)
		what := "a single block: "
		if s.Giant.Count == 0 {
			what = "the request that failed: "
		}
		giant.What = strings.TrimSuffix(what+giant.What, ": ")
		v.Places = append(v.Places, giant)
	}
	for i, one := range s.Top {
		if i < mostListed {
			v.Places = append(v.Places, d.holder(one, s.Allocated))
		}
	}
	for i, one := range s.Leaks {
		if i < mostListed {
			v.Leaks = append(v.Leaks, d.holder(one, s.Allocated))
		}
	}
	if f := path.Clean(s.File); s.File != "" && !path.IsAbs(f) && !strings.HasPrefix(f, "..") && len(f) < shortText {
		v.File = fmt.Sprintf("attempt-%d/%s", a.N, f)
	}
	return v
}

// holder shows one place.
func (d *Data) holder(a strategy.Allocation, all int64) holder {
	h := holder{Bytes: a.Bytes, Advice: d.say.sentence(a.Advice), Where: "no stack was recorded"}
	if all > 0 {
		h.Part = fmt.Sprintf("%.0f %%", 100*float64(a.Bytes)/float64(all))
	}
	if a.File != "" {
		h.Where = d.say.text(a.Place(), longLine)
	}
	what := []string{}
	if a.What != "" {
		what = append(what, a.What)
	}
	if len(a.Shape) > 0 && len(a.Shape) < 16 {
		what = append(what, fmt.Sprint(a.Shape))
	}
	if a.Dtype != "" {
		what = append(what, a.Dtype)
	}
	if a.Count > 1 {
		what = append(what, strategy.Count(a.Count, "block"))
	}
	if a.PerStep > 0 {
		what = append(what, "+"+gib(a.PerStep)+" a step")
	}
	h.What = d.say.text(strings.Join(what, ", "), longLine)
	return h
}
