package main

import (
	"encoding/json"
	"maps"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/artifacts"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/estimate"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/runs"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
	"github.com/gpurun/gpurun/test/testenv"
)

// jsonSections are the headlines of docs/json.md with the types whose fields they list.
var jsonSections = map[string]any{
	"Verdict": launcher.Verdict{}, "Next step": model.NextStep{}, "Attempt": launcher.AttemptSummary{}, "Recalled plan": strategy.Recalled{}, "Skipped rung": strategy.Skip{},
	"Outvoted plan": strategy.Outvoted{}, "Prediction": memory.Prediction{}, "Price": strategy.Price{}, "GPU time": strategy.GPUTime{}, "Diagnosis": artifacts.FileDiagnosis{}, "Start": artifacts.StartDiagnosis{},
	"Plan": console.Survey{}, "Offer": strategy.Offer{}, "Candidate": strategy.Candidate{}, "Replayed decision": launcher.Replayed{},
	"Full diagnosis": strategy.Diagnosis{}, "Decision": strategy.Decision{}, "Snapshot": strategy.Snapshot{}, "Allocation": strategy.Allocation{},
	"Status": launcher.Status{}, "Run": runs.Entry{}, "Logs": runs.Logs{}, "Cleaned": runs.Cleaned{}, "Recipe": console.ListedRecipe{}, "Detection": job.RecipeDetection{},
	"began": launcher.Began{}, "started": launcher.Started{}, "exited": launcher.Exited{}, "ended": launcher.Ended{}, "decided": launcher.Decided{}, "climbed": launcher.Climbed{},
	"Done again in place": strategy.RankInPlace{}, "Permitted in place": strategy.InPlaceOrders{}, "in_place": launcher.InPlace{},
	"noticed": launcher.Noticed{}, "finished": launcher.Finished{},
}

// A jsonField is a field of a type as JSON has it.
type jsonField struct {
	name     string
	optional bool
	of       reflect.Type // a struct that it holds, nil for none
}

// jsonFields are a struct's fields, those of embedded structs among them.
func jsonFields(t reflect.Type) (all []jsonField) {
	for i := range t.NumField() {
		f := t.Field(i)
		name, options, _ := strings.Cut(f.Tag.Get("json"), ",")
		switch {
		case name == "-":
		case f.Anonymous && name == "":
			all = append(all, jsonFields(f.Type)...)
		case f.IsExported():
			all = append(all, jsonField{name, strings.Contains(options, "omit"), structIn(f.Type)})
		}
	}
	return all
}

// structIn is the struct that a field holds itself, in a list or in an object; nil for none.
func structIn(t reflect.Type) reflect.Type {
	switch t.Kind() {
	case reflect.Pointer, reflect.Slice, reflect.Array, reflect.Map:
		return structIn(t.Elem())
	case reflect.Struct:
		if t != reflect.TypeFor[time.Time]() {
			return t
		}
	}
	return nil
}

var (
	jsonHeadline = regexp.MustCompile(`(?m)^##+ (.+)$`)
	jsonRow      = regexp.MustCompile("(?m)^\\| (`.+?) \\| (.+) \\|$")
	jsonName     = regexp.MustCompile("`([a-z_]+)`( \\*)?")
)

// jsonTables are the rows of docs/json.md by headline and field: whether it may be left out,
// and its description.
func jsonTables(t *testing.T) map[string]map[string]string {
	t.Helper()
	text, tables := testenv.Page(t, "docs/json.md"), map[string]map[string]string{}
	at := jsonHeadline.FindAllStringSubmatchIndex(text, -1)
	for i, m := range at {
		end := len(text)
		if i+1 < len(at) {
			end = at[i+1][0]
		}
		rows := map[string]string{}
		for _, row := range jsonRow.FindAllStringSubmatch(text[m[1]:end], -1) {
			for _, name := range jsonName.FindAllStringSubmatch(row[1], -1) {
				rows[name[1]+name[2]] = row[2]
			}
		}
		tables[text[m[2]:m[3]]] = rows
	}
	return tables
}

// carried are the types of which the page has a line each, because they are gpurun's own.
const carried = "What events carry"

// docs/json.md has every field of every document, and no other.
func TestJSONIsDocumented(t *testing.T) {
	tables, sections := jsonTables(t), map[reflect.Type]string{}
	for headline, value := range jsonSections {
		sections[reflect.TypeOf(value)] = headline
	}
	seen := map[reflect.Type]bool{}
	var walk func(of reflect.Type, inside bool)
	walk = func(of reflect.Type, inside bool) {
		if seen[of] {
			return
		}
		seen[of] = true
		headline, own := sections[of]
		rows, fields := tables[headline], jsonFields(of)
		if !own {
			checkCarried(t, of, tables[carried])
		} else {
			checkSection(t, headline, fields, rows, tables)
		}
		for _, f := range fields {
			if f.of == nil || own && saidInRow(f, rows) {
				continue
			}
			walk(f.of, !own)
		}
	}
	for _, headline := range slices.Sorted(maps.Keys(jsonSections)) {
		walk(reflect.TypeOf(jsonSections[headline]), false)
	}
	for _, c := range newApp(stdio{}).Commands {
		if row := regexp.MustCompile("(?m)^\\| .*`" + c.Name + "`.* \\| "); c.Name != "run" && c.Name != "help" && !row.MatchString(testenv.Page(t, "docs/json.md")) {
			t.Errorf("docs/json.md does not say what gpurun %s --json prints", c.Name)
		}
	}
	if len(seen) < 40 {
		t.Errorf("only %d types were looked at", len(seen))
	}
}

// checkSection wants a row for each field, and none for another.
func checkSection(t *testing.T, headline string, fields []jsonField, rows map[string]string, tables map[string]map[string]string) {
	t.Helper()
	want := map[string]bool{}
	for _, f := range fields {
		name := f.name
		if f.optional {
			name += " *"
		}
		want[name] = true
		_, said := rows[name]
		_, before := tables["Diagnosis"][f.name]
		if !said && !(headline == "Full diagnosis" && before) {
			t.Errorf("docs/json.md, %s: no row for `%s`; a field that may be left out has a *", headline, name)
		}
	}
	for name := range rows {
		if !want[name] {
			t.Errorf("docs/json.md, %s: there is no field `%s`; a field that may be left out has a *", headline, name)
		}
	}
}

// saidInRow reports whether a field's row names the fields of the struct that it holds.
func saidInRow(f jsonField, rows map[string]string) bool {
	text, said := rows[f.name]
	if !said {
		text = rows[f.name+" *"]
	}
	for _, inner := range jsonFields(f.of) {
		if !strings.Contains(text, `"`+inner.name+`"`) && !strings.Contains(text, "`"+inner.name+"`") {
			return false
		}
	}
	return true
}

// checkCarried wants one line with the type's fields in their order.
func checkCarried(t *testing.T, of reflect.Type, rows map[string]string) {
	t.Helper()
	var names []string
	for _, f := range jsonFields(of) {
		names = append(names, "`"+f.name+"`")
	}
	name := strings.ToLower(regexp.MustCompile(`([a-z])([A-Z])`).ReplaceAllString(of.Name(), "${1}_$2"))
	if of.PkgPath() == reflect.TypeFor[memory.RankPlan]().PkgPath() {
		name = "memory_" + name
	}
	if got, want := rows[name], strings.Join(names, ", "); got != want {
		t.Errorf("docs/json.md, %s, wants the line\n| `%s` | %s |", carried, name, want)
	}
}

// A separate type writes what gpurun estimate prints; it is checked by example.
func TestEstimateJSONIsDocumented(t *testing.T) {
	asked, err := estimate.Read([]string{"8B", "--precision", "bf16", "--zero", "2", "--gpus", "8", "--micro-batch", "1", "--sequence", "2048"})
	if err != nil {
		t.Fatal(err)
	}
	answer, err := asked.Answer()
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(answer)
	if err != nil {
		t.Fatal(err)
	}
	var got map[string]any
	if err := json.Unmarshal(text, &got); err != nil {
		t.Fatal(err)
	}
	rows := jsonTables(t)["Estimate"]
	for name := range got {
		if _, said := rows[name]; !said && rows[name+" *"] == "" {
			t.Errorf("docs/json.md, Estimate: no row for `%s`", name)
		}
	}
	for name := range rows {
		if _, there := got[name]; !there && !strings.HasSuffix(name, " *") {
			t.Errorf("docs/json.md, Estimate: `%s` is not there: give it a *", name)
		}
	}
	for name, of := range map[string]reflect.Type{"parts": reflect.TypeFor[memory.Parts](), "cards": reflect.TypeFor[memory.Card](), "architecture": reflect.TypeFor[memory.Architecture](), "plan": reflect.TypeFor[memory.RankPlan](), "deepspeed_estimator": reflect.TypeFor[memory.DeepSpeedEstimate]()} {
		if !saidInRow(jsonField{name: name, of: of}, rows) {
			t.Errorf("docs/json.md, Estimate: the row of %s lacks a field of %v", name, of)
		}
	}
}

// The check finds a field that is missing, one too many, and a star that is wrong.
func TestJSONCheckFinds(t *testing.T) {
	type inner struct {
		A int `json:"a"`
	}
	type outer struct {
		inner
		B *inner `json:"b,omitempty"`
		C int    `json:"-"`
		D []int  `json:"d"`
	}
	want := []jsonField{{name: "a"}, {"b", true, reflect.TypeFor[inner]()}, {name: "d"}}
	if diff := cmp.Diff(want, jsonFields(reflect.TypeFor[outer]()), cmp.AllowUnexported(jsonField{}), cmp.Comparer(func(a, b reflect.Type) bool { return a == b })); diff != "" {
		t.Error(diff)
	}
	if f := want[1]; !saidInRow(f, map[string]string{"b *": "`a`"}) || saidInRow(f, map[string]string{"b *": "its parts"}) {
		t.Error("saidInRow")
	}
}

// The plan and the changes that docs/json.md shows are written as gpurun writes them.
func TestShownPlansAreAsWritten(t *testing.T) {
	shown := regexp.MustCompile("`({\"micro_batch_size\": .*?})`").FindAllStringSubmatch(testenv.Page(t, "docs/json.md"), -1)
	if len(shown) != 2 {
		t.Fatalf("%d examples, want a plan and changes", len(shown))
	}
	for i, value := range []any{&strategy.Plan{}, &strategy.Changes{}} {
		if err := json.Unmarshal([]byte(shown[i][1]), value); err != nil {
			t.Fatal(err)
		}
		text, err := json.Marshal(value)
		if want := strings.ReplaceAll(shown[i][1], " ", ""); err != nil || string(text) != want {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
	}
}
