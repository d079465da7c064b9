package hook

import (
	"bytes"
	"encoding/json"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.uber.org/goleak"

	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestMain(m *testing.M) {
	goleak.VerifyTestMain(testenv.Isolate(m))
}

// A trial is one Python process that runs as rank 0 of an attempt.
type trial struct {
	dir     string // the attempt's folder
	modules string // a folder on the user's own PYTHONPATH
	home    string
	flags   []string // of the interpreter
	bare    bool     // without the probe
	names   []string // of the variables whose values are told
	env     []string // of job, beside the usual
	orders  Orders
	parts   map[string]string // parts of the probe that are others than its own

	installed *Installed
	troubled  bool // the probe is meant to fail
}

func newTrial(t *testing.T) *trial {
	return &trial{dir: t.TempDir(), modules: t.TempDir(), home: t.TempDir()}
}

// module writes a module that the script can import, and reports its path.
func (r *trial) module(t *testing.T, name, text string) string {
	t.Helper()
	path := filepath.Join(r.modules, name+".py")
	if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	return path
}

// command is the rank's process: it leads a session, as ranks do.
func (r *trial) command(t *testing.T, script string) *exec.Cmd {
	t.Helper()
	r.module(t, "train", script)
	cmd := exec.Command(testenv.Python(t), append(r.flags, filepath.Join(r.modules, "train.py"))...)
	cmd.Dir = r.home
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + cmd.Dir, "PYTHONPATH=" + r.modules}
	if !r.bare {
		r.orders.Script = filepath.Join(r.modules, "train.py")
		installed, err := Install(r.dir, r.orders, r.names...)
		if err != nil {
			t.Fatal(err)
		}
		if err := os.MkdirAll(filepath.Join(r.dir, "rank0"), 0o755); err != nil {
			t.Fatal(err)
		}
		for k, v := range installed.Variables(0, cmd.Env) {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
	}
	cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
	return cmd
}

// run runs a script to its end.
func (r *trial) run(t *testing.T, script string) (stdout, stderr string, code int) {
	t.Helper()
	cmd := r.command(t, script)
	var out, err strings.Builder
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil && !errors.As(e, new(*exec.ExitError)) {
		t.Fatal(e)
	}
	return out.String(), err.String(), cmd.ProcessState.ExitCode()
}

// report is what the rank wrote about its end, nil for nothing.
func (r *trial) report(t *testing.T) *report {
	t.Helper()
	text, err := os.ReadFile(filepath.Join(r.dir, "rank0", probeFile))
	if errors.Is(err, fs.ErrNotExist) {
		return nil
	}
	if err != nil {
		t.Fatal(err)
	}
	var told report
	if err := json.Unmarshal(text, &told); err != nil {
		t.Fatalf("%v in %s", err, text)
	}
	return &told
}

// An exception that ends the rank's main thread is reported, and nothing else is.
func TestEndIsReported(t *testing.T) {
	for _, test := range []struct {
		name, script string
		want         string // the type, empty for no file
		code         int
		flags        []string
	}{
		{name: "exception", script: "raise ValueError('bad')", want: "ValueError", code: 1},
		{name: "exception of a module", script: "import subprocess; raise subprocess.SubprocessError()", want: "subprocess.SubprocessError", code: 1},
		{name: "memory", script: "bytearray(1 << 62)", want: "MemoryError", code: 1},
		{name: "chained", script: "try:\n  1/0\nexcept Exception:\n  raise RuntimeError('second')", want: "RuntimeError", code: 1},
		{name: "message that cannot be had", script: "class E(Exception):\n  def __str__(self): return 1 + ''\nraise E()", want: "E", code: 1},
		{name: "words that are no UTF-8", script: "raise ValueError('\\udc80 \\U0001f525')", want: "ValueError", code: 1},
		{name: "syntax error in an import", script: "compile('1 +', 'x.py', 'exec')", want: "SyntaxError", code: 1},
		{name: "endless recursion", script: "def f(): f()\nf()", want: "RecursionError", code: 1},
		{name: "end", script: "pass"},
		{name: "caught", script: "try:\n  1/0\nexcept Exception: pass"},
		{name: "SystemExit with a code", script: "import sys; sys.exit(3)", code: 3},
		{name: "SystemExit with words", script: "import sys; sys.exit('no data')", code: 1},
		{name: "SystemExit out of an exception", script: "try:\n  1/0\nexcept Exception as e: raise SystemExit(4)", code: 4},
		{name: "KeyboardInterrupt", script: "raise KeyboardInterrupt()", code: -1},
		{name: "interrupt in a callback", code: -1, script: "import os, signal, weakref\nclass A: pass\na = A()\nr = weakref.ref(a, lambda _: (os.kill(os.getpid(), signal.SIGINT), [i for i in range(9)]))\ndel a\nimport time\ntime.sleep(60)\nos._exit(7)"},
		{name: "interrupt in a finalizer", code: -1, script: "import os, signal\nclass A:\n  def __del__(self): os.kill(os.getpid(), signal.SIGINT)\na = A()\ndel a\nimport time\ntime.sleep(60)\nos._exit(7)"},
		{name: "exception in a finalizer", code: 7, script: "import os\nclass A:\n  def __del__(self): 1/0\na = A()\ndel a\nos._exit(7)"},
		{name: "os._exit", script: "import os; os._exit(3)", code: 3},
		{name: "thread", script: "import threading\nt = threading.Thread(target=lambda: 1/0); t.start(); t.join()"},
		{name: "thread without threading", script: "import _thread, time\nl = _thread.allocate_lock(); l.acquire()\ndef f():\n  try: 1/0\n  finally: l.release()\n_thread.start_new_thread(f, ()); l.acquire(); time.sleep(0.05)"},
		{name: "fork", script: "import os\np = os.fork()\nif not p: 1/0\nos.waitpid(p, 0)"},
		{name: "fork that exits", script: "import os, sys\np = os.fork()\nif not p: sys.exit(3)\nos.waitpid(p, 0)"},
		{name: "fork with its own session", script: "import os\np = os.fork()\nif not p: os.setsid(); 1/0\nos.waitpid(p, 0)"},
		{name: "worker, forked", script: workers("fork")},
		{name: "worker, spawned", script: workers("spawn")},
		{name: "worker of a server", script: workers("forkserver")},
		{name: "child process", script: "import subprocess, sys; subprocess.call([sys.executable, '-c', '1/0'])"},
		{name: "child process with its own session", script: "import subprocess, sys; subprocess.call([sys.executable, '-c', '1/0'], start_new_session=True)"},
		{name: "child of a rank that knows nothing of the probe", flags: []string{"-I"}, script: "import subprocess, sys; subprocess.call([sys.executable, '-c', '1/0'], start_new_session=True)"},
		{name: "printed by the program", script: "import sys\ntry: 1/0\nexcept Exception: sys.excepthook(*sys.exc_info())"},
		{name: "printed, and ended with a code of its own", script: "import sys\ntry: 1/0\nexcept Exception: sys.excepthook(*sys.exc_info())\nsys.exit(3)", code: 3},
		{name: "without site", script: "1/0", flags: []string{"-S"}, code: 1},
		{name: "isolated", script: "1/0", flags: []string{"-I"}, code: 1},
		{name: "without environment", script: "1/0", flags: []string{"-E"}, code: 1},
		{name: "interactive", script: "1/0", flags: []string{"-i"}},
		{name: "verbose", script: "1/0", flags: []string{"-v"}, want: "ZeroDivisionError", code: 1},
		{name: "without bytecode", script: "1/0", flags: []string{"-B"}, want: "ZeroDivisionError", code: 1},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.flags = test.flags
			_, stderr, code := r.run(t, test.script)
			if code != test.code {
				t.Errorf("exit code %d, want %d; stderr:\n%s", code, test.code, stderr)
			}
			told := r.report(t)
			if told == nil {
				told = &report{}
			}
			if told.Type != test.want {
				t.Errorf("told of %q, want %q; stderr:\n%s", told.Type, test.want, stderr)
			}
			if test.want != "" && (told.Time == 0 || told.PID == 0 || !strings.Contains(told.Traceback, "train.py")) {
				t.Errorf("told %+v", *told)
			}
		})
	}
}

// workers lets a worker process fail, which the rank outlives.
func workers(method string) string {
	return `import multiprocessing
def work(): raise ValueError("worker")
if __name__ == "__main__":
    p = multiprocessing.get_context("` + method + `").Process(target=work)
    p.start()
    p.join()
`
}

// Hooks that a program sets for itself do not keep the probe from telling, and are
// called as they would be.
func TestHooksOfTheProgramRun(t *testing.T) {
	const own = "import sys\ndef own(kind, value, trace):\n  print('own hook', kind.__name__)\n"
	for _, test := range []struct{ name, before, script string }{
		{name: "set before", before: own + "sys.excepthook = own", script: "1/0"},
		{name: "set after, calls the one before", script: own + "  before(kind, value, trace)\nbefore = sys.excepthook\nsys.excepthook = own\n1/0"},
		{name: "set after, calls the original", script: own + "  sys.__excepthook__(kind, value, trace)\nsys.excepthook = own\n1/0"},
		{name: "set after, replaces", script: own + "sys.excepthook = own\n1/0"},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			if test.before != "" {
				r.module(t, "sitecustomize", test.before)
			}
			stdout, stderr, _ := r.run(t, test.script)
			if stdout != "own hook ZeroDivisionError\n" {
				t.Errorf("stdout %q, stderr %q", stdout, stderr)
			}
			if told := r.report(t); told == nil || told.Type != "ZeroDivisionError" {
				t.Errorf("told %+v", told)
			}
		})
	}
}

// A hook that hangs comes after the file: the file is there while the rank lives.
func TestEndIsReportedBeforeAnythingHangs(t *testing.T) {
	for name, script := range map[string]string{
		"excepthook": "import sys, signal\nsys.stdout.flush()\ndef own(*_):\n  sys.__excepthook__(*_); print('hangs', flush=True); signal.pause()\nsys.excepthook = own\n1/0",
		"atexit":     "import atexit, signal\n@atexit.register\ndef end():\n  print('hangs', flush=True); signal.pause()\n1/0",
		"thread":     "import threading, signal\ndef run():\n  threading.main_thread().join(); print('hangs', flush=True); threading.Event().wait()\nthreading.Thread(target=run).start()\n1/0",
		"destructor": "import signal\nclass C:\n  def __del__(self, write=print, pause=signal.pause): write('hangs', flush=True); pause()\nc = C()\n1/0",
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			cmd := r.command(t, script)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			defer func() {
				_ = cmd.Process.Kill()
				_ = cmd.Wait()
			}()
			line := make([]byte, 6)
			if _, err := out.Read(line); err != nil || string(line) != "hangs\n" {
				t.Fatalf("stdout %q, %v", line, err)
			}
			if told := r.report(t); told == nil || told.Type != "ZeroDivisionError" {
				t.Errorf("told %+v", told)
			}
		})
	}
}

// fakeTorch is as much of PyTorch as the probe asks, on a node with three devices
// of which the process uses the second.
const fakeTorch = `
import signal
class cuda:
    is_initialized = staticmethod(lambda: True)
    current_device = staticmethod(lambda: 1)
    device_count = staticmethod(lambda: 3)
    max_memory_reserved = staticmethod(lambda i: 75 * (i == 1))
    max_memory_allocated = staticmethod(lambda i: 72)
    memory_reserved = staticmethod(lambda i: 74)
    memory_allocated = staticmethod(lambda i: 70)
    def mem_get_info(i):
        %s
`

// PyTorch's figures of the memory are reported too, if PyTorch was there. The driver may
// hang while it is asked, and the file must be there before.
func TestDevicesAreReported(t *testing.T) {
	free, total := int64(3), int64(80)
	full := []onDevice{{Device: 1, Current: true, Allocated: 70, Reserved: 74, Free: &free, Total: &total}}
	half := []onDevice{{Device: 1, Current: true, Allocated: 70, Reserved: 74}}
	for _, test := range []struct {
		name, info, script string
		want               []onDevice
	}{
		{"all", "return 3, 80", "import torch; 1/0", full},
		{"lost device", "raise RuntimeError('CUDA error')", "import torch; 1/0", half},
		{"not imported", "return 3, 80", "1/0", nil},
		{"driver that hangs", "print('hangs', flush=True); signal.pause()", "import torch; 1/0", nil},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.module(t, "torch", fmt.Sprintf(fakeTorch, test.info))
			cmd := r.command(t, test.script)
			out, err := cmd.StdoutPipe()
			if err == nil {
				err = cmd.Start()
			}
			if err != nil {
				t.Fatal(err)
			}
			if n, _ := out.Read(make([]byte, 6)); n > 0 { // not at the end
				_ = cmd.Process.Kill()
			}
			_ = cmd.Wait()
			told := r.report(t)
			if told == nil || told.Type != "ZeroDivisionError" {
				t.Fatalf("told %+v", told)
			}
			if diff := cmp.Diff(test.want, told.Memory); diff != "" {
				t.Error(diff)
			}
		})
	}
}

// A script sees the same Python with the probe as without it.
func TestPythonLooksAsWithoutTheHook(t *testing.T) {
	const look = `
import os, site, sys
print(sys.path, sorted(set(sys.modules) - {'atexit'}), sorted(sys.path_importer_cache))
print(sorted((k, v) for k, v in os.environ.items() if not k.startswith("_")))
print(sys.excepthook is sys.__excepthook__, sys.unraisablehook is sys.__unraisablehook__, getattr(sys.modules.get("sitecustomize"), "__file__", None))
def f(): raise ValueError("bad")
f()
`
	for _, test := range []struct {
		name    string
		modules map[string]string
		flags   []string
	}{
		{name: "plain"},
		{name: "sitecustomize", modules: map[string]string{"sitecustomize": "import os; os.environ['SEEN'] = __file__; x = 1"}},
		{name: "sitecustomize with a hook", modules: map[string]string{"sitecustomize": "import sys\ndef own(k, v, t): sys.stderr.write(repr((k, v)))\nsys.excepthook = own"}},
		{name: "usercustomize", modules: map[string]string{"usercustomize": "import os; os.environ['SEEN'] = __file__"}},
		{name: "broken sitecustomize", modules: map[string]string{"sitecustomize": "1/0"}},
		{name: "sitecustomize that lacks a module", modules: map[string]string{"sitecustomize": "import nothing_of_that_name"}},
		{name: "isolated", flags: []string{"-I"}},
		{name: "without site", flags: []string{"-S"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.flags, r.names = test.flags, []string{"HOME"}
			for name, text := range test.modules {
				r.module(t, name, text)
			}
			type seen struct {
				Stdout, Stderr string
				Code           int
			}
			var with, without seen
			with.Stdout, with.Stderr, with.Code = r.run(t, look)
			r.bare = true
			without.Stdout, without.Stderr, without.Code = r.run(t, look)
			if diff := cmp.Diff(without.Stdout, with.Stdout); diff != "" && len(test.flags) == 0 {
				t.Errorf("without and with the probe:\n%s", diff)
			}
			without.Stdout, with.Stdout = "", ""
			if diff := cmp.Diff(without, with); diff != "" {
				t.Errorf("without and with the probe:\n%s", diff)
			}
		})
	}
}

// Where nothing can be written, the rank ends as it would.
func TestUnwritableFolderIsNoFailure(t *testing.T) {
	r := newTrial(t)
	cmd := r.command(t, "1/0")
	var stderr strings.Builder
	cmd.Stderr = &stderr
	folder := filepath.Join(r.dir, "rank0")
	if err := errors.Join(os.Remove(folder), os.WriteFile(folder, nil, 0o644)); err != nil {
		t.Fatal(err)
	}
	if err := cmd.Run(); cmd.ProcessState.ExitCode() != 1 {
		t.Errorf("ended with %v", err)
	}
	if got := stderr.String(); strings.Count(got, "ZeroDivisionError") != 1 || strings.Contains(got, "probe") {
		t.Errorf("stderr:\n%s", got)
	}
}

// A path that PYTHONPATH cannot hold is refused; the ranks run without the probe.
func TestInstallRefusesAColon(t *testing.T) {
	if _, err := Install(filepath.Join(t.TempDir(), "12:30"), Orders{}); err == nil {
		t.Error("installed")
	}
}

// What a script has made of the variables that gpurun set is reported with its end.
func TestVariablesAreReported(t *testing.T) {
	r := newTrial(t)
	r.names = []string{"HOME", "GONE"}
	r.run(t, "import os; os.environ['HOME'] = '/other'; os.environ['SECRET'] = 'x'; 1/0")
	if diff := cmp.Diff(map[string]string{"HOME": "/other", "GONE": ""}, Environ(r.dir, 0)); diff != "" {
		t.Error(diff)
	}
	if got := Environ(r.dir, 1); got != nil {
		t.Errorf("a rank that told nothing had %v", got)
	}
}

func TestEnviron(t *testing.T) {
	dir := t.TempDir()
	installed, err := Install(dir, Orders{})
	if err != nil {
		t.Fatal(err)
	}
	hook, _, _ := strings.Cut(installed.Variables(3, nil)["PYTHONPATH"], ":")
	if filepath.Dir(hook) != dir {
		t.Fatalf("the hook is in %s", hook)
	}
	for inherited, want := range map[string]string{
		"": hook, "PYTHONPATH=": hook, "PYTHONPATH=/a:/b": hook + ":/a:/b", "OTHER=/a": hook,
	} {
		got := installed.Variables(3, []string{inherited})
		want := map[string]string{"PYTHONPATH": want, "GPURUN_PROBE_FILE": filepath.Join(dir, "rank3", "probe.json"), "GPURUN_PROBE_ORDERS": filepath.Join(hook, "orders.json")}
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: %s", inherited, diff)
		}
	}
}

// What somebody put where a hook was, or is to be, is never run; and nobody else can
// put something there.
func TestPlantedFilesAreNotRun(t *testing.T) {
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	dir := t.TempDir()
	evil := []byte("open(" + strconv.Quote(filepath.Join(dir, "ran")) + ", 'w').close()\n")
	if err := os.Mkdir(filepath.Join(dir, "probe"), 0o777); err != nil {
		t.Fatal(err)
	}
	if err := os.WriteFile(filepath.Join(dir, "evil.py"), evil, 0o666); err != nil {
		t.Fatal(err)
	}
	// Python runs such a file whatever the source beside it says.
	compile := exec.Command(testenv.Python(t), "-c", "import importlib.util as u, py_compile as c; c.compile('evil.py', u.cache_from_source('probe/sitecustomize.py'), invalidation_mode=c.PycInvalidationMode.UNCHECKED_HASH)")
	compile.Dir = dir
	if out, err := compile.CombinedOutput(); err != nil {
		t.Fatalf("%v: %s", err, out)
	}
	folders := map[string]bool{}
	for range 3 {
		installed, err := Install(dir, Orders{})
		if err != nil {
			t.Fatal(err)
		}
		cmd := exec.Command(testenv.Python(t), "-c", "import sitecustomize")
		cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
		cmd.Env = []string{"PATH=" + os.Getenv("PATH")}
		for k, v := range installed.Variables(0, nil) {
			cmd.Env = append(cmd.Env, k+"="+v)
		}
		_ = cmd.Run() // most hosts have no sitecustomize of their own
		hook := installed.Variables(0, nil)["PYTHONPATH"]
		folders[hook] = true
		err = filepath.WalkDir(hook, func(path string, entry fs.DirEntry, err error) error {
			if err != nil || entry.Name() == "__pycache__" || strings.HasSuffix(path, ".pyc") { // Python's own
				return err
			}
			info, err := entry.Info()
			if err == nil && info.Mode().Perm()&0o077 != 0 {
				t.Errorf("%s has mode %v", path, info.Mode())
			}
			return err
		})
		if err != nil {
			t.Fatal(err)
		}
	}
	if _, err := os.Stat(filepath.Join(dir, "ran")); err == nil {
		t.Error("what was planted was run")
	}
	if len(folders) != 3 {
		t.Errorf("%d folders for 3 attempts", len(folders))
	}
}

// TestAttemptsShareTheHooksFiles: a later attempt links the files of an earlier one, but none that was changed since.
func TestAttemptsShareTheHooksFiles(t *testing.T) {
	t.Setenv("HOME", t.TempDir())
	t.Setenv("XDG_CACHE_HOME", "")
	run := t.TempDir()
	attempt := func(name string, next func(string, Orders, ...string) (*Installed, error)) *Installed {
		t.Helper()
		dir := filepath.Join(run, name)
		if err := os.Mkdir(dir, 0o700); err != nil {
			t.Fatal(err)
		}
		installed, err := next(dir, Orders{})
		if err != nil {
			t.Fatal(err)
		}
		return installed
	}
	rewrite := func(path string) error { // in place, with a text of the same size
		text, err := os.ReadFile(path)
		return errors.Join(err, os.WriteFile(path, bytes.ToUpper(text), 0o600))
	}
	files, err := plantedFiles()
	if err != nil {
		t.Fatal(err)
	}
	for name, spoil := range map[string]func(path string) error{
		"untouched": func(string) error { return nil },
		"changed":   rewrite,
		"opened":    func(path string) error { return os.Chmod(path, 0o666) },
		"removed":   os.Remove,
	} {
		first := attempt(name+"-0", Install)
		for _, f := range files {
			if err := spoil(filepath.Join(first.folder, f.name)); err != nil {
				t.Fatal(err)
			}
		}
		second := attempt(name+"-1", first.Next)
		for _, f := range files {
			var text bytes.Buffer
			path := filepath.Join(second.folder, f.name)
			found, err := os.ReadFile(path)
			if err = errors.Join(err, f.copyTo(&text), system.CheckOwn(path)); err != nil || !bytes.Equal(found, text.Bytes()) {
				t.Errorf("%s: %s of the second attempt: %v, %d bytes, want the %d of the hook", name, f.name, err, len(found), text.Len())
			}
			now, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if !now.ModTime().Equal(sourceTime) {
				t.Errorf("%s: %s has the time %v", name, f.name, now.ModTime())
			}
			before, err := os.Stat(filepath.Join(first.folder, f.name))
			if same := err == nil && os.SameFile(before, now); same != (name == "untouched") {
				t.Errorf("%s: %s is the same file: %v", name, f.name, same)
			}
		}
		if orders := filepath.Join(second.folder, ordersFile); system.CheckOwn(orders) != nil {
			t.Errorf("%s: the second attempt has no orders", name)
		}
	}
}

// TestHookIsAFewFiles: a network's file system takes milliseconds to create each.
func TestHookIsAFewFiles(t *testing.T) {
	installed, err := Install(t.TempDir(), Orders{})
	if err != nil {
		t.Fatal(err)
	}
	files := 0
	err = filepath.WalkDir(installed.folder, func(string, fs.DirEntry, error) error { files++; return nil })
	if err != nil || files > 5 {
		t.Errorf("the hook has %d files and folders, %v; want at most 5", files, err)
	}
}

// BenchmarkStart compares how long Python takes to start with the probe, without
// it, and with one whose compiled form cannot be kept.
func BenchmarkStart(b *testing.B) {
	dir := b.TempDir()
	installed, err := Install(dir, Orders{})
	if err != nil {
		b.Fatal(err)
	}
	path := testenv.Python(b)
	plain := []string{"PATH=" + os.Getenv("PATH"), "HOME=" + dir}
	var probed []string
	for k, v := range installed.Variables(0, plain) {
		probed = append(probed, k+"="+v)
	}
	for _, bench := range []struct {
		name string
		env  []string
	}{
		{"without", nil}, {"with", probed}, {"uncompiled", append(probed, "PYTHONDONTWRITEBYTECODE=1")},
	} {
		b.Run(bench.name, func(b *testing.B) {
			for b.Loop() {
				cmd := exec.Command(path, "-c", "pass")
				cmd.Env = append(plain[:len(plain):len(plain)], bench.env...)
				cmd.SysProcAttr = &syscall.SysProcAttr{Setsid: true}
				if out, err := cmd.CombinedOutput(); err != nil {
					b.Fatalf("%v: %s", err, out)
				}
			}
		})
	}
}
