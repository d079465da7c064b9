package job

import (
	"crypto/sha256"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
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
	if err != nil {
		t.Fatal(err)
	}
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
			if err != nil {
				t.Fatal(err)
			}
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
	if err != nil {
		t.Fatal(err)
	}
	before, err := p.Apply(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "4"}), nil, "", "/run/attempt-1")
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
	if err != nil {
		t.Fatal(err)
	}
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
		if err != nil {
			t.Fatal(err)
		}
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
