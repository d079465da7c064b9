package ranks

import (
	"testing"
	"time"
)

// Of a rank and the processes that it started, the largest counts: a wrapper uses little memory. With a
// limit, the memory that the limit counts is used.
func TestHeldIsThatOfTheLargestProcess(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{Marker: t.Name()}, h.rank(0, "sleep"), h.rank(1, "hoards"))
	ids := h.readProcesses(3)
	small, large := g.Held(0), g.Held(1)
	if small.Now <= 0 || small.Now >= large.Now || large.Now < 64<<20 || large.Peak < large.Now {
		t.Errorf("held %+v and %+v", small, large)
	}
	g.Stop(time.Second)
	h.gone(ids...)
	if left, none := g.Held(1), g.Held(7); left != (RankMemory{}) || none != left {
		t.Errorf("of a rank that is gone: %+v, of none: %+v", left, none)
	}
	limited := h.start(StartOptions{Marker: t.Name(), DataLimit: 64 << 30}, h.rank(0, "sleep"))
	h.readProcesses(1)
	if all := limited.Held(0); all.Now <= small.Now || all.Peak < all.Now {
		t.Errorf("under a limit: %+v", all)
	}
}
