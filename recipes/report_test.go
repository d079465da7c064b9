package recipes_test

import (
	"cmp"
	"crypto/sha256"
	"encoding/hex"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"slices"
	"strings"
	"testing"

	"github.com/pelletier/go-toml/v2"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A report has the results of one run of the conformance test for a recipe.
type report struct {
	name, digest   string
	packages       map[string]string
	cases          int
	passed, failed []string // remedies; one that failed in any scene has failed
	faults         []string
}

func (r *report) count(c realCase, fault string) {
	r.cases++
	if fault != "" {
		r.faults = append(r.faults, fault)
	}
	if c.remedy == "" {
		return
	}
	switch {
	case fault != "":
		r.failed = append(r.failed, c.remedy)
	case c.turn != nil:
		r.passed = append(r.passed, c.remedy)
	}
}

// remedies lists the remedies that passed in all scenes, in their order.
func (r *report) remedies() []string {
	var good []string
	for _, remedy := range slices.Concat(strategy.DeviceRemedies, strategy.HostRemedies) {
		if slices.Contains(r.passed, string(remedy)) && !slices.Contains(r.failed, string(remedy)) {
			good = append(good, string(remedy))
		}
	}
	return good
}

func (r *report) write(t *testing.T) {
	t.Helper()
	all := reported(t)
	delete(all, r.name)
	if len(r.remedies()) > 0 {
		var versions []string
		for _, name := range slices.Sorted(maps.Keys(r.packages)) {
			versions = append(versions, name+" "+r.packages[name])
		}
		v := recipes.Verified{Version: strings.Join(versions, ", "), Remedies: r.remedies(), Cases: r.cases}
		all[r.name] = verifiedRecipe{Verified: v, Commands: r.digest}
	}
	var b strings.Builder
	b.WriteString("# Written by make conformance: what it verified for each recipe. Do not edit it by hand.\n")
	for _, name := range slices.Sorted(maps.Keys(all)) {
		v := all[name]
		fmt.Fprintf(&b, "\n[%s]\nversion = %q\ncases = %d\n", name, v.Version, v.Cases)
		fmt.Fprintf(&b, "rungs = [%s]\ncommands = %q\n", quotedList(v.Remedies), v.Commands)
	}
	testenv.Check(t, os.WriteFile(verifiedFile, []byte(b.String()), 0o644))
}

// A verifiedRecipe is the report of a recipe on disk.
type verifiedRecipe struct {
	recipes.Verified
	Commands string // the digest of the commands that were compared
}

const verifiedFile = "verified.toml"

// reported returns the reports on disk, by the names of the recipes.
func reported(t *testing.T) map[string]verifiedRecipe {
	t.Helper()
	all := map[string]verifiedRecipe{}
	decodeFile(t, verifiedFile, &all)
	return all
}

func quotedList(words []string) string {
	quoted := make([]string, len(words))
	for i, w := range words {
		quoted[i] = fmt.Sprintf("%q", w)
	}
	return strings.Join(quoted, ", ")
}

// digestOf identifies the framework's input for a recipe: the commands of its scenes, before and
// after their change, with their files, and the values that it has to read in them. The wording
// of the recipe file does not count, nor does the layout of changed files.
func digestOf(t *testing.T, name string) string {
	t.Helper()
	sum := sha256.New()
	for scene, s := range askedScenes(t, name) {
		asked := []any{scene + ".txtar", s.remedy, s.at.Ranks, s.cmd.Argv, s.cmd.Env, s.cmd.Files, s.held}
		if change, err := s.recipe.Apply(s.cmd, s.held.With(s.plan), s.at, attempt); err == nil {
			asked = append(asked, s.plan, valuesOf(change.Argv), change.Env, valuesIn(change.Files), change.Siblings)
		}
		text, err := json.Marshal(asked)
		testenv.Check(t, err)
		sum.Write(text)
	}
	return hex.EncodeToString(sum.Sum(nil)[:8])
}

// valuesIn are the values in files, by name.
func valuesIn(files map[string][]byte) map[string]any {
	all := map[string]any{}
	for name, text := range files {
		all[name] = string(text)
		if f, known := edit.FormatOf(name, text); known {
			if value, err := edit.Decode(f, text); err == nil {
				all[name] = value
			}
		}
	}
	return all
}

// valuesOf are the words of a command; JSON among them is compared by its values.
func valuesOf(argv []string) []any {
	words := make([]any, len(argv))
	for i, word := range argv {
		words[i] = word
		if value, err := edit.Decode(edit.JSON, []byte(word)); err == nil && strings.HasPrefix(word, "{") {
			words[i] = value
		}
	}
	return words
}

// TestVerifiedIsFresh: the results of a recipe were verified with the commands that it makes of
// its scenes now, not with earlier ones.
func TestVerifiedIsFresh(t *testing.T) {
	for name, v := range reported(t) {
		if v.Commands != digestOf(t, name) {
			t.Errorf("the recipe %s makes other commands than when it was verified: make conformance RECIPES=%s", name, name)
		}
	}
}

// TestTableIsFresh: CONFORMANCE.md is the table of the reports.
func TestTableIsFresh(t *testing.T) {
	if *update {
		writeTable(t)
	}
	text, err := os.ReadFile("CONFORMANCE.md")
	testenv.Check(t, err)
	if string(text) != conformanceTable(t) {
		t.Error("CONFORMANCE.md is not what the reports say: make conformance writes it, and go test ./recipes -update")
	}
}

func writeTable(t *testing.T) {
	t.Helper()
	testenv.Check(t, os.WriteFile("CONFORMANCE.md", []byte(conformanceTable(t)), 0o644))
}

// conformanceTable prints every recipe with its verified results, or the reason why there are
// none.
func conformanceTable(t *testing.T) string {
	t.Helper()
	all, err := recipes.Catalog()
	testenv.Check(t, err)
	var b strings.Builder
	b.WriteString("# Conformance\n\n" +
		"`make conformance` gives the commands of the golden files, before and after their changes, to the frameworks' own parsers and\n" +
		"configuration classes, and compares what they read with the plan. It writes this page. A remedy counts if all of its\n" +
		"commands were read as planned.\n\n" +
		"| recipe | with | commands | remedies verified |\n|---|---|---|---|\n")
	reports, frameworks := reported(t), frameworks(t)
	for _, r := range all {
		v, verified := reports[r.Name]
		if !verified {
			fmt.Fprintf(&b, "| %s | – | 0 | none: %s |\n", r.Name, cmp.Or(frameworks[r.Name].Unverified, "not tried yet"))
			continue
		}
		fmt.Fprintf(&b, "| %s | %s | %d | %s |\n", r.Name, v.Version, v.Cases, strings.Join(v.Remedies, ", "))
	}
	return b.String()
}

// decodeFile reads a TOML file.
func decodeFile(t *testing.T, file string, into any) {
	t.Helper()
	text, err := os.ReadFile(file)
	if err == nil {
		err = toml.Unmarshal(text, into)
	}
	if err != nil {
		t.Fatalf("%s: %v", file, err)
	}
}

// frameworks returns what testdata/conformance/frameworks.toml says, by the names of the recipes.
func frameworks(t *testing.T) map[string]struct{ Unverified string } {
	t.Helper()
	all := map[string]struct{ Unverified string }{}
	decodeFile(t, "testdata/conformance/frameworks.toml", &all)
	return all
}
