package test

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/test/testenv"
)

// nightly returns the files of examples/nightly, by the names that they have where they are used.
func nightly(t *testing.T) map[string]string {
	t.Helper()
	texts := map[string]string{}
	for file, text := range contents(t, filepath.Join("..", "examples", "nightly")) {
		name := regexp.MustCompile(`(?m)^# ([\w./-]+)`).FindStringSubmatch(text)
		if name == nil {
			t.Fatalf("%s does not begin with the name of a file", file)
		}
		texts[filepath.Base(name[1])] = text
	}
	if len(texts) < 9 {
		t.Fatalf("only %d texts", len(texts))
	}
	return texts
}

// in looks up a value in a YAML document.
func in(t *testing.T, text string, path ...any) any {
	t.Helper()
	var v any
	if err := yaml.Unmarshal([]byte(text), &v); err != nil {
		t.Fatalf("%v in:\n%s", err, text)
	}
	for _, key := range path {
		switch node := v.(type) {
		case map[string]any:
			v = node[key.(string)]
		case []any:
			v = node[key.(int)]
		}
	}
	if v == nil {
		t.Fatalf("there is no %v in:\n%s", path, text)
	}
	return v
}

// words quotes and joins a command's words for a shell.
func words(list any) string {
	var all []string
	for _, w := range list.([]any) {
		all = append(all, `"`+w.(string)+`"`)
	}
	return strings.Join(all, " ")
}

// stubs replace programs that a night waits for, and the scheduler.
var stubs = map[string]string{
	"sleep":   "#!/bin/sh\n",
	"srun":    "#!/bin/sh\nshift\nexec env -u SLURM_JOB_ID \"$@\"\n", // --mpi
	"sbatch":  "#!/bin/sh\necho \"sbatch $*\" >>said\necho 78\n",
	"scancel": "#!/bin/sh\necho \"scancel $*\" >>said\n",
}

// airflow has the parts of Airflow that the example uses.
const airflow = `import sys, types
class AirflowException(Exception): pass
class AirflowFailException(Exception): pass
def task(f): return lambda: f(ds="2026-05-04")
for name, what in {"decorators": {"dag": lambda **_: lambda f: f, "task": lambda **_: task}, "exceptions": {"AirflowException": AirflowException, "AirflowFailException": AirflowFailException}}.items():
    sys.modules["airflow." + name] = types.ModuleType(name)
    vars(sys.modules["airflow." + name]).update(what)
`

// An unwatched job is a folder with a job that loses its GPU once, and then trains.
type unwatched struct{ dir, path string }

func newUnwatched(t *testing.T) unwatched {
	t.Helper()
	n := unwatched{dir: home(t, map[string]string{
		"train.toml": "[job]\nprogram = [\"sh\", \"train.sh\"]\n[launch]\nnproc_per_node = 1\n",
		"train.sh":   "[ -e been ] && exit 0\ntouch been\necho 'NVRM: Xid (PCI:0000:65:00): 79, pid=1, GPU has fallen off the bus.' >&2\nexit 1\n",
		"airflow.py": airflow,
	})}
	bin := home(t, stubs)
	testenv.Check(t, os.Symlink(build(t), filepath.Join(bin, "gpurun")))
	n.path = bin + ":" + os.Getenv("PATH")
	return n
}

// runs executes a text, and returns its exit code.
func (n unwatched) runs(t *testing.T, with []string, text string, env ...string) int {
	t.Helper()
	cmd := exec.Command(with[0], append(with[1:], strings.ReplaceAll(text, "/srv/gpt", n.dir))...)
	cmd.Dir = n.dir
	cmd.Env = append(os.Environ(), append(env, "PATH="+n.path, "XDG_STATE_HOME="+n.dir, "PYTHONPATH="+n.dir, "CUDA_VISIBLE_DEVICES=")...)
	out, err := cmd.CombinedOutput()
	t.Logf("%s", out)
	var exit *exec.ExitError
	if err != nil && !errors.As(err, &exit) {
		t.Fatal(err)
	}
	return cmd.ProcessState.ExitCode()
}

// over checks that the night was one run of two attempts that trained, with a report.
func (n unwatched) over(t *testing.T) {
	t.Helper()
	runs, _ := filepath.Glob(filepath.Join(n.dir, ".gpurun", "*", "*", "attempt-1"))
	report, err := os.ReadFile(filepath.Join(n.dir, "junit.xml"))
	if len(runs) != 1 || err != nil || !strings.Contains(string(report), `tests="3" failures="0" errors="0"`) {
		t.Errorf("runs %v; report %v\n%s", runs, err, report)
	}
}

// Each example goes through a night in which the GPU is lost once: it ends with 75, and the restart
// continues the same run.
func TestNights(t *testing.T) {
	t.Parallel()
	texts := nightly(t)
	bash, sh, py := []string{"bash", "-c"}, []string{"sh", "-c"}, []string{testenv.Python(t), "-c"}
	service := regexp.MustCompile(`(?m)^ExecStart=(.+)$`).FindStringSubmatch(texts["nightly.service"])[1]
	pod := []any{"spec", "jobTemplate", "spec", "template", "spec", "containers", 0, "command"}
	actions := []any{"jobs", "train", "steps", 1, "run"}
	workflow := []any{"spec", "workflowSpec", "templates", 0, "container", "command"}
	for name, test := range map[string]struct {
		with  []string
		text  string
		env   []string
		codes []int
	}{
		"night.sh":       {bash, texts["night.sh"], nil, []int{0}},
		"systemd":        {sh, strings.ReplaceAll(service, "%%", "%"), nil, []int{75, 0}},
		"GitHub Actions": {[]string{"bash", "-e", "-c"}, in(t, texts["nightly.yml"], actions...).(string), []string{"GITHUB_RUN_ID=7001"}, []int{0}},
		"GitLab":         {sh, in(t, texts[".gitlab-ci.yml"], "train", "script", 0).(string), []string{"CI_PIPELINE_ID=7002"}, []int{75, 0}},
		"Kubernetes":     {sh, strings.ReplaceAll(words(in(t, texts["cronjob.yaml"], pod...)), "$(RUN)", "nightly-29"), nil, []int{75, 0}},
		"Argo":           {sh, strings.ReplaceAll(words(in(t, texts["workflow.yaml"], workflow...)), "{{workflow.name}}", "nightly-30"), nil, []int{75, 0}},
		"Airflow":        {py, "import airflow\n" + texts["nightly.py"], nil, []int{1, 0}},
	} {
		t.Run(name, func(t *testing.T) {
			if slices.Contains([]string{"systemd", "Kubernetes", "Argo", "Airflow"}, name) {
				lab(t) // these start one line, as GitLab does
			}
			t.Parallel()
			n := newUnwatched(t)
			for i, want := range test.codes {
				if code := n.runs(t, test.with, test.text, test.env...); code != want {
					t.Fatalf("start %d: exit code %d, want %d", i, code, want)
				}
			}
			n.over(t)
		})
	}
	t.Run("Slurm", func(t *testing.T) {
		t.Parallel()
		n := newUnwatched(t)
		chain := contents(t, filepath.Join("..", "examples", "slurm"))["nightly.sbatch"]
		chain = strings.Replace(chain, " train.toml", " --junit junit.xml train.toml", 1)
		for i, want := range []int{75, 0} {
			env := []string{"SLURM_JOB_ID=" + []string{"76", "78"}[i]}
			if i > 0 {
				env = append(env, "RUN=76", "NIGHT=1")
			}
			if code := n.runs(t, bash, chain, env...); code != want {
				t.Fatalf("link %d: exit code %d, want %d", i, code, want)
			}
		}
		n.over(t)
		said, _ := os.ReadFile(filepath.Join(n.dir, "said"))
		if want := "sbatch --parsable --dependency=afternotok:76 nightly.sbatch\nsbatch --parsable --dependency=afternotok:78 nightly.sbatch\nscancel 78\n"; string(said) != want {
			t.Errorf("%s\nwant %s", said, want)
		}
	})
}

// The exit codes in the pages' configurations have the right meaning.
func TestNightlyExitCodes(t *testing.T) {
	texts := nightly(t)
	if codes := in(t, texts[".gitlab-ci.yml"], "train", "retry", "exit_codes").([]any); !slices.Equal(codes, []any{75}) {
		t.Errorf("GitLab tries again after %v", codes)
	}
	rule := in(t, texts["cronjob.yaml"], "spec", "jobTemplate", "spec", "podFailurePolicy", "rules", 0, "onExitCodes", "values").([]any)
	if !slices.Contains(rule, any(12)) || slices.Contains(rule, any(75)) {
		t.Errorf("Kubernetes gives up after %v", rule)
	}
	if junit := in(t, texts[".gitlab-ci.yml"], "train", "artifacts", "reports", "junit"); junit != "junit.xml" {
		t.Errorf("GitLab reads %v", junit)
	}
}

// The lines for cron, run by cron itself when the minute is full.
func TestNightlyByCron(t *testing.T) {
	lab(t)
	if _, err := exec.LookPath("cron"); err != nil {
		t.Skip("no cron here")
	}
	texts, n := nightly(t), newUnwatched(t)
	if err := os.WriteFile(filepath.Join(n.dir, "night.sh"), []byte(strings.ReplaceAll(texts["night.sh"], "/srv/gpt", n.dir)), 0o755); err != nil {
		t.Fatal(err)
	}
	table := strings.NewReplacer("/srv/gpt", n.dir, "30 1 * * * train", "* * * * * root", "/usr/local/bin:/usr/bin:/bin", n.path+"\nXDG_STATE_HOME="+n.dir).Replace(texts["nightly"])
	// cron reads fixed folders: these processes have private ones.
	script := `mount -t tmpfs none /etc/cron.d; mount -t tmpfs none /var/spool/cron; mkdir /var/spool/cron/crontabs; mount -t tmpfs none /run
cat >/etc/cron.d/nightly; : >empty; mount --bind empty /etc/crontab; exec cron -f`
	cmd := exec.Command("unshare", "-m", "sh", "-ec", script)
	cmd.Stdin, cmd.Dir = strings.NewReader(table), n.dir
	testenv.Check(t, cmd.Start())
	defer cmd.Wait()
	defer cmd.Process.Kill()
	for deadline := time.Now().Add(3 * time.Minute); time.Now().Before(deadline); time.Sleep(time.Second) {
		verdict, _ := filepath.Glob(filepath.Join(n.dir, ".gpurun", "*", "*", "attempt-1", "..", "verdict.json"))
		if text, _ := os.ReadFile(filepath.Join(n.dir, "junit.xml")); len(verdict) == 1 && strings.Contains(string(text), `value="trained"`) {
			break
		}
	}
	n.over(t)
}
