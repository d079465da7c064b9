package notify

import (
	"context"
	"errors"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/strategy"
)

// smallOutbox mounts a small file system as the outbox of a folder, which takes root. The journal is elsewhere. fill
// leaves no byte free, and free removes what fill wrote.
func smallOutbox(t *testing.T, dir string) (fill, free func()) {
	t.Helper()
	box := filepath.Join(dir, ".gpurun", journal.OutboxName)
	if err := os.MkdirAll(box, 0o700); err != nil {
		t.Fatal(err)
	}
	if err := unix.Mount("tmpfs", box, "tmpfs", 0, "size=128k,mode=700"); err != nil {
		t.Skipf("mount a tmpfs: %v", err)
	}
	t.Cleanup(func() {
		if err := unix.Unmount(box, 0); err != nil { // busy: something was left open
			t.Error(err)
		}
	})
	path := filepath.Join(box, "filler")
	fill = func() {
		err := os.WriteFile(path, make([]byte, 1<<20), 0o600)
		if !errors.Is(err, unix.ENOSPC) {
			t.Fatalf("the disk is not full: %v", err)
		}
	}
	return fill, func() {
		if err := os.Remove(path); err != nil {
			t.Fatal(err)
		}
	}
}

// TestEventsAreSentWithAFullOutbox: they are sent from memory, with one warning, and leave nothing broken.
func TestEventsAreSentWithAFullOutbox(t *testing.T) {
	dir, p := t.TempDir(), &post{}
	fill, free := smallOutbox(t, dir)
	fill()
	s := begin(t, t.Context(), dir, "night", p)
	s.events(t, slices.Concat(opening(), rescue(), ending(strategy.Failed, 1))...)
	s.over(t)
	if p.events() != "night rescued, night failed" || len(s.notes) != 1 || !strings.Contains(s.notes[0], "no space left on device") {
		t.Errorf("sent %q, notes %q", p.events(), s.notes)
	}
	free()
	next := begin(t, t.Context(), dir, "second", p)
	next.events(t, opening()...)
	next.over(t)
	if p.events() != "night rescued, night failed" || next.notes != nil {
		t.Errorf("the next start: sent %q, notes %q", p.events(), next.notes)
	}
}

// TestWaitingEventsAreSentOnceFromAFullOutbox: the disk became full after they were put there.
func TestWaitingEventsAreSentOnceFromAFullOutbox(t *testing.T) {
	dir := t.TempDir()
	fill, _ := smallOutbox(t, dir)
	down := &post{answer: func(context.Context, Notification) error { return errors.New("down") }}
	s := begin(t, t.Context(), dir, "night", down)
	s.events(t, slices.Concat(opening(), ending(strategy.Failed, 1))...)
	s.over(t)
	for _, lock := range entries(t, dir, lockFile) { // a cleaner of files
		if err := os.Remove(lock); err != nil {
			t.Fatal(err)
		}
	}
	fill()
	p := &post{}
	for _, name := range []string{"second", "third"} {
		s := begin(t, t.Context(), dir, name, p)
		s.events(t, opening()...)
		s.over(t)
	}
	if p.events() != "night failed" {
		t.Errorf("sent %q", p.events())
	}
}
