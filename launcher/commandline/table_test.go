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
				{Name: "hosts", Means: NodeCount}, {Name: "tpu", Bare: true, Means: Refused}, {Name: "color", Bare: true},
			}},
			Starts: Starts{Ranks: "SWARM_WORKERS", Nodes: "SWARM_HOSTS", Env: map[string]string{"SWARM": "1"}},
		}),
		Wrappers: append(slices.Clone(Known.Wrappers), Wrapper{
			Command: []string{"box", "in"}, Operands: 1, Assignments: true, Grammar: getopt("q quiet", "m mount"),
		}),
	}
	for line, want := range map[string]Inner{
		"swarm start --procs=2 --color train.py --workers 3": {RankStarter: RankStarter{Wrapper: "swarm start"}, Kind: Script, Argv: []string{"train.py", "--workers", "3"}, Ranks: "2", Env: map[string]string{"SWARM": "1"}},
		"/opt/swarm-start -w4 --as-module pkg.train":         {RankStarter: RankStarter{Wrapper: "swarm-start"}, Kind: Module, Argv: []string{"pkg.train"}, Ranks: "4", Env: map[string]string{"SWARM": "1"}},
		"python -m swarm start train.py":                     {RankStarter: RankStarter{Wrapper: "swarm start"}, Kind: Script, Argv: []string{"train.py"}, Ranks: "7", Env: map[string]string{"SWARM": "1"}},
		"python3 -u -m swarm.cli --hosts 1 train.py -- -x":   {RankStarter: RankStarter{Wrapper: "swarm start"}, Kind: Script, Argv: []string{"train.py", "-x"}, Ranks: "7", Env: map[string]string{"SWARM": "1"}},
		"swarm start --hosts 2 train.py":                     {RankStarter: RankStarter{Wrapper: "swarm start"}, Kind: Script, Argv: []string{"train.py"}, Ranks: "7", Env: map[string]string{"SWARM": "1"}},
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

// TestMisplaced: where gpurun belongs in the command lines that start commands
// elsewhere. A bar marks the place; without one it is not certain.
func TestMisplaced(t *testing.T) {
	for _, line := range []string{
		"srun -N2 | python train.py", "srun -N 2 --ntasks-per-node=1 --gres=gpu:8 -p gpu --time 2:00:00 | python -u train.py --lr 1", "srun --exclusive --pty -K1 -l | bash run.sh",
		"srun --new-option=3 --mpi=pmix train", "srun --new-option=3 | ./train.sh", "srun -uN2 -K --kill-on-bad-exit=0 | torchrun a.py", "srun --new-option 3 | python train.py", "srun -N2 -- | a", "srun -N2",
		"salloc -N1 --gpus 8 | python train.py",
		"mpirun --map-by ppr:1:node | python train.py", "mpirun -n 4 --map-by ppr:1:node --bind-to none -H a:4,b:4 -x PATH -mca btl ^openib --mca pml ob1 | python train.py",
		"/opt/bin/mpiexec --allow-run-as-root -map-by ppr:1:node -genv A 1 | uv run a -n", "mpirun --map-by ppr:1:node --unknown 3 a",
		"ssh host | python train.py", "ssh -p 22 -i key -tt me@host | python train.py", "ssh host", "ssh host 'cd_x && python train.py'",
		"docker run --gpus all --rm -it -v a:b -e A=1 --ipc=host image:tag | python train.py", "docker run image", "podman run --device nvidia.com/gpu=all image | torchrun train.py",
		"docker --context x exec -it box | python train.py", "docker compose run --rm service | python train.py", "docker run --never-heard 1 image | train.py", "docker run image a",
		"kubectl exec -it pod -c main -- | python train.py", "kubectl exec pod ls", "kubectl -n ns run x --image y -- | a",
	} {
		words := strings.Fields(strings.ReplaceAll(line, "'cd_x && python train.py'", "cd_x&&"))
		if strings.Contains(line, "&&") {
			words[len(words)-1] = "cd x && python train.py"
		}
		at := slices.Index(words, "|")
		want := ""
		if at >= 0 {
			words = slices.Delete(words, at, at+1)
			want = Quote(slices.Insert(slices.Clone(words), at, "gpurun", "--quiet"))
		}
		m, ok := Known.Misplaced(nil, words, []string{"gpurun", "--quiet"})
		if !ok || m.Line != want || m.Where == "" {
			t.Errorf("%s: %q, %v; want %q", line, m.Line, ok, want)
		}
	}
	for _, line := range []string{"", "python srun", "docker build .", "docker ps", "kubectl get pods", "sshd", "uv run x"} {
		if m, ok := Known.Misplaced(nil, strings.Fields(line), nil); ok {
			t.Errorf("%s: %+v", line, m)
		}
	}
	m, _ := Known.Misplaced([]string{"nohup"}, strings.Fields("srun -N2 python a"), []string{"gpurun"})
	if m.Line != "nohup srun -N2 gpurun python a" {
		t.Errorf("behind a wrapper: %s", m.Line)
	}
}

func TestMisplacedBatch(t *testing.T) {
	own := []string{"gpurun"}
	for _, c := range []struct {
		words        []string
		line, script string
	}{
		{[]string{"sbatch", "-N2", "--time=1:00", "job.sh", "a"}, "", "job.sh"},
		{[]string{"sbatch", "-N2", "--wrap", "python train.py"}, "sbatch -N2 --wrap 'gpurun python train.py'", ""},
		{[]string{"sbatch", "--wrap=python train.py"}, "sbatch '--wrap=gpurun python train.py'", ""},
		{[]string{"sbatch"}, "", ""},
		{[]string{"qsub", "job.sh"}, "", "job.sh"},
		{[]string{"qsub", "-l", "x", "job"}, "", ""},
	} {
		m, ok := Known.Misplaced(nil, c.words, own)
		if !ok || m.Line != c.line || m.Script != c.script || !m.Batch {
			t.Errorf("%q: %q, %q, %v; want %q, %q", c.words, m.Line, m.Script, ok, c.line, c.script)
		}
	}
}

// TestSeeThrough: the command behind wrappers, what of them stays, and with which
// words the interpreter is queried. A bar is before the command.
func TestSeeThrough(t *testing.T) {
	for line, want := range map[string]struct {
		words, inner, ask string
		env, direct       string
	}{
		"python a.py":                                    {"", "python a.py", "", "", ""},
		"nohup python a.py":                              {"nohup", "python a.py", "nohup", "", ""},
		"time -p nice -n 5 python -m p":                  {"time -p nice -n 5", "python -m p", "time -p nice -n 5", "", ""},
		"timeout -k 5 2h uv run --with x python a.py":    {"timeout -k 5 2h uv run --with x", "python a.py", "timeout -k 5 2h uv run --with x", "", ""},
		"env A=1 numactl -N 0 env B=2 stdbuf -oL a":      {"numactl -N 0 stdbuf -oL", "a", "numactl -N 0 stdbuf -oL", "A=1 B=2", ""},
		"env -u X A=1 python a.py":                       {"env -u X A=1", "python a.py", "env -u X A=1", "A=1", ""},
		"uv run a.py --x 1":                              {"uv run", "a.py --x 1", "uv run", "", "direct"},
		"uv run --extra cu a.py":                         {"uv run --extra cu", "a.py", "uv run --extra cu", "", "direct"},
		"uv run -q -m pkg.train --x":                     {"uv run -q", "python -m pkg.train --x", "uv run -q", "", ""},
		"uv run --module pkg.train":                      {"uv run", "python -m pkg.train", "uv run", "", ""},
		"uv run --script tool --x":                       {"uv run --script", "tool --x", "uv run", "", "direct"},
		"uv run https://x.y/a.py":                        {"uv run", "https://x.y/a.py", "uv run", "", ""},
		"uv run torchrun --nproc-per-node 2 a.py":        {"uv run", "torchrun --nproc-per-node 2 a.py", "uv run", "", ""},
		"uv run nohup a.py":                              {"uv run nohup", "a.py", "uv run nohup", "", ""},
		"poetry run python a.py":                         {"poetry run", "python a.py", "poetry run", "", ""},
		"conda run -n x --no-capture-output python a.py": {"conda run -n x --no-capture-output", "python a.py", "conda run -n x --no-capture-output", "", ""},
		"pixi run -e gpu python a.py":                    {"pixi run -e gpu", "python a.py", "pixi run -e gpu", "", ""},
		"pdm run a.py":                                   {"pdm run", "a.py", "pdm run", "", "direct"},
		"apptainer exec --nv x.sif python a.py":          {"apptainer exec --nv x.sif", "python a.py", "apptainer exec --nv x.sif", "", ""},
		"uv run --directory d python a.py":               {"", "uv run --directory d python a.py", "", "", ""},
		"env -i python a.py":                             {"", "env -i python a.py", "", "", ""},
		"nohup env -C d python a.py":                     {"nohup", "env -C d python a.py", "nohup", "", ""},
		"sudo python a.py":                               {"", "sudo python a.py", "", "", ""},
		"uv run --never-heard x a.py":                    {"", "uv run --never-heard x a.py", "", "", ""},
		"uv pip install x":                               {"", "uv pip install x", "", "", ""},
	} {
		s := Known.SeeThrough(strings.Fields(line))
		direct := ""
		if s.Direct {
			direct = "direct"
		}
		join := func(words []string) string { return strings.Join(words, " ") }
		if join(s.Words) != want.words || join(s.Inner) != want.inner || join(s.Ask) != want.ask || direct != want.direct || join(s.Env.Words()) != want.env {
			t.Errorf("%s: %q | %q, asked with %q, %v %s", line, s.Words, s.Inner, s.Ask, s.Env, direct)
		}
	}
	for line, want := range map[string]string{
		"conda run -n x python a.py":       "conda run: it holds the command's output back until the end, without --no-capture-output",
		"conda run --live-stream python a": "",
		"uv run --directory d python a.py": "--directory of uv run starts it in another directory, so gpurun does not read the command after it",
		"sudo python a.py":                 "sudo takes variables of its environment away, so gpurun does not read the command after it: put gpurun between them",
		"nohup python a.py":                "",
	} {
		s := Known.SeeThrough(strings.Fields(line))
		if got := strings.Join(s.Warnings, "; "); got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
	if s := Known.SeeThrough(strings.Fields("timeout 1 uv run a.py")); !s.Environment() || !s.Installs() {
		t.Errorf("%+v", s)
	}
	if s := Known.SeeThrough(strings.Fields("timeout 1 nice a.py")); s.Environment() || s.Installs() {
		t.Errorf("%+v", s)
	}
}
