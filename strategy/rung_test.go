package strategy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// declaredRungs are the rungs that rung.go declares.
func declaredRungs(t *testing.T) []Rung {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "rung.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []Rung
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Rung" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Rung(text))
		}
		return false
	})
	if len(all) < 16 {
		t.Fatalf("rung.go declares %d rungs", len(all))
	}
	return all
}

// TestEveryRungIsWhole: a rung that is declared is walked, knows what it changes, and
// is in the manual.
func TestEveryRungIsWhole(t *testing.T) {
	manual, err := os.ReadFile(filepath.Join("..", "docs", "recovery.md"))
	if err != nil {
		t.Fatal(err)
	}
	walked := slices.Concat(DeviceRungs, HostRungs)
	for _, rung := range declaredRungs(t) {
		if n := len(slices.DeleteFunc(slices.Clone(walked), func(r Rung) bool { return r != rung })); n != 1 {
			t.Errorf("%s is %d times in DeviceRungs and HostRungs (rung.go), want once", rung, n)
		}
		if remedies[rung] == nil {
			t.Errorf("%s has no remedy: add one to the table in remedies.go", rung)
		}
		if len(rungRows[rung].turns) == 0 && rung != RungWait {
			t.Errorf("%s turns no knob: add it to its row (rung.go)", rung)
		}
		if rungRows[rung].training == "" {
			t.Errorf("%s does not say what it does to the training: add it to its row (rung.go)", rung)
		}
		if !strings.Contains(string(manual), "`"+string(rung)+"`") {
			t.Errorf("%s is not in docs/recovery.md", rung)
		}
	}
}
