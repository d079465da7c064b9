package notify

import (
	"encoding/json"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/private"
)

// catchUp puts into the outbox what runs that were killed have journaled and not told. A run
// that somebody works in tells by itself.
func (n *Notifier) catchUp() {
	for _, name := range n.box.names() {
		if !strings.HasPrefix(name, runPrefix) {
			continue
		}
		var w watched
		text, err := private.ReadHead(filepath.Join(n.box.dir, name), largest)
		if err != nil || json.Unmarshal(text, &w) != nil || w.Dir == n.run.Dir || journal.Locked(w.Dir) {
			continue
		}
		n.catchUpWith(w)
	}
}

// catchUpWith does so for one run. It is looked at no more once it is over, gone, or has
// been silent for so long that nothing of it would be told.
func (n *Notifier) catchUpWith(w watched) {
	s := story{dir: w.Dir}
	if s.host, _, _ = journal.Holder(w.Dir); s.host == "" {
		s.host = hostname()
	}
	for _, m := range s.read(w.Dir) {
		if !slices.Contains(w.On, m.Event) || time.Since(m.Time) > keepFor {
			continue
		}
		if body, err := m.encode(nil); err == nil { // the journal holds no secrets
			if _, err := n.box.put(m.ID, body); err != nil {
				return
			}
		}
	}
	info, err := os.Stat(filepath.Join(w.Dir, journal.File))
	if s.over || err != nil || time.Since(info.ModTime()) > keepFor {
		n.box.unwatch(w.Dir)
	}
}
