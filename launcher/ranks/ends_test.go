package ranks

import (
	"os"
	"path/filepath"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

// If a supervisor is killed after its ranks ended with 0 by themselves, it has not seen that, but the guard
// has, and writes it. Other ends of ranks are not written.
func TestEndsAreWrittenIfAnyProcessIsKilled(t *testing.T) {
	end := func(_ identity, ranks []identity) {
		for _, id := range ranks {
			_ = unix.Kill(id.PID, unix.SIGTERM)
		}
	}
	for name, c := range map[string]struct {
		helpers []string
		then    func(supervisor identity, ranks []identity)
		over    int // ranks
		loses   bool
		ends    int
	}{
		"by themselves":       {[]string{"obeys", "obeys"}, end, 2, false, 2},
		"the guard is killed": {[]string{"obeys", "obeys"}, end, 2, true, 2},
		"one fails":           {[]string{"obeys", "heeds"}, end, 2, false, 0},
		"one still runs":      {[]string{"obeys", "deaf"}, end, 1, false, 0},
		"they are stopped":    {[]string{"obeys", "obeys"}, func(s identity, _ []identity) { _ = unix.Kill(s.PID, unix.SIGUSR1) }, 2, false, 0},
	} {
		t.Run(name, func(t *testing.T) {
			path := filepath.Join(t.TempDir(), "ends")
			t.Setenv("ENDS", path)
			h := newHarness(t)
			supervisor, guard, ranks := h.startSupervisor(2, c.helpers...)
			outer := h.above(guard)
			if c.loses {
				h.kill(guard)
				h.word("guard")
			}
			c.then(supervisor, ranks)
			for over := 0; over < c.over; time.Sleep(time.Millisecond) {
				over = 0
				for _, id := range ranks {
					if p, err := readProcess(id.PID); err != nil || !p.alive() {
						over++
					}
				}
			}
			h.kill(supervisor)
			f, err := os.Open(path)
			if err != nil {
				t.Fatal(err)
			}
			defer f.Close()
			ends := ReadEnds(f) // waits for the guard
			if len(ends) != c.ends {
				t.Errorf("%d ends are written, want %d", len(ends), c.ends)
			}
			for rank, f := range ends {
				if f.Rank != rank || f.Exit() == nil || f.Exit().Code != 0 || f.Time.IsZero() {
					t.Errorf("rank %d: %+v", rank, f)
				}
			}
			h.awaitGone(append(ranks, supervisor, guard, outer)...)
		})
	}
}
