package notify

import (
	"context"
	"errors"
	"io"
	"io/fs"
	"os"
	"path/filepath"
	"slices"
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
type outbox struct{ dir string }

const (
	eventFile = "event.json"
	sentFile  = "sent.json"
	lockFile  = "lock"

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
