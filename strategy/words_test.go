package strategy

import (
	"go/ast"
	"go/parser"
	"go/token"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

// matchers are the functions that search for words in a text.
var matchers = []string{
	"Contains", "ContainsAny", "ContainsFunc", "ContainsRune", "Count", "Cut", "CutPrefix", "CutSuffix", "EqualFold", "Fields", "FieldsFunc",
	"HasPrefix", "HasSuffix", "Index", "IndexAny", "IndexByte", "IndexFunc", "LastIndex", "Split", "SplitN", "SplitSeq", "TrimPrefix", "TrimSuffix",
}

// TestWordsAreMatchedInTheCatalogueOnly: only package cause reads messages; the rest of the
// strategy reads the finding's fields.
func TestWordsAreMatchedInTheCatalogueOnly(t *testing.T) {
	names, err := filepath.Glob("*.go")
	if err != nil {
		t.Fatal(err)
	}
	for _, name := range names {
		if strings.HasSuffix(name, "_test.go") {
			continue
		}
		set := token.NewFileSet()
		file, err := parser.ParseFile(set, name, nil, 0)
		if err != nil {
			t.Fatal(err)
		}
		for _, use := range textMatches(file) {
			t.Errorf("%s: %s in %s: match it in strategy/cause, as a pattern or a remark", set.Position(use.pos), use.what, use.in)
		}
	}
}

// A textMatch is a place at which a text is searched or compared with words.
type textMatch struct {
	in, what  string
	pos       token.Pos
	ofFinding bool
}

func textMatches(file *ast.File) []textMatch {
	var all []textMatch
	for _, i := range file.Imports {
		if i.Path.Value == `"regexp"` {
			all = append(all, textMatch{"the file", "regexp", i.Pos(), true})
		}
	}
	for _, decl := range file.Decls {
		in := "a declaration"
		if f, ok := decl.(*ast.FuncDecl); ok {
			in = f.Name.Name
		}
		ast.Inspect(decl, func(n ast.Node) bool {
			switch n := n.(type) {
			case *ast.CallExpr:
				f, ok := n.Fun.(*ast.SelectorExpr)
				if !ok {
					return true
				}
				if pkg, ok := f.X.(*ast.Ident); ok && (pkg.Name == "strings" || pkg.Name == "bytes") && slices.Contains(matchers, f.Sel.Name) {
					all = append(all, textMatch{in, pkg.Name + "." + f.Sel.Name, n.Pos(), slices.ContainsFunc(n.Args, ofFinding)})
				}
			case *ast.BinaryExpr:
				if words(n.X) && ofFinding(n.Y) || ofFinding(n.X) && words(n.Y) {
					all = append(all, textMatch{in, n.Op.String(), n.Pos(), true})
				}
			}
			return true
		})
	}
	return all
}

// ofFinding reports whether an expression is the text of a finding.
func ofFinding(e ast.Expr) bool {
	s, ok := e.(*ast.SelectorExpr)
	return ok && slices.Contains([]string{"Text", "Traceback", "Error"}, s.Sel.Name)
}

// words reports whether an expression is a literal other than "".
func words(e ast.Expr) bool {
	l, ok := e.(*ast.BasicLit)
	return ok && l.Kind == token.STRING && l.Value != `""`
}

// TestTextMatchesAreFound: the walk above finds text matches.
func TestTextMatchesAreFound(t *testing.T) {
	file, err := parser.ParseFile(token.NewFileSet(), "x.go", `package strategy
import "strings"
func a(f *Finding) bool { return strings.Contains(f.Text, "Killed") }
func b(f *Finding) bool { return f.Text == "Killed" }
func c(d Diagnosis) bool { return d.Error != "" && strings.ToUpper(d.Error) != "" }
`, 0)
	if err != nil {
		t.Fatal(err)
	}
	var in []string
	for _, m := range textMatches(file) {
		if m.ofFinding {
			in = append(in, m.in)
		}
	}
	if !slices.Equal(in, []string{"a", "b"}) {
		t.Errorf("found in %q, want a and b", in)
	}
}
