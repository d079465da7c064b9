package main

import (
	"go/parser"
	"go/token"
	"io/fs"
	"maps"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// rootEntries are what may lie in the repository's root.
var rootEntries = []string{
	".ci", ".gitattributes", ".gitignore", "ARCHITECTURE.md", "CHANGELOG.md", "CONTRIBUTING.md", "LICENSE", "Makefile", "README.md",
	"cmd", "docs", "examples", "go.mod", "go.sum", "launcher", "recipes", "strategy", "test",
}

// What a tool or a test leaves behind, such as a train.toml in the root or compiled Python, is
// not committed with the next change.
func TestTreeHasNoStrayFiles(t *testing.T) {
	cmd := osexec.Command("git", "ls-files", "--cached", "--others", "--exclude-standard", "-z")
	cmd.Dir = filepath.Join("..", "..")
	out, err := cmd.Output()
	if err != nil {
		t.Skipf("this is no clone: %v", err)
	}
	for _, stray := range strayFiles(strings.Split(strings.TrimRight(string(out), "\x00"), "\x00")) {
		t.Errorf("%s does not belong in the repository", stray)
	}
	files := []string{"go.mod", "c.yaml", "cmd/gpurun/main.go", "launcher/hook/rank.pyc", "out/x"}
	if got := strayFiles(files); !slices.Equal(got, []string{"c.yaml", "launcher/hook/rank.pyc", "out"}) {
		t.Errorf("stray files: %q", got)
	}
}

// strayFiles are, of the paths of all files, those of compiled Python and the entries of the root
// that may not be there.
func strayFiles(paths []string) []string {
	entries := map[string]bool{}
	for _, path := range paths {
		entry, _, _ := strings.Cut(path, "/")
		if strings.HasSuffix(path, ".pyc") {
			entry = path
		}
		entries[entry] = true
	}
	maps.DeleteFunc(entries, func(entry string, _ bool) bool { return slices.Contains(rootEntries, entry) })
	return slices.Sorted(maps.Keys(entries))
}

// A package whose tests use rapid imports test/testenv, which gives them a fixed seed.
func TestRandomTestsHaveAFixedSeed(t *testing.T) {
	random, fixed := map[string]bool{}, map[string]bool{}
	for _, room := range []string{"cmd", "launcher", "recipes", "strategy", "test"} {
		err := filepath.WalkDir(filepath.Join("..", "..", room), func(path string, _ fs.DirEntry, err error) error {
			if err != nil || !strings.HasSuffix(path, "_test.go") {
				return err
			}
			f, err := parser.ParseFile(token.NewFileSet(), path, nil, parser.ImportsOnly)
			if err != nil {
				return err
			}
			for _, i := range f.Imports {
				random[filepath.Dir(path)] = random[filepath.Dir(path)] || i.Path.Value == `"pgregory.net/rapid"`
				fixed[filepath.Dir(path)] = fixed[filepath.Dir(path)] || i.Path.Value == `"`+module+`test/testenv"`
			}
			return nil
		})
		testenv.Check(t, err)
	}
	found := 0
	for dir, is := range random {
		if is {
			found++
		}
		if is && !fixed[dir] {
			t.Errorf("%s: its tests use rapid, and none imports test/testenv", dir)
		}
	}
	if found < 10 {
		t.Errorf("%d packages use rapid", found)
	}
}
