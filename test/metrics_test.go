package test

import (
	"encoding/json"
	"fmt"
	"io"
	"net"
	"net/http"
	"net/url"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/test/testenv"
)

const scrapedJob = `[job]
name = "gpt"
program = ["sh", "train.sh", "--bs", "8"]
[launch]
nproc_per_node = 2
[recovery]
mode = "ladder"
[knobs]
micro_batch_size = { arg = "--bs" }
gradient_accumulation_steps = { arg = "--accumulate", default = 1 }
[progress]
step = 'step (?P<step>\d+)/(?P<total>\d+)'
[metrics]
textfile = "text/gpurun-{job}.prom"
listen = "%s"
`

const scrapedTrainer = `case "$*" in *"--bs 8"*)
	echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.' >&2
	exit 1
esac
n=0
until [ -e go ]; do n=$((n + 1)); echo "step $n/1000"; sleep 0.2; done
`

const scraper = `global: { scrape_interval: 1s, evaluation_interval: 1s }
rule_files: ["%s"]
scrape_configs:
  - job_name: gpurun
    static_configs: [{ targets: ["%s"] }]
  - job_name: node
    static_configs: [{ targets: ["%s"] }]
`

// freeAddress returns an address on which no process listened a moment ago.
func freeAddress(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	testenv.Check(t, err)
	defer l.Close()
	return l.Addr().String()
}

// daemon starts a program that runs until the end of the test.
func daemon(t *testing.T, name string, args ...string) {
	t.Helper()
	log, err := os.Create(filepath.Join(t.TempDir(), "log"))
	testenv.Check(t, err)
	cmd := exec.Command(name, args...)
	cmd.Stdout, cmd.Stderr = log, log
	testenv.Check(t, cmd.Start())
	t.Cleanup(func() {
		_ = cmd.Process.Kill() // it may have ended
		_ = cmd.Wait()         // killed
		if text, err := os.ReadFile(log.Name()); t.Failed() && err == nil {
			t.Logf("%s: %s", name, text)
		}
		log.Close()
	})
}

// asked returns Prometheus's answer, empty as long as there is none.
func asked(address, path string, query url.Values) string {
	answer, err := http.Get("http://" + address + path + "?" + query.Encode())
	if err != nil {
		return ""
	}
	defer answer.Body.Close()
	body, err := io.ReadAll(answer.Body)
	if err != nil {
		return ""
	}
	return string(body)
}

// eventually repeats a request until the answer is as expected.
func eventually(t *testing.T, what string, answer func() string, ok func(string) bool) {
	t.Helper()
	var last string
	for deadline := time.Now().Add(time.Minute); time.Now().Before(deadline); time.Sleep(100 * time.Millisecond) {
		if last = answer(); ok(last) {
			return
		}
	}
	t.Fatalf("waited in vain for %s:\n%s", what, last)
}

// trainsForReal runs the example of the quickstart, whose process reports its model, with metrics in a folder.
func trainsForReal(t *testing.T, text string) {
	t.Helper()
	python := testenv.Torch(t)
	job := copyOf(t, filepath.Join("..", "examples", "quickstart"))
	nights{job: job}.edit(t, "train.toml", "[knobs]", fmt.Sprintf("[metrics]\ntextfile = %q\n[knobs]", filepath.Join(text, "gpurun-{job}-{run}.prom")))
	cmd := exec.Command(build(t), "train.toml")
	cmd.Dir, cmd.Env = job, append(os.Environ(), "PYTHON_EXEC="+python)
	if out, err := cmd.CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
}

// onDashboard makes each query of the dashboard. All panels but two have values.
func onDashboard(t *testing.T, prometheus string) {
	t.Helper()
	var dashboard struct {
		Panels []struct {
			Title   string
			Targets []struct{ Expr string }
		}
	}
	page, err := os.ReadFile(filepath.Join(testenv.Root(t), "examples", "prometheus", "gpurun.dashboard.json"))
	testenv.Check(t, err)
	if err := json.Unmarshal(page, &dashboard); err != nil || len(dashboard.Panels) < 10 {
		t.Fatalf("%d panels, %v", len(dashboard.Panels), err)
	}
	for _, panel := range dashboard.Panels {
		for _, target := range panel.Targets {
			var answer struct {
				Status string
				Data   struct{ Result []any }
			}
			expression := strings.ReplaceAll(target.Expr, "$__range", "1h")
			text := asked(prometheus, "/api/v1/query", url.Values{"query": {expression}})
			if err := json.Unmarshal([]byte(text), &answer); err != nil || answer.Status != "success" {
				t.Errorf("%s: %s\n%s", panel.Title, expression, text)
			}
			// Nothing runs any more, and no step was done again in place.
			none := panel.Title == "Closest to the limit of memory" || panel.Title == "Steps done again in place"
			if (len(answer.Data.Result) == 0) != none {
				t.Errorf("%s: %s\n%s", panel.Title, expression, text)
			}
			t.Logf("%s: %.300s", panel.Title, text)
		}
	}
}

// A real Prometheus scrapes a rescued run, and reads the metrics file through a real node_exporter: it has
// the outcome when the run is over. Prometheus accepts gpurun's rules.
func TestPrometheusAndNodeExporter(t *testing.T) {
	lab(t)
	for _, name := range []string{"prometheus", "prometheus-node-exporter"} {
		if _, err := exec.LookPath(name); err != nil {
			t.Skipf("no %s here", name)
		}
	}
	ours, exporter, prometheus := freeAddress(t), freeAddress(t), freeAddress(t)
	rules, err := filepath.Abs(filepath.Join(testenv.Root(t), "examples", "prometheus", "gpurun.rules.yml"))
	testenv.Check(t, err)
	dir := home(t, map[string]string{"train.sh": scrapedTrainer, "train.toml": fmt.Sprintf(scrapedJob, ours), "prometheus.yml": fmt.Sprintf(scraper, rules, ours, exporter),
		"second.toml": fmt.Sprintf("[job]\nprogram = [\"true\"]\n[metrics]\ntextfile = \"text/gpurun-{job}.prom\"\nlisten = %q\n", ours)})
	text := filepath.Join(dir, "text")
	testenv.Check(t, os.Mkdir(text, 0o755))
	daemon(t, "prometheus-node-exporter", "--collector.disable-defaults", "--collector.textfile", "--collector.textfile.directory="+text, "--web.listen-address="+exporter)
	daemon(t, "prometheus", "--config.file="+filepath.Join(dir, "prometheus.yml"), "--storage.tsdb.path="+filepath.Join(dir, "data"), "--web.listen-address="+prometheus)
	query := func(expression string) {
		t.Helper()
		eventually(t, expression, func() string {
			return asked(prometheus, "/api/v1/query", url.Values{"query": {expression}})
		}, func(answer string) bool { return strings.Contains(answer, `"job_name":`) })
	}

	run := exec.Command(build(t), "train.toml")
	run.Dir = dir
	var said strings.Builder
	run.Stderr = &said
	testenv.Check(t, run.Start())
	for _, source := range []string{"gpurun", "node"} {
		query(fmt.Sprintf(`gpurun_attempts_total{job=%q} == 2 and on (run) gpurun_attempts_ended_total{job=%q, cause="cuda-oom"} == 1`, source, source))
		query(fmt.Sprintf(`gpurun_training_step{job=%q, rank="1"} > 3 and on (run) gpurun_step_duration_seconds{job=%q} < 2`, source, source))
		query(fmt.Sprintf(`gpurun_run_info{job=%q, recipe="[knobs]"} == 1`, source))
	}
	eventually(t, "the rules", func() string { return asked(prometheus, "/api/v1/rules", nil) }, func(answer string) bool {
		return strings.Count(answer, `"health":"ok"`) == 6
	})

	second := exec.Command(build(t), "second.toml")
	second.Dir = dir
	if out, err := second.CombinedOutput(); err != nil || !strings.Contains(string(out), "gpurun: warning: no metrics are served: listen tcp "+ours) {
		t.Errorf("a port in use: %v\n%s", err, out)
	}
	query(`gpurun_run_outcome{job="node", job_name="second", outcome="trained"} == 1`) // from the same folder
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "go"), nil, 0o600))
	if err := run.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	query(`gpurun_run_outcome{job="node", job_name="gpt", outcome="trained"} == 1 unless on (run) gpurun_attempt_running == 1`)
	query(`gpurun_run_exit_code{job="node", job_name="gpt"} == 0`)
	trainsForReal(t, text)
	query(`gpurun_run_info{job="node", job_name="train", model!=""} and on (run) gpurun_gpu_rescued_seconds > 0`)
	onDashboard(t, prometheus)
	var targets struct {
		Data struct {
			ActiveTargets []struct {
				Labels    map[string]string
				LastError string
			}
		}
	}
	testenv.Check(t, json.Unmarshal([]byte(asked(prometheus, "/api/v1/targets", nil)), &targets))
	for _, target := range targets.Data.ActiveTargets {
		if target.Labels["job"] == "node" && target.LastError != "" {
			t.Errorf("node_exporter: %s", target.LastError)
		}
	}
}

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
	if out, err := exec.Command(interpreter, "-c", "import mlflow, wandb, tensorboard, sqlalchemy").CombinedOutput(); err != nil {
		t.Skipf("%s lacks trackers: %s", interpreter, out)
	}
	dir := home(t, map[string]string{"train.py": trackedTrainer, "my.toml": trackedRecipe, "train.toml": trackedJob, "ask.py": trackedAsked})
	run := exec.Command(build(t), "--run-dir", "run", "train.toml")
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
	ask := exec.Command(interpreter, "ask.py")
	ask.Dir = dir
	answer, err := ask.CombinedOutput()
	want := "mlflow 2 1 ['4', '8']\ntensorboard [[1, 2, 3, 4, 3, 4, 5, 6]]\n"
	if err != nil || !strings.HasSuffix(string(answer), want) {
		t.Errorf("%v\n%s\nwant %s", err, answer, fmt.Sprintf("%q", want))
	}
}
