package job

import (
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/recipes/document"
)

// Nearest returns the word that was probably meant by a wrong one, or empty.
func Nearest(wrong string, words []string) string { return document.Nearest(wrong, words) }

// listed is how many names of a folder are looked through for the one that was meant.
const listed = 1000

// nearestFile is the path that was probably meant by one that is not there: a file of
// the same extension beside it; empty without one.
func nearestFile(path string) string {
	dir, base := filepath.Split(path)
	f, err := os.Open(filepath.Clean(dir))
	if err != nil {
		return ""
	}
	defer f.Close()
	entries, _ := f.ReadDir(listed) // what was read before an error is enough
	var names []string
	for _, e := range entries {
		if !e.IsDir() && filepath.Ext(e.Name()) == filepath.Ext(base) {
			names = append(names, e.Name())
		}
	}
	if meant := Nearest(base, names); meant != "" {
		return dir + meant
	}
	return ""
}
