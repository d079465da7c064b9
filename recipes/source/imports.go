package source

import (
	"regexp"
	"strings"
)

// An Import is one module that a text imports.
type Import struct {
	// Module is its name; one that begins with dots is relative to the importing file.
	Module string
	// As is what a plain import calls it: the module, or what follows "as".
	As string
	// Names are what is taken from it; nil for a plain import.
	Names []ImportedName
}

// An ImportedName is one name that is taken from a module, and what the text calls it.
type ImportedName struct{ Name, As string }

var (
	fromImport  = regexp.MustCompile(`(?m)^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n;]+)`)
	plainImport = regexp.MustCompile(`(?m)^[ \t]*import[ \t]+([^\n;]+)`)
)

// Imports lists what a text without comments imports, wherever the import stands in it:
// first what names are taken from. It reads text, not Python: an import in a string counts.
func Imports(text string) []Import {
	var all []Import
	for _, m := range fromImport.FindAllStringSubmatch(text, -1) {
		all = append(all, Import{Module: m[1], Names: importedNames(strings.Trim(m[2], "()"))})
	}
	for _, m := range plainImport.FindAllStringSubmatch(text, -1) {
		for _, n := range importedNames(m[1]) {
			all = append(all, Import{Module: n.Name, As: n.As})
		}
	}
	return all
}

func importedNames(list string) []ImportedName {
	names := []ImportedName{}
	for item := range strings.SplitSeq(list, ",") {
		if fields := strings.Fields(item); len(fields) > 0 {
			names = append(names, ImportedName{Name: fields[0], As: fields[len(fields)-1]})
		}
	}
	return names
}
