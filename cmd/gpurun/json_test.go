package main

import (
	"encoding/json"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"sync/atomic"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/rogpeppe/go-internal/testscript"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/diagnose"
	"github.com/gpurun/gpurun/launcher/estimate"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/show"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
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
	testenv.Check(t, err)
	answer, err := asked.Answer()
	testenv.Check(t, err)
	text, err := json.Marshal(answer)
	testenv.Check(t, err)
	var got map[string]any
	testenv.Check(t, json.Unmarshal(text, &got))
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
		testenv.Check(t, json.Unmarshal([]byte(shown[i][1]), value))
		text, err := json.Marshal(value)
		if want := strings.ReplaceAll(shown[i][1], " ", ""); err != nil || string(text) != want {
			t.Errorf("%s, %v, want %s", text, err, want)
		}
	}
}

// savedOutput compares the diagnoses of the scripts' runs with those of their saved output alone.
type savedOutput struct{ scripts, compared atomic.Int64 }

// imitations are scripts whose output looks as if memory had run out. Only the ends of their
// processes show that it had not.
var imitations = map[string]string{
	"hostile-text": "prints the traceback of an out-of-memory error, and crashes or exits silently",
	"signal-pause": "prints an out-of-memory error, and no numbered step after it",
}

// compare diagnoses the saved output of all attempts below a script's folder, without journals:
// the ranks' folders, and all output in one file. The diagnosis is that of the run where the
// output holds it; elsewhere it is none, and says what would show more.
func (s *savedOutput) compare(env *testscript.Env) {
	t := env.T().(interface {
		Errorf(format string, args ...any)
		Logf(format string, args ...any)
	})
	s.scripts.Add(1)
	script := strings.TrimPrefix(filepath.Base(env.WorkDir), "script-")
	_ = filepath.WalkDir(env.WorkDir, func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Name() != journal.File || journal.IsNode(filepath.Dir(path)) {
			return nil
		}
		events, err := journal.Read(filepath.Dir(path))
		if err != nil {
			return nil // the script is about a broken journal
		}
		for _, a := range journal.RunOf(events).Attempts {
			if a.Phase < journal.Ended || a.Evidence.Unstarted != nil {
				continue
			}
			folder := filepath.Join(filepath.Dir(path), fmt.Sprintf("attempt-%d", a.N))
			for _, form := range []string{"folders", "one file"} {
				if alone, ok := diagnoseSaved(folder, form); ok {
					s.compared.Add(1)
					if diff := differs(script, form, a.Evidence, alone); diff != "" {
						t.Errorf("%s, %s: the saved output alone has another diagnosis than the run: %s\nadvice: %s", folder, form, diff, alone.Advice)
					}
				}
			}
		}
		return nil
	})
}

// diagnoseSaved diagnoses an attempt by its ranks' output; false if there is none.
func diagnoseSaved(folder, form string) (diagnose.FileDiagnosis, bool) {
	name, text := folder, strings.Builder{}
	for _, stream := range []string{"stdout.log", "stderr.log"} {
		logs, _ := filepath.Glob(filepath.Join(folder, "rank*", stream))
		for _, log := range logs {
			content, err := os.ReadFile(log)
			if err != nil {
				return diagnose.FileDiagnosis{}, false
			}
			text.Write(content)
		}
	}
	if form == "one file" {
		name = "-"
	}
	in, err := diagnose.Collector{Attempt: -1, Stdin: strings.NewReader(text.String())}.Collect(name)
	return diagnose.Diagnose(in), err == nil
}

// differs compares a run's diagnosis with that of its saved output. It is empty if they agree, or
// for a reason that is given here.
func differs(script, form string, ev strategy.Evidence, alone diagnose.FileDiagnosis) string {
	type outcome struct {
		Cause   cause.Code
		Phase   cause.Phase
		Figures cause.Figures
	}
	live := strategy.Diagnose(ev)
	diff := cmp.Diff(outcome{live.Cause, live.Phase, live.Figures}, outcome{alone.Cause, alone.Phase, alone.Figures})
	switch {
	case diff == "":
	case live.Cause == cause.None && ev.StopSignal != 0 && alone.Cause == cause.Preempted:
		return "" // that the user stopped it is in the journal only
	case alone.Cause == cause.None && alone.Advice != "" && !holds(form, ev, live):
		return "" // an exit code or a signal, of which the output has no word
	case imitations[script] != "" && alone.Cause == cause.CUDAOOM:
		return ""
	}
	return diff
}

// holds reports whether the output in this form has the strongest fact of a diagnosis.
func holds(form string, ev strategy.Evidence, d strategy.Diagnosis) bool {
	sources := []string{"stdout", "stderr"}
	if form == "folders" {
		sources = append(sources, "error.json")
	}
	facts := d.Facts(&ev)
	return len(facts) > 0 && facts[0].Finding() != nil && slices.Contains(sources, facts[0].Source) &&
		!facts[0].Finding().Says(cause.SaysComplaint) // a failure only together with an exit code
}

// check wants a number of comparisons if all scripts ran.
func (s *savedOutput) check(t *testing.T, scripts int) {
	const least = 300
	if n := s.compared.Load(); int(s.scripts.Load()) == scripts && n < least {
		t.Errorf("%d diagnoses were compared, want %d", n, least)
	}
}
