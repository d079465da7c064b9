package recipes_test

import (
	"maps"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// parsedRecipe reads a recipe that must have no faults.
func parsedRecipe(t *testing.T, text string) recipes.Recipe {
	t.Helper()
	r, err := recipes.ParseFile("x.toml", []byte("name = \"x\"\n"+text))
	testenv.Check(t, err)
	return r
}

// TestGlobal: the accumulation that a framework derives from a global batch is read, and the
// global batch is written only if needed.
func TestGlobal(t *testing.T) {
	const knobs = "[knobs]\nmicro_batch_size = { arg = \"--micro\" }\n[knobs.gradient_accumulation_steps]\nglobal = { arg = \"--global\" }\n"
	nearest := knobs + "default = 64\n"
	for _, test := range []struct {
		name, recipe, argv string
		ranks              int
		accumulation       string // "": cannot be changed
		micro, next        string // of the applied plan
		want               string
		nominal            string // the rounding of a rule
		fixed              bool
	}{
		{"given", knobs, "--micro 8 --global 64", 2, "4", "4", "8", "--micro 4 --global 64", "", false},
		{"not given", knobs, "--micro 8", 2, "1", "4", "2", "--micro 4 --global 16", "", false},
		{"none in the framework's word", knobs, "--micro 8 --global -1", 2, "1", "4", "2", "--micro 4 --global 16", "", false},
		{"not whole", knobs, "--micro 8 --global 20", 1, "", "", "", "", "", false},
		{"nominal", nearest, "--micro 16", 1, "4", "8", "8", "--micro 8", "nearest", false},
		{"nominal on two ranks", nearest, "--micro 16", 2, "2", "8", "4", "--micro 8", "nearest", false},
		{"above nominal", nearest, "--micro 128", 1, "1", "64", "2", "--micro 64 --global 128", "nearest", false},
		{"above nominal, fixed", nearest, "--micro 128", 1, "", "", "", "", "nearest", true},
		{"rounded up", knobs + "default = 16\n", "--micro 5", 1, "4", "5", "4", "--micro 5", "ceil", false},
	} {
		t.Run(test.name, func(t *testing.T) {
			r := parsedRecipe(t, test.recipe)
			global := r.Knobs[strategy.GradientAccumulationSteps].Global
			global.Nominal, global.Fixed = test.nominal, test.fixed
			cmd := recipes.Command{Argv: append([]string{"x.py"}, strings.Fields(test.argv)...)}
			at := recipes.Topology{Ranks: test.ranks}
			plan, ranges, err := r.Read(cmd, at)
			testenv.Check(t, err)
			if absent := ranges[strategy.MicroBatchSize].Absent; (absent != "") != (test.accumulation == "") {
				t.Fatalf("the micro batch: %q", absent)
			}
			if test.accumulation == "" {
				return
			}
			if got := plan[strategy.GradientAccumulationSteps]; string(got) != test.accumulation {
				t.Errorf("accumulation %s, want %s", got, test.accumulation)
			}
			change, err := r.Apply(cmd, strategy.Plan{strategy.MicroBatchSize: strategy.Value(test.micro), strategy.GradientAccumulationSteps: strategy.Value(test.next)}, at, attempt)
			testenv.Check(t, err)
			if got := strings.Join(change.Argv[1:], " "); got != test.want {
				t.Errorf("%s, want %s", got, test.want)
			}
		})
	}
}

// TestModelParallel: ranks that share one copy of the model are not data parallel.
func TestModelParallel(t *testing.T) {
	r := parsedRecipe(t, "parallel = [{ arg = \"--tp\" }, { arg = \"--pp\" }]\n")
	cmd := recipes.Command{Argv: strings.Fields("x.py --tp 2 --pp 2")}
	if at, err := r.Parallel(cmd, recipes.Topology{Ranks: 8, DataParallel: 8}); err != nil || at.DataParallel != 2 {
		t.Errorf("%+v, %v", at, err)
	}
	if at, err := r.Parallel(cmd, recipes.Topology{Ranks: 8, DataParallel: 4}); err != nil || at.DataParallel != 4 {
		t.Errorf("what the user says is not kept: %+v, %v", at, err)
	}
	if _, err := r.Parallel(cmd, recipes.Topology{Ranks: 6}); err == nil {
		t.Error("6 ranks are 4 times something")
	}
}

// TestModelParallelTwice: a size that the file gives and an argument overrides
// counts once.
func TestModelParallelTwice(t *testing.T) {
	r := parsedRecipe(t, "parallel = [{ alternatives = [{ arg = \"--tp\" }, { path = \"tp\", via = { arg = \"--config\" } }] }, { path = \"cp\", via = { arg = \"--config\" } }]\n")
	for line, want := range map[string]int{
		"x.py --config c.yaml --tp 4": 2, "x.py --config c.yaml --tp 1": 8, "x.py --config c.yaml": 4, "x.py --tp 4": 2, "x.py --config cp.yaml --tp 2": 2, "x.py": 8,
	} {
		cmd := recipes.Command{Argv: strings.Fields(line), Files: map[string][]byte{"c.yaml": []byte("tp: 2\n"), "cp.yaml": []byte("tp: 4\ncp: 2\n")}}
		if at, err := r.Parallel(cmd, recipes.Topology{Ranks: 8}); err != nil || at.DataParallel != want {
			t.Errorf("%s: %d data-parallel ranks, %v; want %d", line, at.DataParallel, err, want)
		}
	}
}

// TestAlternativesWritten: a change goes to the strongest writable place, unless a stronger one
// has the value; then the knob cannot be changed.
func TestAlternativesWritten(t *testing.T) {
	const file, named, arg, python = `{ path = "bs", file = "fixed.yaml" }`, `{ path = "bs", via = { arg = "--config" } }`, `{ arg = "--bs" }`, `{ assigned = "bs" }`
	for _, test := range []struct{ places, argv, script, want, absent string }{
		{named + ", " + arg, "", "", "--bs 4", ""},
		{named + ", " + arg, "--config c.yaml", "", "--config run/attempt-1/config/c.yaml", ""},
		{named + ", " + arg, "--bs 2", "", "--bs 4", ""},
		{python + ", " + arg, "", "", "--bs 4", ""},
		{python + ", " + arg, "--bs 2", "bs = 8\n", "", "the assignment to bs is Python"},
		{arg + ", " + python, "", "bs = 8\n", "--bs 4", ""},
		{file + ", " + arg, "", "", "", "fixed.yaml is named by no argument"},
		{named, "", "", "", "the command names no file that holds the key bs: it needs --config"},
		{python, "", "bs = 8\n", "", "the assignment to bs is Python"},
	} {
		r := parsedRecipe(t, "[knobs]\nmicro_batch_size = { default = 1, alternatives = ["+test.places+"] }\n")
		cmd := recipes.Command{
			Argv: append([]string{"x.py"}, strings.Fields(test.argv)...), Script: []byte(test.script),
			Files: map[string][]byte{"c.yaml": []byte("bs: 8\n"), "fixed.yaml": []byte("bs: 8\n")},
		}
		name := test.places + " with " + test.argv
		_, ranges, err := r.Read(cmd, recipes.Topology{Ranks: 1})
		if absent := ranges[strategy.MicroBatchSize].Absent; err != nil || (absent == "") != (test.absent == "") || !strings.Contains(absent, test.absent) {
			t.Errorf("%s: %q, %v; want %q", name, absent, err, test.absent)
		}
		change, err := r.Apply(cmd, strategy.Plan{strategy.MicroBatchSize: "4"}, recipes.Topology{Ranks: 1}, attempt)
		if (err != nil) != (test.absent != "") || err == nil && strings.Join(change.Argv[1:], " ") != test.want {
			t.Errorf("%s: %q, %v; want %q", name, change.Argv, err, test.want)
		}
	}
}

// TestUnknownAccumulation: an unknown accumulation is not assumed to be 1, also under DeepSpeed.
func TestUnknownAccumulation(t *testing.T) {
	r := catalogued(t, "hf-trainer").With(knobsOf(t, `gradient_accumulation_steps = { arg = "--accum" }`))
	cmd := recipes.Command{
		Argv:  strings.Fields("x.py --output_dir out --per_device_train_batch_size 4 --deepspeed ds.json"),
		Files: map[string][]byte{"ds.json": []byte(`{"zero_optimization": {"stage": 1}, "gradient_accumulation_steps": "auto"}`)},
	}
	plan, _, err := r.Read(cmd, recipes.Topology{Ranks: 2})
	if accum, known := plan[strategy.GradientAccumulationSteps]; err != nil || known || plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("accumulation %q, %v, %v", accum, plan, err)
	}
}

// TestNominalBatchNextToPlaces: an explicit accumulation counts; otherwise it follows from the
// nominal batch, over all ranks.
func TestNominalBatchNextToPlaces(t *testing.T) {
	r := parsedRecipe(t, "rules = [\"swift-accumulation\"]\nparallel = [{ arg = \"--sp\" }]\n[knobs]\nmicro_batch_size = { arg = \"--micro\" }\n[knobs.gradient_accumulation_steps]\n"+
		"default = 16\nplaces = [{ arg = \"--accum\" }]\n")
	for _, test := range []struct{ argv, accumulation, micro, next, want string }{
		{"--micro 4", "2", "2", "4", "--micro 2"},
		{"--micro 4 --accum 3", "3", "2", "6", "--micro 2 --accum 6"},
		{"--micro 4 --accum 2", "2", "2", "4", "--micro 2 --accum 4"},
		{"--micro 3", "3", "1", "9", "--micro 1 --accum 9"},
		{"--micro 4 --sp 2", "2", "2", "4", "--micro 2 --sp 2"},
	} {
		cmd := recipes.Command{Argv: append([]string{"x.py"}, strings.Fields(test.argv)...)}
		plan, _, err := r.Read(cmd, recipes.Topology{Ranks: 2})
		if got := string(plan[strategy.GradientAccumulationSteps]); err != nil || got != test.accumulation {
			t.Errorf("%s: accumulation %q, %v; want %s", test.argv, got, err, test.accumulation)
		}
		change, err := r.Apply(cmd, strategy.Plan{strategy.MicroBatchSize: strategy.Value(test.micro), strategy.GradientAccumulationSteps: strategy.Value(test.next)}, recipes.Topology{Ranks: 2}, attempt)
		if err != nil || strings.Join(change.Argv[1:], " ") != test.want {
			t.Errorf("%s: %q, %v; want %s", test.argv, change.Argv, err, test.want)
		}
	}
}

// TestVersions: a place, and a recipe, may exist in some versions only.
func TestVersions(t *testing.T) {
	r := parsedRecipe(t, "[knobs.micro_batch_size]\nalternatives = [{ arg = \"--new\", versions = { tool = \">=2.0\" } }, { arg = \"--old\", versions = { tool = \"<2\" } }]\n")
	for version, want := range map[string]string{"1.9": "--old 8 --new 4", "2.0.0rc1+cu12": "--old 8 --new 8", "": "--old 8 --new 8", "3": "--old 8 --new 8"} {
		cmd := recipes.Command{Argv: strings.Fields("x.py --old 8 --new 4")}
		if version != "" {
			cmd.Packages = map[string]string{"tool": version}
		}
		change, err := r.Apply(cmd, strategy.Plan{strategy.MicroBatchSize: "8"}, recipes.Topology{Ranks: 1}, attempt)
		testenv.Check(t, err)
		if got := strings.Join(change.Argv[1:], " "); got != want {
			t.Errorf("version %s: %s, want %s", version, got, want)
		}
	}
}

// TestAssigned: arguments override a Python file's own assignments.
func TestAssigned(t *testing.T) {
	r := parsedRecipe(t, "parser = \"equals\"\n[knobs]\nmicro_batch_size = { alternatives = [{ arg = \"--batch_size\" }, { assigned = \"batch_size\" }] }\n"+
		"gradient_accumulation_steps = { alternatives = [{ arg = \"--accum\" }, { assigned = \"accum\" }] }\n")
	cmd := recipes.Command{
		Argv:   strings.Fields("train.py config/gpt.py"),
		Script: []byte("batch_size = 12 # a rank\naccum = 5 * 8\n"),
		Files:  map[string][]byte{"config/gpt.py": []byte("batch_size = 6\nbatch_size = 8\nx = batch_size\n")},
	}
	if diff := cmp.Diff([]string{"config/gpt.py"}, r.FilesNamed(cmd)); diff != "" {
		t.Errorf("files (-want +got):\n%s", diff)
	}
	plan, _, err := r.Read(cmd, recipes.Topology{Ranks: 1})
	if err != nil || plan[strategy.MicroBatchSize] != "8" || plan[strategy.GradientAccumulationSteps] != "40" {
		t.Errorf("%v, %v", plan, err)
	}
	change, err := r.Apply(cmd, strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "80"}, recipes.Topology{Ranks: 1}, attempt)
	if err != nil || strings.Join(change.Argv, " ") != "train.py config/gpt.py --batch_size=4 --accum=80" {
		t.Errorf("%q, %v", change.Argv, err)
	}
}

// TestSettings: settings that belong to a knob are written, and the user's own are kept.
func TestSettings(t *testing.T) {
	r := parsedRecipe(t, `
[[own_oom]]
arg = "--find_batch"
value = false
[[also]]
override = "common.fixed"
under = "--config"
value = "true"
[knobs.activation_checkpointing]
arg = "--recompute"
values = { none = "none", full = "full" }
default = "none"
[[knobs.activation_checkpointing.also]]
when = ["full"]
arg = "--layers"
value = 1
keep = true
[[knobs.activation_checkpointing.unless]]
arg = "--compiled"
reason = "compiled code recomputes by itself"
`)
	full := strategy.Plan{strategy.ActivationCheckpointing: "full"}
	for argv, want := range map[string]string{
		"--find_batch":                    "--recompute full --layers 1 --config common.fixed=true",
		"--layers 3":                      "--layers 3 --recompute full --config common.fixed=true",
		"--config a=1 --find_batch False": "--config a=1 common.fixed=true --find_batch False --recompute full --layers 1",
	} {
		change, err := r.Apply(recipes.Command{Argv: append([]string{"x.py"}, strings.Fields(argv)...)}, full, recipes.Topology{Ranks: 1}, attempt)
		testenv.Check(t, err)
		got, wanted := strings.Fields(strings.Join(change.Argv[1:], " ")), strings.Fields(want)
		if diff := cmp.Diff(sorted(wanted), sorted(got)); diff != "" {
			t.Errorf("%s (-want +got):\n%s\n%q", argv, diff, change.Argv)
		}
	}
	_, ranges, err := r.Read(recipes.Command{Argv: []string{"x.py", "--compiled"}}, recipes.Topology{Ranks: 1})
	if err != nil || ranges[strategy.ActivationCheckpointing].Absent != "compiled code recomputes by itself" {
		t.Errorf("%v, %v", ranges[strategy.ActivationCheckpointing], err)
	}
}

// TestResumeTexts: globs and pins are filled in from any place in the command.
func TestResumeTexts(t *testing.T) {
	r := parsedRecipe(t, `
[resume]
latest = "{out}/{--name|run}/step-*"
pointer = "{out}/latest.txt"
args = ["--load={latest}"]
pin = ["--name", "{job}", "tag={job}"]
[resume.values]
out = [{ arg = "--out" }, { path = "out", via = { word = 1 } }, "./default"]
`)
	for argv, want := range map[string]string{
		"c.yaml --name a":   "from-file/a/step-*",
		"--out x":           "x/run/step-*",
		"none.txt --name b": "./default/b/step-*",
	} {
		cmd := recipes.Command{Argv: append([]string{"x.py"}, strings.Fields(argv)...), Files: map[string][]byte{"c.yaml": []byte("out: from-file\n")}}
		if glob, ok := r.ResumeGlob(cmd); !ok || glob != want {
			t.Errorf("%s: %q, %v; want %q", argv, glob, ok, want)
		}
	}
	cmd := recipes.Command{Argv: []string{"x.py", "--out", "x"}}
	if got := r.Pointer(cmd); got != "x/latest.txt" {
		t.Errorf("pointer %q", got)
	}
	if diff := cmp.Diff([]string{"--name", "job1", "tag=job1"}, r.Pinned(cmd, "job1")); diff != "" {
		t.Errorf("pinned (-want +got):\n%s", diff)
	}
	cmd.Argv = append(cmd.Argv, "--name=mine", "tag=t")
	if got := r.Pinned(cmd, "job1"); got != nil {
		t.Errorf("what the user names is pinned again: %q", got)
	}
}

// TestPointedAt: a pointer's text is a path, or the number of a checkpoint.
func TestPointedAt(t *testing.T) {
	megatron, mmengine := catalogued(t, "megatron-lm"), catalogued(t, "mmengine")
	cmd := recipes.Command{Argv: []string{"x.py", "--save", "out"}}
	for _, test := range []struct {
		recipe     recipes.Recipe
		text, want string
	}{
		{megatron, "1500\n", "out/iter_0001500"},
		{megatron, "release", ""},
		{megatron, "", ""},
		{mmengine, "work/epoch_3.pth\n", "work/epoch_3.pth"},
		{mmengine, "\n", ""},
	} {
		if got, ok := test.recipe.PointedAt(cmd, test.text); ok != (test.want != "") || ok && got != test.want {
			t.Errorf("%s: %q is %q, %v; want %q", test.recipe.Name, test.text, got, ok, test.want)
		}
	}
	if !megatron.FollowsPointer() || catalogued(t, "hf-trainer").FollowsPointer() {
		t.Error("Megatron-LM starts from what its tracker names, and the Trainer from what it is told")
	}
}

// TestFormatProblems: faults in the further tables are reported with their keys.
func TestFormatProblems(t *testing.T) {
	for text, want := range map[string]string{
		"[versions]\ntorch = \"2.0\"":                                                     "versions: \"2.0\" is not a bound",
		"[[checkpoint]]\nknob = \"sharding\"\nsurvives = 1":                               "checkpoint[0].survives: want a list",
		"[[own_oom]]\narg = \"--x\"":                                                      "own_oom[0].value: what is to be written is missing",
		"[deepspeed]\nauto = true":                                                        "deepspeed: want",
		"[knobs.precision]\nglobal = { arg = \"--g\" }":                                   "only gradient_accumulation_steps has global",
		"[knobs.precision]\nplaces = [{ env = \"A\" }]\nalternatives = [{ env = \"B\" }]": "either places, which agree, or alternatives",
	} {
		if _, err := recipes.ParseFile("x.toml", []byte("name = \"x\"\n"+text)); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
}

func sorted(words []string) []string {
	return slices.Sorted(slices.Values(words))
}

// TestAllocator: the variable is merged key by key, and a key that the user set
// is never replaced.
func TestAllocator(t *testing.T) {
	const old, renamed = "PYTORCH_CUDA_ALLOC_CONF", "PYTORCH_ALLOC_CONF"
	tests := []struct {
		name   string
		env    map[string]string
		now    strategy.Value
		absent string
		want   map[string]string
	}{
		{"nothing set", nil, "default", "", map[string]string{old: "expandable_segments:True"}},
		{"empty", map[string]string{old: ""}, "default", "", map[string]string{old: "expandable_segments:True"}},
		{"another key", map[string]string{old: "max_split_size_mb:64,"}, "default", "", map[string]string{old: "max_split_size_mb:64,expandable_segments:True"}},
		{"brackets", map[string]string{old: "roundup_power2_divisions:[256:1,512:2]"}, "default", "",
			map[string]string{old: "roundup_power2_divisions:[256:1,512:2],expandable_segments:True"}},
		{"new name", map[string]string{renamed: "garbage_collection_threshold:0.8"}, "default", "",
			map[string]string{renamed: "garbage_collection_threshold:0.8,expandable_segments:True"}},
		{"on already", map[string]string{old: "expandable_segments:True"}, "expandable", old + " sets expandable_segments itself", nil},
		{"off by the user", map[string]string{renamed: "expandable_segments: False"}, "default", renamed + " sets expandable_segments itself", nil},
		{"another allocator", map[string]string{old: "backend:cudaMallocAsync"}, "default", old + " chooses the allocator cudaMallocAsync", nil},
	}
	for _, test := range tests {
		t.Run(test.name, func(t *testing.T) {
			cmd := recipes.Command{Argv: []string{"x.py"}, Env: test.env}
			plan, ranges, err := recipes.Recipe{}.Read(cmd, recipes.Topology{})
			if err != nil || plan[strategy.Allocator] != test.now || ranges[strategy.Allocator].Absent != test.absent {
				t.Fatalf("plan %v, %+v, %v", plan, ranges[strategy.Allocator], err)
			}
			if test.want == nil {
				return
			}
			change, err := recipes.Recipe{}.Apply(cmd, strategy.Plan{strategy.Allocator: "expandable"}, recipes.Topology{}, attempt)
			if err != nil || !maps.Equal(change.Env, test.want) {
				t.Errorf("variables %v, %v; want %v", change.Env, err, test.want)
			}
		})
	}
}
