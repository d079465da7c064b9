package job

import (
	"crypto/sha256"
	"fmt"
	"go/ast"
	"go/parser"
	"go/token"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"
	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	interpreter "github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// trainer is a script that Hugging Face's Trainer is recognised in.
const trainer = "from transformers import HfArgumentParser, Trainer, TrainingArguments\n"

// parses begins the shell script of a fake interpreter: a real one runs the program that is its input.
const parses = `#!/bin/sh
case "$*" in
-I*) exec python3 "$@" ;;
*" program") python3 -I -S -c 'import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))' ;;
esac
`

// folder makes files, and puts an interpreter beside them that notes its starts and
// has one package.
func folder(t *testing.T, files map[string]string) (dir string, starts func() int) {
	t.Helper()
	dir = t.TempDir()
	for name, text := range files {
		put(t, filepath.Join(dir, name), text)
	}
	log := filepath.Join(t.TempDir(), "starts")
	put(t, filepath.Join(dir, "python3"), fmt.Sprintf("#!/bin/sh\necho >> %s\n%s\necho '{\"version\": \"3.12.0\", \"packages\": {\"transformers\": \"4.57.0\"}}'\n", log, parses))
	return dir, func() int {
		text, err := os.ReadFile(log)
		if err != nil && !os.IsNotExist(err) {
			t.Fatal(err)
		}
		return strings.Count(string(text), "\n")
	}
}

// machine has no GPUs, whatever this one has.
func machine(dir string, more ...string) Surroundings {
	return Surroundings{Environ: append([]string{"PATH=" + os.Getenv("PATH"), "CUDA_VISIBLE_DEVICES=", "PYTHON_EXEC=" + dir + "/python3"}, more...)}
}

// prepared is the job of a train.toml, or of the words of a command line.
func prepared(t *testing.T, dir string, m Surroundings, words ...string) (*Prepared, error) {
	t.Helper()
	t.Chdir(dir)
	j, _, err := Open(t.Context(), words, m.Environ, dir)
	testenv.Check(t, err)
	return Prepare(t.Context(), j, m)
}

// A job that does not train starts no interpreter; another starts it once, for all that
// has to be known: of a framework its packages, of a script of one's own its settings.
func TestInterpreterStartsOnlyForScriptsThatTrain(t *testing.T) {
	for name, test := range map[string]struct {
		source string
		starts int
		recipe string
	}{
		"no training":  {"import os\n", 0, "none"},
		"no framework": {"import torch\n", 1, "none"},
		"a framework":  {trainer, 1, "hf-trainer"},
	} {
		dir, starts := folder(t, map[string]string{"train.py": test.source})
		for range 2 {
			p, err := prepared(t, dir, machine(dir), "--nproc-per-node", "2", "train.py", "--per_device_train_batch_size", "8", "--output_dir", "out")
			testenv.Check(t, err)
			if p.RecipeName() != test.recipe || p.Python() != dir+"/python3" || p.Ranks != 2 {
				t.Errorf("%s: %s on %s, %d ranks", name, p.RecipeName(), p.Python(), p.Ranks)
			}
		}
		if got := starts(); got != test.starts {
			t.Errorf("%s: the interpreter was started %d times, want %d", name, got, test.starts)
		}
	}
}

// What the methods return is the caller's: a prepared job does not change.
func TestAPreparedJobDoesNotChange(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": trainer})
	p, err := prepared(t, dir, machine(dir, "PET_NNODES=1", "HOST_VAR=1"), "train.py", "--per_device_train_batch_size", "8", "--output_dir", "out")
	testenv.Check(t, err)
	before, err := p.Apply(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "4"}), nil, "", "/run/attempt-1")
	testenv.Check(t, err)
	if _, set := p.Environ()["PET_NNODES"]; set || p.Environ()["HOST_VAR"] != "1" {
		t.Errorf("the ranks inherit %q", p.Environ().Words())
	}
	p.Plan()[strategy.MicroBatchSize] = "1"
	p.Environ()["HOST_VAR"] = "2"
	p.StrategyJob().Written[strategy.MicroBatchSize] = "1"
	clear(p.StrategyJob().Knobs)
	for i := range before.Argv {
		before.Argv[i] = ""
	}
	if got := p.Plan()[strategy.MicroBatchSize]; got != "8" {
		t.Errorf("micro batch size %s", got)
	}
	if _, known := p.StrategyJob().Knobs[strategy.MicroBatchSize]; !known || p.Environ()["HOST_VAR"] != "1" {
		t.Error("a caller's change is seen by the next one")
	}
	after, err := p.Apply(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "4"}), nil, "", "/run/attempt-1")
	want := []string{"train.py", "--per_device_train_batch_size", "4", "--output_dir", "out"}
	if diff := cmp.Diff(want, after.Argv); err != nil || diff != "" {
		t.Errorf("%v (-want +got):\n%s", err, diff)
	}
}

// A job whose framework makes a folder of its own for each start gets words that
// keep all attempts in one; the job that it was made from stays as it was.
func TestPinnedIsAnotherJob(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": "from lightning.pytorch.cli import LightningCLI\nLightningCLI()\n"})
	put(t, filepath.Join(dir, "own.toml"), strings.Join([]string{
		"name = 'own'", "title = 'Own'", "[detect]", "args = ['--own']", "[resume]", "latest = '{--run_name}/c-*'", "args = ['--from', '{latest}']", "pin = ['--run_name', '{job}']"}, "\n"))
	put(t, filepath.Join(dir, "train.toml"), "[job]\nscript = \"train.py\"\nrecipe = \"own.toml\"\n")
	p, err := prepared(t, dir, machine(dir), "train.toml")
	testenv.Check(t, err)
	pinned := p.Pinned("r1")
	change, err := pinned.Propose(pinned.Plan(), nil, "/run", 0, nowhere)
	if err != nil || !slices.Equal(change.Words, []string{"--run_name", "r1"}) {
		t.Errorf("%q, %v", change.Words, err)
	}
	if w := pinned.Warnings; len(w) != 1 || !strings.Contains(w[0], "the job gets --run_name r1") {
		t.Errorf("%q", w)
	}
	if c := pinned.Checkpoints(); c.Glob != "r1/c-*" || c.Dir != dir || c.Pointer != "" || c.Only {
		t.Errorf("%+v", c)
	}
	if change, err := p.Propose(p.Plan(), nil, "/run", 0, nowhere); err != nil || len(change.Words) != 0 || len(p.Warnings) != 0 || p.Checkpoints().Glob != "" {
		t.Errorf("the job itself: %q, %v, %q", change.Words, err, p.Warnings)
	}
	if p.Digest != pinned.Digest {
		t.Error("the run's name makes another job")
	}
}

// An error that the user can repair has a hint.
func TestPrepareRefuses(t *testing.T) {
	for name, test := range map[string]struct{ toml, want string }{
		"no such recipe file":        {"script = \"train.py\"\nrecipe = \"./wrong.toml\"", "wrong.toml:3:2: kobs: unknown key"},
		"no GPU":                     {"script = \"train.py\"\n[launch]\nnproc_per_node = \"gpu\"", "nproc_per_node is \"gpu\", and no GPU is visible"},
		"data-parallel ranks":        {"command = \"torchrun --nproc-per-node gpu train.py\"\n[launch]\ndata_parallel = 3", "no GPU is visible"},
		"a model over too many":      {"script = \"train.py\"\nargs = [\"--tensor-model-parallel-size\", \"3\", \"--micro-batch-size\", \"1\"]\nrecipe = \"megatron-lm\"\n[launch]\nnproc_per_node = 4", "count the data-parallel ranks: the model is spread over 3 ranks, which does not divide 4"},
		"a configuration not there":  {"script = \"train.py\"\nargs = [\"--deepspeed\", \"none.json\"]\nrecipe = \"hf-trainer\"", "read a configuration file of the job: open "},
		"a configuration elsewhere":  {"script = \"train.py\"\nargs = [\"--deepspeed\", \"s3://a/none.json\"]\nrecipe = \"hf-trainer\"", "is not on this machine: download it"},
		"too little for the process": {"script = \"train.py\"\n[limits]\ndevice_memory = \"1MiB\"", "limits.device_memory = 1 MiB is too small"},
	} {
		dir, _ := folder(t, map[string]string{"train.py": "import torch\n", "wrong.toml": "name = 'x'\ntitle = 'x'\n[kobs]\n", "train.toml": "[job]\n" + test.toml + "\n"})
		if _, err := prepared(t, dir, machine(dir), "train.toml"); err == nil || !strings.Contains(err.Error(), test.want) || errext.Code(err, 2) != 2 {
			t.Errorf("%s: %v", name, err)
		}
	}
	dir, _ := folder(t, map[string]string{"train.py": "import torch\n"})
	j := defaults()
	j.Kind, j.Argv, j.Workdir = Script, []string{"none.py"}, dir
	if _, err := Prepare(t.Context(), j, machine(dir)); err == nil || errext.Hint(err) != "gpurun looks for it in "+dir {
		t.Errorf("a script that is gone: %v", err)
	}
	j.Argv, j.Launch.NprocPerNode, j.Launch.DataParallel = []string{"train.py"}, "4", 3
	if _, err := Prepare(t.Context(), j, machine(dir)); err == nil || !strings.Contains(err.Error(), "launch.data_parallel = 3 does not divide the 4 ranks") || errext.Hint(err) == "" {
		t.Errorf("data-parallel ranks: %v", err)
	}
	if _, err := Prepare(t.Context(), j, machine(dir, "GPURUN_NNODES=2")); err == nil {
		t.Error("several nodes are taken for one")
	}
}

// A variable that a rank saw otherwise than it was set shows which knobs the job
// really used.
func TestSettingsInVariables(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": "import torch\n", "train.toml": strings.Join([]string{
		"[job]", "script = \"train.py\"", "env = { BATCH = \"8\" }", "[knobs]", "micro_batch_size = { env = \"BATCH\" }"}, "\n")})
	p, err := prepared(t, dir, machine(dir), "train.toml")
	testenv.Check(t, err)
	if diff := cmp.Diff(strategy.Plan{strategy.MicroBatchSize: "8"}, p.UsedVariable("BATCH", "4", "8")); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	if got := p.UsedVariable("OTHER", "4", "8"); len(got) != 0 {
		t.Errorf("a variable of no knob: %v", got)
	}
	if p.Observer() != nil {
		t.Error("a job without a recipe has lines to observe")
	}
	if name, evidence := p.Recipe(); name != "" || !slices.Equal(evidence, []string{"[knobs] in train.toml"}) || p.RecipeName() != "[knobs]" {
		t.Errorf("%q, %q, %s", name, evidence, p.RecipeName())
	}
}

// TestDigestCountsTheJobsOwnFiles: not those that only the detection of another framework
// looked at.
func TestDigestCountsTheJobsOwnFiles(t *testing.T) {
	const zero, more = `{"train_micro_batch_size_per_gpu": 8}`, "batch: 4\n"
	dir, _ := folder(t, map[string]string{"train.py": trainer, "ds.json": zero, "more.yaml": more})
	digest := func() (*Prepared, string) {
		t.Helper()
		p, err := prepared(t, dir, machine(dir), "train.py", "--per_device_train_batch_size", "8", "--output_dir", "out", "--deepspeed", "ds.json")
		testenv.Check(t, err)
		return p, p.Digest
	}
	p, first := digest()
	if parts := strings.Split(first, "."); !strings.HasPrefix(first, "4:") || len(parts) != 4 || parts[3] != "" {
		t.Errorf("the digest is %s", first)
	}
	r := p.Resolved
	r.command.Files = map[string][]byte{"ds.json": []byte(zero), "more.yaml": []byte(more)}
	if d := r.digest(); d != first {
		t.Errorf("with a file of another recipe: %s, want %s", d, first)
	}
	r.recipe.Name = ""
	if d := r.digest(); d == first {
		t.Error("without a recipe a file does not count")
	}
	put(t, filepath.Join(dir, "ds.json"), zero+" ")
	if _, changed := digest(); changed == first {
		t.Error("a changed configuration is the same job")
	}
}

// The digest of a job itself, without its configuration, does not change from one
// gpurun to the next.
func TestTheJobsOwnDigestStays(t *testing.T) {
	j := &Job{Kind: Script, Workdir: "/work", Argv: []string{"train.py", "--lr", "1e-4"}, Launch: LaunchSettings{RankOptions: commandline.RankOptions{NprocPerNode: "2"}}}
	parts := ""
	for _, part := range []string{"script", "/work", "2", "3", "train.py", "--lr", "1e-4", ""} {
		parts += fmt.Sprintf("%d:%s", len(part), part)
	}
	if got, want := digest(j), fmt.Sprintf("%x", sha256.Sum256([]byte(parts))); got != want {
		t.Errorf("%s, want %s", got, want)
	}
}

// A shell is one process, whatever it starts; as one of several ranks it would start it
// once a rank.
func TestALauncherInAShell(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": "import torch\n", "job.toml": "[job]\nprogram = [\"sh\", \"-c\", \"cd . && torchrun train.py\"]\n"})
	const line = "torchrun --nproc-per-node 2 train.py | tee log"
	if p, err := prepared(t, dir, machine(dir), "job.toml"); err != nil || !p.Plain || p.Ranks != 1 {
		t.Errorf("train.toml: %+v, %v", p, err)
	}
	for _, shell := range []string{"bash -c", "sh -lc", "bash -euo pipefail -c", "env A=1 sh -c"} {
		words := append(strings.Fields(shell), line)
		if p, err := prepared(t, dir, machine(dir), words...); err != nil || !p.Plain || p.Ranks != 1 {
			t.Errorf("%s: %+v, %v", shell, p, err)
		}
		words = append([]string{"--nproc-per-node", "2", "--no-python"}, words...)
		if _, err := prepared(t, dir, machine(dir), words...); err == nil || !strings.Contains(err.Error(), "once for each rank") {
			t.Errorf("%s on 2 ranks: %v", shell, err)
		}
	}
}

// TestMain keeps the defaults of the user and of the machine out of the tests.
func TestMain(m *testing.M) {
	if dir := os.Getenv(sharerRole); dir != "" {
		share(dir)
		return
	}
	if role := os.Getenv(writerRole); role != "" {
		dir, number, _ := strings.Cut(role, " ")
		writeFits(dir, number)
		return
	}
	os.Setenv("XDG_CONFIG_HOME", os.DevNull)
	SiteConfig = ""
	readingBudget = time.Minute // however busy this machine is
	os.Exit(m.Run())
}

// inferences are all that inspect.go declares.
func inferences(t *testing.T) []inference {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "inspect.go", nil, 0)
	testenv.Check(t, err)
	var all []inference
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if is && len(spec.Values) == 1 {
			if kind, named := spec.Type.(*ast.Ident); !named || kind.Name != "inference" {
				return true
			}
			if literal, is := spec.Values[0].(*ast.BasicLit); is {
				text, _ := strconv.Unquote(literal.Value)
				all = append(all, inference(text))
			}
		}
		return true
	})
	return all
}

// use asks a prepared job everything that a run asks it.
func use(t *testing.T, p *Prepared) (warnings []string) {
	t.Helper()
	p = p.Pinned("r1").Tracked("r1")
	p.NewestCheckpoint(time.Time{})
	if c := p.Checkpoints(); c.Meant != nil {
		c.Meant("x")
	}
	m := p.Memory(func(name string) string { return map[string]string{"XDG_STATE_HOME": t.TempDir()}[name] }, false)
	inventory := func() strategy.Inventory { return strategy.Inventory{} }
	_, words := m.Recall(t.Context(), p.Policy(), p.StrategyJob(), inventory)
	if _, err := p.Apply(p.Plan(), nil, "", "/run/attempt-0"); err != nil {
		t.Error(err)
	}
	return slices.Concat(p.Warnings, words)
}

// A job starts whatever reader of its source or configuration has a fault: what that would
// have said is unknown, with one warning.
func TestAFaultInAReaderIsAWarning(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("this machine has no Python: %v", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"own/train.py": ownLoop, "own/net.py": ownNet, "own/conf.yaml": "",
		"hf/train.py":            "import torch, transformers\nfrom transformers import HfArgumentParser, TrainingArguments, Trainer\nHfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer()\n",
		"module/pkg/__init__.py": "", "module/pkg/train.py": ownLoop,
		"named/train.py": "import torch\n", "named/train.toml": "[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = { arg = \"--bs\", default = 4 }\n",
	} {
		path := filepath.Join(dir, name)
		testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
		put(t, path, text)
	}
	jobs := map[string][]string{"own": {"train.py"}, "hf": {"train.py", "--per_device_train_batch_size", "8", "--output_dir", "out"}, "module": {"-m", "pkg.train"}, "named": {"train.toml"}}
	defer func(before func(inference)) { beforeReading = before }(beforeReading)
	for _, faulty := range inferences(t) {
		reached := false
		beforeReading = func(what inference) {
			if what == faulty {
				reached = true
				var nothing *Prepared
				_ = nothing.plan
			}
		}
		var warned []string
		for name, words := range jobs {
			folder := filepath.Join(dir, name)
			p, err := prepared(t, folder, machine(folder, "PYTHON_EXEC="+python), words...)
			if err != nil {
				t.Errorf("%s: %s: %v", faulty, name, err)
				continue
			}
			warned = append(warned, use(t, p)...)
		}
		promised := Inspected{Where: cluster.Placement{Job: "7", Kind: "Slurm"}, GPUs: ranks.DeviceView{Count: 1}}
		warnings, err := promised.checkPromise(t.Context(), Surroundings{Environ: []string{"PBS_JOBID=9", "CUDA_VISIBLE_DEVICES=0"}})
		if err != nil {
			t.Errorf("%s: %v", faulty, err)
		}
		warned = append(warned, warnings...)
		said := strings.Contains(strings.Join(warned, "\n"), string(faulty)+" is not known: this is a bug in gpurun: runtime error")
		silent := faulty == writtenPlan // as a plan is changed
		if !reached || !said && !silent {
			t.Errorf("%s: reached %v, warned %v: %q", faulty, reached, said, warned)
		}
	}
}

// A configuration that gpurun cannot read, which the framework perhaps can, leaves the plan
// unknown. Where the user says which recipe it is, or has entries of [knobs], these count.
func TestAConfigurationThatCannotBeReadIsAWarning(t *testing.T) {
	const train = "import torch, transformers, deepspeed\nfrom transformers import HfArgumentParser, TrainingArguments, Trainer\nHfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer()\n"
	for name, test := range map[string]struct{ table, warning, wrong string }{
		"inferred":    {"", "the job's plan is not known: read a configuration file of the job", ""},
		"own entries": {"[knobs]\nmicro_batch_size = { arg = \"--bs\", default = 4 }\n", "the job's plan is not known", ""},
		"wrong entry": {"[knobs]\nmicro_batch_size = { arg = \"--output_dir\" }\n", "", "read the job's plan"},
		"recipe":      {"recipe = \"hf-trainer\"\n", "", "ds.json"},
	} {
		dir, _ := folder(t, map[string]string{"train.py": train,
			"train.toml": "[job]\nscript = \"train.py\"\nargs = [\"--output_dir\", \"out\", \"--per_device_train_batch_size\", \"8\", \"--deepspeed\", \"ds.json\"]\n" + test.table})
		p, err := prepared(t, dir, machine(dir), "train.toml")
		switch {
		case test.wrong != "":
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: %v, want an error with %q", name, err, test.wrong)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case !strings.Contains(strings.Join(p.Warnings, "\n"), test.warning):
			t.Errorf("%s: %q", name, p.Warnings)
		case test.table != "" && p.Plan()[strategy.MicroBatchSize] != "4":
			t.Errorf("%s: %v", name, p.Plan())
		}
	}
}

// A script that is mostly data starts at once: what is in it is unknown.
func TestALargeScriptStarts(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": "import torch\nx = '" + strings.Repeat("x", largestModule) + "'\n"})
	p, err := prepared(t, dir, machine(dir), "train.py")
	if err != nil || !strings.Contains(strings.Join(p.Warnings, "\n"), string(scriptSource)+" is not known: read "+dir+"/train.py: it is too large: more than 1 MiB") {
		t.Fatalf("%+v, %v", p, err)
	}
}

// TestModuleSource: the source of a module is found as Python would find it, and
// is not looked for where the module's name decides the recipe.
func TestModuleSource(t *testing.T) {
	packages, _, python := framework(t)
	work, other := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(work, "train.py"):                       "here",
		filepath.Join(work, "pkg/__main__.py"):                "package",
		filepath.Join(work, "torchtitan/train.py"):            "a copy",
		filepath.Join(other, "train.py"):                      "hidden",
		filepath.Join(other, "elsewhere.py"):                  "on the path",
		filepath.Join(packages, "recipes/installed/train.py"): "installed",
	} {
		put(t, path, text)
	}
	for module, want := range map[string]string{
		"train": "here", "pkg": "package", "elsewhere": "on the path", "recipes.installed.train": "installed", "nowhere": "", "torchtitan.train": "",
	} {
		env := commandline.Environ{"PYTHONPATH": other + ":" + packages}
		s := Inspected{Job: Job{Kind: Module, Argv: []string{module}, Workdir: work, Recipe: "auto"}, env: env, Interpreter: interpreter.At(python, work, env)}
		if got, _ := s.moduleSource(t.Context()); string(got) != want {
			t.Errorf("%s: %q, want %q", module, got, want)
		}
	}
	env := commandline.ParseEnviron(os.Environ())
	s := Inspected{Job: Job{Argv: []string{"json.tool"}, Workdir: work, Recipe: "auto"}, env: env, Interpreter: interpreter.At(python, work, env)}
	if source, path := s.moduleSource(t.Context()); len(source) == 0 || path == "" {
		t.Error("the interpreter's own modules are not found")
	}
}

// Configuration files that arguments name are distinguished by their content, and nothing
// else is read.
func TestInputs(t *testing.T) {
	dir, _ := folder(t, map[string]string{
		"train.py": "", "c.yaml": "a", "d.JSON": "", "e.toml": "a", "model.py": "", "data.bin": "", "big.json": strings.Repeat("x", largestNamed+1),
		"train.toml": "[job]\nscript = \"train.py\"\nargs = [\"--config\", \"c.yaml\"]\n",
	})
	testenv.Check(t, unix.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600))
	testenv.Check(t, os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700))
	words := []string{"train.py", "--config", "c.yaml", "--more=d.JSON", "x=e.toml", "model.py", "data.bin", "big.json", "pipe.yaml", "folder.yaml", "none.yaml", "c.yaml"}
	p, err := prepared(t, dir, machine(dir), words...)
	testenv.Check(t, err)
	before := p.Inputs()
	if got := slices.Sorted(maps.Keys(before)); !slices.Equal(got, []string{"c.yaml", "d.JSON", "e.toml", "model.py"}) {
		t.Errorf("%q", got)
	}
	if before["c.yaml"] != before["e.toml"] || before["c.yaml"] == before["d.JSON"] {
		t.Errorf("%q", before)
	}
	put(t, filepath.Join(dir, "c.yaml"), "b")
	if after := p.Inputs(); after["c.yaml"] == before["c.yaml"] || after["e.toml"] != before["e.toml"] {
		t.Errorf("%q became %q", before, after)
	}
	if p, err = prepared(t, dir, machine(dir), "train.toml"); err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(maps.Keys(p.Inputs())); !slices.Equal(got, []string{"c.yaml"}) {
		t.Errorf("of a train.toml: %q", got)
	}
}

// A variable of a pipeline that is not set is no reason to train without what it says.
func TestFlagsOfPipelinesAreFilled(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": "", "train.toml": "[job]\nscript = \"train.py\"\n"})
	for _, words := range [][]string{
		{"--run-id", "", "train.py"}, {"--run-id=", "train.toml"}, {"train.toml", "--if-trained", ""}, {"--deadline", "", "train.py"}, {"--junit", "", "train.toml"},
	} {
		if _, _, err := Open(t.Context(), words, machine(dir).Environ, dir); err == nil || !strings.HasSuffix(err.Error(), " is empty") {
			t.Errorf("%q: %v", words, err)
		}
	}
}
