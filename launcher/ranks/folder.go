package ranks

import (
	"fmt"
	"github.com/gpurun/gpurun/launcher/system"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
)

// mostFolders is the largest number of entries read from a folder: no launch has as many ranks.
const mostFolders = 1 << 16

// LogFolders returns the folders of an attempt's ranks that are visible here, by rank: rank<k> of
// node 0, and node-<n>/rank<k> of each other node.
func LogFolders(attempt string) map[int]string {
	all := NumberedFolders(attempt, "rank")
	nodes := NumberedFolders(attempt, "node-")
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		for rank, path := range NumberedFolders(nodes[n], "rank") {
			if all[rank] == "" && len(all) < mostFolders {
				all[rank] = path
			}
		}
	}
	return all
}

// LogFolder returns the folder of one rank of an attempt; for a rank that is not visible here, the folder
// on node 0.
func LogFolder(attempt string, rank int) string {
	own := fmt.Sprintf("rank%d", rank)
	path := filepath.Join(attempt, own)
	if IsLogFolder(path) {
		return path
	}
	nodes := NumberedFolders(attempt, "node-")
	for _, n := range slices.Sorted(maps.Keys(nodes)) {
		if other := filepath.Join(nodes[n], own); IsLogFolder(other) {
			return other
		}
	}
	return path
}

// NumberedFolders returns the folders in dir whose name is a prefix and a number, without links; none if
// dir cannot be read.
func NumberedFolders(dir, prefix string) map[int]string {
	all := map[int]string{}
	entries, _ := system.ListFolder(dir, mostFolders) // those that can be read
	for _, e := range entries {
		rest, ok := strings.CutPrefix(e.Name(), prefix)
		if n, err := strconv.Atoi(rest); ok && err == nil && n >= 0 && strconv.Itoa(n) == rest && e.IsDir() {
			all[n] = filepath.Join(dir, e.Name())
		}
	}
	return all
}

// IsLogFolder reports whether a path is a folder, and not a link that the job made.
func IsLogFolder(path string) bool {
	info, err := os.Lstat(path)
	return err == nil && info.IsDir()
}
