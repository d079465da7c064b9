package test

import (
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// namedPython returns the interpreter that a variable names. Without it the test is skipped.
func namedPython(t *testing.T, variable string) string {
	t.Helper()
	python := os.Getenv(variable)
	if python == "" {
		t.Skipf("%s names no interpreter", variable)
	}
	return python
}

// TestSlurmSubmitit submits the example for submitit. When the job's time ends, the ranks end with gpurun, submitit
// requeues the job, and the run continues.
func TestSlurmSubmitit(t *testing.T) {
	lab(t)
	python := namedPython(t, "GPURUN_TEST_SUBMITIT")
	s := openSlurm(t)
	j := s.nodesJob(t, "submitit")
	script := contents(t, filepath.Join(testenv.Root(t), "examples", "slurm"))["submit.py"]
	j.write(t, "submit.py", strings.NewReplacer("nodes=4", "nodes=3", "gpus_per_node=8", `mem="100MB"`).Replace(script))
	j.write(t, "train.toml", strings.Replace(nodesTOML, "nproc_per_node = 1", "nproc_per_node = 1\nnotice_grace = \"1s\"", 1))
	out := j.x(t, "cd "+j.there+"; export PATH=$PATH:"+s.there+" XDG_STATE_HOME="+j.there+"/state "+crewMark+j.here+"; "+python+" submit.py")
	j.id = strings.TrimSpace(out)
	t.Cleanup(func() {
		_ = j.do("x", "scancel "+j.id).Run() // it has ended, or the test has
		if t.Failed() {
			t.Log(j.x(t, "cd "+j.there+"; tail -n 200 log/*_log.*"))
		}
	})
	j.steps(t)
	j.x(t, "scancel -s USR2 "+j.id)
	await(t, "the requeue", func() bool { return j.field(t, "Restarts") == "1" })
	rest(t, j.here)
	await(t, "the end", func() bool { return j.field(t, "JobState") == "COMPLETED" })
	v := j.verdict(t)
	if v.Code != 0 || len(v.Attempts) != 3 || v.Attempts[1].Cause != "preempted" || v.Attempts[2].Plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("%+v", v)
	}
}

// lightningTrainer trains with Lightning, endlessly while the file "more" is there.
const lightningTrainer = `import os, sys, time
import torch
import lightning as L
from lightning.pytorch.plugins.environments import SLURMEnvironment


class Model(L.LightningModule):
    def __init__(self):
        super().__init__()
        self.layer = torch.nn.Linear(4, 1)

    def training_step(self, batch, i):
        time.sleep(0.1)
        if self.global_step == 2:
            open(f"rank{self.global_rank}", "w").write(f"{os.getpid()}\n")
        self.trainer.should_stop = self.global_step >= 3 and not os.path.exists("more")
        print("step", self.global_step, flush=True)
        return self.layer(batch[0]).mean()

    def configure_optimizers(self):
        return torch.optim.SGD(self.parameters(), lr=0.1)


data = torch.utils.data.TensorDataset(torch.randn(4000, 4))
trainer = L.Trainer(accelerator="cpu", devices=1, num_nodes=3, strategy="ddp", max_epochs=100, default_root_dir="root", logger=False, enable_progress_bar=False,
                    enable_checkpointing=False, plugins=[SLURMEnvironment()] if "slurm" in sys.argv else [])
environment = type(trainer._accelerator_connector.cluster_environment).__name__
print("environment", environment, "rank", trainer.global_rank, "of", trainer.world_size, flush=True)
trainer.fit(Model(), torch.utils.data.DataLoader(data, batch_size=4))
print("trained to step", trainer.global_step, flush=True)
`

// TestSlurmLightning trains with Lightning on three nodes: with the environment that it chooses itself, torchrun's, and
// with its plugin for Slurm, which saves and requeues the job after SIGUSR1. The run continues in both cases.
func TestSlurmLightning(t *testing.T) {
	lab(t)
	python := namedPython(t, "GPURUN_TEST_LIGHTNING")
	s := openSlurm(t)
	for plugin, environment := range map[string]string{"none": "TorchElasticEnvironment", "slurm": "SLURMEnvironment"} {
		t.Run(plugin, func(t *testing.T) {
			j := s.nodesJob(t, "lightning "+plugin)
			j.write(t, "train.py", lightningTrainer)
			j.write(t, "train.toml", "[job]\nscript = \"train.py\"\nargs = [\""+plugin+"\"]\n[launch]\nnproc_per_node = 1\nnotice_grace = \"1s\"\n[progress]\nstep = 'step (\\d+)'\n")
			j.prelude = "export PYTHON_EXEC=" + python + "\n"
			j.launch(t, "--time=10", `trap "" USR1; srun --mpi=pmi2 -l sh -c 'trap "" USR1; . ./each.sh'`)
			j.steps(t)
			j.x(t, "scancel -s USR1 "+j.id)
			await(t, "the requeue", func() bool { return j.field(t, "Restarts") == "1" })
			rest(t, j.here)
			j.await(t, `=== code 0`)
			if v := j.verdict(t); v.Code != 0 || len(v.Attempts) != 2 {
				t.Errorf("%+v", v)
			}
			log := j.x(t, "cd "+j.there+"; cat .gpurun/train/*/attempt-*/rank*/std*.log .gpurun/train/*/attempt-*/node-*/rank*/std*.log")
			for _, rank := range []string{"0", "1", "2"} {
				if n := len(regexp.MustCompile(`environment `+environment+` rank `+rank+` of 3\n`).FindAllString(log, -1)); n != 2 {
					t.Errorf("%s: rank %s started %d times\n%s", environment, rank, n, log)
				}
			}
		})
	}
}
