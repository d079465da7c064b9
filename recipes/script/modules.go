package script

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/recipes/source"
)

// An Import is one module that a Python source imports.
type Import struct {
	// Module is its name; one that begins with dots is relative to the importing
	// file, as Python counts them.
	Module string
	// Names are what is taken from it, which can be modules, too.
	Names []string
}

// Imported lists what a Python source imports, wherever the import stands in it.
func Imported(python []byte) []Import {
	var all []Import
	for _, i := range source.Imports(withoutComments(python)) {
		found := Import{Module: i.Module}
		for _, n := range i.Names {
			found.Names = append(found.Names, n.Name)
		}
		all = append(all, found)
	}
	return all
}

// Files lists where the files of an import would be below the folder that it counts
// from: slash-separated, without an ending. A package's own file is folder/__init__.
// All that are there are run by the import. up is how many folders above the
// importing file's own the counting starts, -1 for an absolute import.
func (i Import) Files() (up int, files []string) {
	name := strings.TrimLeft(i.Module, ".")
	up = len(i.Module) - len(name) - 1
	below := ""
	for part := range strings.SplitSeq(name, ".") {
		if part == "" {
			break
		}
		below += part
		files = append(files, below+"/__init__", below)
		below += "/"
	}
	for _, member := range i.Names {
		if member != "*" {
			files = append(files, below+member+"/__init__", below+member)
		}
	}
	return up, slices.Compact(files)
}
