package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
	"testing/fstest"
	"testing/synctest"
	"time"

	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/test/testenv"
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
	testenv.Check(t, err)
	if e.Dir == "" {
		e.Dir = t.TempDir()
	}
	text, err := json.Marshal(e)
	testenv.Check(t, err)
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
	testenv.Check(t, err)
	fake, err := filepath.Abs("testdata/fake")
	testenv.Check(t, err)
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

func contextOf() (context.Context, context.CancelFunc) {
	return context.WithTimeout(context.Background(), whole)
}

// Checks run at once, and their results have the order of the checks.
func TestChecksRunAtOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		takes := func(name string, d time.Duration) check {
			return check{name: name, examine: func(context.Context, *patient) Result { time.Sleep(d); return found("%s", name) }}
		}
		begin := time.Now()
		results := (&patient{}).run(t.Context(), []check{takes("slow", 3*time.Second), takes("fast", time.Second)})
		if took := time.Since(begin); took != 3*time.Second {
			t.Errorf("took %s", took)
		}
		for i, want := range []string{"slow", "fast"} {
			if results[i].Name != want || results[i].Found != want {
				t.Errorf("result %d: %+v, want %s", i, results[i], want)
			}
		}
	})
}

// A check that does not end in time is reported as such, even if nothing can end it.
func TestHangingCheck(t *testing.T) {
	for name, test := range map[string]struct {
		late  string
		deaf  bool
		whole time.Duration
		state CheckStatus
		found string
		takes time.Duration
	}{
		"that heeds its context":       {"mend it", false, time.Minute, Problem, "no answer after 10s", 10 * time.Second},
		"that the kernel holds":        {"mend it", true, time.Minute, Problem, "no answer after 10s", 10*time.Second + settle},
		"that says nothing of much":    {"", false, time.Minute, Warning, "no answer after 10s", 10 * time.Second},
		"that the others left no time": {"mend it", false, 4 * time.Second, Warning, "not finished", 4 * time.Second},
	} {
		synctest.Test(t, func(t *testing.T) {
			ctx, cancel := context.WithTimeout(t.Context(), test.whole)
			defer cancel()
			c := check{name: "x", lateFix: test.late, examine: func(ctx context.Context, _ *patient) Result {
				<-ctx.Done()
				if test.deaf {
					time.Sleep(time.Hour)
				}
				return problem("look", "%v", context.Cause(ctx))
			}}
			begin := time.Now()
			r := c.run(ctx, &patient{})
			if r.State != test.state || r.Found != test.found || time.Since(begin) != test.takes {
				t.Errorf("%s: %+v after %s", name, r, time.Since(begin))
			}
			time.Sleep(2 * time.Hour)
		})
	}
}

// A check that ended just in time is not late.
func TestResultAtTheDeadline(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r := check{examine: func(ctx context.Context, _ *patient) Result { <-ctx.Done(); return found("there") }}.run(t.Context(), &patient{})
		if r.State != OK {
			t.Errorf("%+v", r)
		}
	})
}

// What needs a PyTorch is skipped without one, and says why.
func TestWithoutTorch(t *testing.T) {
	c := check{torch: true, examine: func(context.Context, *patient) Result { t.Error("looked"); return Result{} }}
	p := onPaper(t, nil)
	wants(t, c.run(t.Context(), p), Skipped, "there is no interpreter", "")
	p.python = withTorch(t, nil).python
	p.torch = func() (torchFacts, error) { return torchFacts{}, errors.New("no") }
	wants(t, c.run(t.Context(), p), Skipped, "does not list", "")
	p.torch = func() (torchFacts, error) { return torchFacts{Missing: true}, nil }
	wants(t, c.run(t.Context(), p), Skipped, "cannot be imported", "")
}
