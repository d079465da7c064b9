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
)

const module = "github.com/gpurun/gpurun/"

// mayImport is the table of rooms: which of our packages each may import. A
// package that is not listed may not exist, and a room that does not exist may not
// be listed.
var mayImport = map[string][]string{
	"model":                {"strategy"}, // which each room may import
	"strategy":             {"strategy/cause", "strategy/memory"},
	"strategy/cause":       {},
	"strategy/memory":      {},
	"recipes":              {"strategy", "recipes/edit", "recipes/format", "launcher/commandline", "launcher/environ"},
	"recipes/edit":         {},
	"recipes/format":       {"strategy", "recipes/edit", "launcher/commandline"},
	"recipes/detect":       {"strategy", "recipes/edit", "recipes/format"},
	"launcher":             {"strategy", "strategy/memory", "strategy/cause", "recipes", "launcher/commandline", "launcher/errext"},
	"launcher/background":  {},
	"launcher/environ":     {},
	"launcher/commandline": {"strategy", "launcher/environ", "launcher/errext"},
	"launcher/checkpoint":  {"strategy", "launcher/errext"},
	"launcher/errext":      {},
	"launcher/job":         {"strategy", "strategy/memory", "recipes", "recipes/edit", "recipes/format", "recipes/detect", "launcher/checkpoint", "launcher/commandline", "launcher/cluster", "launcher/fits", "launcher/gpu", "launcher/host", "launcher/mask", "launcher/python", "launcher/environ", "launcher/errext"},
	"launcher/doctor":      {"launcher", "launcher/cluster", "launcher/commandline", "launcher/environ", "launcher/errext", "launcher/gpu", "launcher/host", "launcher/job", "launcher/mask", "launcher/proc", "launcher/python", "launcher/verb", "strategy", "strategy/cause", "launcher/procfs"},
	"launcher/estimate":    {"strategy", "strategy/memory", "recipes/edit", "launcher/commandline", "launcher/errext", "launcher/job"},
	"launcher/python":      {"launcher/proc", "launcher/environ", "launcher/errext"},
	"launcher/proc":        {"strategy", "strategy/cause", "launcher/procfs"},
	"launcher/output":      {"launcher/mask", "launcher/private", "launcher/ranklog", "launcher/terminal", "strategy", "strategy/cause"},
	"launcher/gpu":         {"strategy", "strategy/cause", "launcher/procfs"},
	"launcher/host":        {"strategy", "strategy/cause", "launcher/procfs"},
	"launcher/probe":       {"launcher/mask", "launcher/private", "launcher/procfs", "strategy", "strategy/memory", "strategy/cause"},
	"launcher/cluster":     {"strategy", "strategy/cause", "launcher/commandline", "launcher/environ", "launcher/errext"},
	"launcher/fits":        {"launcher/private", "strategy", "strategy/memory"},
	"launcher/lazy":        {}, // which each room but strategy may import
	"launcher/journal":     {"launcher", "launcher/errext", "launcher/mask", "launcher/private", "strategy", "strategy/memory", "launcher/runstate", "launcher/procfs"},
	"launcher/mask":        {"launcher/terminal"},
	"launcher/runstate":    {"launcher", "strategy", "strategy/cause"},
	"launcher/private":     {},
	"launcher/procfs":      {},
	"launcher/ranklog":     {"launcher/private"},
	"launcher/terminal":    {},
	"launcher/testseed":    {},
	"launcher/live":        {"launcher", "launcher/background", "launcher/commandline", "launcher/errext", "launcher/journal", "launcher/mask", "launcher/output", "launcher/private", "launcher/runs", "strategy", "launcher/runstate"},
	"launcher/metrics":     {"launcher", "launcher/background", "launcher/mask", "launcher/private", "strategy", "strategy/cause", "launcher/runstate"},
	"launcher/node":        {"launcher", "launcher/environ", "launcher/errext", "launcher/mask", "launcher/private", "launcher/proc", "launcher/output", "launcher/gpu", "launcher/host", "launcher/probe", "launcher/ranklog", "strategy", "strategy/memory", "strategy/cause", "launcher/procfs", "launcher/runstate"},
	"launcher/notify":      {"launcher", "launcher/background", "launcher/console", "launcher/journal", "launcher/mask", "launcher/private", "launcher/proc", "launcher/terminal", "strategy", "strategy/cause", "launcher/runstate"},
	"launcher/artifacts":   {"launcher", "launcher/errext", "launcher/journal", "launcher/mask", "launcher/private", "launcher/ranklog", "launcher/terminal", "strategy", "strategy/cause", "launcher/runstate"},
	"launcher/nodes":       {"launcher", "launcher/cluster", "launcher/environ", "launcher/errext", "launcher/nodes/wire", "strategy", "strategy/memory"},
	"launcher/nodes/wire":  {"launcher/commandline", "launcher/environ", "launcher/errext", "launcher/private"},
	"launcher/trial":       {"launcher", "launcher/commandline", "launcher/errext", "launcher/journal", "launcher/runs", "strategy"},
	"launcher/verb":        {"launcher/console", "launcher/mask", "launcher/terminal", "strategy", "launcher/commandline", "launcher/errext", "launcher/job"},
	"launcher/manual":      {"launcher/commandline", "launcher/environ", "launcher/errext", "launcher/estimate", "launcher/job", "launcher/runs", "launcher/verb", "recipes"},
	"launcher/runs":        {"launcher", "launcher/commandline", "launcher/console", "launcher/errext", "launcher/journal", "launcher/mask", "launcher/private", "launcher/procfs", "launcher/ranklog", "strategy", "strategy/cause", "launcher/runstate"},
	"launcher/console":     {"launcher", "launcher/commandline", "recipes", "recipes/edit", "launcher/mask", "launcher/ranklog", "launcher/terminal", "strategy", "strategy/memory", "strategy/cause", "launcher/runstate"},
	"launcher/pipeline":    {"launcher", "launcher/errext", "launcher/journal", "launcher/mask", "launcher/private", "strategy", "strategy/cause", "launcher/runstate"},
	"launcher/report":      {"launcher", "launcher/console", "launcher/errext", "launcher/journal", "launcher/mask", "launcher/private", "launcher/ranklog", "launcher/terminal", "strategy", "strategy/cause", "strategy/memory", "launcher/runstate"},
	"cmd/gpurun":           {"*"},
	"test":                 {},
	"test/testenv":         {},
}

// strategy imports the standard library only, and of that nothing that does I/O
// or a clock; recipes may use what reads and writes text formats.
var (
	pure         = []string{"model", "strategy", "strategy/cause", "strategy/memory", "launcher/commandline", "launcher/environ", "launcher/errext", "launcher/lazy", "launcher/mask", "launcher/runstate", "launcher/terminal", "recipes", "recipes/edit", "recipes/format", "recipes/detect"}
	pureStandard = []string{
		"bytes", "cmp", "embed", "encoding/base64", "encoding/json", "errors", "fmt", "io", "io/fs", "iter", "maps", "math", "math/bits", "path", "reflect", "regexp", "regexp/syntax",
		"runtime", "slices", "sort", "strconv", "strings", "sync", "time", "unicode", "unicode/utf16", "unicode/utf8", "unsafe",
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
		everywhere := room == "model" || room == "launcher/lazy" && !strings.HasPrefix(p.room(), "strategy")
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

// TestExpressionsAreCompiledOnFirstUse: a start of gpurun compiles no regular expression. One that is compiled
// later cannot fail either.
func TestExpressionsAreCompiledOnFirstUse(t *testing.T) {
	seen := 0
	for _, p := range packages(t) {
		set, constants := token.NewFileSet(), map[string]ast.Expr{}
		var files []*ast.File
		for _, name := range slices.Concat(p.GoFiles, p.CgoFiles) {
			f, err := parser.ParseFile(set, filepath.Join(p.Dir, name), nil, 0)
			if err != nil {
				t.Fatal(err)
			}
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
		{"launcher/proc", module + "launcher/output", "launcher/proc imports launcher/output, which it may not"},
		{"strategy/cause", "golang.org/x/sys/unix", "strategy/cause imports golang.org/x/sys/unix: it imports the standard library only"},
		{"recipes/edit", "os", "recipes/edit imports os: it is pure"},
		{"launcher/attic", "fmt", "launcher/attic: no such room: add it to mayImport in cmd/gpurun/arch_test.go, and to ARCHITECTURE.md"},
		{"cmd/gpurun", module + "launcher/node", ""},
		{"launcher/console", module + "model", ""},
		{"model", module + "launcher", "model imports launcher, which it may not"},
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
	if err != nil {
		t.Fatal(err)
	}
	if len(clockCalls(f)) != 1 {
		t.Error("clock.Now() was not found")
	}
	f, err = parser.ParseFile(token.NewFileSet(), "x.go", "package x\nvar a, b = []any{regexp.MustCompile(`a`)}, func() any { return regexp.MustCompile(`b`) }\n", 0)
	if err != nil {
		t.Fatal(err)
	}
	if got := expressionsOf(f, "regexp.MustCompile"); len(got) != 1 {
		t.Errorf("%d expressions are compiled at the start, want one", len(got))
	}
	if got := missing([]listed{{ImportPath: module + "strategy"}}); len(got) != len(mayImport)-1 || slices.Contains(got, "strategy") {
		t.Errorf("rooms that do not exist: %v", got)
	}
}
