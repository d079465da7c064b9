package nodes

import (
	"context"
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"io/fs"
	"os"
	"path/filepath"
	"time"
)

const (
	// sharedWait is how long a follower waits for the head's file: NFS shows files of other machines within a
	// minute. After that the folder counts as not shared.
	sharedWait = 90 * time.Second
	sharedLook = 250 * time.Millisecond
)

// leaveSecret writes a secret for the other nodes, or returns the existing one: a restarted launch keeps its
// secret, which a node may have read already.
func leaveSecret(path string) ([]byte, error) {
	secret, err := readOwn(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	text := NewSecret()
	if err := system.MkdirAll(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("write a secret for the other nodes: %w", err)
	}
	if err := system.WriteFile(path, []byte(text+"\n"), system.PrivateMode); err != nil {
		return nil, fmt.Errorf("write a secret for the other nodes: %w", err)
	}
	return parseSecret(text)
}

// awaitSecret waits for the head's secret, and returns nil if none appears: the folder is not shared.
func awaitSecret(ctx context.Context, path string) ([]byte, error) {
	over := time.NewTimer(sharedWait)
	defer over.Stop()
	for {
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
	f, err := system.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	if info, err := f.Stat(); err == nil && system.ForGroup(path, info) {
		return parseFile(f)
	}
	return readSecret(f)
}
