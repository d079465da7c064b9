package cause

import (
	"go/ast"
	"go/parser"
	"go/token"
	"slices"
	"strconv"
	"strings"
	"testing"
)

// codes are the codes that code.go declares, in their order.
func codes(t *testing.T) []Code {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "code.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []Code
	ast.Inspect(file, func(n ast.Node) bool {
		spec, ok := n.(*ast.ValueSpec)
		if !ok {
			return true
		}
		if of, ok := spec.Type.(*ast.Ident); ok && of.Name == "Code" {
			text, err := strconv.Unquote(spec.Values[0].(*ast.BasicLit).Value)
			if err != nil {
				t.Fatal(err)
			}
			all = append(all, Code(text))
		}
		return false
	})
	if len(all) < 19 {
		t.Fatalf("code.go declares %d codes", len(all))
	}
	return all
}

// TestCatalogue: each code has its entry, in the order of the codes.
func TestCatalogue(t *testing.T) {
	declared, all := codes(t), All()
	for _, code := range declared {
		entry, known := Lookup(code)
		if !known {
			t.Errorf("%s is declared in code.go and has no entry: add one to catalogue.go", code)
			continue
		}
		if entry.Title == "" {
			t.Errorf("%s: the entry in catalogue.go has no title", code)
		}
		if strings.HasSuffix(entry.Hint, ".") {
			t.Errorf("%s: the hint ends with a full stop", code)
		}
		for _, other := range entry.Explains {
			if !slices.Contains(declared, other) || other == code {
				t.Errorf("%s explains %s, which is no other code", code, other)
			}
		}
	}
	listed := make([]Code, len(all))
	for i, c := range all {
		listed[i] = c.Code
	}
	if !slices.Equal(listed, declared) && !t.Failed() {
		t.Errorf("catalogue.go lists %v, want the order of code.go: %v", listed, declared)
	}
	if _, ok := Lookup("no-such-cause"); ok {
		t.Error("Lookup finds a cause that does not exist")
	}
}

// TestEveryCauseHasPatterns: a pattern of the catalogue shows each cause, except those that
// package strategy infers.
func TestEveryCauseHasPatterns(t *testing.T) {
	inferred := map[Code]string{
		GPUOccupied: "the figures of an out-of-memory error", UserError: "an exception that nothing else explains", None: "no failure",
		Hang: "that no rank makes a step",
	}
	for _, code := range codes(t) {
		shown := slices.ContainsFunc(patterns, func(p pattern) bool { return p.code == code })
		if !shown && inferred[code] == "" {
			t.Errorf("no line of output shows %s: add a pattern to one of the files pattern_*.go", code)
		}
	}
}
