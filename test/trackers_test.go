package test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// trackedTrainer uses trackers as the frameworks' callbacks do, runs out of memory once, and continues from
// step 2.
const trackedTrainer = `
import os, sys
import mlflow, wandb as w
from tensorboard.compat.proto.event_pb2 import Event
from tensorboard.compat.proto.summary_pb2 import Summary
from tensorboard.summary.writer.event_file_writer import EventFileWriter

size = int(sys.argv[sys.argv.index("--bs") + 1])
first = 1 if size == 8 else 3
run = w.init(project="p")
run.config.update({"bs": size}, allow_val_change=True)
events = EventFileWriter(os.environ["TENSORBOARD_LOGGING_DIR"])
with mlflow.start_run():
    mlflow.log_params({"bs": size})
    for step in range(first, first + 4):
        run.log({"loss": 1 / step, "global_step": step})
        mlflow.log_metrics({"loss": 1 / step}, step=step)
        events.add_event(Event(step=step, wall_time=1000.0 * first + step, summary=Summary(value=[Summary.Value(tag="loss", simple_value=1 / step)])))
events.close()
run.finish()
print("wandb's run", run.id)
if size == 8:
    sys.exit("torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.")
`

// trackedAsked reads the records of MLflow and TensorBoard.
const trackedAsked = `
import glob, mlflow
from tensorboard.backend.event_processing.event_multiplexer import EventMultiplexer

mlflow.set_tracking_uri("sqlite:///mlflow.db")
runs = mlflow.search_runs(filter_string="tags.` + "`gpurun.run`" + ` LIKE 'run-%'", output_format="list", search_all_experiments=True)
print("mlflow", len(runs), len({r.data.tags["gpurun.run"] for r in runs}), sorted(r.data.params["bs"] for r in runs))
board = EventMultiplexer().AddRunsFromDirectory("runs").Reload()
print("tensorboard", [[e.step for e in board.Scalars(name, "loss")] for name in board.Runs()])
`

const trackedRecipe = `name = "mine"
[resume]
env = { WANDB_RUN_ID = "{job}", WANDB_RESUME = "allow", TENSORBOARD_LOGGING_DIR = "runs/{job}" }
[knobs]
micro_batch_size = { arg = "--bs" }
gradient_accumulation_steps = { arg = "--accumulate", default = 1 }
`

const trackedJob = `[job]
script = "train.py"
args = ["--bs", "8"]
recipe = "my.toml"
env = { WANDB_MODE = "offline", WANDB_SILENT = "true", MLFLOW_TRACKING_URI = "sqlite:///mlflow.db" }
[launch]
nproc_per_node = 1
[recovery]
mode = "ladder"
`

// The real trackers show one training: W&B one run, TensorBoard one curve that goes back to the step where
// the job resumed, MLflow runs with the same tag, whose parameters may differ. GPURUN_TEST_TRACKERS is an
// interpreter with these packages.
func TestTrackers(t *testing.T) {
	lab(t)
	interpreter := os.Getenv("GPURUN_TEST_TRACKERS")
	if interpreter == "" {
		interpreter = testenv.Python(t)
	}
	if out, err := osexec.Command(interpreter, "-c", "import mlflow, wandb, tensorboard, sqlalchemy").CombinedOutput(); err != nil {
		t.Skipf("%s lacks trackers: %s", interpreter, out)
	}
	dir := home(t, map[string]string{"train.py": trackedTrainer, "my.toml": trackedRecipe, "train.toml": trackedJob, "ask.py": trackedAsked})
	run := osexec.Command(build(t), "--run-dir", "run", "train.toml")
	run.Dir, run.Env = dir, append(os.Environ(), "PYTHON_EXEC="+interpreter, "WANDB_DIR="+dir)
	out, err := run.CombinedOutput()
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	_, after, _ := strings.Cut(string(out), "wandb's run ")
	name, _, _ := strings.Cut(after, "\n")
	if offline, err := filepath.Glob(filepath.Join(dir, "wandb", "offline-run-*-"+name)); err != nil || len(offline) != 2 || !strings.HasPrefix(name, "run-") {
		t.Errorf("W&B's run %q: %v %v\n%s", name, offline, err, out)
	}
	ask := osexec.Command(interpreter, "ask.py")
	ask.Dir = dir
	answer, err := ask.CombinedOutput()
	want := "mlflow 2 1 ['4', '8']\ntensorboard [[1, 2, 3, 4, 3, 4, 5, 6]]\n"
	if err != nil || !strings.HasSuffix(string(answer), want) {
		t.Errorf("%v\n%s\nwant %s", err, answer, fmt.Sprintf("%q", want))
	}
}
