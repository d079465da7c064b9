package runs

import "path/filepath"

const (
	// deepest is how many folders down the working directories of jobs are looked for.
	deepest = 3
	// widest is how many folders are looked at for that.
	widest = 2000
)

// farBelow are the paths of the runs of the jobs whose working directories are below dir,
// the nearest first, as far as a look costs little.
func farBelow(dir string) (paths []string) {
	level, seen := []string{dir}, 0
	for range deepest {
		var next []string
		for _, folder := range level {
			inner, _ := folders(folder) // one that cannot be read has no runs for us
			for _, path := range inner {
				if seen++; seen > widest || len(paths) >= most {
					return paths
				}
				if hasHome(path) {
					found, _ := directories(path)
					paths = append(paths, found...)
				}
				if filepath.Base(path)[0] != '.' {
					next = append(next, path)
				}
			}
		}
		level = next
	}
	return paths
}
