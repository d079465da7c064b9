package show

import (
	"fmt"
	"path"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// A snapshotView is the allocator's content when memory ran out, by the code that allocated it.
type snapshotView struct {
	*strategy.Snapshot
	Words  string
	Places []allocation
	Leaks  []allocation
	Path   string // in the run directory, of the file that memory_viz opens
}

// An allocation is the memory allocated by one place in the code.
type allocation struct {
	strategy.Allocation
	Part string // of all that is allocated
	What string
}

// Snapshots are those of two ranks, that of the one that failed first.
func (a *ReportedAttempt) Snapshots() (views []snapshotView) {
	all := a.Evidence.Snapshots()
	own := func(s strategy.Snapshot) int {
		if a.Phase == journal.Decided && s.Rank == a.Diagnosis.Rank {
			return 0
		}
		return 1
	}
	slices.SortStableFunc(all, func(x, y strategy.Snapshot) int { return own(x) - own(y) })
	for i := range all[:min(len(all), 2)] {
		views = append(views, a.snapshot(&all[i]))
	}
	return views
}

func (a *ReportedAttempt) snapshot(s *strategy.Snapshot) snapshotView {
	v := snapshotView{Snapshot: s}
	if s.Reserved == 0 { // only the reason why nothing is known
		return v
	}
	v.Words = fmt.Sprintf("%s in tensors of %s held", gibText(s.Allocated), gibText(s.Reserved))
	if s.Free > 0 {
		v.Words += fmt.Sprintf("; %s were free in pieces of at most %s", gibText(s.Free), gibText(s.Largest))
	}
	if s.Requested > 0 {
		v.Words += "; " + gibText(s.Requested) + " were requested"
	}
	if s.Requested > 0 && s.Free >= s.Requested && s.Largest < s.Requested {
		v.Words += ", less than the free pieces together: fragmentation"
	}
	if s.Giant != nil {
		what := "a single block"
		if s.Giant.Count == 0 {
			what = "the request that failed"
		}
		v.Places = allocations([]strategy.Allocation{*s.Giant}, s.Allocated)
		v.Places[0].What = strings.TrimSuffix(what+": "+v.Places[0].What, ": ")
	}
	v.Places, v.Leaks = append(v.Places, allocations(s.Top, s.Allocated)...), allocations(s.Leaks, s.Allocated)
	if f := path.Clean(s.File); s.File != "" && !path.IsAbs(f) && !strings.HasPrefix(f, "..") && len(f) < shortText {
		v.Path = fmt.Sprintf("attempt-%d/%s", a.N, f)
	}
	return v
}

// allocations shows the first ones; all is the sum of bytes that their parts are of.
func allocations(of []strategy.Allocation, all int64) (shown []allocation) {
	for _, a := range of[:min(len(of), mostListed)] {
		one := allocation{Allocation: a}
		if all > 0 {
			one.Part = fmt.Sprintf("%.0f %%", 100*float64(a.Bytes)/float64(all))
		}
		what := []string{a.What, "", a.Dtype, "", ""}
		if len(a.Shape) > 0 && len(a.Shape) < 16 {
			what[1] = fmt.Sprint(a.Shape)
		}
		if a.Count > 1 {
			what[3] = strategy.Count(a.Count, "block")
		}
		if a.PerStep > 0 {
			what[4] = "+" + gibText(a.PerStep) + " a step"
		}
		one.What = strings.Join(slices.DeleteFunc(what, func(s string) bool { return s == "" }), ", ")
		shown = append(shown, one)
	}
	return shown
}
