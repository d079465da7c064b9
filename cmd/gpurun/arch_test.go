package main

import (
	"encoding/json"
	"errors"
	"go/ast"
	"go/parser"
	"go/token"
	"io"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

const module = "github.com/gpurun/gpurun/"

// mayImport is the table of rooms: which of our packages each may import. A
// package that is not listed may not exist.
var mayImport = map[string][]string{
	"strategy":            {"strategy/cause", "strategy/memory"},
	"strategy/cause":      {},
	"strategy/memory":     {},
	"recipes":             {"strategy", "recipes/catalog", "recipes/deepspeed", "recipes/document", "recipes/format", "recipes/patch"},
	"recipes/catalog":     {"recipes/format"},
	"recipes/deepspeed":   {"strategy", "recipes/format"},
	"recipes/document":    {},
	"recipes/format":      {"strategy", "recipes/document", "recipes/patch"},
	"recipes/patch":       {},
	"launcher":            {"strategy", "strategy/cause", "recipes"},
	"launcher/environ":    {},
	"launcher/errext":     {},
	"launcher/job":        {"strategy", "strategy/cause", "recipes/document"},
	"launcher/proc":       {"strategy", "strategy/cause"},
	"launcher/output":     {"strategy", "strategy/cause"},
	"launcher/gpu":        {"strategy", "strategy/cause"},
	"launcher/host":       {"strategy", "strategy/cause"},
	"launcher/probe":      {"strategy", "strategy/cause"},
	"launcher/cluster":    {"strategy", "strategy/cause"},
	"launcher/gang":       {"strategy", "strategy/cause"},
	"launcher/journal":    {"launcher", "strategy"},
	"launcher/console":    {"launcher", "strategy", "strategy/cause"},
	"launcher/report":     {"launcher", "strategy", "strategy/cause"},
	"launcher/notify":     {"launcher", "strategy", "strategy/cause"},
	"cmd/gpurun":          {"*"},
	"examples/quickstart": {},
}

// strategy imports the standard library only, and of that nothing that does I/O
// or tells the time; recipes may use what reads and writes text formats.
var (
	pure         = []string{"strategy", "strategy/cause", "strategy/memory", "recipes", "recipes/catalog", "recipes/deepspeed", "recipes/document", "recipes/format", "recipes/patch"}
	pureStandard = []string{
		"bytes", "cmp", "embed", "encoding/base64", "encoding/json", "errors", "fmt", "io", "io/fs", "iter", "maps", "math", "math/bits", "path", "reflect", "regexp", "regexp/syntax",
		"slices", "sort", "strconv", "strings", "sync", "time", "unicode", "unicode/utf16", "unicode/utf8", "unsafe",
	}
	clocks = []string{"Now", "Since", "Until", "Sleep", "After", "AfterFunc", "NewTimer", "NewTicker", "Tick"}
)

// listed is what go list says of a package.
type listed struct {
	ImportPath, Dir, Doc string
	GoFiles, CgoFiles    []string
	Imports              []string
	IgnoredGoFiles       []string
}

func packages(t *testing.T) []listed {
	t.Helper()
	cmd := exec.Command("go", "list", "-json", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	var all []listed
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all
		} else if err != nil {
			t.Fatal(err)
		}
		all = append(all, p)
	}
}

func (p listed) room() string { return strings.TrimPrefix(p.ImportPath, module) }

func TestImportsFollowTheDesign(t *testing.T) {
	for _, p := range packages(t) {
		allowed, known := mayImport[p.room()]
		if !known {
			t.Errorf("%s: no such room in the design", p.room())
			continue
		}
		for _, path := range p.Imports {
			room, ours := strings.CutPrefix(path, module)
			if ours && !slices.Contains(allowed, room) && !slices.Contains(allowed, "*") {
				t.Errorf("%s imports %s, which it may not", p.room(), room)
			}
			third := !ours && strings.Contains(strings.Split(path, "/")[0], ".")
			if third && strings.HasPrefix(p.room(), "strategy") {
				t.Errorf("%s imports %s: it imports the standard library only", p.room(), path)
			}
			if !ours && !third && slices.Contains(pure, p.room()) && !slices.Contains(pureStandard, path) {
				t.Errorf("%s imports %s: it is pure", p.room(), path)
			}
		}
	}
}

func TestEachPackageHasOneComment(t *testing.T) {
	for _, p := range packages(t) {
		var with []string
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			if err != nil {
				t.Fatal(err)
			}
			if f.Doc != nil {
				with = append(with, name)
			}
		}
		if len(with) != 1 {
			t.Errorf("%s: %d files have a package comment (%v), want one", p.room(), len(with), with)
		}
	}
}

// TestPurePackagesHaveNoClock walks the syntax trees for what only the time can
// answer.
func TestPurePackagesHaveNoClock(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		if !slices.Contains(pure, p.room()) {
			continue
		}
		for _, name := range p.GoFiles {
			set := token.NewFileSet()
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
			for _, use := range clockCalls(f) {
				t.Errorf("%s: %s", set.Position(use.Pos()), use.Sel.Name)
			}
			seen++
		}
	}
	if seen < 20 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// clockCalls finds time.Now and its like in a file, under whatever name the
// package time is imported.
func clockCalls(f *ast.File) []*ast.SelectorExpr {
	alias := ""
	for _, i := range f.Imports {
		if path, _ := strconv.Unquote(i.Path.Value); path == "time" {
			if alias = "time"; i.Name != nil {
				alias = i.Name.Name
			}
		}
	}
	var found []*ast.SelectorExpr
	ast.Inspect(f, func(n ast.Node) bool {
		if sel, ok := n.(*ast.SelectorExpr); ok {
			if x, ok := sel.X.(*ast.Ident); ok && alias != "" && x.Name == alias && slices.Contains(clocks, sel.Sel.Name) {
				found = append(found, sel)
			}
		}
		return true
	})
	return found
}

// TestTheChecksCanFail: a file that tells the time is found.
func TestTheChecksCanFail(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nimport clock \"time\"\nvar at = clock.Now()\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	if len(clockCalls(f)) != 1 {
		t.Error("clock.Now() was not found")
	}
}
