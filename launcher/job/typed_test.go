package job

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

// typedAt makes a working directory with what commands may start, and a PATH with
// programs that do nothing.
func typedAt(t *testing.T) (dir string, env []string) {
	t.Helper()
	dir, bin := t.TempDir(), t.TempDir()
	for name, text := range map[string]string{
		"train.py": "", "pkg/train.py": "", "run.sh": "#!/bin/sh\n", "tool": "#!/usr/bin/env python3\n", "plain": "", "deepspeed/__init__.py": "", "a.b": "\x7fELF",
	} {
		put(t, filepath.Join(dir, name), text)
	}
	for _, name := range []string{"python", "python3", "mytrainer", "report", "uv", "plain"} {
		put(t, filepath.Join(bin, name), "#!/bin/sh\n")
	}
	testenv.Check(t, os.Chmod(filepath.Join(dir, "plain"), 0o644))
	return dir, []string{"PATH=" + bin, "HOME=" + dir}
}

// TestTyped: what gpurun makes of the command lines that follow it. The
// words before the bar are what each rank is started through.
func TestTyped(t *testing.T) {
	dir, env := typedAt(t)
	for line, want := range map[string]struct {
		kind  Kind
		argv  string // what it is started through | the job's words
		nproc string
		auto  Auto
	}{
		// As torchrun takes it.
		"train.py --x 1":           {Script, "PY -u | train.py --x 1", "1", AutoDevices},
		"--nproc-per-node 2 plain": {Script, "PY -u | plain", "2", AutoDevices},
		"./tool --x":               {Script, "PY -u | ./tool --x", "1", AutoDevices},
		"-m pkg.train":             {Module, "PY -u -m | pkg.train", "1", AutoDevices},
		"--no-python ./run.sh":     {Program, "| ./run.sh", "1", AutoDevices},
		"-- train.py":              {Script, "PY -u | train.py", "1", AutoDevices},
		// A launcher, an interpreter, any program.
		"torchrun --nproc-per-node 2 train.py --x":            {Script, "PY -u | train.py --x", "2", AutoDevices},
		"/opt/bin/torchrun --nproc-per-node gpu -m pkg.train": {Module, "PY -u -m | pkg.train", "gpu", AutoDevices},
		"python -m torch.distributed.run --nproc 2 train.py":  {Script, "PY -u | train.py", "2", AutoDevices},
		"accelerate launch --num_processes 2 train.py --lr 1": {Script, "PY -u | train.py --lr 1", "2", AutoLauncher},
		"deepspeed --num_gpus 2 train.py --deepspeed ds.json": {Script, "PY -u | train.py --local_rank={local_rank} --deepspeed ds.json", "2", AutoLauncher},
		"trl sft --output_dir o":                              {Module, "PY -u -m | trl.scripts.sft --output_dir o", "auto", AutoLauncher},
		"axolotl train c.yml":                                 {Module, "PY -u -m | axolotl.cli.train c.yml", "auto", AutoLauncher},
		"python train.py --x 1":                               {Script, "PY -u | train.py --x 1", "auto", AutoTyped},
		"python -u -m pkg.train --x":                          {Module, "PY -u -m | pkg.train --x", "auto", AutoTyped},
		"python -W ignore -X dev train.py":                    {Script, "PY -W ignore -X dev -u | train.py", "auto", AutoTyped},
		"python -I train.py":                                  {Program, "| python -I train.py", "auto", AutoTyped},
		"python -c pass":                                      {Program, "| python -c pass", "auto", AutoTyped},
		"mytrainer fit --x":                                   {Program, "| mytrainer fit --x", "auto", AutoTyped},
		"./run.sh --x":                                        {Program, "| ./run.sh --x", "auto", AutoTyped},
		"./a.b":                                               {Program, "| ./a.b", "auto", AutoTyped},
		"sh -c true":                                          {Program, "", "", ""},
		"-- report train.py":                                  {Program, "| report train.py", "auto", AutoTyped},
		"--nproc-per-node 4 python train.py":                  {Script, "PY -u | train.py", "4", AutoScript},
		"--quiet --mode off python train.py":                  {Script, "PY -u | train.py", "auto", AutoTyped},
		// Wrappers.
		"uv run train.py --batch-size 8":                         {Script, "uv run | train.py --batch-size 8", "auto", AutoTyped},
		"uv run --with x python train.py":                        {Script, "uv run --with x python -u | train.py", "auto", AutoTyped},
		"uv run -m pkg.train --x":                                {Module, "uv run python -u -m | pkg.train --x", "auto", AutoTyped},
		"uv run --with x torchrun --nproc-per-node 2 train.py":   {Script, "uv run --with x python -u | train.py", "2", AutoDevices},
		"uv run accelerate launch --num_processes 2 train.py":    {Script, "uv run python -u | train.py", "2", AutoLauncher},
		"uv run trl sft --output_dir o":                          {Module, "uv run python -u -m | trl.scripts.sft --output_dir o", "auto", AutoLauncher},
		"poetry run python3 -O train.py":                         {Script, "poetry run python3 -O -u | train.py", "auto", AutoTyped},
		"conda run -n x --live-stream python train.py":           {Script, "conda run -n x --live-stream python -u | train.py", "auto", AutoTyped},
		"apptainer exec --nv x.sif python train.py":              {Script, "apptainer exec --nv x.sif python -u | train.py", "auto", AutoTyped},
		"apptainer exec x.sif accelerate launch train.py":        {Script, "apptainer exec x.sif python -u | train.py", "auto", AutoLauncher},
		"pixi run train":                                         {Program, "pixi run | train", "auto", AutoTyped},
		"nohup python -m pkg.train":                              {Module, "nohup PY -u -m | pkg.train", "auto", AutoTyped},
		"timeout 2h torchrun --nproc-per-node 2 train.py":        {Script, "timeout 2h PY -u | train.py", "2", AutoDevices},
		"time nice -n 5 numactl -N 0 stdbuf -oL python train.py": {Script, "time nice -n 5 numactl -N 0 stdbuf -oL PY -u | train.py", "auto", AutoTyped},
		"env A=1 python train.py":                                {Script, "PY -u | train.py", "auto", AutoTyped},
		"env -u B A=1 python train.py":                           {Script, "env -u B A=1 PY -u | train.py", "auto", AutoTyped},
		"nohup ./run.sh x":                                       {Program, "nohup | ./run.sh x", "auto", AutoTyped},
	} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		if want.argv == "" {
			if err == nil {
				t.Errorf("%s: %q, want that there is no such program", line, j.Argv)
			}
			continue
		}
		if err != nil {
			t.Errorf("%s: %v (%s)", line, err, errext.Hint(err))
			continue
		}
		got := strings.Join(append(append(j.start("PY"), "|"), j.Argv...), " ")
		if j.Kind != want.kind || got != want.argv || j.Launch.NprocPerNode != want.nproc || j.Launch.Auto != want.auto {
			t.Errorf("%s: %s %q, %s ranks (%s); want %+v", line, j.Kind, got, j.Launch.NprocPerNode, j.Launch.Auto, want)
		}
		if words := j.origin.words; words[0] != "gpurun" || strings.Join(words[1:], " ") != line {
			t.Errorf("%s: it was typed as %q", line, words)
		}
		if strings.HasPrefix(line, "env ") && j.Env["A"] != "1" {
			t.Errorf("%s: %v", line, j.Env)
		}
	}
}

func TestTypedRefuses(t *testing.T) {
	dir, env := typedAt(t)
	for line, want := range map[string]struct{ message, hint string }{
		"srun -N2 python train.py":                    {"gpurun cannot run in front of srun", "srun -N2 gpurun python train.py"},
		"--mode off srun -N2 python train.py":         {"srun", "srun -N2 gpurun --mode off python train.py"},
		"--run-dir a_b srun python train.py":          {"srun", "srun gpurun --run-dir a_b python train.py"},
		"nohup srun -N2 python train.py":              {"srun", "nohup srun -N2 gpurun python train.py"},
		"mpirun -np 4 python train.py":                {"mpirun", "mpirun --map-by ppr:1:node gpurun torchrun …"},
		"mpirun --map-by ppr:1:node python train.py":  {"mpirun", "mpirun --map-by ppr:1:node gpurun python train.py"},
		"sbatch -N2 job.sh":                           {"sbatch", "put gpurun into job.sh, in front of the command that trains, and type: sbatch -N2 job.sh"},
		"sbatch --wrap train":                         {"sbatch", "sbatch --wrap 'gpurun train'"},
		"ssh host python train.py":                    {"ssh", "ssh host gpurun python train.py"},
		"docker run --gpus all image python train.py": {"gpurun has to be in the image", "docker run --gpus all image gpurun python train.py"},
		"podman run image":                            {"podman run", "put gpurun behind podman run and its options"},
		"kubectl exec -it pod -- python train.py":     {"kubectl exec", "kubectl exec -it pod -- gpurun python train.py"},
		"--quiet report":                              {"report is a verb of gpurun: put it before the flags", "gpurun -- report …"},
		"--quiet plan train.py":                       {"plan is a verb", "give the verb first"},
		"none.py":                                     {"none.py does not exist", ""},
		"nosuch train.py":                             {"nosuch does not exist", "no script or program of that name was found"},
		"deepspeed none.py":                           {"none.py does not exist", ""},
		"A=1 python train.py":                         {"A=1 does not exist", "write variables in front of gpurun: A=… gpurun …"},
		"run.sh":                                      {"run.sh is a shell script", "gpurun ./…"},
		"python":                                      {"python would wait for input", "name the script"},
		"uv run torchrun":                             {"no script or train.toml was given", ""},
		"horovodrun -np 2 python train.py":            {"horovodrun starts its own ranks", `put the command into a train.toml: job.command, and launch.ranks = "self"`},
		"bash -c torchrun_x":                          {"bash does not exist", ""},
		"--nproc-per-node 2 torchrun train.py":        {"--nproc-per-node is before torchrun", "after torchrun"},
		"--nproc-per-node 2 accelerate launch --num_processes 4 train.py": {"--nproc-per-node contradicts the launcher's number of ranks", "keep one"},
		"--python /x/python python train.py":                              {"--python contradicts the command, which names python", "keep one"},
		"--python /x/python uv run train.py":                              {"--python contradicts the command, which names uv run python", "keep one"},
		"torchrun --nnodes 2:4 train.py":                                  {"--nnodes=2:4: gpurun wants a fixed number of nodes", "give the number"},
		"--mode lader python train.py":                                    {`--mode: unknown value "lader"`, "did you mean ladder?"},
		"--mode x python train.py":                                        {`--mode: unknown value "x"`, `"predict", "ladder" or "off"`},
		"--numerics mixed python train.py":                                {`--numerics: unknown value "mixed"`, "did you mean mixed-precision?"},
		"--never micro_batch python train.py":                             {`--never: "micro_batch" is neither a remedy nor a knob`, "did you mean micro-batch?"},
		"--never nvme, python train.py":                                   {`--never: "" is neither`, ""},
		"--max-attempts 0 python train.py":                                {`--max-attempts: "0" is not a number of attempts`, "from 1"},
		"--device-memory 24G python train.py":                             {"--device-memory: ", "24GiB"},
		"--mode":                                                          {"--mode needs a value", ""},
	} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		if err == nil {
			t.Errorf("%s: %q, want an error", line, j.Argv)
			continue
		}
		if !strings.Contains(err.Error(), want.message) || !strings.Contains(errext.Hint(err), want.hint) {
			t.Errorf("%s: %q, hint %q; want %q and %q", line, err, errext.Hint(err), want.message, want.hint)
		}
	}
	if _, _, err := Open(t.Context(), []string{"torchrun", "--help"}, env, dir); !errors.Is(err, ErrHelp) {
		t.Errorf("torchrun --help: %v", err)
	}
}

// A job is named by its script, whatever runs it.
func TestTypedName(t *testing.T) {
	dir, env := typedAt(t)
	bin := strings.TrimPrefix(env[0], "PATH=")
	put(t, filepath.Join(bin, "bash"), "#!/bin/sh\n")
	for line, want := range map[string]string{"bash run.sh x": "run", "bash -c true": "bash", "./run.sh": "run", "uv run train.py": "train", "python -m pkg.train": "pkg.train", "mytrainer fit": "mytrainer"} {
		if j, _, err := Open(t.Context(), strings.Fields(line), env, dir); err != nil || j.Name != want {
			t.Errorf("%s: %v, %+v, want %s", line, err, j, want)
		}
	}
}

// torchrun's variables count where torchrun is typed, and nowhere else.
func TestTypedVariables(t *testing.T) {
	dir, env := typedAt(t)
	env = append(env, "PET_NPROC_PER_NODE=3", "TORCH_ELASTIC_SHUTDOWN_TIMEOUT=7", "OMP_NUM_THREADS=4")
	for line, want := range map[string]string{"torchrun train.py": "3", "train.py": "3", "python train.py": "auto", "env PET_NPROC_PER_NODE=2 torchrun train.py": "2"} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		if err != nil || j.Launch.NprocPerNode != want || j.Launch.ShutdownTimeout.Seconds() != 7 {
			t.Errorf("%s: %v, %+v; want %s ranks", line, err, j, want)
		}
	}
	if _, _, err := Open(t.Context(), []string{"python", "train.py"}, append(env, "PET_NNODES=4"), dir); err != nil {
		t.Errorf("PET_NNODES and plain python: %v", err)
	}
	// What the launcher sets, it sets over what is exported.
	j, _, err := Open(t.Context(), strings.Fields("accelerate launch --num_cpu_threads_per_process 2 train.py"), env, dir)
	if err != nil || j.Env["OMP_NUM_THREADS"] != "2" {
		t.Errorf("accelerate launch: %v, %v", err, j.Env)
	}
}

// Each command is a job of its own, and one behind wrappers is the same whoever finds
// the script in it.
func TestTypedDigest(t *testing.T) {
	dir, env := typedAt(t)
	seen := map[[2]string]string{}
	for _, line := range []string{"python train.py", "python -O train.py", "uv run train.py", "uv run python train.py", "uv run --with x python train.py", "nohup python train.py", "python -m pkg.train"} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		testenv.Check(t, err)
		if other, same := seen[j.digests]; same {
			t.Errorf("%s and %s have one digest", line, other)
		}
		seen[j.digests] = line
	}
	file := filepath.Join(dir, "train.toml")
	put(t, file, "[job]\ncommand = \"nohup uv run python train.py\"\n")
	j, err := Load(file, nil)
	testenv.Check(t, err)
	// As where the whole is a program.
	program := &Job{Kind: Program, Argv: []string{"nohup", "uv", "run", "python", "train.py"}, Workdir: dir, Launch: LaunchSettings{RankOptions: commandline.RankOptions{NprocPerNode: "auto"}}}
	if want := short([]byte(digest(program))); j.digests[0] != want {
		t.Errorf("the digest is %s, want %s", j.digests[0], want)
	}
}

// Prepared gives the probe the command behind the wrappers.
func TestCommandOfARank(t *testing.T) {
	dir, env := typedAt(t)
	for line, want := range map[string][2]string{
		"uv run train.py": {filepath.Join(dir, "train.py"), ""}, "nohup python -m pkg.train": {"", "pkg.train"}, "poetry run python ./train.py": {filepath.Join(dir, "train.py"), ""},
		"./run.sh": {"", ""}, "pixi run train": {"", ""},
	} {
		j, _, err := Open(t.Context(), strings.Fields(line), env, dir)
		testenv.Check(t, err)
		p := &Prepared{Resolved: Resolved{Inspected: Inspected{Job: *j}}}
		if got := [2]string{p.RankScript(), p.RankModule()}; got != want {
			t.Errorf("%s: %q, want %q", line, got, want)
		}
	}
}

// A pseudo-terminal would make nohup write to a file.
func TestNohupGetsNoTerminal(t *testing.T) {
	dir, env := typedAt(t)
	j, _, err := Open(t.Context(), strings.Fields("timeout 5 nohup python train.py"), env, dir)
	if err != nil || j.Launch.TTY != "never" || len(j.Warnings) != 1 || !strings.Contains(j.Warnings[0], "write nohup gpurun …") {
		t.Errorf("%v: %s, %q", err, j.Launch.TTY, j.Warnings)
	}
}

// Variables of a command are those of the job, then gpurun's, and the job stays the
// same whatever they are.
func TestCommandVariables(t *testing.T) {
	dir, env := typedAt(t)
	file := filepath.Join(dir, "train.toml")
	put(t, file, "[job]\ncommand = \"OUT=$OUT torchrun --nproc-per-node ${N:-2} train.py --lr $LR $MORE \\\"$MORE\\\" '$LR'\"\nenv = { LR = \"1\" }\n")
	open := func(more ...string) *Job {
		t.Helper()
		j, _, err := Open(t.Context(), []string{file}, append(append([]string{}, env...), more...), dir)
		testenv.Check(t, err)
		return j
	}
	j := open("LR=2", "MORE=--a b*", "OUT=/o p")
	if diff := cmp.Diff([]string{"train.py", "--lr", "1", "--a", "b*", "--a b*", "$LR"}, j.Argv); diff != "" {
		t.Error(diff)
	}
	if j.Env["OUT"] != "/o p" || j.Launch.NprocPerNode != "2" {
		t.Errorf("%v, %s ranks", j.Env, j.Launch.NprocPerNode)
	}
	other := open("MORE=x", "OUT=", "N=4")
	if other.Launch.NprocPerNode != "4" || other.digests != j.digests {
		t.Errorf("with other values: %s ranks, digest %s and %s", other.Launch.NprocPerNode, other.digests, j.digests)
	}
	_, _, err := Open(t.Context(), []string{file}, append(env, "OUT=x"), dir)
	if err == nil || !strings.Contains(err.Error(), "job.command: $MORE is not set; set it in job.env or in gpurun's environment, or write ${MORE:-value}") {
		t.Errorf("an unset variable: %v", err)
	}
}

// A program that pip has made runs on the Python of its environment, and not on the one
// that is active.
func TestAProgramOfAnEnvironment(t *testing.T) {
	dir, env := typedAt(t)
	own := filepath.Join(dir, "venv/bin/python3")
	put(t, own, "#!/bin/sh\n")
	put(t, filepath.Join(dir, "venv/bin/mytool"), "#!"+own+"\nimport sys\n")
	for words, want := range map[string]string{"venv/bin/mytool --x": own, "--python /other/python venv/bin/mytool --x": "/other/python"} {
		j, _, err := Open(t.Context(), strings.Fields(words), env, dir)
		if err != nil || j.Python != want {
			t.Errorf("%s: %+v, %v, want the interpreter %s", words, j, err, want)
		}
	}
}

// TestShellScriptsWithoutAFirstLine: the shell in which a line is typed runs a script that does not say what runs it.
func TestShellScriptsWithoutAFirstLine(t *testing.T) {
	dir, env := typedAt(t)
	put(t, filepath.Join(dir, "go.sh"), "echo python3 train.py\n")
	put(t, filepath.Join(dir, "train.toml"), "[job]\ncommand = \"./go.sh --lr 1\"\n")
	for _, line := range []string{"./go.sh --lr 1", "env A=1 ./go.sh --lr 1", "train.toml"} {
		p, err := prepared(t, dir, machine(dir, env...), strings.Fields(line)...)
		if err != nil {
			t.Fatalf("%s: %v", line, err)
		}
		if got := strings.Join(p.Job.Argv, " "); got != "bash ./go.sh --lr 1" && got != "sh ./go.sh --lr 1" || !p.OwnRanks {
			t.Errorf("%s: %s, %+v", line, got, p.OwnRanks)
		}
	}
}

// TestOff: where gpurun is off, the command after it is executed unchanged.
func TestOff(t *testing.T) {
	dir, env := typedAt(t)
	bin := filepath.Dir(strings.TrimPrefix(env[0], "PATH=") + "/x")
	if off, err := Off([]string{"python", "train.py"}, env, dir); off != nil || err != nil {
		t.Errorf("without the variable: %v, %v", off, err)
	}
	env = append(env, "GPURUN=off")
	python3 := filepath.Join(bin, "python3")
	for line, want := range map[string]string{
		"python train.py --x 1":                          "python train.py --x 1",
		"--quiet --mode off --run-dir x uv run a.py":     "uv run a.py",
		"env -- A=1 python x":                            "",
		"-- report --json":                               "report --json",
		"./run.sh":                                       "./run.sh",
		"train.py --x":                                   python3 + " -m torch.distributed.run train.py --x",
		"--nproc-per-node 2 --json -m pkg.train --x":     python3 + " -m torch.distributed.run --nproc-per-node 2 -m pkg.train --x",
		"--python python3 --tee=3 --never nvme train.py": python3 + " -m torch.distributed.run --tee=3 train.py",
		"--no-python ./run.sh x":                         python3 + " -m torch.distributed.run --no-python ./run.sh x",
	} {
		off, err := Off(strings.Fields(line), env, dir)
		if want == "" {
			if err == nil || !strings.Contains(err.Error(), "env is in no folder of PATH") {
				t.Errorf("%s: %v, %v", line, off, err)
			}
			continue
		}
		if err != nil || strings.Join(off.Argv, " ") != want || !filepath.IsAbs(off.Path) {
			t.Errorf("%s: %+v, %v; want %s", line, off, err, want)
		}
	}
	put(t, filepath.Join(bin, "torchrun"), "#!/bin/sh\n")
	if off, err := Off(strings.Fields("--json --nproc-per-node=2 train.py"), env, dir); err != nil || strings.Join(off.Argv, " ") != "torchrun --nproc-per-node=2 train.py" {
		t.Errorf("with torchrun: %+v, %v", off, err)
	}
	for line, want := range map[string]string{
		"train.toml": "GPURUN=off: train.toml is a file for gpurun", "--quiet report": "report is a verb", "--nonsense python x": "unknown flag --nonsense",
	} {
		if off, err := Off(strings.Fields(line), env, dir); err == nil || !strings.Contains(err.Error(), want) || errext.Hint(err) == "" {
			t.Errorf("%s: %v, %v, want %s", line, off, err, want)
		}
	}
}

func TestTrainFile(t *testing.T) {
	for line, want := range map[string]Own{
		"--json a.toml":                          {JSON: true},
		"a.toml --json --run-dir x":              {JSON: true, RunDir: "x"},
		"--quiet a.toml --propagate-exit-code":   {Quiet: true, Propagate: true},
		"--run-dir x a.toml --run-dir=y --quiet": {RunDir: "y", Quiet: true},
	} {
		file, own, err := TrainFile(strings.Fields(line), nil)
		if err != nil || file != "a.toml" || own != want {
			t.Errorf("%s: %q, %+v, %v", line, file, own, err)
		}
	}
	for line, want := range map[string]string{
		"a.toml b":                     `unexpected argument "b" after a.toml`,
		"a.toml --json b":              `unexpected argument "b" after a.toml`,
		"a.toml --lr 3":                `unexpected argument "--lr" after a.toml`,
		"a.toml --nproc-per-node 2":    "--nproc-per-node goes with a script",
		"--nproc-per-node 2 a.toml":    "--nproc-per-node goes with a script",
		"a.toml --run-dir":             `unexpected argument "--run-dir" after a.toml`,
		"--json a.toml --quiet -- one": `unexpected argument "one" after a.toml`,
	} {
		if file, _, err := TrainFile(strings.Fields(line), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want an error with %q", line, file, err, want)
		}
	}
	if file, _, err := TrainFile([]string{"A.TOML"}, nil); file != "A.TOML" || err != nil {
		t.Errorf("A.TOML: %q, %v", file, err)
	}
	// After a script, everything is the script's.
	if file, own, err := TrainFile([]string{"a.py", "--json"}, nil); file != "" || own.JSON || err != nil {
		t.Errorf("a script's own --json: %q, %+v, %v", file, own, err)
	}
}

// A flag of torchrun's beside a train.toml gets the key that the file has for it.
func TestFlagBesideFileNamesItsKey(t *testing.T) {
	for line, want := range map[string]string{
		"--python /usr/bin/python3 a.toml": "set job.python in a.toml",
		"--nproc-per-node 2 a.toml":        "set launch.nproc_per_node in a.toml",
		"--rdzv-backend c10d a.toml":       `write job.command = "torchrun --rdzv-backend …" in a.toml`,
	} {
		_, _, err := TrainFile(strings.Fields(line), nil)
		if hint := errext.Hint(err); hint != want {
			t.Errorf("%s: %v, hint %q, want %q", line, err, hint, want)
		}
	}
}

func TestStartable(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "plain": 0o644} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), nil, mode))
	}
	testenv.Check(t, os.Mkdir(filepath.Join(dir, "folder"), 0o755))
	for program, want := range map[string]string{
		"./run": "", "run": "", "./plain": "not executable", "./none": "does not exist", "none": "in no folder of PATH", "./folder": "not a program",
	} {
		err := Startable(&Job{Kind: Program, Argv: []string{program}, Workdir: dir}, []string{"PATH=/none:" + dir})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", program, err, want)
		}
	}
	if err := Startable(&Job{Kind: Script, Argv: []string{"none.py"}, Workdir: dir}, nil); err != nil {
		t.Errorf("a script: %v", err)
	}
}

// The three entries, without other settings: Open takes one of them.

// Load reads a train.toml.
func Load(path string, hook frameworkHook, checks ...Check) (*Job, error) {
	return load(path, base{job: defaults(), hook: hook}, checks...)
}

// FromArgs reads a command line as torchrun takes it.
func FromArgs(args, env []string, dir string) (*Job, error) {
	return fromArgs(args, commandline.ParseEnviron(env), dir, defaults())
}

// TrainFile distinguishes a train.toml from everything else.
func TrainFile(args, env []string) (file string, own Own, err error) {
	t, err := readTyped(args, commandline.ParseEnviron(env), "")
	if err != nil {
		return "", own, err
	}
	return t.trainFile()
}

// FuzzCommand holds that no line makes job.command panic, and that a line which
// is refused is refused with a word.
func FuzzCommand(f *testing.F) {
	for _, line := range []string{`A=1 torchrun --nproc-per-node 2 train.py "a b" 'c'\ d`, "a \\\n b", `x && y`, `"\`, "env A=1", "exec exec", "python -m", "nohup uv run $A ${B:-c d} \"$UNSET\""} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if _, err := commandFrom(line, words{}, func(name string) (string, bool) { return name, name != "UNSET" }); err != nil && err.Error() == "" {
			t.Errorf("%q is refused without a word", line)
		}
	})
}
