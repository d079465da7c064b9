package main

import (
	"encoding/json"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/diagnose"
	"github.com/gpurun/gpurun/launcher/estimate"
	"github.com/gpurun/gpurun/launcher/show"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// jsonSections are the headlines of docs/json.md with the types of which they list the main fields.
var jsonSections = map[string]any{
	"Verdict": launcher.Verdict{}, "Next step": strategy.Advice{}, "GPU time": strategy.GPUTime{}, "Attempt": launcher.AttemptSummary{},
	"Done again in place": strategy.InPlace{}, "Tried ways": strategy.Trial{}, "Price": strategy.Price{}, "Diagnosis": diagnose.FileDiagnosis{},
	"Plan": show.Survey{}, "Status": launcher.Status{}, "Run": show.Entry{},
}

// A jsonField is a field of a type as JSON has it.
type jsonField struct {
	name     string
	optional bool
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
			all = append(all, jsonField{name, strings.Contains(options, "omit")})
		}
	}
	return all
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

// Each field in docs/json.md is one of its document, with a * if it may be left out.
func TestDocumentedFieldsExist(t *testing.T) {
	tables := jsonTables(t)
	for headline, value := range jsonSections {
		fields := map[string]bool{}
		for _, f := range jsonFields(reflect.TypeOf(value)) {
			name := f.name
			if f.optional {
				name += " *"
			}
			fields[name] = true
		}
		if len(tables[headline]) < 3 {
			t.Errorf("docs/json.md, %s: only %d fields", headline, len(tables[headline]))
		}
		for name := range tables[headline] {
			if !fields[name] {
				t.Errorf("docs/json.md, %s: there is no field `%s`; a field that may be left out has a *", headline, name)
			}
		}
	}
}

// Each verb has a line in docs/json.md, and each kind of event one with fields that it has.
func TestJSONIsDocumented(t *testing.T) {
	page := testenv.Page(t, "docs/json.md")
	for _, c := range newApp(stdio{}).Commands {
		row := regexp.MustCompile("(?m)^\\| .*`" + c.Name + "`.* \\| ")
		if c.Name != "run" && c.Name != "help" && !row.MatchString(page) {
			t.Errorf("docs/json.md does not say what gpurun %s --json prints", c.Name)
		}
	}
	for kind, of := range launcher.EventTypes() {
		row := regexp.MustCompile("(?m)^\\| `" + kind + "` \\| .* \\| (.+) \\|$").FindStringSubmatch(page)
		if row == nil {
			t.Errorf("docs/json.md has no line for the event %s", kind)
			continue
		}
		for _, name := range jsonName.FindAllStringSubmatch(row[1], -1) {
			if !slices.ContainsFunc(jsonFields(of), func(f jsonField) bool { return f.name == name[1] }) {
				t.Errorf("docs/json.md: the event %s has no field `%s`", kind, name[1])
			}
		}
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
	for name := range rows {
		if _, there := got[name]; !there && !strings.HasSuffix(name, " *") {
			t.Errorf("docs/json.md, Estimate: `%s` is not there: give it a *", name)
		}
	}
}

// The fields of a type are those that encoding/json writes.
func TestJSONFields(t *testing.T) {
	type inner struct {
		A int `json:"a"`
	}
	type outer struct {
		inner
		B *inner `json:"b,omitempty"`
		C int    `json:"-"`
		D []int  `json:"d"`
	}
	want := []jsonField{{name: "a"}, {"b", true}, {name: "d"}}
	if got := jsonFields(reflect.TypeFor[outer]()); !slices.Equal(got, want) {
		t.Errorf("%+v", got)
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
