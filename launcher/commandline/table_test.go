package commandline

import (
	"errors"
	"io/fs"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// noFiles is a machine without any configuration file.
var noFiles = Files{
	Exists: func(string) bool { return false },
	Table: func(name string) ([]Pair, error) {
		return nil, &fs.PathError{Op: "read", Path: name, Err: fs.ErrNotExist}
	},
}

// TestTableGrowsByData: a new launcher and a new wrapper are one
// value each.
func TestTableGrowsByData(t *testing.T) {
	table := ProgramTable{
		Launchers: append(slices.Clone(Known.Launchers), RankLauncher{
			Command: []string{"swarm", "start"}, Aliases: [][]string{{"swarm-start"}}, Modules: []string{"swarm.cli"}, Programs: []string{"swarm"},
			takes: takeFramework,
			Grammar: OptionGrammar{Remainder: true, Options: []Option{
				{Name: "workers", Aliases: []string{"procs"}, Short: 'w', Means: Ranks}, {Name: "as-module", Bare: true, Means: AsModule},
				{Name: "hosts", Means: NodeCount}, {Name: "tpu", Bare: true, Means: Refused}, {Name: "color", Bare: true, Negated: true},
			}},
			Starts: Starts{Ranks: "SWARM_WORKERS", Nodes: "SWARM_HOSTS", Env: map[string]string{"SWARM": "1"}},
		}),
		Wrappers: append(slices.Clone(Known.Wrappers), Wrapper{
			Command: []string{"box", "in"}, Operands: 1, Assignments: true, Grammar: getopt("q quiet", "m mount"),
		}),
	}
	for line, want := range map[string]Inner{
		"swarm start --procs=2 --no-color train.py --workers 3": {RankStarter: RankStarter{Wrapper: "swarm start"}, Kind: Script, Argv: []string{"train.py", "--workers", "3"}, Ranks: "2", Env: map[string]string{"SWARM": "1"}},
		"/opt/swarm-start -w4 --as-module pkg.train":            {RankStarter: RankStarter{Wrapper: "swarm-start"}, Kind: Module, Argv: []string{"pkg.train"}, Ranks: "4", Env: map[string]string{"SWARM": "1"}},
		"python -m swarm start train.py":                        {RankStarter: RankStarter{Wrapper: "swarm start"}, Kind: Script, Argv: []string{"train.py"}, Ranks: "7", Env: map[string]string{"SWARM": "1"}},
		"python3 -u -m swarm.cli --hosts 1 train.py -- -x":      {RankStarter: RankStarter{Wrapper: "swarm start"}, Kind: Script, Argv: []string{"train.py", "-x"}, Ranks: "7", Env: map[string]string{"SWARM": "1"}},
		"swarm start --hosts 2 train.py":                        {RankStarter: RankStarter{Wrapper: "swarm start"}, Kind: Script, Argv: []string{"train.py"}, Ranks: "7", Env: map[string]string{"SWARM": "1"}},
	} {
		inner, known, err := table.UnwrapLauncher(strings.Fields(line), Environ{"SWARM_WORKERS": "7"}, noFiles)
		if inner.Nodes.Several() != strings.Contains(line, "--hosts 2") {
			t.Errorf("%s: nodes are %+v", line, inner.Nodes)
		}
		inner.Nodes = Nodes{}
		if diff := cmp.Diff(want, inner); !known || err != nil || diff != "" {
			t.Errorf("%s: %v, %v (-want +got):\n%s", line, known, err, diff)
		}
	}
	for line, want := range map[string]string{
		"swarm start --hosts 2:4 train.py": "swarm start: --hosts=2:4: gpurun wants a fixed number of nodes", "swarm start --tpu train.py": "cannot take --tpu over",
		"swarm start --new train.py": "does not know the option --new", "swarm start": "names nothing to start", "swarm start --workers": "--workers needs a value",
	} {
		if _, known, err := table.UnwrapLauncher(strings.Fields(line), nil, noFiles); !known || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v, want %q", line, known, err, want)
		}
	}
	words := strings.Fields("box -q in -m swarm image A=1 swarm start train.py")
	w, ok := table.Unwrap(words)
	if !ok || w.At != 7 || strings.Join(w.Inner, " ") != "swarm start train.py" || w.Env["A"] != "1" || len(w.Given) != 2 || w.Given[1].Value != "swarm" {
		t.Errorf("%q is %+v, %v", words, w, ok)
	}
	if name := table.StartsRanks(Program, words); name != "swarm start" {
		t.Errorf("behind the wrapper there is %q", name)
	}
	if name := Known.StartsRanks(Program, words); name != "" {
		t.Errorf("the table of all knows %q", name)
	}
}

// TestOneList: what one of several lists knew and another did not.
func TestOneList(t *testing.T) {
	for line, want := range map[string]string{
		"lmf train a.yaml": "lmf", "nohup accelerate-launch a.py": "accelerate-launch", "python -m composer.cli.launcher a.py": "composer",
		"python -m horovod.runner.launch a.py": "horovodrun", "python -m accelerate.commands.accelerate_cli launch a.py": "accelerate launch",
		// It starts no ranks, and neither does accelerate env.
		"python -m accelerate.commands.accelerate_cli env": "", "python -c trl sft": "",
		// Letters that mean something else to another wrapper.
		"time -p torchrun a.py": "torchrun", "sudo -n deepspeed a.py": "deepspeed", "uv run -n torchrun a.py": "torchrun", "sudo -u torchrun ./x": "",
		"nohup conda run -n deepspeed python a.py": "", "uv run --with deepspeed python a.py": "", "pixi run -e torchrun ./a": "",
	} {
		if got := Known.StartsRanks(Program, strings.Fields(line)); got != want {
			t.Errorf("%s starts ranks by %q, want %q", line, got, want)
		}
	}
	for line, want := range map[string]string{
		"python -u -m accelerate.commands.launch a.py": "a.py", "pypy3 -m deepspeed --no_local_rank a.py": "a.py",
		// Their parsers are torchrun's kind: a "--" behind the script is theirs.
		"accelerate launch a.py -- --x": "a.py --x", "deepspeed --no_local_rank -- a.py": "a.py",
		// torchtune has torchrun's options, all of them.
		"tune run --shutdown-timeout 3 --nproc 2 full": "{site}/recipes/full.py", "axolotl train c --launcher torchrun -- --signals-to-handle x": "axolotl.cli.train c",
		// The last one counts, by whichever name.
		"deepspeed --no_local_rank -i localhost:0,1 --include localhost:2 a.py": "a.py",
	} {
		inner, known, err := Known.UnwrapLauncher(strings.Fields(line), nil, noFiles)
		if !known || err != nil || strings.Join(inner.Argv, " ") != want {
			t.Errorf("%s: %q, %v, %v; want %s", line, inner.Argv, known, err, want)
		}
	}
	for _, line := range []string{"accelerate --debug launch a.py", "accelerate env", "python-config -m deepspeed a.py", "python -X dev -m deepspeed a.py", "trl env", "torchrun a.py", ""} {
		if inner, known, err := Known.UnwrapLauncher(strings.Fields(line), nil, noFiles); known || err != nil {
			t.Errorf("%s: %v, %v", line, inner, err)
		}
	}
}

// TestKnownWrappers: where the command of each wrapper begins, and that each is
// listed once.
func TestKnownWrappers(t *testing.T) {
	seen := map[string]bool{}
	for _, w := range Known.Wrappers {
		if seen[w.Command[0]] {
			t.Errorf("%s is there twice", w.Command[0])
		}
		seen[w.Command[0]] = true
	}
	for _, line := range []string{
		"env -u A B=1 | a", "exec -a name | a", "nohup | a", "timeout -k 5 --signal=KILL 10s | a", "nice -n -5 | a", "ionice -c2 -n 7 | a", "numactl -m 0 --cpunodebind=0 | a",
		"taskset -c 0-3 | a", "stdbuf -oL -e 0 | a", "time -p | a", "setsid -w | a", "sudo -u bob -E A=1 | a", "uv --offline run --with x --extra y -- | a", "poetry run | a",
		"pdm run -p x | a", "pipenv run | a", "hatch -e x run | a", "pixi run -e gpu | a", "conda run -n x --no-capture-output | a", "apptainer exec --nv -B /data x.sif | a",
		"singularity run --nv x.sif | a",
	} {
		words := strings.Fields(line)
		at := slices.Index(words, "|")
		words = slices.Delete(words, at, at+1)
		if w, ok := Known.Unwrap(words); !ok || w.At != at || w.Inner[0] != "a" {
			t.Errorf("%s: %v %d %q", line, ok, w.At, w.Inner)
		}
	}
	for _, line := range []string{"", "a b", "uv pip install torchrun", "uv run", "env", "env A=1", "nice -10 a", "timeout --new 10 a", "conda activate x"} {
		if w, ok := Known.Unwrap(strings.Fields(line)); ok {
			t.Errorf("%s: %q", line, w.Inner)
		}
	}
	behind := Known.SeeThrough(strings.Fields("exec env A=1 B=2 nohup env C=3 a"))
	if diff := cmp.Diff(Environ{"A": "1", "B": "2", "C": "3"}, behind.Env); diff != "" || strings.Join(behind.Typed, " ") != "nohup env C=3 a" {
		t.Errorf("%q\n%s", behind.Typed, diff)
	}
	if seen := Known.SeeThrough([]string{"env", "-i", "a"}); seen.Typed[0] != "env" {
		t.Errorf("env -i is taken off: %q", seen.Typed)
	}
}

// TestProblemsHaveTheirPlace: a problem is of a word of the command line.
func TestProblemsHaveTheirPlace(t *testing.T) {
	for line, want := range map[string]OptionProblem{
		"--standalone --nprox 2 a.py": {Fault: Unknown, At: 1, Option: "--nprox"}, "-r 3 -mZ a.py": {Fault: Unknown, At: 2, Option: "-Z"},
		"--tee": {Fault: NoValue, At: 0, Option: "--tee"}, "-m --role --tee 3 a.py": {Fault: NoValue, At: 1, Option: "--role"},
		"--role x --standalone=1 a.py": {Fault: HasValue, At: 2, Option: "--standalone"}, "--n 2 a.py": {Fault: Ambiguous, At: 0, Option: "--n"},
	} {
		_, err := ReadTorchrun(strings.Fields(line), nil, false)
		var p *OptionProblem
		if !errors.As(err, &p) || p.Fault != want.Fault || p.At != want.At || p.Option != want.Option {
			t.Errorf("%s: %+v (%v), want %+v", line, p, err, want)
		}
	}
	read, err := torchrun.Grammar.Read(strings.Fields("-mr3 --tee=1 --tee 2 a.py -x"))
	if err != nil || read.From != 4 || read.Given[1].At != 0 || !read.Given[1].Attached || read.Given[3].At != 2 || read.Given[3].Attached {
		t.Errorf("%+v, %v", read, err)
	}
	if last, given := read.Last("tee"); !given || last.Value != "2" {
		t.Errorf("--tee has %q", last.Value)
	}
}

func TestStartsRanks(t *testing.T) {
	for line, want := range map[string]string{
		"torchrun a.py": "torchrun", "/opt/bin/torchrun a.py": "torchrun", "accelerate launch a.py": "accelerate launch",
		"accelerate env": "", "accelerate --debug launch": "accelerate launch", "tune run --nproc 2 full": "tune run", "tune ls": "",
		"deepspeed a.py": "deepspeed", "mpirun -n 4 python a.py": "mpirun", "srun python a.py": "srun", "composer a.py": "composer",
		"axolotl train x": "axolotl", "uv run torchrun a.py": "torchrun", "conda run -n deepspeed python a.py": "",
		"nice -n 10 deepspeed a.py": "deepspeed", "uv run a.py deepspeed": "", "uv run python a.py --backend deepspeed": "",
		"uv run python -m torch.distributed.run a.py": "torchrun", "python -W ignore -m torch.distributed.launch a.py": "torch.distributed.launch",
		"python -maccelerate.commands.launch a.py": "accelerate launch", "python /opt/bin/accelerate launch a.py": "accelerate launch",
		"python a.py torchrun": "", "./run.sh torchrun": "", "python": "", "nohup ./run.sh": "", "env A=1 torchrun a.py": "torchrun",
		"python -c x": "", "python -m pkg.train": "",
	} {
		if got := Known.StartsRanks(Program, strings.Fields(line)); got != want {
			t.Errorf("StartsRanks(%q) = %q, want %q", line, got, want)
		}
	}
}

// What a shell is given to run may start ranks; the shell itself is one process.
func TestInShell(t *testing.T) {
	for script, want := range map[string]string{
		"cd x && A=1 torchrun a.py": "torchrun", "echo torchrun": "", "a; accelerate launch b": "accelerate launch", "": "",
		"torchrun a.py 2>&1 | tee log": "torchrun",
	} {
		for _, shell := range []string{"bash -c", "sh -lc", "bash -euo pipefail -c", "bash -o pipefail -c", "zsh -c -e", "bash --norc -c", "/bin/dash -ec", "nice -n 5 bash -x -c", "env A=1 bash --rcfile f -ic"} {
			argv := append(strings.Fields(shell), script)
			if got := Known.InShell(argv); got != want {
				t.Errorf("InShell(%q) = %q, want %q", argv, got, want)
			}
			if got := Known.StartsRanks(Program, argv); got != "" {
				t.Errorf("StartsRanks(%q) = %q", argv, got)
			}
		}
	}
	for _, line := range []string{"bash train.sh torchrun", "bash -e train.sh torchrun", "bash -o pipefail train.sh", "bash", "python bash -c torchrun", "bash -c"} {
		if got := Known.InShell(strings.Fields(line)); got != "" {
			t.Errorf("InShell(%q) = %q", line, got)
		}
	}
}
