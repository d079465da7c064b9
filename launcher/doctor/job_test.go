package doctor

import (
	"context"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

// jobOf is a patient with the job of a train.toml beside a script.
func jobOf(t *testing.T, toml, interpreter string) (*patient, error) {
	t.Helper()
	dir := t.TempDir()
	for name, text := range map[string]string{"train.toml": toml, "train.py": "print(1)\n"} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600))
	}
	p := onPaper(t, nil)
	p.dir, p.environ = dir, p.env.With(map[string]string{"PYTHON_EXEC": interpreter, "XDG_CONFIG_HOME": os.DevNull, "CUDA_VISIBLE_DEVICES": ""}).Words()
	p.env = commandline.ParseEnviron(p.environ)
	err := p.read(t.Context(), filepath.Join(dir, "train.toml"))
	if err == nil {
		p.findPython()
	}
	return p, err
}

// What a train.toml says is looked at: its interpreter, folders and ranks.
func TestJob(t *testing.T) {
	p, err := jobOf(t, "[job]\nscript = \"train.py\"\nname = \"x\"\n[launch]\nnproc_per_node = 2\n[recovery]\nnvme_path = \"/no/such/nvme\"\n[resume]\nlatest = \"out/ckpt-*\"\nargs = [\"--resume\", \"{latest}\"]\n[knobs]\nmicro_batch_size = { arg = \"--b\", default = 4 }\n", anyPython(t))
	testenv.Check(t, err)
	wants(t, resultOf(t, p, "train.toml"), OK, "x: recipe [knobs], 2 ranks", "")
	wants(t, resultOf(t, p, "speed"), Problem, "/no/such/nvme", "nvme_path")
	wants(t, interpreter(t.Context(), p), OK, "(the job's)", "")
	if r := checkpoints(t.Context(), p); r.State == Skipped || r.State == Problem {
		t.Errorf("%+v", r)
	}
	if want := filepath.Join(p.job.Workdir, ".gpurun", "x"); p.runDir != want || p.ranks() != 2 {
		t.Errorf("%s with %d ranks, want %s", p.runDir, p.ranks(), want)
	}
	wants(t, resultOf(t, onPaper(t, nil), "train.toml"), Skipped, "train.toml", "")
	wants(t, checkpoints(t.Context(), onPaper(t, nil)), Skipped, "train.toml", "")
}

// A job that cannot be prepared is a problem; what is wrong with its file is an error.
func TestJobThatCannotStart(t *testing.T) {
	p, err := jobOf(t, "[job]\nscript = \"train.py\"\n", "/nowhere/python")
	testenv.Check(t, err)
	wants(t, resultOf(t, p, "train.toml"), Problem, "/nowhere/python does not exist", "name an interpreter")
	wants(t, interpreter(t.Context(), p), Problem, "/nowhere/python does not exist", "name an interpreter")

	p.environ = append(p.environ, "PET_NNODES=2:4")
	testenv.Check(t, p.read(t.Context(), p.job.Path))
	wants(t, resultOf(t, p, "train.toml"), Problem, "gpurun wants a fixed number of nodes", "give the number of nodes")

	if p, err = jobOf(t, "[job]\nprogram = [\"no-such-program\"]\n", anyPython(t)); err != nil {
		t.Fatal(err)
	}
	wants(t, resultOf(t, p, "train.toml"), Problem, "no-such-program", "")
	wants(t, interpreter(t.Context(), p), Skipped, "a program", "")
	wants(t, resultOf(t, p, "torch"), Skipped, "a program", "")

	if _, err = jobOf(t, "[job]\nscrip = 1\n", anyPython(t)); err == nil {
		t.Error("a wrong train.toml is no error")
	}
}

// A warning of the job's is one.
func TestJobWithWarnings(t *testing.T) {
	p, err := jobOf(t, "[job]\nscript = \"train.py\"\nenv = { RANK = \"3\" }\n[launch]\nnproc_per_node = 2\n", anyPython(t))
	testenv.Check(t, err)
	wants(t, resultOf(t, p, "train.toml"), Warning, "RANK", "gpurun plan")
}

// A signal ends an examination, with its exit code.
func TestStopped(t *testing.T) {
	ctx, cancel := context.WithCancelCause(t.Context())
	if err := stopped(ctx); err != nil {
		t.Error(err)
	}
	cancel(&launcher.Signal{Number: syscall.SIGINT})
	if err := stopped(ctx); errext.Code(err, 0) != 130 {
		t.Errorf("%v, code %d", err, errext.Code(err, 0))
	}
}

func TestPlace(t *testing.T) {
	for _, c := range []struct {
		environ    []string
		state      CheckStatus
		found, fix string
	}{
		{nil, OK, "a plain host", ""},
		{[]string{"KUBERNETES_SERVICE_HOST=10.0.0.1"}, OK, "kubernetes via KUBERNETES_SERVICE_HOST", ""},
		{[]string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1", "SLURM_JOB_NODELIST=n1"}, OK, "slurm-batch job=7 (n1) via SLURM_JOB_NODELIST", ""},
		{[]string{"SLURM_JOB_ID=7", "SLURM_JOB_NODELIST=n[1-2]"}, Problem, "this machine is not part of Slurm job 7", "srun --mpi=pmi2 --nodes=2"},
		{[]string{"PET_NNODES=many"}, Problem, `PET_NNODES="many" is not a whole number`, "unset it"},
	} {
		p := onPaper(t, nil)
		p.environ = c.environ
		wants(t, place(t.Context(), p), c.state, c.found, c.fix)
	}
}

func TestTime(t *testing.T) {
	t.Setenv("PATH", t.TempDir()) // no scontrol: the variables have to do
	slurm := func(end time.Time, more ...string) *patient {
		p := onPaper(t, nil)
		p.environ = append([]string{"SLURM_JOB_ID=7", "SLURMD_NODENAME=n1", "SLURM_JOB_NODELIST=n1", fmt.Sprintf("SLURM_JOB_END_TIME=%d", end.Unix())}, more...)
		return p
	}
	now := time.Now()
	wants(t, timeLeft(t.Context(), onPaper(t, nil)), Skipped, "no scheduler", "")
	wants(t, timeLeft(t.Context(), slurm(now.Add(10*time.Minute))), Warning, "until ", "--time")
	wants(t, timeLeft(t.Context(), slurm(now.Add(5*time.Hour))), Warning, "5h0m0s from now, and not started again", "--requeue")
	wants(t, timeLeft(t.Context(), slurm(now.Add(5*time.Hour), "SLURM_RESTART_COUNT=1")), OK, "and started again", "")
	wants(t, timeLeft(t.Context(), slurm(time.Unix(0, 0))), OK, "no end is known", "")
}

// A job whose PyTorch is for the CPU, or that hides the GPUs itself, lacks none.
func TestAJobForTheCPU(t *testing.T) {
	p, err := jobOf(t, "[job]\nscript = \"train.py\"\nenv = { CUDA_VISIBLE_DEVICES = \"\" }\n", anyPython(t))
	testenv.Check(t, err)
	wants(t, devices(t.Context(), p), OK, "trains on the CPU", "")
	wants(t, devices(t.Context(), onPaper(t, nil)), Warning, "none", "--gpus")
	if p, err = jobOf(t, "[job]\nscript = \"train.py\"\n", anyPython(t)); err != nil {
		t.Fatal(err)
	}
	for cuda, want := range map[string]CheckStatus{"": OK, "12.4": Warning} {
		p.torch = func() (torchFacts, error) { return torchFacts{Torch: "2.9.0", CUDA: cuda}, nil }
		if r := devices(t.Context(), p); r.State != want {
			t.Errorf("torch for CUDA %q: %+v", cuda, r)
		}
	}
}

// Checkpoints need room by what the newest one takes.
func TestRoomForCheckpoints(t *testing.T) {
	p, err := jobOf(t, "[job]\nscript = \"train.py\"\n[resume]\nlatest = \"out/ckpt-*\"\nargs = [\"--resume\", \"{latest}\"]\n", anyPython(t))
	testenv.Check(t, err)
	path := filepath.Join(p.dir, "out", "ckpt-1")
	testenv.Check(t, os.MkdirAll(path, 0o700))
	f, err := os.Create(filepath.Join(path, "model.bin"))
	testenv.Check(t, err)
	defer f.Close()
	for bytes, want := range map[int64]CheckStatus{1 << 10: OK, 1 << 42: Warning} { // a file with a hole
		testenv.Check(t, f.Truncate(bytes))
		if r := checkpoints(t.Context(), p); r.State != want {
			t.Errorf("of %d bytes: %+v", bytes, r)
		}
	}
}
