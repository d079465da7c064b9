package hook

import (
	"errors"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/test/testenv"
)

// seen is what a script says of the places where programs look.
func (r *trial) seen(t *testing.T, script string) string {
	t.Helper()
	out, errs, code := r.run(t, script)
	if code != 0 {
		t.Fatalf("code %d: %s", code, errs)
	}
	return out
}

// Programs that look at the functions that the probe has replaced see what they would
// without it.
func TestReplacedFunctionsLookAsTheyWere(t *testing.T) {
	const script = `
import inspect, os, pickle, pickletools, sys
for name in ("execv", "execve", "posix_spawn", "posix_spawnp"):
    f = getattr(os, name)
    try:
        signature = inspect.signature(f)
    except ValueError as e:  # of some in Python 3.11
        signature = e
    print(name, signature, pickle.loads(pickle.dumps(f)) is f, pickle.dumps(f))
print(os.execve in os.supports_fd)
`
	bare := newTrial(t)
	bare.bare = true
	if with, without := newTrial(t).seen(t, script), bare.seen(t, script); with != without {
		t.Errorf("with the probe:\n%s\nwithout:\n%s", with, without)
	}
}

// Module.__call__, and that of a model's class, can be pickled before, during and after the
// first steps, and sys.meta_path is the list that it was once they are made.
func TestTrainingLooksAsItWould(t *testing.T) {
	needs(t)
	const script = `
import sys
before, kept = sys.meta_path, list(sys.meta_path)
import pickle, torch
class Block(torch.nn.Linear):
    pass
class Net(torch.nn.Sequential):
    pass
def look(when):
    for kind in (torch.nn.Module, Net, Block):
        for name in ("__call__", "forward"):
            f = getattr(kind, name)
            assert pickle.loads(pickle.dumps(f)) is f, (when, kind, name)
look("before")
net = Net(*[Block(4, 4) for _ in range(4)])
net.register_forward_hook(lambda *_: look("during"))
optimizer = torch.optim.SGD(net.parameters(), .1)
for _ in range(5):
    net(torch.ones(2, 4)).sum().backward()
    optimizer.step()
    look("after")
assert sys.meta_path is before, "another list"
found = [name for name in sys.modules if name.split(".")[0] in ("inside", "gpurun", "gpurun-probe", "sitecustomize")]
assert found in ([], ["sitecustomize"]), found
print([f for f in before if "gpurun" in type(f).__module__ or type(f).__name__ == "Finder"])
`
	if out := newTrial(t).seen(t, script); out != "[]\n" {
		t.Errorf("%q", out)
	}
}

// The parts are a package that Python's own import reads: each by itself, in any order.
func TestPartsAreAPackage(t *testing.T) {
	const program = `
import importlib, os, re, sys
sys.path.append(".")
names = sorted(os.path.join(layer, name)[:-3] for layer in os.listdir("inside") if os.path.isdir("inside/" + layer)
               for name in os.listdir("inside/" + layer) if name.endswith(".py") and name != "__init__.py")
assert len({os.path.basename(name) for name in names}) == len(names), names  # all are in one file, and so are their compiled forms
for name in names:
    # sitecustomize.py gives a part to "from . import part" and "from ..layer import part" alone.
    for found in re.findall(r"^\s*from (\.\S*) import", open("inside/" + name + ".py").read(), re.M):
        assert re.fullmatch(r"\.(\.\w+)?", found), (name, found)
    for known in [known for known in sys.modules if known.split(".")[0] == "inside"]:
        del sys.modules[known]
    importlib.import_module("inside." + name.replace("/", "."))
print(len(names))
`
	out, err := exec.Command(testenv.Python(t), "-B", "-c", program).CombinedOutput()
	if n, failed := strconv.Atoi(strings.TrimSpace(string(out))); err != nil || failed != nil || n < 50 {
		t.Errorf("%v: %s", err, out)
	}
}

// A thread that imports while the probe's finder is taken away still finds its modules.
func TestFinderLeavesNoGap(t *testing.T) {
	const script = `
import sys, threading
finders = [f for f in sys.meta_path if hasattr(f, "wanted")]
assert len(finders) == 1
done = finders[0].find_spec.__globals__["done"]
entered, go = threading.Event(), threading.Event()
class Slow:
    def find_spec(self, name, path=None, target=None):
        if name == "_struct":
            entered.set(); go.wait(10)
sys.modules.pop("_struct", None); sys.modules.pop("struct", None)
sys.meta_path.insert(0, Slow())
failed = []
def work():
    try:
        import _struct
    except ImportError as e:
        failed.append(e)
thread = threading.Thread(target=work)
thread.start(); entered.wait(10)
threading.Timer(.02, go.set).start()
done()
thread.join()
print(failed, [f for f in sys.meta_path if hasattr(f, "wanted")])
`
	if out := newTrial(t).seen(t, script); out != "[] []\n" {
		t.Errorf("%q", out)
	}
}

// A child that PyInstaller has made gets no variable, whatever its name.
func TestFrozenProgramsGetNoVariables(t *testing.T) {
	r := newTrial(t)
	program := filepath.Join(r.modules, "python-app")
	if err := os.WriteFile(program, []byte("#!/bin/sh\nenv\nexit 0\n"+frozenMark+strings.Repeat("x", 2000)), 0o755); err != nil {
		t.Fatal(err)
	}
	plain := filepath.Join(r.modules, "python-wrapper")
	if err := os.WriteFile(plain, []byte("#!/bin/sh\nenv\nexit 0\n"), 0o755); err != nil {
		t.Fatal(err)
	}
	out := r.seen(t, "import subprocess\nprint(subprocess.run(["+quoted(program)+"], capture_output=True, text=True).stdout)\n")
	if strings.Contains(out, "GPURUN_PROBE") || strings.Contains(out, "probe-") || !strings.Contains(out, "PATH=") {
		t.Errorf("%s", out)
	}
	if out := r.seen(t, "import subprocess\nprint(subprocess.run(["+quoted(plain)+"], capture_output=True, text=True).stdout)\n"); !strings.Contains(out, fileVariable+"=") {
		t.Errorf("a wrapper of Python: %s", out)
	}
	for path, want := range map[string]bool{program: true, plain: false, "./python-app": true, "sh": false, "/none": false} {
		if Frozen(path, r.modules) != want {
			t.Errorf("%s is frozen: %v", path, !want)
		}
	}
}

func quoted(text string) string { return "'" + text + "'" }

// The compiled parts are kept in one folder for all attempts, also where the job keeps none
// of its own; a file that others could write to is not used.
func TestCompiledPartsAreShared(t *testing.T) {
	cache := t.TempDir()
	t.Setenv("XDG_CACHE_HOME", cache)
	start := func(env string) {
		t.Helper()
		r := newTrial(t)
		cmd := r.command(t, "pass\n")
		cmd.Env = append(cmd.Env, env)
		if out, err := cmd.CombinedOutput(); err != nil || len(out) > 0 {
			t.Fatalf("%v: %s", err, out)
		}
	}
	times := func() map[string]time.Time {
		t.Helper()
		files, err := filepath.Glob(filepath.Join(cache, "gpurun", "probe-*", "*.pyc"))
		if err != nil {
			t.Fatal(err)
		}
		found := map[string]time.Time{}
		for _, file := range files {
			info, err := os.Stat(file)
			if err != nil {
				t.Fatal(err)
			}
			name, _, _ := strings.Cut(filepath.Base(file), ".")
			found[name] = info.ModTime()
		}
		return found
	}
	start("PYTHONDONTWRITEBYTECODE=1")
	first := times()
	for _, name := range []string{"sitecustomize", "rank", "imports"} {
		if first[name].IsZero() {
			t.Errorf("%s was not kept: %v", name, first)
		}
	}
	for _, env := range []string{"PYTHONDONTWRITEBYTECODE=1", "PYTHONPYCACHEPREFIX=" + t.TempDir(), "A=1"} {
		start(env)
		for name, at := range times() {
			if !at.Equal(first[name]) {
				t.Errorf("%s: %s was compiled again", env, name)
			}
		}
	}
	folders, err := filepath.Glob(filepath.Join(cache, "gpurun", "probe-*"))
	if err != nil || len(folders) != 1 {
		t.Fatalf("%q, %v", folders, err)
	}
	for what, spoil := range map[string]func() error{
		"a folder for all": func() error { return os.Chmod(folders[0], 0o777) },
		"a link": func() error {
			return errors.Join(os.RemoveAll(folders[0]), os.Symlink(t.TempDir(), folders[0]))
		},
	} {
		if err := spoil(); err != nil {
			t.Fatal(err)
		}
		installed, err := Install(t.TempDir(), Orders{})
		if err != nil {
			t.Fatal(err)
		}
		if to, err := os.Readlink(filepath.Join(installed.folder, "__pycache__")); err == nil {
			t.Errorf("%s is used: %s", what, to)
		}
	}
}
