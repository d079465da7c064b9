package job

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

// scripts makes a working directory with the files that a job may be started from.
func scripts(t *testing.T) string {
	t.Helper()
	dir := t.TempDir()
	for _, name := range []string{"train.py", "run.sh", "-5"} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), nil, 0o755))
	}
	return dir
}

func TestFromArgsCommand(t *testing.T) {
	dir := scripts(t)
	for _, c := range []struct {
		args string
		kind Kind
		argv []string
	}{
		{"train.py", Script, []string{"train.py"}},
		{"train.py --nproc-per-node 4 -m x --help", Script, []string{"train.py", "--nproc-per-node", "4", "-m", "x", "--help"}},
		{"train.py -- --x", Script, []string{"train.py", "--x"}},
		{"train.py a -- --x", Script, []string{"train.py", "a", "--", "--x"}},
		{"-- train.py -- --x", Script, []string{"train.py", "--", "--x"}},
		{"--standalone -- train.py", Script, []string{"train.py"}},
		{"-m pkg.train a", Module, []string{"pkg.train", "a"}},
		{"--module pkg.train", Module, []string{"pkg.train"}},
		{"-mr3 pkg.train", Module, []string{"pkg.train"}},
		{"--no_python ./run.sh a", Program, []string{"./run.sh", "a"}},
		{"--no-py run.sh", Program, []string{"run.sh"}},
		{"-5 a", Script, []string{"-5", "a"}},
	} {
		j, err := FromArgs(strings.Fields(c.args), nil, dir)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if j.Kind != c.kind {
			t.Errorf("%s: kind %s, want %s", c.args, j.Kind, c.kind)
		}
		if diff := cmp.Diff(c.argv, j.Argv); diff != "" {
			t.Errorf("%s (-want +got):\n%s", c.args, diff)
		}
	}
}

func TestFromArgsFlags(t *testing.T) {
	dir := scripts(t)
	for _, c := range []struct {
		name string
		args string
		env  []string
		want func(l *LaunchSettings)
	}{
		{"nothing", "", nil, func(l *LaunchSettings) {}},
		{"spelled with dashes", "--nproc-per-node 4", nil, func(l *LaunchSettings) { l.NprocPerNode = "4" }},
		{"spelled with underscores", "--nproc_per_node=4", nil, func(l *LaunchSettings) { l.NprocPerNode = "4" }},
		{"a prefix", "--nproc 4", nil, func(l *LaunchSettings) { l.NprocPerNode = "4" }},
		{"a prefix with underscores", "--nproc_per=4", nil, func(l *LaunchSettings) { l.NprocPerNode = "4" }},
		{"words", "--nproc-per-node gpu", nil, func(l *LaunchSettings) { l.NprocPerNode = "gpu" }},
		{"the last one counts", "--nproc 4 --nproc auto", nil, func(l *LaunchSettings) { l.NprocPerNode = "auto" }},
		{"a variable", "", []string{"PET_NPROC_PER_NODE=8"}, func(l *LaunchSettings) { l.NprocPerNode = "8" }},
		{"a flag over a variable", "--nproc 2", []string{"PET_NPROC_PER_NODE=8"}, func(l *LaunchSettings) { l.NprocPerNode = "2" }},
		{"a flag over a bad variable", "--nproc 2", []string{"PET_NPROC_PER_NODE=x"}, func(l *LaunchSettings) { l.NprocPerNode = "2" }},
		{"the last of two variables", "", []string{"PET_MAX_RESTARTS=1", "PET_MAX_RESTARTS=2"}, func(l *LaunchSettings) { l.MaxRestarts = 2 }},
		{"an empty variable", "", []string{"PET_MAX_RESTARTS="}, func(l *LaunchSettings) {}},
		{"restarts", "--max-restarts=3", nil, func(l *LaunchSettings) { l.MaxRestarts = 3 }},
		{"one node", "--nnodes 1 --node-rank 0", nil, func(l *LaunchSettings) {}},
		{"one to one nodes", "--nnodes=1:1", []string{"PET_NODE_RANK=0"}, func(l *LaunchSettings) {}},
		{"redirects", "-r 3", nil, func(l *LaunchSettings) { l.Redirects = commandline.Streams{All: commandline.Both} }},
		{"redirects, joined", "-r3 -t=1", nil, func(l *LaunchSettings) {
			l.Redirects = commandline.Streams{All: commandline.Both}
			l.Tee = commandline.Streams{All: commandline.Out}
		}},
		{"tee by rank", "--tee 0:3,1:2", nil, func(l *LaunchSettings) {
			l.Tee = commandline.Streams{Ranks: map[int]commandline.Std{0: commandline.Both, 1: commandline.Err}}
		}},
		{"tee by variable", "", []string{"PET_TEE=3"}, func(l *LaunchSettings) { l.Tee = commandline.Streams{All: commandline.Both} }},
		{"a filter", "--local-ranks-filter 0,3", nil, func(l *LaunchSettings) { l.LocalRanksFilter = []int{0, 3} }},
		{"a log folder", "--log-dir logs", nil, func(l *LaunchSettings) { l.LogDir = filepath.Join(dir, "logs") }},
		{"an absolute log folder", "--log_dir /dev/null", nil, func(l *LaunchSettings) { l.LogDir = "/dev/null" }},
		{"a role", "--role trainer", nil, func(l *LaunchSettings) { l.Role = "trainer" }},
		{"a run id", "--rdzv-id=night", nil, func(l *LaunchSettings) { l.RunID = "night" }},
		{"no run id", "--rdzv-id none", nil, func(l *LaunchSettings) {}},
		{"a port", "--master-port 29501 --master-addr localhost", nil, func(l *LaunchSettings) { l.MasterPort = 29501 }},
		{"a free port", "--master-port=0", nil, func(l *LaunchSettings) {}},
		{"standalone", "--standalone", nil, func(l *LaunchSettings) {}},
		{"seconds of grace", "--shutdown-timeout 5", nil, func(l *LaunchSettings) { l.ShutdownTimeout = 5 * time.Second }},
		{"a duration of grace", "--shutdown-timeout 2m", nil, func(l *LaunchSettings) { l.ShutdownTimeout = 2 * time.Minute }},
		{"grace by variable", "", []string{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7"}, func(l *LaunchSettings) { l.ShutdownTimeout = 7 * time.Second }},
		{"grace by torchrun's own variable", "", []string{"TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7", "PET_SHUTDOWN_TIMEOUT=8"},
			func(l *LaunchSettings) { l.ShutdownTimeout = 8 * time.Second }},
		{"default signals", "--signals-to-handle SIGTERM,SIGINT,SIGHUP,SIGQUIT", nil, func(l *LaunchSettings) {}},
		{"off by variable", "", []string{"PET_RUN_PATH=0", "PET_VIRTUAL_LOCAL_RANK=0", "PET_MODULE=0"}, func(l *LaunchSettings) {}},
	} {
		t.Run(c.name, func(t *testing.T) {
			j, err := FromArgs(append(strings.Fields(c.args), "train.py"), c.env, dir)
			testenv.Check(t, err)
			want := defaults().Launch
			want.NprocPerNode, want.Auto = "1", AutoDevices
			c.want(&want)
			if diff := cmp.Diff(want, j.Launch); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			if j.Warnings != nil {
				t.Errorf("warnings: %q", j.Warnings)
			}
		})
	}
}

func TestFromArgsJob(t *testing.T) {
	dir := scripts(t)
	j, err := FromArgs([]string{"--python", "venv/bin/python", "train.py"}, nil, dir)
	testenv.Check(t, err)
	if j.Name != "train" || j.Workdir != dir || j.Path != "" || j.Recipe != "auto" || j.Env != nil {
		t.Errorf("job: %+v", j)
	}
	if want := filepath.Join(dir, "venv/bin/python"); j.Python != want {
		t.Errorf("Python = %q, want %q", j.Python, want)
	}
	if diff := cmp.Diff(defaults().Policy, j.Policy); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	for script, want := range map[string]string{"train.py": "train", "-m": "pkg.train", "run.sh": "run"} {
		args := []string{script}
		switch script {
		case "-m":
			args = append(args, "pkg.train")
		case "run.sh":
			args = []string{"--no-python", script}
		}
		if j, err := FromArgs(args, nil, dir); err != nil || j.Name != want {
			t.Errorf("%s: name %q, %v, want %q", script, j.Name, err, want)
		}
	}
}

func TestFromArgsWarns(t *testing.T) {
	dir := scripts(t)
	for _, c := range []struct {
		args string
		env  []string
		want []string
	}{
		{"--rdzv-backend c10d --rdzv-endpoint h:1 --rdzv-conf a=b", nil,
			[]string{"--rdzv-backend, --rdzv-endpoint, --rdzv-conf have no effect with gpurun on one node"}},
		{"--monitor-interval 5", nil, []string{"--monitor-interval has no effect with gpurun on one node"}},
		{"--start-method fork --event-log-handler console --local-addr h --numa-binding node", nil,
			[]string{"--start-method, --event-log-handler, --local-addr, --numa-binding have no effect with gpurun on one node"}},
		{"", []string{"PET_RDZV_ENDPOINT=h:1"}, []string{"PET_RDZV_ENDPOINT has no effect with gpurun on one node"}},
		{"--master_addr node1", nil, []string{"--master-addr=node1 has no effect on one node: ranks meet at 127.0.0.1"}},
		{"--standalone --master-port 5", nil, []string{"--master-port has no effect with gpurun on one node"}},
		{"--signals-to-handle SIGUSR1", nil, []string{"--signals-to-handle=SIGUSR1 has no effect: gpurun handles SIGTERM,SIGINT,SIGHUP,SIGQUIT"}},
	} {
		j, err := FromArgs(append(strings.Fields(c.args), "train.py"), c.env, dir)
		if err != nil {
			t.Errorf("%s: %v", c.args, err)
			continue
		}
		if diff := cmp.Diff(c.want, j.Warnings); diff != "" {
			t.Errorf("%s %v (-want +got):\n%s", c.args, c.env, diff)
		}
	}
}

func TestFromArgsRefuses(t *testing.T) {
	dir := scripts(t)
	for _, c := range []struct {
		args          string
		env           []string
		message, hint string
	}{
		{"", nil, "no script or train.toml was given", "gpurun train.toml"},
		{"--if-trained train.toml", nil, `--if-trained needs skip or run, and takes "train.toml" for it`, "write --if-trained skip train.toml, or --if-trained run train.toml"},
		{"--json --run-id train.py", nil, `--run-id needs a value, and takes "train.py" for it`, "behind --run-id"},
		{"--standalone", nil, "no script or train.toml was given", ""},
		{"--nproc-per-nod x train.py", nil, `--nproc-per-node: "x" is not a number of ranks`, `"auto"`},
		{"--nprocs-per-node 2 train.py", nil, "unknown flag --nprocs-per-node", "did you mean --nproc-per-node?"},
		{"--lr=1 train.py", nil, "unknown flag --lr", "after the script"},
		{"-x train.py", nil, "unknown flag -x", ""},
		{"-mx train.py", nil, "unknown flag -x", ""},
		{"--n 2 train.py", nil, "--n is ambiguous: it could be --nnodes, --no-python, --node-rank, --nproc-per-node, --numa-binding", "in full"},
		{"--rdzv x train.py", nil, "--rdzv is ambiguous", ""},
		{"--nproc-per-node", nil, "--nproc-per-node needs a value", ""},
		{"--role --standalone train.py", nil, "--role needs a value", ""},
		{"--standalone=1 train.py", nil, "--standalone takes no value", ""},
		{"-r", nil, "-r needs a value", ""},
		{"--nproc-per-node 0 train.py", nil, "--nproc-per-node: 0 is less than 1", ""},
		{"--nproc-per-node -1 train.py", nil, "--nproc-per-node: -1 is less than 1", ""},
		{"--nproc-per-node xpu train.py", nil, `"xpu" is not a number of ranks`, ""},
		{"--nnodes 1:4 train.py", nil, "--nnodes=1:4: gpurun wants a fixed number of nodes", "give the number"},
		{"--nnodes 2:1 train.py", nil, "--nnodes: 2:1 ends before it starts", ""},
		{"--nnodes x train.py", nil, `--nnodes: "x" is not a whole number`, ""},
		{"--nnodes 0 train.py", nil, "--nnodes: 0 is out of range", ""},
		{"train.py", []string{"PET_NNODES=2:4"}, "PET_NNODES=2:4: gpurun wants a fixed number of nodes", ""},
		{"--node-rank -1 train.py", nil, "--node-rank: -1 is out of range", ""},
		{"--max-restarts -1 train.py", nil, "--max-restarts: -1 is out of range", ""},
		{"--master-port 70000 train.py", nil, "--master-port: 70000 is out of range", ""},
		{"-r4 train.py", nil, `-r: "4" names no streams`, "3 (both)"},
		{"-t 0:3,1 train.py", nil, `-t: "0:3,1" names no streams`, ""},
		{"-t 0:5 train.py", nil, `names no streams`, ""},
		{"--local-ranks-filter 0,x train.py", nil, `--local-ranks-filter: "x" is not a whole number`, ""},
		{"--shutdown-timeout soon train.py", nil, `"soon" is not a time to wait`, "30s"},
		{"--shutdown-timeout -1 train.py", nil, `"-1" is not a time to wait`, ""},
		{"--shutdown-timeout nan train.py", nil, `"nan" is not a time to wait`, ""},
		{"--virtual-local-rank train.py", nil, "--virtual-local-rank is not supported", "LOCAL_RANK"},
		{"train.py", []string{"PET_VIRTUAL_LOCAL_RANK=1"}, "PET_VIRTUAL_LOCAL_RANK is not supported", ""},
		{"--run-path train.py", nil, "--run-path is not supported", ""},
		{"--logs-specs x train.py", nil, "--logs-specs is not supported", ""},
		{"--duplicate-stdout-filters x train.py", nil, "--duplicate-stdout-filters is not supported", ""},
		{"train.py", []string{"PET_STANDALONE=yes"}, `PET_STANDALONE: "yes" is not a number`, "1 or 0"},
		{"-m --no-python pkg.train", nil, "--module and --no-python contradict", ""},
		{"--no-python deepspeed train.py", nil, "deepspeed starts its own ranks: it would be started once for each rank", `"self"`},
		{"-m accelerate.commands.launch train.py", nil, "accelerate launch starts its own ranks", `"self"`},
		{"none.py", nil, "none.py does not exist", ""},
		{"none.toml", nil, "none.toml does not exist", "train.toml"},
		{"ls", nil, "ls does not exist", "--no-python"},
		{"run.sh", nil, "run.sh is a shell script, not a Python script", "--no-python"},
		{"conf/train.YAML", nil, "conf/train.YAML is a configuration file, not a Python script", "train.toml"},
		{"a.ipynb", nil, "a.ipynb is a notebook", ""},
		{".", nil, "is a folder, not a script", "train.toml"},
	} {
		j, err := FromArgs(strings.Fields(c.args), c.env, dir)
		if err == nil {
			t.Errorf("%s %v: %v, want an error", c.args, c.env, j)
			continue
		}
		if !strings.Contains(err.Error(), c.message) || !strings.Contains(errext.Hint(err), c.hint) {
			t.Errorf("%s %v: %q, hint %q; want %q and %q", c.args, c.env, err, errext.Hint(err), c.message, c.hint)
		}
	}
}

func TestFromArgsHelp(t *testing.T) {
	for _, args := range [][]string{{"--help"}, {"-h"}, {"--nproc-per-node", "2", "--help", "train.py"}, {"-mh"}} {
		if _, err := FromArgs(args, nil, t.TempDir()); !errors.Is(err, ErrHelp) {
			t.Errorf("%q: %v, want ErrHelp", args, err)
		}
	}
	if _, err := FromArgs([]string{"train.py", "--help"}, nil, scripts(t)); err != nil {
		t.Errorf("the script's own --help: %v", err)
	}
}

// TestInnerCommand: a launcher that the hook knows is taken off; what the user
// says in the job or before the command is stronger than what it would set.
func TestInnerCommand(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"train.py":   "",
		"train.toml": "[job]\ncommand = \"A=1 wrap --ranks 2 train.py --x\"\nenv = { B = \"2\" }\n",
	} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644))
	}
	hook := func(w words) (commandline.Inner, bool, error) {
		words := w.seen.Inner
		if words[0] != "wrap" || w.env["A"] != "1" || w.env["B"] != "2" || w.dir != dir {
			t.Errorf("asked about %q in %s with %v", words, w.dir, w.env)
		}
		return commandline.Inner{Kind: Script, Argv: words[3:], Env: map[string]string{"A": "x", "B": "x", "C": "x"}, Ranks: words[2]}, true, nil
	}
	j, err := Load(filepath.Join(dir, "train.toml"), hook)
	testenv.Check(t, err)
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "2", "C": "x"}, j.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if j.Kind != Script || strings.Join(j.Argv, " ") != "train.py --x" || j.Launch.NprocPerNode != "2" {
		t.Errorf("%v %q with %s ranks", j.Kind, j.Argv, j.Launch.NprocPerNode)
	}
	failing := func(words) (commandline.Inner, bool, error) {
		return commandline.Inner{}, true, errors.New("wrap cannot do that")
	}
	if _, err := Load(filepath.Join(dir, "train.toml"), failing); err == nil || !strings.Contains(err.Error(), "wrap cannot do that") {
		t.Errorf("a launcher that cannot be taken off: %v", err)
	}
}

func TestInterpreterOfTheCommandsTorchrun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"other/bin/torchrun": "#!" + dir + "/other/bin/python3\n", "other/bin/python3": "", "train.toml": "[job]\ncommand = \"other/bin/torchrun -m pkg\"\n",
	} {
		testenv.Check(t, os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755))
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755))
	}
	j, err := Load(filepath.Join(dir, "train.toml"), nil)
	testenv.Check(t, err)
	path, _, err := j.interpreter(commandline.Environ{})
	if want := filepath.Join(dir, "other/bin/python3"); err != nil || path != want {
		t.Errorf("Find = %s, %v, want %s", path, err, want)
	}
}

// The error of a missing interpreter is the user's to mend; a program needs none.
func TestInterpreterOfAJob(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		job Job
		env commandline.Environ
	}{
		"named by the job":           {Job{Kind: Script, Python: "none/python"}, nil},
		"the job's own variables":    {Job{Kind: Script, Env: map[string]string{"PYTHON_EXEC": "none/python"}}, commandline.Environ{"PYTHON_EXEC": "/bin/sh"}},
		"the variables of a machine": {Job{Kind: Module}, commandline.Environ{"PYTHON_EXEC": "none/python"}},
	} {
		test.job.Workdir = dir
		path, _, err := test.job.interpreter(test.env)
		if errext.Hint(err) == "" || !strings.Contains(err.Error(), filepath.Join(dir, "none/python")+" does not exist") {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	if path, why, err := (&Job{Kind: Program}).interpreter(nil); path != "" || why == "" || err != nil {
		t.Errorf("a program: %q, %q, %v", path, why, err)
	}
}

// Who wants another interpreter has to name it where the job's is named.
func TestPythonBy(t *testing.T) {
	dir, env := typedAt(t)
	plain, line := filepath.Join(dir, "plain.toml"), filepath.Join(dir, "line.toml")
	put(t, plain, "[job]\nscript = \"train.py\"\n")
	put(t, line, "[job]\ncommand = \"python train.py\"\n")
	for line, want := range map[string]string{
		"python train.py": "command", "uv run python train.py": "command", "torchrun train.py": "--python", "train.py": "--python",
		plain: "job.python", line: "job.command",
	} {
		if j, _, err := Open(t.Context(), strings.Fields(line), env, dir); err != nil || j.PythonBy() != want {
			t.Errorf("%s: %v, %v, want %s", line, j, err, want)
		}
	}
}

// framework makes a folder of packages with torchtune's files in it, and its
// launcher, which runs on its own interpreter.
func framework(t *testing.T) (packages, tune, python string) {
	t.Helper()
	system, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("this machine has no python3")
	}
	packages = t.TempDir()
	python = filepath.Join(packages, "python3")
	tune = filepath.Join(packages, "bin", "tune")
	for name, text := range map[string]string{
		"recipes/full_finetune_distributed.py":  "import torchtune\n",
		"recipes/configs/llama3_2/1B_full.yaml": "batch_size: 4\n",
		"trl/accelerate_configs/zero3.yaml":     "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n",
		"bin/tune":                              "#!" + python + "\n",
		"bin/trl":                               "#!" + python + "\n",
		"python3":                               "#!/bin/sh\nexec " + system + " \"$@\"\n",
	} {
		path := filepath.Join(packages, name)
		put(t, path, text)
	}
	return packages, tune, python
}

// unwrapped takes a framework's launcher off a command, in this process's environment.
func unwrapped(t *testing.T, typed []string, env map[string]string, dir string) (commandline.Inner, bool, error) {
	t.Helper()
	return frameworkLaunchers(t.Context(), commandline.ParseEnviron(os.Environ()))(words{env: env, dir: dir, seen: commandline.Known.SeeThrough(typed)})
}

// TestUnwrapSite: a launcher's own files are found by its own interpreter, which
// the ranks run on, too.
func TestUnwrapSite(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "")
	packages, tune, python := framework(t)
	env := map[string]string{"PYTHONPATH": packages}
	words := []string{tune, "run", "--nproc_per_node", "2", "full_finetune_distributed", "--config", "llama3_2/1B_full", "batch_size=2"}
	inner, known, err := unwrapped(t, words, env, t.TempDir())
	if err != nil || !known {
		t.Fatalf("%v, %v", known, err)
	}
	want := commandline.Inner{
		Kind: Script, Ranks: "2", Env: map[string]string{"PYTHON_EXEC": python}, RankStarter: commandline.RankStarter{Wrapper: "tune run", Alone: true},
		Argv: []string{filepath.Join(packages, "recipes/full_finetune_distributed.py"), "--config", filepath.Join(packages, "recipes/configs/llama3_2/1B_full.yaml"), "batch_size=2"},
	}
	if diff := cmp.Diff(want, inner); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A file in the working directory is not the framework's.
	words[6] = "llama3_2/8B_full"
	_, _, err = unwrapped(t, words, env, packages)
	if errext.Hint(err) == "" || !strings.Contains(err.Error(), "recipes/configs/llama3_2/8B_full.yaml") {
		t.Errorf("a configuration that is not there: %v", err)
	}
	if _, _, err = unwrapped(t, words, nil, packages); err == nil {
		t.Error("the recipe is found in the working directory")
	}
}

// TestUnwrapPackagedConfiguration: a launcher's configuration that the framework
// brings with it is read among the packages of the launcher's interpreter.
func TestUnwrapPackagedConfiguration(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "")
	packages, tune, _ := framework(t)
	trl := filepath.Join(filepath.Dir(tune), "trl")
	env := map[string]string{"PYTHONPATH": packages}
	inner, known, err := unwrapped(t, []string{trl, "sft", "--accelerate_config", "zero3", "--output_dir", "o"}, env, t.TempDir())
	if err != nil || !known || inner.Env["ACCELERATE_DEEPSPEED_ZERO_STAGE"] != "3" {
		t.Errorf("%v, %v, %v", inner, known, err)
	}
	_, _, err = unwrapped(t, []string{trl, "sft", "--accelerate_config", "zero9"}, env, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "trl/accelerate_configs/zero9.yaml is not among the packages") {
		t.Errorf("a configuration that is not there: %v", err)
	}
}

// TestUnwrapPython: the interpreter that the user names is stronger than the
// launcher's, and a program gets none.
func TestUnwrapPython(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "")
	packages, tune, python := framework(t)
	launcher := filepath.Join(filepath.Dir(tune), "deepspeed")
	testenv.Check(t, os.Rename(tune, launcher))
	for _, test := range []struct {
		words []string
		env   map[string]string
		want  string
	}{
		{[]string{launcher, "train.py"}, nil, python},
		{[]string{"bin/deepspeed", "train.py"}, nil, python},
		{[]string{launcher, "train.py"}, map[string]string{"PYTHON_EXEC": "/opt/python"}, ""},
		{[]string{launcher, "--no_python", "./train.sh"}, nil, ""},
		{[]string{"python3", "-m", "deepspeed", "train.py"}, nil, ""},
	} {
		inner, known, err := unwrapped(t, test.words, test.env, packages)
		if err != nil || !known || inner.Env["PYTHON_EXEC"] != test.want {
			t.Errorf("%q: %q, %v, %v; want %q", test.words, inner.Env["PYTHON_EXEC"], known, err, test.want)
		}
	}
}
