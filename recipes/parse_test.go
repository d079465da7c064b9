package recipes_test

import (
	"errors"
	"maps"
	"os"
	"path/filepath"
	"reflect"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestCatalog(t *testing.T) {
	all, err := recipes.Catalog()
	testenv.Check(t, err)
	var names []string
	for _, r := range all {
		names = append(names, r.Name)
		marks := [][]string{r.Detection.Args, r.Detection.Imports, r.Detection.Programs, r.Detection.Overrides, r.Detection.Text, slices.Concat(r.Detection.Source...)}
		if r.Title == "" || len(slices.Concat(marks...)) == 0 {
			t.Errorf("%s has no title or no marks", r.Name)
		}
		for _, other := range r.Detection.Over {
			if !slices.ContainsFunc(all, func(r recipes.Recipe) bool { return r.Name == other }) {
				t.Errorf("%s goes over %s, which is no recipe", r.Name, other)
			}
		}
	}
	if !slices.IsSorted(names) || len(slices.Compact(slices.Clone(names))) != len(names) {
		t.Errorf("recipes %v, want each once, sorted", names)
	}
}

func TestFromKnobsProblems(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"unknown knob", `micro_batch = { arg = "--bs" }`, `knobs.micro_batch: unknown key (did you mean "micro_batch_size"?)`},
		{"unknown key", `micro_batch_size = { args = "--bs" }`, `
			knobs.micro_batch_size: has no place: add one of arg, env, override, file with path, choose, call
			knobs.micro_batch_size.args: unknown key (did you mean "arg"?)`},
		{"no dash", `micro_batch_size = { arg = "bs" }`, `knobs.micro_batch_size.arg: an argument starts with a dash (did you mean "--bs"?)`},
		{"two places", `micro_batch_size = { arg = "--bs", env = "BS" }`, `knobs.micro_batch_size.env: arg and env are two places: make them a list`},
		{"no path", `micro_batch_size = { file = "a.json" }`, `knobs.micro_batch_size.file: the value's place in the file is missing: path = "train.batch"`},
		{"no file", `micro_batch_size = { path = "a.b" }`, `knobs.micro_batch_size.path: no file is named: want file = "conf.yaml", or via = { arg = "--config" }`},
		{"file with arg", `micro_batch_size = { arg = "--bs", file = "x.json" }`, `knobs.micro_batch_size.arg: a file goes with a path, not with arg`},
		{"default", `precision = { arg = "--p", default = "bf61" }`, `knobs.precision.default: bf61 is not one of fp32, tf32, fp16, bf16, fp8 (did you mean "bf16"?)`},
		{"default without a word", `activation_checkpointing = { arg = "--c", values = { none = "0", full = "1" }, default = "selective" }`,
			`knobs.activation_checkpointing.default: argument --c has no word for "selective", only for none, full`},
		{"default no number", `micro_batch_size = { arg = "--bs", default = 0 }`, `knobs.micro_batch_size.default: "0" is not a whole number of at least 1`},
		{"value", `precision = { arg = "--p", values = { half = "16" } }`, `knobs.precision.values.half: half is not one of fp32, tf32, fp16, bf16, fp8`},
		{"same word twice", `precision = { arg = "--p", values = { fp16 = "16", bf16 = "16" } }`, `knobs.precision.values.fp16: "16" is already the word for bf16`},
		{"values of a number", `micro_batch_size = { arg = "--bs", values = { a = 1 } }`, `knobs.micro_batch_size: the knob's values are whole numbers, which need no words`},
		{"bounds", `micro_batch_size = { arg = "--bs", min = 8, max = 4 }`, `knobs.micro_batch_size.max: the largest value 4 is below the smallest, 8`},
		{"bounds of words", `precision = { arg = "--p", min = 2 }`, `knobs.precision.min: the knob's values are words, which have no bounds`},
		{"type", `micro_batch_size = { arg = 8 }`, `
			knobs.micro_batch_size.arg: want text, found a whole number; write "8"`},
		{"no table", `micro_batch_size = 8`, `knobs.micro_batch_size: want a table such as { arg = "--x" }, or a list of such tables`},
		{"derived", `micro_batch_size = "derived"`, `
			knobs.micro_batch_size: "derived" is not a place: want a table such as { arg = "--x" }`},
		{"scope", `dataloader_workers = { arg = "--b", scope = "global" }`, `knobs.dataloader_workers.scope: only the batch sizes and gradient_accumulation_steps have a scope, and it is "global"`},
		{"choose", `precision = { choose = { fp32 = [], bf16 = ["amp"] } }`, `knobs.precision.choose.bf16: "amp" is neither an argument nor an override: it does not start with a dash and has no =`},
		{"choose the same", `precision = { choose = { fp32 = ["--amp"], bf16 = ["--amp"] } }`, `knobs.precision.choose.fp32: has the same words as bf16`},
		{"no flag", `pin_memory = { arg = "--pin", no = "--no-pin", values = { true = "1", false = "0" } }`, `knobs.pin_memory.no: only a flag has an opposite: give it values that are true and false`},
		{"in a list", `micro_batch_size = [{ arg = "--bs" }, { arg = "bs" }]`, `knobs.micro_batch_size.1.arg: an argument starts with a dash (did you mean "--bs"?)`},
		{"via", `micro_batch_size = { path = "a", via = { arg = "--c", env = "C" } }`, `knobs.micro_batch_size.via: want { arg = "--config" }, { env = "CONFIG" }, { override = "config" } or { word = 1 }`},
		{"allocator", `allocator = { env = "X" }`, `knobs.allocator: the allocator is the same for every job, and needs no entry`},
		{"several at once", "micro_batch_size = { arg = \"bs\" }\nprecison = { arg = \"--p\" }", `
			knobs.micro_batch_size.arg: an argument starts with a dash (did you mean "--bs"?)
			knobs.precison: unknown key (did you mean "precision"?)`},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			table := map[string]any{}
			testenv.Check(t, toml.Unmarshal([]byte(test.text), &table))
			_, problems := recipes.FromKnobs(table)
			var lines []string
			for _, p := range problems {
				lines = append(lines, p.String())
			}
			want := strings.Join(strings.FieldsFunc(strings.ReplaceAll(strings.TrimSpace(test.want), "\t", ""), func(r rune) bool { return r == '\n' }), "\n")
			if diff := cmp.Diff(want, strings.Join(lines, "\n")); diff != "" {
				t.Errorf("problems (-want +got):\n%s", diff)
			}
		})
	}
}

func TestParseProblems(t *testing.T) {
	tests := []struct{ name, text, want string }{
		{"syntax", "name = ", "x.toml:1:"},
		{"nameless", "title = \"x\"\n", "name: a recipe needs a name"},
		{"rule", "name = \"x\"\nrules = [\"magic\"]\n", `rules: there is no rule "magic"`},
		{"section", "name = \"x\"\n[detct]\nargs = []\n", `detct: unknown key (did you mean "detect"?)`},
		{"step", "name = \"x\"\n[progress]\nstep = 'step \\d+'\n", "progress.step: the expression needs a group around the number of the step; groups with names are step, total and loss"},
		{"expression", "name = \"x\"\n[progress]\nstep = '('\n", "progress.step: missing closing ): `(`"},
		{"list", "name = \"x\"\n[resume]\nargs = \"--resume\"\n", `resume.args: want an array of texts, found text; write ["--resume"]`},
		{"variable", "name = \"x\"\n[resume]\nenv = { wandb = \"x\" }\n", "resume.env.wandb: want a variable of a tracker's, such as WANDB_RUN_ID"},
		{"variable's value", "name = \"x\"\n[resume]\nenv = { WANDB_RESUME = 1 }\n", `resume.env.WANDB_RESUME: want text, found a whole number; write "1"`},
		{"table", "name = \"x\"\nresume = 1\n", "resume: want a table"},
		{"truth", "name = \"x\"\n[deepspeed]\narg = \"--ds\"\nauto = \"yes\"\n", "deepspeed.auto: want true or false"},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			_, err := recipes.ParseFile("x.toml", []byte(test.text))
			var file *edit.FileError
			if !errors.As(err, &file) || len(file.Faults) != 1 || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%v, want %s", err, test.want)
			}
		})
	}
}

func TestParseWholeRecipe(t *testing.T) {
	r, err := recipes.ParseFile("mine.toml", []byte(`
		name = "mine"
		title = "Mine"
		[resume]
		latest = "out/ckpt-*"
		args = ["--resume", "{latest}"]
		[progress]
		step = 'step (\d+)'
		[knobs]
		micro_batch_size = { arg = "--bs" }
		offload_param = { absent = "there is no such thing" }
	`))
	testenv.Check(t, err)
	want := recipes.Recipe{Recipe: format.Recipe{
		Name: "mine", Title: "Mine",
		Resume:   recipes.Resume{Latest: "out/ckpt-*", Args: []string{"--resume", "{latest}"}},
		Progress: recipes.Progress{Step: `step (\d+)`},
		Knobs: map[strategy.Knob]recipes.Knob{
			strategy.MicroBatchSize: {Places: []format.Place{format.Argument("--bs")}},
			strategy.OffloadParam:   {Absent: "there is no such thing"},
		},
	}}
	sameKind := cmp.Comparer(func(a, b format.PlaceKind) bool { return reflect.DeepEqual(a, b) })
	if diff := cmp.Diff(want, r, sameKind); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

func TestReasonsForAbsentKnobs(t *testing.T) {
	_, ranges, err := knobsOf(t, `micro_batch_size = { arg = "--bs" }`).Read(recipes.Command{Argv: []string{"x.py"}}, recipes.Topology{})
	testenv.Check(t, err)
	for _, k := range strategy.Knobs {
		r := ranges[k]
		able := k == strategy.MicroBatchSize || k == strategy.Allocator
		if (r.Absent == "") != able {
			t.Errorf("%s: %+v", k, r)
		}
	}
	if got := ranges[strategy.Sharding].Absent; got != "no [knobs] entry for it" {
		t.Errorf("reason %q", got)
	}
}

// mostKeys is the largest number of names in the language. A new one that only one framework
// needs is a rule in Go instead.
const mostKeys = 74

// forOwnFiles marks the help of a key that is meant for users' own files, though no two recipes
// of the catalog need it.
const forOwnFiles = "for files of your own"

// explained are the keys of the language, with their help in README.md.
func explained(t *testing.T) map[string]string {
	page, err := os.ReadFile("README.md")
	testenv.Check(t, err)
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

// TestEveryRecipeIsComplete: each recipe of the catalog has golden files, and is checked against
// the framework itself or has a reason why not.
func TestEveryRecipeIsComplete(t *testing.T) {
	all, err := recipes.Catalog()
	testenv.Check(t, err)
	shown, verified := remediesInGoldenFiles(t), frameworks(t)
	for name, remedies := range shown {
		for remedy := range remedies {
			if !slices.Contains(slices.Concat(strategy.DeviceRemedies, strategy.HostRemedies), remedy) {
				t.Errorf("recipes/testdata/golden: a scene of %s has `rung %s`, which is no rung", name, remedy)
			}
		}
	}
	for _, r := range all {
		if len(shown[r.Name]) == 0 {
			t.Errorf("%s: no scene in recipes/testdata/golden has the lines `recipe %s` and `rung …`", r.Name, r.Name)
		}
		for knob, remedy := range remedyOf {
			if k, kept := r.Knobs[knob]; kept && k.Absent == "" && !shown[r.Name][remedy] {
				t.Errorf("%s keeps %s: add a scene with `recipe %s` and `rung %s` to recipes/testdata/golden", r.Name, knob, r.Name, remedy)
			}
		}
		parser := filepath.Join("testdata", "conformance", r.Name, "parse.py")
		if !isFile(parser) && verified[r.Name].Unverified == "" {
			t.Errorf("%s: there is neither recipes/%s, which asks the framework, nor a reason why not in testdata/conformance/frameworks.toml", r.Name, parser)
		}
	}
}

// TestKnobsAreExplained: README.md has a line for each knob, with its named values in their
// order.
func TestKnobsAreExplained(t *testing.T) {
	page, err := os.ReadFile("README.md")
	testenv.Check(t, err)
	for _, knob := range strategy.Knobs {
		row := regexp.MustCompile("(?m)^\\| .*`" + string(knob) + "`.* \\| (.+) \\|$").FindStringSubmatch(string(page))
		if row == nil {
			t.Errorf("recipes/README.md, Knobs: no line for `%s`", knob)
			continue
		}
		var values []string
		for _, v := range strategy.Vocabulary(knob) {
			values = append(values, "`"+string(v)+"`")
		}
		if want := strings.Join(values, ", "); !strings.HasPrefix(row[1], want) {
			t.Errorf("recipes/README.md, Knobs: the values of %s are %s", knob, want)
		}
	}
}

// remedyOf has the remedies of every framework whose recipe keeps the knob.
var remedyOf = map[strategy.Knob]strategy.Remedy{
	strategy.MicroBatchSize: strategy.RemedyMicroBatch, strategy.ActivationCheckpointing: strategy.RemedyCheckpointing,
}

// remediesInGoldenFiles returns the remedies in the golden files of each recipe.
func remediesInGoldenFiles(t *testing.T) map[string]map[strategy.Remedy]bool {
	t.Helper()
	shown := map[string]map[strategy.Remedy]bool{}
	for _, written := range golden(t) {
		name, remedy := "", ""
		for line := range strings.Lines(written.lines) {
			switch word, rest, _ := strings.Cut(strings.TrimSpace(line), " "); word {
			case "recipe":
				name = rest
			case "rung":
				remedy = rest
			}
		}
		if name != "" && remedy != "" {
			if shown[name] == nil {
				shown[name] = map[strategy.Remedy]bool{}
			}
			shown[name][strategy.Remedy(remedy)] = true
		}
	}
	return shown
}

func isFile(name string) bool {
	info, err := os.Stat(name)
	return err == nil && info.Mode().IsRegular()
}

// TestFilesNamed: a file can name another one, which is listed after the first is loaded.
func TestFilesNamed(t *testing.T) {
	hf := catalogued(t, "hf-trainer")
	cmd := recipes.Command{Argv: []string{"x.py", "args.json"}, Files: map[string][]byte{}}
	if diff := cmp.Diff([]string{"args.json"}, hf.FilesNamed(cmd)); diff != "" {
		t.Errorf("first (-want +got):\n%s", diff)
	}
	cmd.Files["args.json"] = []byte(`{"deepspeed": "ds.json"}`)
	if diff := cmp.Diff([]string{"args.json", "ds.json"}, hf.FilesNamed(cmd)); diff != "" {
		t.Errorf("then (-want +got):\n%s", diff)
	}
	inline := recipes.Command{Argv: []string{"x.py", "--deepspeed", `{"zero_optimization": {}}`}}
	if got := hf.FilesNamed(inline); len(got) > 0 {
		t.Errorf("inline JSON asks for %v", got)
	}
}

// TestReadmeExample: the train.toml of "A recipe in ten minutes" is read as the page describes,
// from a configuration file like the one on the page.
func TestReadmeExample(t *testing.T) {
	page, err := os.ReadFile("README.md")
	testenv.Check(t, err)
	_, section, found := strings.Cut(string(page), "## A recipe in ten minutes")
	if !found {
		t.Fatal("the section is gone")
	}
	var example strings.Builder
	for line := range strings.Lines(section) {
		if code, indented := strings.CutPrefix(line, "       "); indented {
			example.WriteString(code)
		}
	}
	var file struct {
		Job struct {
			Script string
			Args   []string
		}
		Knobs map[string]any
	}
	if err := toml.Unmarshal([]byte(example.String()), &file); err != nil {
		t.Fatalf("%v in\n%s", err, &example)
	}
	r, problems := recipes.FromKnobs(file.Knobs)
	if problems != nil {
		t.Fatal(problems)
	}
	cmd := recipes.Command{
		Argv: append([]string{file.Job.Script}, file.Job.Args...), Env: map[string]string{},
		Files: map[string][]byte{"conf.yaml": []byte("optim:\n  accumulate: 1\n  dtype: f32\n")},
	}
	plan, ranges, err := r.Read(cmd, recipes.Topology{Ranks: 1})
	testenv.Check(t, err)
	want := strategy.Plan{
		strategy.MicroBatchSize: "16", strategy.GradientAccumulationSteps: "1", strategy.ActivationCheckpointing: "none", strategy.Precision: "fp32",
	}
	for k, v := range want {
		if plan[k] != v || ranges[k].Absent != "" {
			t.Errorf("%s = %q (%s), want %s", k, plan[k], ranges[k].Absent, v)
		}
	}
}
