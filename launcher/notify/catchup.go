package notify

import (
	"context"
	"encoding/json"
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/private"
)

// What is looked at of runs that were killed: so many, and so many bytes of their journals,
// of each and of all. What is more tells when it is gone on with.
const (
	mostRuns       = 1000
	largestJournal = 16 << 20
	mostJournals   = 64 << 20
)

// catchUp puts into the outbox what runs that were killed have journaled and not told, until
// ctx is done. A run that somebody works in tells by itself.
func (n *Notifier) catchUp(ctx context.Context) {
	runs := slices.DeleteFunc(n.box.names(), func(name string) bool { return !strings.HasPrefix(name, runPrefix) })
	budget := int64(mostJournals)
	for _, name := range runs[:min(len(runs), mostRuns)] {
		if ctx.Err() != nil {
			return
		}
		var w watched
		text, err := n.box.readOwn(name)
		if err != nil || json.Unmarshal(text, &w) != nil || w.Dir == n.run.Dir {
			continue
		}
		if err := private.CheckOwner(w.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) || journal.Locked(w.Dir) {
			continue
		}
		info, err := os.Lstat(filepath.Join(w.Dir, journal.File))
		switch {
		case err != nil || time.Since(info.ModTime()) > keepFor: // gone, or silent for so long that nothing of it would be told
			n.box.unwatch(w.Dir)
		case info.Size() <= min(largestJournal, budget):
			budget -= info.Size()
			n.catchUpWith(ctx, w)
		}
	}
}

// catchUpWith does so for one run. It is looked at no more once it is over.
func (n *Notifier) catchUpWith(ctx context.Context, w watched) {
	s := story{dir: w.Dir}
	if s.host, _, _ = journal.Holder(w.Dir); s.host == "" {
		s.host = hostname()
	}
	for _, m := range s.read(ctx, w.Dir) {
		if !slices.Contains(w.On, m.Event) || time.Since(m.Time) > keepFor {
			continue
		}
		body, err := m.encode(nil) // the journal holds no secrets
		if err != nil {
			continue
		}
		if _, err := n.box.put(m.ID, body); err != nil || ctx.Err() != nil {
			return
		}
	}
	if s.over() && ctx.Err() == nil {
		n.box.unwatch(w.Dir)
	}
}
