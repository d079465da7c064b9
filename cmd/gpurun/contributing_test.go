package main

import (
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"path"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// What CONTRIBUTING.md names in a Go file, `name` in `file.go` or `name` (`file.go`), is declared there.
func TestContributingNamesDeclarations(t *testing.T) {
	seen := 0
	named := regexp.MustCompile("`([\\w.]+)`(?: in)? \\(?`([\\w/]+\\.go)`")
	for _, m := range named.FindAllStringSubmatch(testenv.Page(t, "CONTRIBUTING.md"), -1) {
		if seen++; !slices.Contains(declared(t, filepath.Join(testenv.Root(t), m[2])), m[1]) {
			t.Errorf("CONTRIBUTING.md: %s does not declare %s", m[2], m[1])
		}
	}
	if seen < 8 {
		t.Errorf("only %d names were looked at", seen)
	}
}

// Each part of a -run pattern that a page prints selects a test of its package.
func TestRunPatternsOfThePagesSelectTests(t *testing.T) {
	root, err := filepath.Abs(testenv.Root(t))
	testenv.Check(t, err)
	command := regexp.MustCompile("go test \\./([\\w/]+) -run '?(\\w[^\\s'`]*)")
	tests, seen := allTests(t), 0
	for _, page := range pages(t) {
		for _, m := range command.FindAllStringSubmatch(testenv.Page(t, page), -1) {
			for part := range strings.SplitSeq(m[2], "|") {
				seen++
				pattern, _, _ := strings.Cut(part, "/")
				if !selects(regexp.MustCompile(pattern), tests, filepath.Join(root, m[1])) {
					t.Errorf("%s: -run %s selects no test of %s", page, pattern, m[1])
				}
			}
		}
	}
	if seen < 8 {
		t.Errorf("only %d patterns were looked at", seen)
	}
}

// selects reports whether a pattern matches one of the tests in a folder.
func selects(pattern *regexp.Regexp, tests map[string][]string, dir string) bool {
	for name, files := range tests {
		here := func(file string) bool { return filepath.Dir(file) == dir }
		if pattern.MatchString(name) && slices.ContainsFunc(files, here) {
			return true
		}
	}
	return false
}

// The Go files that CONTRIBUTING.md prints use declared names, and the packages that they import.
func TestGoFilesInContributingUseDeclaredNames(t *testing.T) {
	file := regexp.MustCompile("(?ms)^   ```go\n   (package .*?)^   ```")
	examples := file.FindAllStringSubmatch(testenv.Page(t, "CONTRIBUTING.md"), -1)
	if len(examples) == 0 {
		t.Fatal("CONTRIBUTING.md has no Go file")
	}
	names := declaredByPackage(t)
	for _, m := range examples {
		for _, fault := range undeclared(t, strings.ReplaceAll("   "+m[1], "\n   ", "\n"), names) {
			t.Errorf("CONTRIBUTING.md: %s", fault)
		}
	}
	for text, want := range map[string]string{
		"import \"fmt\"\nfunc f() { fmt.Println() }":                              "",
		"func f() { verb.AtMost() }":                                              "verb is not declared",
		"import \"fmt\"\nfunc f() {}":                                             "fmt is not used",
		"import \"" + module + "launcher/manual\"\nfunc f() { manual.Nothing() }": "manual has no Nothing",
	} {
		if got := strings.Join(undeclared(t, "package main\n"+text, names), "; "); got != want {
			t.Errorf("%q: %q, want %q", text, got, want)
		}
	}
}

// declaredByPackage has the names that each package declares, by its folder.
func declaredByPackage(t *testing.T) map[string][]string {
	t.Helper()
	names := map[string][]string{}
	for _, p := range packages(t) {
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			names[p.room()] = append(names[p.room()], declared(t, filepath.Join(p.Dir, name))...)
		}
	}
	return names
}

// undeclared lists what a file of package main uses without a declaration, and the imports that it does not use.
func undeclared(t *testing.T, source string, names map[string][]string) (faults []string) {
	t.Helper()
	f, err := parser.ParseFile(token.NewFileSet(), "example.go", source, 0)
	testenv.Check(t, err)
	imported, used := map[string]string{}, map[string]bool{}
	for _, i := range f.Imports {
		from := strings.Trim(i.Path.Value, `"`)
		imported[path.Base(regexp.MustCompile(`/v\d+$`).ReplaceAllString(from, ""))] = from
	}
	for _, id := range f.Unresolved {
		used[id.Name] = true
		known := types.Universe.Lookup(id.Name) != nil || slices.Contains(names["cmd/gpurun"], id.Name)
		if imported[id.Name] == "" && !known {
			faults = append(faults, id.Name+" is not declared")
		}
	}
	for name := range imported {
		if !used[name] {
			faults = append(faults, name+" is not used")
		}
	}
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			of, _ := sel.X.(*ast.Ident)
			if of == nil || !slices.Contains(f.Unresolved, of) {
				return true
			}
			if room, ours := strings.CutPrefix(imported[of.Name], module); ours && !slices.Contains(names[room], sel.Sel.Name) {
				faults = append(faults, of.Name+" has no "+sel.Sel.Name)
			}
		}
		return true
	})
	slices.Sort(faults)
	return faults
}
