package recipes_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// mostKeys is the largest number of names in the language. A new one that only one framework
// needs is a rule in Go instead.
const mostKeys = 74

// forOwnFiles marks the help of a key that is meant for users' own files, though no two recipes
// of the catalog need it.
const forOwnFiles = "for files of your own"

// explained are the keys of the language, with their help in README.md.
func explained(t *testing.T) map[string]string {
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, _ := strings.Cut(string(page), "\n## All keys\n")
	lines := map[string]string{}
	for _, row := range regexp.MustCompile("(?m)^\\| `(\\w+)` \\| (.*) \\|$").FindAllStringSubmatch(section, -1) {
		lines[row[1]] += row[2]
	}
	if len(lines) > mostKeys {
		t.Errorf("the language has %d keys, more than %d: %v", len(lines), mostKeys, slices.Sorted(maps.Keys(lines)))
	}
	return lines
}

// TestKeysAreUsed: each key is used by two recipes of the catalog, or its help marks it as meant
// for users' own files.
func TestKeysAreUsed(t *testing.T) {
	files, err := filepath.Glob("catalog/*.toml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d recipes, %v", len(files), err)
	}
	users := map[string]int{}
	for _, file := range files {
		table := map[string]any{}
		decodeFile(t, file, &table)
		used := map[string]bool{}
		keysIn(table, "", used)
		for key := range used {
			users[key]++
		}
	}
	lines := explained(t)
	for key := range lines {
		own := strings.Contains(lines[key], forOwnFiles)
		if users[key] < 2 && !own {
			t.Errorf("%s is used by %d recipes: make it a rule in Go, or say in its help that it is %s", key, users[key], forOwnFiles)
		}
		if users[key] >= 2 && own {
			t.Errorf("%s is used by %d recipes, and its help says that it is %s only", key, users[key], forOwnFiles)
		}
	}
	for key := range users {
		if lines[key] == "" {
			t.Errorf("%s is used, and no key of the language", key)
		}
	}
}

// keysIn collects the keys of a table at a key. The keys below some of them are not part of the
// language: knobs, values, packages.
func keysIn(value any, at string, used map[string]bool) {
	switch v := value.(type) {
	case []any:
		for _, item := range v {
			keysIn(item, at, used)
		}
	case []map[string]any:
		for _, item := range v {
			keysIn(item, at, used)
		}
	case map[string]any:
		for key, inner := range v {
			switch {
			case at == "reads" || at == "choose" || at == "versions" || at == "env" || at == "shifts" || at == "values" && !isPlaces(inner):
				continue
			case at == "values", at == "knobs" && slices.Contains(strategy.Knobs, strategy.Knob(key)):
				keysIn(inner, "", used)
			default:
				used[key] = true
				keysIn(inner, key, used)
			}
		}
	}
}

// isPlaces distinguishes the places of [resume.values] from the words of a place's values.
func isPlaces(value any) bool {
	list, _ := value.([]any)
	if len(list) == 0 {
		return false
	}
	_, place := list[0].(map[string]any)
	return place
}

// TestParseFileShowsThePlace: all errors of a recipe file are reported together, in the form of
// train.toml's.
func TestParseFileShowsThePlace(t *testing.T) {
	_, err := recipes.ParseFile("my.toml", []byte(`name = "mine"
parser = "argprase"
[knobs]
micro_batch_size = { arg = "--bs", path = "b" }
precison = { env = "P" }
	[progress]
	step = 'it \d+'
`))
	const want = `my.toml:2:10: parser: unknown value "argprase" (did you mean "argparse"?)
    parser = "argprase"
             ^
my.toml:4:36: knobs.micro_batch_size.path: arg and path are two places: make them a list
    micro_batch_size = { arg = "--bs", path = "b" }
                                       ^
my.toml:5:1: knobs.precison: unknown key (did you mean "precision"?)
    precison = { env = "P" }
    ^
my.toml:7:2: progress.step: the expression needs a group around the number of the step; groups with names are step, total and loss
    	step = 'it \d+'
    	^`
	if err == nil {
		t.Fatal("no error")
	}
	if diff := cmp.Diff(want, err.Error()); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	_, err = recipes.ParseFile("my.toml", []byte("name = \"mine\"\n[knobs\n"))
	if err == nil || !strings.HasPrefix(err.Error(), "my.toml:2:") || !strings.Contains(err.Error(), "\n    [knobs\n") {
		t.Errorf("%v", err)
	}
}
