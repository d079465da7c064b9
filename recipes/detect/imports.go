package detect

import (
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/lazy"
	"github.com/gpurun/gpurun/recipes/format"
)

// An Import is one module that a Python file imports.
type Import struct {
	// Module is its name; one that begins with dots is relative to the importing file, in
	// Python's way of counting.
	Module string
	// As is its name after a plain import: the module, or the name after "as".
	As string
	// Names are the names imported from it, which can also be modules; nil for a plain import.
	Names []string
}

var (
	comment      = lazy.Regexp(`(?m)#.*$`)
	continuation = lazy.Regexp(`\\\r?\n`)
	fromImport   = lazy.Regexp(`(?m)^[ \t]*from[ \t]+([\w.]+)[ \t]+import[ \t]+(\([^)]*\)|[^\n;]+)`)
	plainImport  = lazy.Regexp(`(?m)^[ \t]*import[ \t]+([^\n;]+)`)
)

// withoutComments is a source with each statement on a separate line.
func withoutComments(source []byte) string {
	return comment().ReplaceAllString(continuation().ReplaceAllString(string(source), " "), "")
}

// Imports lists the imports of a Python file at any place in it: first those with names. It reads
// text, because the imports decide which files the interpreter parses, and name the framework
// even if no interpreter can be run: an import in a string counts.
func Imports(source []byte) []Import {
	text := withoutComments(source)
	var all []Import
	for _, m := range fromImport().FindAllStringSubmatch(text, -1) {
		all = append(all, Import{Module: m[1], Names: []string{}})
		i := &all[len(all)-1]
		for item := range strings.SplitSeq(strings.Trim(m[2], "()"), ",") {
			if fields := strings.Fields(item); len(fields) > 0 {
				i.Names = append(i.Names, fields[0])
			}
		}
	}
	for _, m := range plainImport().FindAllStringSubmatch(text, -1) {
		for item := range strings.SplitSeq(m[1], ",") {
			if fields := strings.Fields(item); len(fields) > 0 {
				all = append(all, Import{Module: fields[0], As: fields[len(fields)-1]})
			}
		}
	}
	return all
}

// Files lists the possible files of an import below the folder that it counts from:
// slash-separated, without an ending. A package's own file is folder/__init__. The import runs
// all of them that exist. up is the number of folders above the importing file's own at which the
// counting starts; -1 for an absolute import.
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

// imports reports whether a Python file imports a module ("deepspeed"), or imports and thus can
// use a name of a module ("transformers.HfArgumentParser"). Few files contain the name of the
// package at all.
func imports(source format.Source, name string) bool {
	root, _, _ := strings.Cut(name, ".")
	if text := string(source.Text); !strings.Contains(text, root) {
		return false
	}
	dot := max(0, strings.LastIndexByte(name, '.'))
	module, member := name[:dot], strings.TrimPrefix(name[dot:], ".")
	return slices.ContainsFunc(Imports(source.Text), func(i Import) bool {
		switch {
		case within(i.Module, name):
			return true
		case dot == 0:
			return false
		case i.Names == nil:
			return i.Module == module && strings.Contains(withoutComments(source.Text), i.As+"."+member)
		}
		return within(i.Module, module) && slices.Contains(i.Names, member)
	})
}

// within reports whether a module is another, or a part of it.
func within(module, other string) bool {
	return module == other || strings.HasPrefix(module, other+".")
}

// anyImports reports whether one of some files imports a name.
func anyImports(sources []format.Source, name string) bool {
	return slices.ContainsFunc(sources, func(s format.Source) bool { return imports(s, name) })
}
