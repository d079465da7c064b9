package wire

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/private"
)

const (
	// sharedWait is how long a follower waits for the head's file: NFS shows files of other machines within a
	// minute. After that the folder counts as not shared.
	sharedWait = 90 * time.Second
	sharedLook = 250 * time.Millisecond
	// knockAfter is the delay of the search for the head, knockPause its interval, and unseenBound how long the file may take
	// once the head is found.
	knockAfter, knockPause, unseenBound = 5 * time.Second, 2 * time.Second, 20 * time.Second
)

// leaveSecret writes a secret for the other nodes, or returns the existing one: a restarted launch keeps its
// secret, which a node may have read already.
func leaveSecret(path string) ([]byte, error) {
	secret, err := readOwn(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	text := NewSecret()
	if err := private.MkdirAll(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("write a secret for the other nodes: %w", err)
	}
	if err := private.WriteFile(path, []byte(text+"\n"), private.Mode); err != nil {
		return nil, fmt.Errorf("write a secret for the other nodes: %w", err)
	}
	return parseSecret(text)
}

// awaitSecret waits for the head's secret, and returns nil if none appears. there returns the head's address,
// empty until it is found. If the head is found and the secret does not appear, the folder is not shared.
func awaitSecret(ctx context.Context, path string, there func(context.Context) string) ([]byte, error) {
	over, began := time.NewTimer(sharedWait), time.Now()
	defer over.Stop()
	var at string
	var found, knocked time.Time
	for {
		if now := time.Now(); at == "" && now.Sub(began) >= knockAfter && now.Sub(knocked) >= knockPause {
			at, found, knocked = there(ctx), now, now
		}
		if at != "" && time.Since(found) >= unseenBound {
			return nil, errext.Errorf("put the job's folder on a file system that all nodes share, or give all of them a secret: on one `(umask 077; gpurun secret > FILE)`, then GPURUN_SECRET_FILE=FILE on each",
				"node 0 is there, at %s, and the secret that it wrote is not visible here: %s is in no folder that both share", at, path)
		}
		_, _ = os.ReadDir(filepath.Dir(path)) // makes NFS look again
		secret, err := readOwn(path)
		if !errors.Is(err, fs.ErrNotExist) {
			return secret, err
		}
		select {
		case <-time.After(sharedLook):
		case <-over.C:
			return nil, nil
		case <-ctx.Done():
			return nil, fmt.Errorf("wait for %s of node 0: %w", path, context.Cause(ctx))
		}
	}
}

// readOwn reads a secret that a gpurun of the same user wrote, or of the group that shares the volume.
func readOwn(path string) ([]byte, error) {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && private.ForGroup(path, info) {
		return parseFile(f)
	}
	return readSecret(f)
}
