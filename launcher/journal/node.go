package journal

import (
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// A NodeDir is another node's part of a run: its events, in a separate folder, and the attempts' folders of its ranks.
// Nothing is decided by it.
//
//	node-<k>/journal.jsonl          the node's own events
//	attempt-<n>/node-<k>/rank<r>/…  its ranks
type NodeDir struct {
	*Journal
	run  string
	node int
}

// OpenNode opens a node's part of the run directory run, which may be on a separate file system.
func OpenNode(run string, node int, shown func(launcher.Event)) (*NodeDir, error) {
	if err := makeRunDir(run); err != nil {
		return nil, launcher.RunDirError(run, err)
	}
	dir := filepath.Join(run, nodeFolder(node))
	j, _, err := Open(dir, shown)
	switch {
	case errors.Is(err, ErrLocked):
		return nil, errext.WithCode(fmt.Errorf("another gpurun is node %d of this run: %w", node, err), strategy.CodeRetry)
	case err != nil:
		return nil, launcher.RunDirError(dir, err)
	}
	return &NodeDir{Journal: j, run: run, node: node}, nil
}

func nodeFolder(node int) string { return fmt.Sprintf("node-%d", node) }

// IsNode reports whether a folder is a NodeDir: the run is the folder above it.
func IsNode(dir string) bool {
	number, named := strings.CutPrefix(filepath.Base(dir), "node-")
	if _, err := strconv.Atoi(number); !named || err != nil {
		return false
	}
	_, err := os.Lstat(filepath.Join(filepath.Dir(dir), File))
	return err == nil
}

// Prepare makes the node's folder of attempt n.
func (n *NodeDir) Prepare(attempt int) (string, error) {
	dir := filepath.Join(n.run, fmt.Sprintf("attempt-%d", attempt), nodeFolder(n.node))
	if err := system.MkdirAll(dir); err != nil {
		return "", fmt.Errorf("make the attempt's folder: %w", err)
	}
	return dir, nil
}
