package notify

import (
	"cmp"
	"context"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/private"
)

// An outbox is the folder of events to be sent. It has neither addresses nor secrets. What
// other users could have written there is not read.
//
//	ID/event.json     an event to be sent
//	ID/sent.json      one that was sent, kept so that it is not put there again
//	ID/lock           held while it is sent
//	run-….json        a run with notifications that is not over
type outbox struct{ dir string }

const (
	eventFile = "event.json"
	sentFile  = "sent.json"
	lockFile  = "lock"
	runPrefix = "run-"

	// keepFor is the age after which an event is not sent any more.
	keepFor = 24 * time.Hour
	// largest bounds a file of the outbox, in bytes, and most its entries.
	largest = 64 << 10
	most    = 10_000
)

// put keeps an event until it is sent. It is not fresh where the outbox has it already, or it
// was sent.
func (o outbox) put(id string, body []byte) (fresh bool, err error) {
	folder := filepath.Join(o.dir, id)
	if err := errors.Join(journal.MakeFolder(o.dir), private.Mkdir(folder), private.CheckShared(folder)); err != nil {
		return false, err
	}
	for _, name := range []string{eventFile, sentFile} {
		if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
			return false, nil
		}
	}
	return true, private.WriteFile(filepath.Join(folder, eventFile), body, private.Mode)
}

// check refuses an outbox that another user can write to.
func (o outbox) check() error { return journal.CheckFolder(o.dir) }

// hold locks an entry. The error is journal.ErrLocked where another gpurun sends it.
func (o outbox) hold(id string) (io.Closer, error) {
	return journal.Lock(filepath.Join(o.dir, id, lockFile))
}

// read is an event to be sent. The error is fs.ErrNotExist where it was sent.
func (o outbox) read(id string) ([]byte, error) {
	if _, err := os.Lstat(filepath.Join(o.dir, id, sentFile)); err == nil {
		return nil, fs.ErrNotExist
	}
	if err := private.CheckShared(filepath.Join(o.dir, id)); err != nil {
		return nil, err
	}
	return o.readOwn(filepath.Join(id, eventFile))
}

// readOwn reads a file of the outbox, if the user owns it.
func (o outbox) readOwn(name string) ([]byte, error) {
	path := filepath.Join(o.dir, name)
	if err := private.CheckShared(path); err != nil {
		return nil, err
	}
	return private.ReadHead(path, largest)
}

// sent records that an event was sent, or refused.
func (o outbox) sent(id string) error {
	folder := filepath.Join(o.dir, id)
	return os.Rename(filepath.Join(folder, eventFile), filepath.Join(folder, sentFile))
}

// left returns the events to send, the oldest first. It drops those that are too old, and those that were
// sent long ago, until ctx is done.
func (o outbox) left(ctx context.Context, now time.Time) (ids []string, dropped int) {
	written := map[string]time.Time{}
	for _, name := range list(o.dir, most) {
		if ctx.Err() != nil {
			break
		}
		if !identity().MatchString(name) || !o.isEntry(name) {
			continue
		}
		at, state := o.state(name)
		switch age := now.Sub(at); {
		case state == eventFile && age < keepFor:
			written[name] = at
			ids = append(ids, name)
		case state == eventFile && o.remove(name):
			dropped++
		case age > 2*keepFor:
			o.remove(name)
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int { return written[a].Compare(written[b]) })
	return ids, dropped
}

// state is the file that an entry has, and when its event happened, or the entry was made.
func (o outbox) state(id string) (at time.Time, name string) {
	if text, err := o.read(id); err == nil {
		if m, err := decode(text); err == nil {
			return m.Time, eventFile
		}
	}
	for _, name := range []string{sentFile, eventFile, ""} {
		if info, err := os.Lstat(filepath.Join(o.dir, id, name)); err == nil {
			return info.ModTime(), name
		}
	}
	return time.Time{}, ""
}

// remove removes an entry, unless it is being sent.
func (o outbox) remove(id string) bool {
	held, err := o.hold(id)
	if err != nil {
		return false
	}
	defer held.Close()
	folder := filepath.Join(o.dir, id)
	for _, name := range list(folder, mostFiles) {
		if isEntryFile(name) {
			_ = os.Remove(filepath.Join(folder, name)) // or the folder stays, with what else is in it
		}
	}
	return os.Remove(folder) == nil
}

// isEntry reports whether a folder is the user's and holds only files of an entry; any other
// folder is not touched.
func (o outbox) isEntry(id string) bool {
	info, err := os.Lstat(filepath.Join(o.dir, id))
	if err != nil || !info.IsDir() || private.CheckShared(filepath.Join(o.dir, id)) != nil {
		return false
	}
	return !slices.ContainsFunc(list(filepath.Join(o.dir, id), mostFiles), func(name string) bool { return !isEntryFile(name) })
}

// isEntryFile reports whether a file of an entry, or a temporary one of it, has that name.
func isEntryFile(name string) bool {
	return name == eventFile || name == sentFile || name == lockFile || strings.HasPrefix(name, lockFile+".holder") || strings.HasPrefix(name, ".gpurun-")
}

// mostFiles is more than an entry has, also after kills.
const mostFiles = 100

// list returns the names in a folder.
func list(dir string, most int) (names []string) {
	entries, _ := private.List(dir, most) // an outbox that cannot be read has none
	for _, e := range entries {
		names = append(names, e.Name())
	}
	return names
}

// A watched run has notifications, and is not over.
type watched struct {
	Dir string   `json:"dir"`
	On  []string `json:"on"`
}

func (o outbox) watchFile(dir string) string {
	sum := sha256.Sum256([]byte(dir))
	return filepath.Join(o.dir, runPrefix+hex.EncodeToString(sum[:8])+".json")
}

// watch records that a run has notifications: the next gpurun here sends those that the run
// left when it was killed.
func (o outbox) watch(dir string, on []string) error {
	text, err := json.Marshal(watched{dir, on})
	if err != nil {
		return fmt.Errorf("encode the run: %w", err)
	}
	if err := journal.MakeFolder(o.dir); err != nil {
		return err
	}
	return private.WriteFile(o.watchFile(dir), text, private.Mode)
}

// watched reports whether a run has been recorded.
func (o outbox) watched(dir string) bool {
	_, err := os.Lstat(o.watchFile(dir))
	return err == nil
}

// unwatch records that the outbox has all events of a run.
func (o outbox) unwatch(dir string) { _ = os.Remove(o.watchFile(dir)) }

// Bounds for reading killed runs: their number, and the bytes of their journals, of each and of all. Others
// send their events when they are resumed.
const (
	mostRuns       = 1000
	largestJournal = 16 << 20
	mostJournals   = 64 << 20
)

// catchUp puts into the outbox the events that runs journaled before they were killed, until
// ctx is done. A run that is locked sends its own.
func (n *Notifier) catchUp(ctx context.Context) {
	runs := slices.DeleteFunc(list(n.box.dir, most), func(name string) bool { return !strings.HasPrefix(name, runPrefix) })
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
		case err != nil || time.Since(info.ModTime()) > keepFor: // gone, or all of its events are too old
			n.box.unwatch(w.Dir)
		case info.Size() <= min(largestJournal, budget):
			budget -= info.Size()
			n.catchUpWith(ctx, w)
		}
	}
}

// catchUpWith does so for one run, for the last time if that is over.
func (n *Notifier) catchUpWith(ctx context.Context, w watched) {
	host, _, _ := journal.Holder(w.Dir)
	s := newStory(w.Dir, cmp.Or(host, hostname()))
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
