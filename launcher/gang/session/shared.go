package session

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher/private"
)

const (
	// sharedWait is how long a follower waits for the head's file: NFS shows what other
	// machines made within a minute. After that the folder is not a shared one.
	sharedWait = 90 * time.Second
	sharedLook = 250 * time.Millisecond
)

// leaveSecret leaves a secret for the other nodes, or takes the one that is there: a
// launch that is started again keeps its own, as a node may have read it before.
func leaveSecret(_ context.Context, path string) ([]byte, error) {
	secret, err := readOwn(path)
	if !errors.Is(err, fs.ErrNotExist) {
		return secret, err
	}
	text := NewSecret()
	if err := private.MkdirAll(filepath.Dir(path)); err != nil {
		return nil, fmt.Errorf("leave a secret for the other nodes: %w", err)
	}
	if err := private.WriteFile(path, []byte(text+"\n"), private.Mode); err != nil {
		return nil, fmt.Errorf("leave a secret for the other nodes: %w", err)
	}
	return parseSecret(text)
}

// awaitSecret waits for the head's secret. It is nil where none comes.
func awaitSecret(ctx context.Context, path string) ([]byte, error) {
	over := time.NewTimer(sharedWait)
	defer over.Stop()
	for {
		_, _ = os.ReadDir(filepath.Dir(path)) // has NFS look again
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

// readOwn reads a secret that a gpurun of the same user left.
func readOwn(path string) ([]byte, error) {
	f, err := private.OpenFile(path, os.O_RDONLY)
	if err != nil {
		return nil, err
	}
	defer f.Close()
	return readSecret(f)
}
