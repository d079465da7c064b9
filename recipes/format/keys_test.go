package format

import (
	"os"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestKeysAreExplained: README.md has a line for each key of each table of the language, and no other.
func TestKeysAreExplained(t *testing.T) {
	page, err := os.ReadFile("../README.md")
	if err != nil {
		t.Fatal(err)
	}
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
