package doctor

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/python"
)

// childVariable has the examination that a child of the tests makes: one with limits of
// its own, or with a driver of its own.
const childVariable = "GPURUN_DOCTOR_TEST"

// An examination is what a child is to look at.
type examination struct {
	Subject
	Only []string // names of checks; all where it is empty
}

func TestMain(m *testing.M) {
	ranks.MaybeGuard()
	if text := os.Getenv(childVariable); text != "" {
		os.Unsetenv(childVariable)
		examine(text)
	}
	goleak.VerifyTestMain(m)
}

// examine makes the examination of a child, and ends it.
func examine(text string) {
	var e examination
	if err := json.Unmarshal([]byte(text), &e); err != nil {
		panic(err)
	}
	e.Environ = os.Environ()
	p := newPatient(e.Subject)
	p.nvme = e.NVMe
	p.findPython()
	ctx, cancel := contextOf()
	defer cancel()
	p.ask(ctx)
	r := newReport(p.run(ctx, slices.DeleteFunc(checks(), func(c check) bool { return len(e.Only) > 0 && !slices.Contains(e.Only, c.name) })), nil)
	if err := r.WriteJSON(os.Stdout); err != nil {
		panic(err)
	}
	os.Exit(0)
}

// inChild examines in a process that a command starts, with a separate environment.
func inChild(t *testing.T, e examination, env commandline.Environ, before ...string) map[string]Result {
	t.Helper()
	self, err := os.Executable()
	if err != nil {
		t.Fatal(err)
	}
	if e.Dir == "" {
		e.Dir = t.TempDir()
	}
	text, err := json.Marshal(e)
	if err != nil {
		t.Fatal(err)
	}
	argv := append(before, self)
	cmd := exec.CommandContext(t.Context(), argv[0], argv[1:]...)
	cmd.Env = plainHost().With(env, commandline.Environ{childVariable: string(text)}).Words()
	var errs bytes.Buffer
	cmd.Stderr = &errs
	out, err := cmd.Output()
	var r Report
	if err == nil {
		err = json.Unmarshal(out, &r)
	}
	if err != nil {
		t.Fatalf("%v\n%s%s", err, out, &errs)
	}
	results := map[string]Result{}
	for _, c := range r.Checks {
		results[c.Name] = c
	}
	return results
}

// plainHost is the tests' environment without what schedulers and environments say.
func plainHost() commandline.Environ {
	env := commandline.ParseEnviron(os.Environ())
	for name := range env {
		for _, prefix := range []string{"SLURM", "KUBERNETES", "PET_", "CUDA_", "VIRTUAL_ENV", "CONDA_"} {
			if strings.HasPrefix(name, prefix) {
				delete(env, name)
			}
		}
	}
	return env
}

// anyPython is a Python 3; what it imports is the tests' own.
func anyPython(t *testing.T) string {
	t.Helper()
	path := os.Getenv("GPURUN_TEST_PYTHON")
	if path == "" {
		found, err := exec.LookPath("python3")
		if err != nil {
			t.Skip("no python3 in PATH, and GPURUN_TEST_PYTHON names none")
		}
		path = found
	}
	return path
}

// pretend is an environment in which Python has the tests' PyTorch, as settings
// say.
func pretend(t *testing.T, settings map[string]any) commandline.Environ {
	t.Helper()
	text, err := json.Marshal(settings)
	if err != nil {
		t.Fatal(err)
	}
	fake, err := filepath.Abs("testdata/fake")
	if err != nil {
		t.Fatal(err)
	}
	return commandline.Environ{"PYTHON_EXEC": anyPython(t), "PYTHONPATH": fake, "FAKE_TORCH": string(text), "PYTHONDONTWRITEBYTECODE": "1"}
}

// onPaper is a patient without GPUs, made of files.
func onPaper(t *testing.T, files map[string]string) *patient {
	t.Helper()
	root := fstest.MapFS{"proc/meminfo": {Data: []byte("MemTotal: 67108864 kB\nMemAvailable: 60000000 kB\n")}}
	for name, text := range files {
		root[name] = &fstest.MapFile{Data: []byte(text)}
	}
	p := &patient{root: root, host: ranks.MachineAt(root), shm: "/dev/shm", dir: t.TempDir(), env: plainHost(), why: "there is no interpreter"}
	p.ask(t.Context())
	p.cards = func() cards { return cards{} }
	p.limits = func() (limits, error) { return limits{unlimited, unlimited, unlimited}, nil }
	return p
}

// withTorch is a patient whose interpreter has the tests' PyTorch.
func withTorch(t *testing.T, settings map[string]any) *patient {
	t.Helper()
	p := onPaper(t, nil)
	p.env = p.env.With(pretend(t, settings))
	p.python = python.At(p.env["PYTHON_EXEC"], p.dir, p.env)
	return p
}

// resultOf makes the check of a name.
func resultOf(t *testing.T, p *patient, name string) Result {
	t.Helper()
	for _, c := range checks() {
		if c.name == name {
			return c.result(t.Context(), p)
		}
	}
	t.Fatalf("there is no check %s", name)
	return Result{}
}

// wants compares a result with a state, and with parts of what it says.
func wants(t *testing.T, r Result, state CheckStatus, found, fix string) {
	t.Helper()
	if r.State != state || !strings.Contains(r.Found, found) || !strings.Contains(r.Fix, fix) {
		t.Errorf("%s: %q, fix %q; want %s with %q and %q", r.State, r.Found, r.Fix, state, found, fix)
	}
	if said := r.Fix != ""; said != (r.State == Warning || r.State == Problem) {
		t.Errorf("%s has the fix %q", r.State, r.Fix)
	}
}

// Each check has a unique name, a group with a title, and describes what it does within
// the whole's time.
func TestChecksAreComplete(t *testing.T) {
	names := map[string]bool{}
	for _, c := range checks() {
		if names[c.name] || !slices.ContainsFunc(groups, func(g group) bool { return g.name == c.group && g.title != "" }) || c.examine == nil || len(c.name) > indent-5 {
			t.Errorf("%+v", c)
		}
		names[c.name] = true
		if c.bound > whole {
			t.Errorf("%s may take %s, longer than all together", c.name, c.bound)
		}
	}
	if len(names) < 20 {
		t.Errorf("only %d checks", len(names))
	}
	if total := whole + settle + ranks.NVMLCloseBound; total > time.Minute {
		t.Errorf("an examination may take %s", total)
	}
}

// awaitFile waits for a file that a process renames into place.
func awaitFile(t *testing.T, path string) string {
	t.Helper()
	for range 1000 {
		if text, err := os.ReadFile(path); err == nil {
			return string(text)
		}
		time.Sleep(20 * time.Millisecond)
	}
	t.Fatalf("%s does not come", path)
	return ""
}
