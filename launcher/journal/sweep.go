package journal

import (
	"io/fs"
	"os"
	"path/filepath"
	"time"

	"github.com/gpurun/gpurun/launcher/private"
)

// writing is longer than anybody takes who writes into a run directory beside the run's own
// gpurun: a report, for example, or another node.
const writing = time.Minute

// sweepAround removes what any gpurun that was killed has left in the folder of a job's runs
// and in the .gpurun that it is in.
func sweepAround(root string) {
	private.SweepFolder(root, writing)
	if above := filepath.Dir(root); filepath.Base(above) == home {
		private.SweepFolder(above, writing)
	}
}

// sweep removes what a gpurun that was killed has left half written in a run directory. The
// caller holds its lock: nobody else writes into its attempts.
func sweep(dir string) {
	private.Sweep(dir, writing)
	for pattern, age := range map[string]time.Duration{"attempt-*": 0, "attempt-*/node-*": writing} { // a node may be left behind
		folders, _ := fs.Glob(os.DirFS(dir), pattern) // the pattern is well formed
		for _, name := range folders {
			path := filepath.Join(dir, name)
			if info, err := os.Lstat(path); err == nil && info.IsDir() {
				private.Sweep(path, age)
			}
		}
	}
}
