package recipes_test

import (
	"errors"
	"reflect"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/recipes/edit"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

func TestCatalog(t *testing.T) {
	all, err := recipes.Catalog()
	if err != nil {
		t.Fatal(err)
	}
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
			if err := toml.Unmarshal([]byte(test.text), &table); err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
