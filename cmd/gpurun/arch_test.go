package main

import (
	"encoding/json"
	"errors"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"go/types"
	"io"
	"maps"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strconv"
	"strings"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

const module = "github.com/gpurun/gpurun/"

// mayImport is the table of rooms: which of our packages each may import. A
// package that is not listed may not exist, and a room that does not exist may not
// be listed.
var mayImport = map[string][]string{
	"cmd/gpurun":           {"*"},
	"launcher":             {"launcher/commandline", "launcher/errext", "strategy", "strategy/cause", "strategy/memory"},
	"launcher/cluster":     {"launcher/commandline", "launcher/errext", "strategy"},
	"launcher/commandline": {"launcher/errext"},
	"launcher/diagnose":    {"launcher", "launcher/errext", "launcher/journal", "launcher/mask", "launcher/ranks", "launcher/system", "strategy", "strategy/cause"},
	"launcher/doctor":      {"launcher", "launcher/cluster", "launcher/commandline", "launcher/errext", "launcher/job", "launcher/manual", "launcher/mask", "launcher/python", "launcher/ranks", "launcher/system", "strategy", "strategy/cause"},
	"launcher/errext":      {},
	"launcher/estimate":    {"launcher/commandline", "launcher/errext", "launcher/job", "recipes/edit", "strategy", "strategy/memory"},
	"launcher/hook":        {"launcher/mask", "launcher/system", "strategy", "strategy/cause", "strategy/memory"},
	"launcher/job":         {"launcher/cluster", "launcher/commandline", "launcher/errext", "launcher/mask", "launcher/python", "launcher/ranks", "launcher/system", "recipes", "recipes/detect", "recipes/edit", "recipes/format", "strategy", "strategy/memory"},
	"launcher/journal":     {"launcher", "launcher/errext", "launcher/mask", "launcher/system", "strategy", "strategy/cause"},
	"launcher/lazy":        {}, // which each room but strategy may import
	"launcher/manual":      {"launcher/commandline", "launcher/errext", "launcher/job", "launcher/mask", "launcher/show", "recipes", "strategy"},
	"launcher/mask":        {},
	"launcher/node":        {"launcher", "launcher/commandline", "launcher/errext", "launcher/hook", "launcher/journal", "launcher/mask", "launcher/ranks", "launcher/system", "strategy", "strategy/cause", "strategy/memory"},
	"launcher/nodes":       {"launcher", "launcher/cluster", "launcher/commandline", "launcher/errext", "launcher/system", "strategy", "strategy/memory"},
	"launcher/notify":      {"launcher", "launcher/errext", "launcher/journal", "launcher/mask", "launcher/ranks", "launcher/show", "launcher/system", "strategy", "strategy/cause"},
	"launcher/python":      {"launcher/commandline", "launcher/errext", "launcher/ranks"},
	"launcher/ranks":       {"launcher/mask", "launcher/system", "strategy", "strategy/cause"},
	"launcher/show":        {"launcher", "launcher/commandline", "launcher/errext", "launcher/journal", "launcher/mask", "launcher/ranks", "launcher/system", "recipes", "recipes/edit", "strategy", "strategy/cause", "strategy/memory"},
	"launcher/system":      {},
	"recipes":              {"launcher/commandline", "recipes/edit", "recipes/format", "strategy"},
	"recipes/detect":       {"recipes/edit", "recipes/format", "strategy"},
	"recipes/edit":         {},
	"recipes/format":       {"launcher/commandline", "recipes/edit", "strategy"},
	"strategy":             {"strategy/cause", "strategy/memory"},
	"strategy/cause":       {},
	"strategy/memory":      {},
	"test":                 {},
	"test/testenv":         {},
}

// strategy imports the standard library only, and of that nothing that does I/O
// or a clock; recipes may use what reads and writes text formats.
var (
	pure         = []string{"strategy", "strategy/cause", "strategy/memory", "launcher/commandline", "launcher/errext", "launcher/lazy", "launcher/mask", "recipes", "recipes/edit", "recipes/format", "recipes/detect"}
	pureStandard = []string{
		"bytes", "cmp", "embed", "encoding/base64", "encoding/json", "errors", "fmt", "io", "io/fs", "iter", "maps", "math", "math/bits", "path", "reflect", "regexp", "regexp/syntax",
		"runtime", "slices", "sort", "strconv", "strings", "sync", "time", "unicode", "unicode/utf8", "unsafe",
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
	all, err := listPackages()
	if err != nil {
		t.Fatalf("go list: %v", err)
	}
	return all
}

// listPackages asks once: go list takes a second of a processor.
var listPackages = sync.OnceValues(func() (all []listed, err error) {
	cmd := exec.Command("go", "list", "-json", "./...")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		return nil, err
	}
	for dec := json.NewDecoder(strings.NewReader(string(out))); ; {
		var p listed
		if err := dec.Decode(&p); errors.Is(err, io.EOF) {
			return all, nil
		} else if err != nil {
			return nil, err
		}
		all = append(all, p)
	}
})

func (p listed) room() string { return strings.TrimPrefix(p.ImportPath, module) }

func TestImportsFollowTheDesign(t *testing.T) {
	all := packages(t)
	for _, room := range missing(all) {
		t.Errorf("%s: the table has a room that does not exist", room)
	}
	for _, p := range all {
		for _, fault := range forbidden(p) {
			t.Error(fault)
		}
	}
}

// forbidden says what a package imports that it may not.
func forbidden(p listed) (faults []string) {
	allowed, known := mayImport[p.room()]
	if !known {
		return []string{p.room() + ": no such room: add it to mayImport in cmd/gpurun/arch_test.go, and to ARCHITECTURE.md"}
	}
	for _, path := range p.Imports {
		room, ours := strings.CutPrefix(path, module)
		everywhere := room == "launcher/lazy" && !strings.HasPrefix(p.room(), "strategy")
		if ours && !everywhere && !slices.Contains(allowed, room) && !slices.Contains(allowed, "*") {
			faults = append(faults, fmt.Sprintf("%s imports %s, which it may not", p.room(), room))
		}
		third := !ours && strings.Contains(strings.Split(path, "/")[0], ".")
		if third && strings.HasPrefix(p.room(), "strategy") {
			faults = append(faults, fmt.Sprintf("%s imports %s: it imports the standard library only", p.room(), path))
		}
		if !ours && !third && slices.Contains(pure, p.room()) && !slices.Contains(pureStandard, path) {
			faults = append(faults, fmt.Sprintf("%s imports %s: it is pure", p.room(), path))
		}
	}
	return faults
}

// missing are the rooms that the tables name and no package is in.
func missing(all []listed) []string {
	exists := map[string]bool{}
	for _, p := range all {
		exists[p.room()] = true
	}
	named := slices.Concat(slices.Collect(maps.Keys(mayImport)), pure)
	for _, allowed := range mayImport {
		named = append(named, allowed...)
	}
	slices.Sort(named)
	return slices.DeleteFunc(slices.Compact(named), func(room string) bool { return exists[room] || room == "*" })
}

func TestEachPackageHasOneComment(t *testing.T) {
	for _, p := range packages(t) {
		var with []string
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			f, err := parser.ParseFile(token.NewFileSet(), filepath.Join(p.Dir, name), nil, parser.PackageClauseOnly|parser.ParseComments)
			testenv.Check(t, err)
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
			testenv.Check(t, err)
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

// TestExpressionsAreCompiledOnFirstUse: a start of gpurun compiles no regular expression. One that is compiled
// later cannot fail either.
func TestExpressionsAreCompiledOnFirstUse(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		set, constants := token.NewFileSet(), map[string]ast.Expr{}
		var files []*ast.File
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
			testenv.Check(t, err)
			files = append(files, f)
			addConstants(f, constants)
		}
		for _, f := range files {
			for _, call := range expressionsOf(f, "regexp.MustCompile") {
				t.Errorf("%s: compiled at each start: use launcher/lazy, or sync.OnceValue", set.Position(call.Pos()))
			}
			for _, call := range expressionsOf(f, "lazy.Regexp") {
				text, ok := constantText(call.Args[0], constants)
				if !ok {
					t.Errorf("%s: not a constant", set.Position(call.Pos()))
					continue
				}
				if _, err := regexp.Compile(text); err != nil {
					t.Errorf("%s: %v", set.Position(call.Pos()), err)
				}
				seen++
			}
		}
	}
	if seen < 50 {
		t.Errorf("only %d expressions were looked at", seen)
	}
}

// expressionsOf finds the calls of a function by which the variables of a package are initialised.
func expressionsOf(f *ast.File, function string) (found []*ast.CallExpr) {
	for _, d := range f.Decls {
		if _, ok := d.(*ast.FuncDecl); ok {
			continue
		}
		ast.Inspect(d, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.FuncLit:
				return false
			case *ast.CallExpr:
				if types.ExprString(n.Fun) == function {
					found = append(found, n)
				}
			}
			return true
		})
	}
	return found
}

// addConstants adds the constants of a file that have a value of their own, by name.
func addConstants(f *ast.File, to map[string]ast.Expr) {
	for _, d := range f.Decls {
		group, ok := d.(*ast.GenDecl)
		if !ok || group.Tok != token.CONST {
			continue
		}
		for _, s := range group.Specs {
			one := s.(*ast.ValueSpec)
			for i, value := range one.Values {
				to[one.Names[i].Name] = value
			}
		}
	}
}

// constantText returns the text of a constant expression: literals and named constants, joined.
func constantText(e ast.Expr, constants map[string]ast.Expr) (text string, ok bool) {
	switch e := e.(type) {
	case *ast.BasicLit:
		text, err := strconv.Unquote(e.Value)
		return text, err == nil
	case *ast.ParenExpr:
		return constantText(e.X, constants)
	case *ast.Ident:
		value, known := constants[e.Name]
		if !known {
			return "", false
		}
		return constantText(value, constants)
	case *ast.BinaryExpr:
		left, one := constantText(e.X, constants)
		right, other := constantText(e.Y, constants)
		return left + right, one && other && e.Op == token.ADD
	}
	return "", false
}

// TestForbiddenImportsAreFound: each kind of import that a room may not have.
func TestForbiddenImportsAreFound(t *testing.T) {
	for _, test := range []struct{ room, path, want string }{
		{"strategy", module + "launcher", "strategy imports launcher, which it may not"},
		{"launcher", module + "launcher/node", "launcher imports launcher/node, which it may not"},
		{"launcher/ranks", module + "launcher/hook", "launcher/ranks imports launcher/hook, which it may not"},
		{"strategy/cause", "golang.org/x/sys/unix", "strategy/cause imports golang.org/x/sys/unix: it imports the standard library only"},
		{"recipes/edit", "os", "recipes/edit imports os: it is pure"},
		{"launcher/attic", "fmt", "launcher/attic: no such room: add it to mayImport in cmd/gpurun/arch_test.go, and to ARCHITECTURE.md"},
		{"cmd/gpurun", module + "launcher/node", ""},
		{"launcher/show", module + "launcher", ""},
		{"strategy", module + "strategy/cause", ""},
		{"strategy", "slices", ""},
		{"recipes/format", module + "launcher/lazy", ""},
		{"strategy/cause", module + "launcher/lazy", "strategy/cause imports launcher/lazy, which it may not"},
	} {
		got := strings.Join(forbidden(listed{ImportPath: module + test.room, Imports: []string{test.path}}), "; ")
		if got != test.want {
			t.Errorf("%s imports %s: %q, want %q", test.room, test.path, got, test.want)
		}
	}
}

// TestChecksCanFail: a file that reads the clock is found, an expression that is compiled at the start, and a room that
// does not exist.
func TestChecksCanFail(t *testing.T) {
	f, err := parser.ParseFile(token.NewFileSet(), "x.go", "package x\nimport clock \"time\"\nvar at = clock.Now()\n", 0)
	testenv.Check(t, err)
	if len(clockCalls(f)) != 1 {
		t.Error("clock.Now() was not found")
	}
	f, err = parser.ParseFile(token.NewFileSet(), "x.go", "package x\nvar a, b = []any{regexp.MustCompile(`a`)}, func() any { return regexp.MustCompile(`b`) }\n", 0)
	testenv.Check(t, err)
	if got := expressionsOf(f, "regexp.MustCompile"); len(got) != 1 {
		t.Errorf("%d expressions are compiled at the start, want one", len(got))
	}
	if got := missing([]listed{{ImportPath: module + "strategy"}}); len(got) != len(mayImport)-1 || slices.Contains(got, "strategy") {
		t.Errorf("rooms that do not exist: %v", got)
	}
}
