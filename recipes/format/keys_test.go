package format

import (
	"errors"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestKeysAreExplained: README.md has a line for each key of each table of the language, and no other.
func TestKeysAreExplained(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	testenv.Check(t, err)
	_, section, found := strings.Cut(string(page), "\n## All keys\n")
	if !found {
		t.Fatal("README.md has no section of all keys")
	}
	for title, table := range map[string]reflect.Type{
		"The file": reflect.TypeFor[Recipe](), "`[detect]`": reflect.TypeFor[Detection](), "`[resume]`": reflect.TypeFor[Resume](),
		"`[progress]`": reflect.TypeFor[ProgressLines](), "`[deepspeed]`": reflect.TypeFor[Creation](), "`[[parallel]]`": reflect.TypeFor[modelSize](),
		"`[[checkpoint]]`": reflect.TypeFor[CheckpointLimit](), "`[[loss]]`": reflect.TypeFor[LossRule](),
		"A knob": reflect.TypeFor[Knob](), "A place": reflect.TypeFor[placeTable](), "`via`": reflect.TypeFor[Via](),
		"`also` and `own_oom`": reflect.TypeFor[Setting](), "`unless`": reflect.TypeFor[Condition](),
	} {
		lines := regexp.MustCompile(`(?s)\n` + regexp.QuoteMeta(title) + `(?:, besides [^\n]*)?:\n\n(.*?)(?:\n\n|\z)`).FindStringSubmatch(section)
		if lines == nil {
			t.Errorf("README.md has no table of the keys of %s", title)
			continue
		}
		var explained []string
		for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| .*\\w.* \\|$").FindAllStringSubmatch(lines[1], -1) {
			explained = append(explained, row[1])
		}
		var keys []string
		for i := range table.NumField() {
			if key := table.Field(i).Tag.Get("toml"); key != "" && key != ",place" {
				keys = append(keys, key)
			}
		}
		if diff := cmp.Diff(slices.Sorted(slices.Values(keys)), slices.Sorted(slices.Values(explained))); diff != "" {
			t.Errorf("%s (-keys +README.md):\n%s", title, diff)
		}
	}
}

// TestParsersAreExplained: README.md explains how each parser reads arguments.
func TestParsersAreExplained(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	testenv.Check(t, err)
	for _, name := range parserNames() {
		if !strings.Contains(string(page), "\n| `\""+name+"\"` | ") {
			t.Errorf("README.md does not explain the parser %s", name)
		}
	}
}

// FuzzParse checks that no text makes the reader of recipes panic, and that the position of every
// fault is in the text.
func FuzzParse(f *testing.F) {
	files, err := filepath.Glob("../catalog/*.toml")
	if err != nil || len(files) == 0 {
		f.Fatalf("no recipes: %v", err)
	}
	for _, file := range files {
		text, err := os.ReadFile(file)
		if err != nil {
			f.Fatal(err)
		}
		f.Add(text)
	}
	for _, text := range []string{
		"[knobs]\nprecision = [{ choose = 1 }, { via = [1] }, { arg = [] }, { path = '', via = {} }]\nmicro_batch_size = { alternatives = 3, default = [] }",
		"rules = [1]\nparser = 3\nparallel = [{ model = 1 }, { alternatives = [{ arg = 2 }] }]\ndeepspeed = 1\n[resume]\nvalues = { x = ['a'], y = 3 }\nlatest = '{pointer}'",
		"own_oom = {}\nalso = [{ value = {} }]\ncheckpoint = [{ knob = 'x', survives = [1, [2]] }]\n[detect]\nsource = [1, [2]]",
	} {
		f.Add([]byte(text))
	}
	f.Fuzz(func(t *testing.T, text []byte) {
		_, err := Parse("x.toml", text, Rules{"deepspeed-config": {}})
		if err == nil {
			return
		}
		var wrong *edit.FileError
		if !errors.As(err, &wrong) || len(wrong.Faults) == 0 {
			t.Fatalf("%v is no error with places", err)
		}
		lines := strings.Split(string(text), "\n")
		for _, fault := range wrong.Faults {
			if fault.Line < 1 || fault.Line > len(lines) || fault.Column < 1 || fault.Column > len([]rune(lines[fault.Line-1]))+1 {
				t.Errorf("%+v is not in the text", fault)
			}
		}
	})
}

// TestDiffsApply: git makes the new text from the old one.
func TestDiffsApply(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range r.IntN(30) {
			fmt.Fprintf(&b, "%s%d\n", strings.Repeat("-", r.IntN(3)), r.IntN(6))
		}
		if r.IntN(4) == 0 {
			b.WriteString("+ end")
		}
		return b.String()
	}
	for range 60 {
		old, next := text(), text()
		if old == next || old == "" || next == "" {
			continue
		}
		dir := t.TempDir()
		testenv.Check(t, os.WriteFile(filepath.Join(dir, "x"), []byte(old), 0o600))
		git := exec.CommandContext(t.Context(), "git", "apply", "-")
		git.Dir, git.Stdin = dir, strings.NewReader(string(Unified("a/x", []byte(old), "b/x", []byte(next))))
		out, err := git.CombinedOutput()
		got, _ := os.ReadFile(filepath.Join(dir, "x"))
		if err != nil || string(got) != next {
			t.Fatalf("%v: %s\n%q\n%q", err, out, old, next)
		}
	}
}
