package commandline

import (
	"slices"
	"strings"
	"testing"
)

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
