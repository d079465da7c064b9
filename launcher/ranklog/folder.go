package ranklog

import (
	"fmt"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/private"
)

// mostFolders is the largest number of entries read from a folder: no launch has as many ranks.
const mostFolders = 1 << 16

// Folders returns the folders of an attempt's ranks that are visible here, by rank: rank<k> of
// node 0, and node-<n>/rank<k> of each other node.
func Folders(attempt string) map[int]string {
	all := Numbered(attempt, "rank")
	nodes := Numbered(attempt, "node-")
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		for rank, path := range Numbered(nodes[n], "rank") {
			if all[rank] == "" && len(all) < mostFolders {
				all[rank] = path
			}
		}
	}
	return all
}

// FolderOf returns the folder of one rank of an attempt; for a rank that is not visible here, the folder
// on node 0.
func FolderOf(attempt string, rank int) string {
	own := fmt.Sprintf("rank%d", rank)
	path := filepath.Join(attempt, own)
	if IsFolder(path) {
		return path
	}
	nodes := Numbered(attempt, "node-")
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		if other := filepath.Join(nodes[n], own); IsFolder(other) {
			return other
		}
	}
	return path
}

// Numbered returns the folders in dir whose name is a prefix and a number, without links; none if
// dir cannot be read.
func Numbered(dir, prefix string) map[int]string {
	all := map[int]string{}
	entries, _ := private.List(dir, mostFolders) // those that can be read
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		if n, err := strconv.Atoi(rest); ok && err == nil && n >= 0 && strconv.Itoa(n) == rest && e.IsDir() {
			all[n] = filepath.Join(dir, e.Name())
		}
	}
	return all
}

// IsFolder reports whether a path is a folder, and not a link that the job made.
func IsFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
