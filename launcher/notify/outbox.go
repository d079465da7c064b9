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
	"github.com/gpurun/gpurun/launcher/system"
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
	if err := errors.Join(journal.MakeFolder(o.dir), system.Mkdir(folder), system.CheckShared(folder)); err != nil {
		return false, err
	}
	for _, name := range []string{eventFile, sentFile} {
		if _, err := os.Lstat(filepath.Join(folder, name)); err == nil {
			return false, nil
		}
	}
	return true, system.WriteFile(filepath.Join(folder, eventFile), body, system.PrivateMode)
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
	if err := system.CheckShared(filepath.Join(o.dir, id)); err != nil {
		return nil, err
	}
	return o.readOwn(filepath.Join(id, eventFile))
}

// readOwn reads a file of the outbox, if the user owns it.
func (o outbox) readOwn(name string) ([]byte, error) {
	path := filepath.Join(o.dir, name)
	if err := system.CheckShared(path); err != nil {
		return nil, err
	}
	return system.ReadHead(path, largest)
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
	for _, id := range list(o.dir, most) {
		folder := filepath.Join(o.dir, id)
		if ctx.Err() != nil {
			break
		}
		info, err := os.Lstat(folder)
		if err != nil || !identity().MatchString(id) || system.CheckShared(folder) != nil {
			continue
		}
		_, sent := os.Lstat(filepath.Join(folder, sentFile))
		event, err := os.Lstat(filepath.Join(folder, eventFile))
		switch {
		case sent == nil || err != nil: // or it is being made
			if now.Sub(info.ModTime()) > 2*keepFor {
				o.remove(id)
			}
		case now.Sub(event.ModTime()) < keepFor:
			written[id] = event.ModTime()
			ids = append(ids, id)
		case o.remove(id):
			dropped++
		}
	}
	slices.SortStableFunc(ids, func(a, b string) int { return written[a].Compare(written[b]) })
	return ids, dropped
}

// remove removes an entry, unless it is being sent.
func (o outbox) remove(id string) bool {
	held, err := o.hold(id)
	if err != nil {
		return false
	}
	defer held.Close()
	return os.RemoveAll(filepath.Join(o.dir, id)) == nil
}

// list returns the names in a folder.
func list(dir string, most int) (names []string) {
	entries, _ := system.ListFolder(dir, most) // an outbox that cannot be read has none
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
	return system.WriteFile(o.watchFile(dir), text, system.PrivateMode)
}

// watched reports whether a run has been recorded.
func (o outbox) watched(dir string) bool {
	_, err := os.Lstat(o.watchFile(dir))
	return err == nil
}

// unwatch records that the outbox has all events of a run.
func (o outbox) unwatch(dir string) { _ = os.Remove(o.watchFile(dir)) }

// largestJournal bounds the journals that are read of killed runs, in bytes. Others send their events when they are
// resumed.
const largestJournal = 16 << 20

// catchUp puts into the outbox the events that runs journaled before they were killed, until
// ctx is done. A run that is locked sends its own.
func (n *Notifier) catchUp(ctx context.Context) {
	for _, name := range list(n.box.dir, most) {
		var w watched
		if ctx.Err() != nil || !strings.HasPrefix(name, runPrefix) {
			continue
		}
		text, err := n.box.readOwn(name)
		if err != nil || json.Unmarshal(text, &w) != nil || w.Dir == n.run.Dir {
			continue
		}
		if err := system.CheckOwner(w.Dir); err != nil && !errors.Is(err, fs.ErrNotExist) || journal.Locked(w.Dir) {
			continue
		}
		info, err := os.Lstat(filepath.Join(w.Dir, journal.File))
		switch {
		case err != nil || time.Since(info.ModTime()) > keepFor: // gone, or all of its events are too old
			n.box.unwatch(w.Dir)
		case info.Size() <= largestJournal:
			n.catchUpWith(ctx, w)
		}
	}
}

// catchUpWith does so for one run, for the last time if that is over.
func (n *Notifier) catchUpWith(ctx context.Context, w watched) {
	host, _, _ := journal.Holder(w.Dir)
	s := newEventSource(w.Dir, cmp.Or(host, hostname()))
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
