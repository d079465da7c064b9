package detect_test

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/detect"
	"github.com/gpurun/gpurun/recipes/format"
)

// likely returns the recipes that may match a command.
func likely(t testing.TB, cmd format.Command) []format.Recipe {
	t.Helper()
	files, err := detect.LikelyFiles(cmd)
	if err != nil {
		t.Fatal(err)
	}
	among, err := recipes.Embedded(files)
	if err != nil {
		t.Fatal(err)
	}
	return among
}

// TestLikelyLosesNothing: a command that Detect recognises among all recipes is recognised among
// the likely ones, with the same rivals.
func TestLikelyLosesNothing(t *testing.T) {
	all, err := recipes.Embedded(nil)
	if err != nil {
		t.Fatal(err)
	}
	tried := 0
	for _, r := range all {
		for _, cmd := range commandsOf(r) {
			whole := detect.Candidates(cmd, all)
			files, err := detect.LikelyFiles(cmd)
			if err != nil {
				t.Fatal(err)
			}
			among := slices.DeleteFunc(slices.Clone(all), func(r format.Recipe) bool { return !slices.Contains(files, r.Name+".toml") })
			some := detect.Candidates(cmd, among)
			same := func(a, b detect.Match) bool { return a.Recipe.Name == b.Recipe.Name && a.Matched == b.Matched }
			if !slices.EqualFunc(whole, some, same) {
				t.Errorf("%s: %q: %d candidates of all recipes, %d of the likely ones", r.Name, cmd.Argv, len(whole), len(some))
			}
			tried++
		}
	}
	if tried < 2*len(all) {
		t.Errorf("only %d commands were tried", tried)
	}
}

// commandsOf makes commands with each sign of a recipe.
func commandsOf(r format.Recipe) []format.Command {
	var argv []string
	for _, name := range slices.Concat(r.Detection.Args, r.Detection.Overrides) {
		if strings.HasPrefix(name, "-") {
			argv = append(argv, name, "1")
		} else {
			argv = append(argv, name+"=1")
		}
	}
	var commands []format.Command
	for _, program := range append(r.Detection.Programs, "train.py") {
		commands = append(commands,
			format.Command{Argv: append([]string{program}, argv...)},
			format.Command{Argv: append([]string{program}, argv...), Script: []byte("print('x')\n")})
	}
	for _, name := range r.Detection.Imports {
		module, symbol := name, ""
		if i := strings.LastIndex(name, "."); i > 0 {
			module, symbol = name[:i], name[i+1:]
		}
		script := "import " + module + "\n"
		if symbol != "" {
			script += "from " + module + " import " + symbol + "\n"
		}
		commands = append(commands, format.Command{Argv: append([]string{"train.py"}, argv...), Script: []byte(script)})
	}
	for _, source := range r.Detection.Source {
		commands = append(commands,
			format.Command{Argv: []string{"train.py"}, Script: []byte(strings.Join(source, "\n"))},
			format.Command{Argv: []string{"train.py"}, Script: []byte(source[0] + "\n")})
	}
	for _, text := range r.Detection.Text {
		commands = append(commands, format.Command{Argv: append([]string{"train.py"}, argv...), Script: []byte(text + "\n")})
	}
	return commands
}

func TestAnOrdinaryScriptReadsFewRecipes(t *testing.T) {
	among := likely(t, format.Command{Argv: []string{"train.py", "--lr", "1"}, Script: []byte("import torch\n")})
	all, err := recipes.Embedded(nil)
	if err != nil {
		t.Fatal(err)
	}
	if len(among) > len(all)/2 {
		t.Errorf("%d of %d recipes are read", len(among), len(all))
	}
	plain := likely(t, format.Command{Argv: []string{"train.py", "--lr", "1", "--jobs", "2", "out"}, Script: []byte("import os\n")})
	if len(plain) > 0 {
		t.Errorf("%s is read for a script with no sign of a framework", plain[0].Name)
	}
}

func BenchmarkLikely(b *testing.B) {
	cmd := format.Command{Argv: []string{"train.py"}, Script: []byte("import torch\n")}
	for b.Loop() {
		likely(b, cmd)
	}
}
