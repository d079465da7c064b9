package recipes_test

import (
	"maps"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/BurntSushi/toml"
	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// mostKeys is how many names the language may have. A new one that only one
// framework needs is a rule in Go instead.
const mostKeys = 74

// forOwnFiles marks a key in README.md that is there for people's own files, though
// no two recipes of the catalog need it.
const forOwnFiles = "for files of your own"

// explained are the keys that README.md explains, with their lines.
func explained(t *testing.T) map[string]string {
	t.Helper()
	page, err := os.ReadFile("README.md")
	if err != nil {
		t.Fatal(err)
	}
	_, section, found := strings.Cut(string(page), "\n## All keys\n")
	if !found {
		t.Fatal("README.md has no section of all keys")
	}
	section, _, _ = strings.Cut(section, "\n## ")
	lines := map[string]string{}
	for _, m := range regexp.MustCompile("(?m)^\\| `([^`]+)` \\| (.+) \\|$").FindAllStringSubmatch(section, -1) {
		if _, twice := lines[m[1]]; twice {
			t.Errorf("README.md explains %s twice", m[1])
		}
		lines[m[1]] = m[2]
	}
	return lines
}

// TestKeysAreFewAndExplained: what can be written in a recipe is what README.md
// explains, a line each.
func TestKeysAreFewAndExplained(t *testing.T) {
	keys := format.Keys()
	if len(keys) > mostKeys {
		t.Errorf("the language has %d keys, more than %d: %v", len(keys), mostKeys, keys)
	}
	if diff := cmp.Diff(keys, slices.Sorted(maps.Keys(explained(t)))); diff != "" {
		t.Errorf("README.md's table of all keys (-language +table):\n%s", diff)
	}
}

// TestKeysAreUsed: each key is used by two recipes of the catalog, or README.md says
// that it is for people's own files.
func TestKeysAreUsed(t *testing.T) {
	files, err := filepath.Glob("catalog/*.toml")
	if err != nil || len(files) < 20 {
		t.Fatalf("%d recipes, %v", len(files), err)
	}
	users := map[string]int{}
	for _, file := range files {
		table := map[string]any{}
		if _, err := toml.DecodeFile(file, &table); err != nil {
			t.Fatal(err)
		}
		used := map[string]bool{}
		keysIn(table, "", used)
		for key := range used {
			users[key]++
		}
	}
	lines := explained(t)
	for _, key := range format.Keys() {
		own := strings.Contains(lines[key], forOwnFiles)
		if users[key] < 2 && !own {
			t.Errorf("%s is used by %d recipes: make it a rule in Go, or say in README.md that it is %s", key, users[key], forOwnFiles)
		}
		if users[key] >= 2 && own {
			t.Errorf("%s is used by %d recipes, and README.md says that it is %s only", key, users[key], forOwnFiles)
		}
	}
	for key := range users {
		if !slices.Contains(format.Keys(), key) {
			t.Errorf("%s is used, and no key of the language", key)
		}
	}
}

// keysIn collects the keys of a table that stands at a key. What is below some of
// them has names of the reader's own: knobs, values, packages.
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

// isPlaces tells the places of [resume.values] from the words of a place's values.
func isPlaces(value any) bool {
	list, _ := value.([]any)
	if len(list) == 0 {
		return false
	}
	_, place := list[0].(map[string]any)
	return place
}

// TestParseFileShowsThePlace: a recipe file is complained of as a train.toml is, all
// at once.
func TestParseFileShowsThePlace(t *testing.T) {
	_, err := recipes.ParseFile("my.toml", []byte(`name = "mine"
parser = "argprase"
[knobs]
micro_batch_size = { arg = "--bs", path = 3 }
precison = { env = "P" }
	[progress]
	step = 'it \d+'
`))
	const want = `my.toml:2:10: parser: unknown value "argprase" (did you mean "argparse"?)
    parser = "argprase"
             ^
my.toml:4:36: knobs.micro_batch_size.path: arg and path are two places: make them a list
    micro_batch_size = { arg = "--bs", path = 3 }
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
