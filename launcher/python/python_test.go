package python

import (
	"context"
	"errors"
	"fmt"
	"io/fs"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/test/testenv"
)

// real is an interpreter of this machine.
func real(t *testing.T) string {
	t.Helper()
	name := os.Getenv("GPURUN_TEST_PYTHON")
	if name == "" {
		name = "python3"
	}
	path, err := exec.LookPath(name)
	if err != nil {
		t.Skipf("this machine has no Python: %v", err)
	}
	return path
}

// write makes a file, in folders that it makes.
func write(t *testing.T, path, text string) {
	t.Helper()
	testenv.Check(t, os.MkdirAll(filepath.Dir(path), 0o755))
	testenv.Check(t, os.WriteFile(path, []byte(text), 0o755))
}

// counting is an interpreter that notes each of its starts.
func counting(t *testing.T, run string) (path string, starts func() []string) {
	t.Helper()
	dir := t.TempDir()
	path, log := filepath.Join(dir, "python3"), filepath.Join(dir, "starts")
	write(t, path, fmt.Sprintf("#!/bin/sh\necho \"$3\" >> %s\n%s\n", log, run))
	return path, func() []string {
		text, err := os.ReadFile(log)
		if err != nil && !errors.Is(err, fs.ErrNotExist) {
			t.Fatal(err)
		}
		return strings.Split(strings.TrimSuffix(string(text), "\n"), "\n")
	}
}

// A real interpreter reports its packages, the first of two with one name, its version
// and where files are, in one start.
func TestInterpreterIsQueriedOnce(t *testing.T) {
	path, starts := counting(t, "exec "+real(t)+` "$@"`)
	first, second, work := t.TempDir(), t.TempDir(), t.TempDir()
	write(t, filepath.Join(first, "Frame_Work-2.5.dist-info", "METADATA"), "Metadata-Version: 2.1\nName: Frame_Work\nVersion: 2.5\n")
	write(t, filepath.Join(second, "Frame_Work-1.0.dist-info", "METADATA"), "Metadata-Version: 2.1\nName: Frame_Work\nVersion: 1.0\n")
	write(t, filepath.Join(second, "broken-1.0.dist-info", "nothing"), "")
	write(t, filepath.Join(second, "recipes", "train.py"), "train")
	write(t, filepath.Join(work, "recipes", "here.py"), "here")
	env := commandline.ParseEnviron(os.Environ()).With(map[string]string{"PYTHONPATH": first + ":" + second})
	i := At(path, work, env)
	packages, err := i.Packages(t.Context())
	if err != nil || packages["frame_work"] != "2.5" {
		t.Errorf("packages: %q, %v", packages, err)
	}
	if version, err := i.Version(t.Context()); err != nil || !strings.HasPrefix(version, "3.") {
		t.Errorf("version %q, %v", version, err)
	}
	files, err := At(path, work, env).Files(t.Context(), "recipes/here.py", "recipes/train.py", "json/tool.py")
	if err != nil || files[0] != "" || files[1] != filepath.Join(second, "recipes/train.py") || !strings.HasSuffix(files[2], "json/tool.py") {
		t.Errorf("files: %q, %v", files, err)
	}
	if text, err := i.ReadFile(t.Context(), "recipes/train.py"); err != nil || string(text) != "train" {
		t.Errorf("%q, %v", text, err)
	}
	if _, err := i.ReadFile(t.Context(), "recipes/here.py"); !errors.Is(err, fs.ErrNotExist) || !strings.Contains(err.Error(), path) {
		t.Errorf("a file of the working directory: %v", err)
	}
	if got := starts(); len(got) != 1 {
		t.Errorf("started %d times", len(got))
	}
}

// Who wants to know where files are does not wait for the packages to be listed.
func TestPackagesAreListedOnDemand(t *testing.T) {
	path, starts := counting(t, "exec "+real(t)+` "$@"`)
	i := At(path, t.TempDir(), commandline.ParseEnviron(os.Environ()))
	for range 2 {
		if files, err := i.Files(t.Context(), "json/tool.py"); err != nil || files[0] == "" {
			t.Errorf("%q, %v", files, err)
		}
	}
	for range 2 {
		if _, err := i.Packages(t.Context()); err != nil {
			t.Error(err)
		}
	}
	if got := strings.Join(starts(), ","); got != ",packages" {
		t.Errorf("started for %q", got)
	}
}

// Another environment or directory is another interpreter: what it finds differs.
func TestInterpretersDifferByEnvironment(t *testing.T) {
	python, dir := real(t), t.TempDir()
	write(t, filepath.Join(dir, "mine.py"), "")
	env := commandline.ParseEnviron(os.Environ())
	for _, test := range []struct{ path, want string }{{"", ""}, {dir, filepath.Join(dir, "mine.py")}} {
		files, err := At(python, t.TempDir(), env.With(map[string]string{"PYTHONPATH": test.path})).Files(t.Context(), "mine.py")
		if err != nil || files[0] != test.want {
			t.Errorf("PYTHONPATH=%s: %q, %v", test.path, files, err)
		}
	}
}

// Nothing of the job's is imported, even where it is called like something of Python's.
func TestNothingOfTheJobIsImported(t *testing.T) {
	work := t.TempDir()
	for _, name := range []string{"json.py", "importlib/metadata.py", "importlib/__init__.py", "email.py", "csv.py"} {
		write(t, filepath.Join(work, name), "import os; os.mkdir('imported')\n")
	}
	if _, err := At(real(t), work, commandline.ParseEnviron(os.Environ())).Packages(t.Context()); err != nil {
		t.Error(err)
	}
	if _, err := os.Stat(filepath.Join(work, "imported")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the job's module has run: %v", err)
	}
}

// An interpreter that does not answer is reported, with its path and the reason, and
// is not asked again.
func TestInterpreterWithoutAnswer(t *testing.T) {
	for name, test := range map[string]struct{ run, want string }{
		"fails":       {"echo 'libpython3.so: cannot open' >&2; exit 127", "exit status 127: libpython3.so: cannot open"},
		"says junk":   {"echo welcome; echo '{\"a\": 1}'", "its output is not an answer"},
		"says naught": {":", "its output is not an answer"},
		"is too old":  {`echo '{"version": "3.7.1", "path": []}'`, "importlib.metadata came with Python 3.8"},
		"never stops": {"exec yes", "it prints more than an answer"},
	} {
		path, starts := counting(t, test.run)
		i := At(path, t.TempDir(), commandline.Environ{"PATH": os.Getenv("PATH")})
		for range 2 {
			packages, err := i.Packages(t.Context())
			if err == nil || packages != nil || !strings.Contains(err.Error(), path) || !strings.Contains(err.Error(), test.want) {
				t.Errorf("%s: %q, %v", name, packages, err)
			}
		}
		if got := starts(); len(got) != 1 {
			t.Errorf("%s: started %d times", name, len(got))
		}
	}
	gone := filepath.Join(t.TempDir(), "python")
	if _, err := At(gone, t.TempDir(), nil).Version(t.Context()); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("one that is not there: %v", err)
	}
}

// What a sitecustomize prints before is no part of the answer.
func TestOutputBeforeTheAnswer(t *testing.T) {
	path, _ := counting(t, `printf 'loading site packages'; exec `+real(t)+` "$@"`)
	if version, err := At(path, t.TempDir(), commandline.ParseEnviron(os.Environ())).Version(t.Context()); err != nil || version == "" {
		t.Errorf("%q, %v", version, err)
	}
}

// hanging is an interpreter that hangs with a child process, whose process id it
// writes to a file.
func hanging(t *testing.T) (i *Interpreter, child string) {
	t.Helper()
	child = filepath.Join(t.TempDir(), "child")
	path, _ := counting(t, fmt.Sprintf("sleep 600 & echo $! > %s.tmp; mv %s.tmp %s; wait", child, child, child))
	return At(path, t.TempDir(), commandline.Environ{"PATH": os.Getenv("PATH")}), child
}

// A program that imports what the job imports may take longer than the other questions.
func TestImportsTakeTheirTime(t *testing.T) {
	path, _ := counting(t, "sleep 0.3; echo 7")
	i := At(path, t.TempDir(), commandline.Environ{"PATH": os.Getenv("PATH")})
	i.bound = time.Millisecond
	if text, err := i.OutputInJob(t.Context(), "import torch", nil); err != nil || strings.TrimSpace(text) != "7" {
		t.Errorf("%q, %v", text, err)
	}
}

// gone waits until the process is gone that a file names.
func gone(t *testing.T, child string) {
	t.Helper()
	pid, err := os.ReadFile(child)
	testenv.Check(t, err)
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		stat, err := os.ReadFile("/proc/" + strings.TrimSpace(string(pid)) + "/stat")
		if err != nil || strings.Contains(string(stat), ") Z ") {
			return
		}
		if time.Now().After(end) {
			t.Fatalf("process %s is still there", pid)
		}
	}
}

// One that hangs is given up, with all that it started.
func TestHangingInterpreter(t *testing.T) {
	for bound := 300 * time.Millisecond; ; bound *= 2 {
		i, child := hanging(t)
		i.bound = bound
		if _, err := i.Packages(t.Context()); err == nil || !strings.Contains(err.Error(), fmt.Sprintf("has not answered after %s", bound)) {
			t.Fatal(err)
		}
		if _, err := os.Stat(child); err == nil { // it had time to start one
			gone(t, child)
			break
		}
	}
}

// Who stops waiting has an end at once, and does not spoil the answer for others.
func TestCancelledInterpreter(t *testing.T) {
	i, child := hanging(t)
	ctx, cancel := context.WithCancelCause(t.Context())
	stop := errors.New("stopped")
	result := make(chan error, 2)
	for range 2 { // one asks, one waits for the other
		go func() {
			_, err := i.Packages(ctx)
			result <- err
		}()
	}
	for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
		if _, err := os.Stat(child); err == nil {
			break
		}
		if time.Now().After(end) {
			t.Fatal("it was not started")
		}
	}
	cancel(stop)
	for range 2 {
		if err := <-result; !errors.Is(err, stop) {
			t.Error(err)
		}
	}
	gone(t, child)
	write(t, i.Path(), "#!/bin/sh\necho '{\"version\": \"3.12.0\", \"packages\": {}}'\n")
	if _, err := i.Packages(t.Context()); err != nil {
		t.Errorf("asked again: %v", err)
	}
}

// An interpreter that only a wrapper finds is asked through the wrapper, which is
// looked for in the job's own PATH.
func TestInterpreterBehindAWrapper(t *testing.T) {
	bin, log := t.TempDir(), filepath.Join(t.TempDir(), "words")
	write(t, filepath.Join(bin, "uv"), fmt.Sprintf("#!/bin/sh\necho \"$1 $2 $3\" >> %s\n[ $(printf '%%s' \"$*\" | wc -l) = 0 ] || exit 3\nshift 2\nexec %s \"$@\"\n", log, real(t)))
	env := commandline.ParseEnviron(os.Environ()).With(map[string]string{"PATH": bin + ":" + os.Getenv("PATH")})
	i := Through([]string{"uv", "run", "-q"}, t.TempDir(), env, true)
	if version, err := i.Version(t.Context()); err != nil || !strings.HasPrefix(version, "3.") {
		t.Errorf("version %q, %v", version, err)
	}
	if text, err := os.ReadFile(log); err != nil || string(text) != "run -q -c\n" {
		t.Errorf("asked by %q, %v", text, err)
	}
	if i.Path() != "uv run -q" || i.bound != installBound {
		t.Errorf("%q, %v", i.Path(), i.bound)
	}
	if _, err := Through([]string{"nowhere", "run", "python"}, t.TempDir(), env, false).Version(t.Context()); err == nil || !strings.Contains(err.Error(), "nowhere is in no folder of PATH") {
		t.Errorf("a wrapper that is not there: %v", err)
	}
}

// A program is run once for the same input, apart from the job's surroundings.
func TestOutput(t *testing.T) {
	path, starts := counting(t, "exec "+real(t)+` "$@"`)
	work := t.TempDir()
	write(t, filepath.Join(work, "json.py"), "import os; os.mkdir('imported')\n")
	i := At(path, work, commandline.ParseEnviron(os.Environ()).With(map[string]string{"PYTHONPATH": work}))
	program := "import json, sys\nprint(json.dumps(sys.stdin.read().upper()))"
	for range 2 {
		if said, err := i.Output(t.Context(), program, []byte("abc")); err != nil || strings.TrimSpace(string(said)) != `"ABC"` {
			t.Errorf("%q, %v", said, err)
		}
	}
	if said, err := i.Output(t.Context(), program, []byte("d")); err != nil || strings.TrimSpace(string(said)) != `"D"` {
		t.Errorf("%q, %v", said, err)
	}
	if got := starts(); len(got) != 2 {
		t.Errorf("started %d times", len(got))
	}
	if _, err := os.Stat(filepath.Join(work, "imported")); !errors.Is(err, fs.ErrNotExist) {
		t.Errorf("the job's module has run: %v", err)
	}
	if _, err := i.Output(t.Context(), "raise SystemExit('no')", nil); err == nil || !strings.Contains(err.Error(), "no") {
		t.Error(err)
	}
}

// A program that runs with the list of packages has Python's modules, whatever the job's folders
// hold; a fault in it hides no package.
func TestProgramWithPackagesStartsOnce(t *testing.T) {
	for _, program := range []string{"import ast, sys\nsys.stdout.write(ast.__name__ + sys.stdin.read() + '\\n')", "raise ValueError('x')", "(", "import sys\nsys.exit('x')"} {
		dir := t.TempDir()
		write(t, filepath.Join(dir, "lib/ast.py"), "raise RuntimeError('the job ran')\n")
		write(t, filepath.Join(dir, "lib/some-1.0.dist-info/METADATA"), "Metadata-Version: 2.1\nName: some\nVersion: 1.0\n")
		path, starts := counting(t, "exec "+real(t)+" \"$@\"")
		i := At(path, dir, commandline.ParseEnviron([]string{"PATH=" + os.Getenv("PATH"), "PYTHONPATH=" + dir + "/lib"}))
		out, err := i.OutputWithPackages(t.Context(), program, []byte(" read"))
		if want := map[bool]string{true: "ast read", false: "unknown"}[strings.HasPrefix(program, "import ast")]; err != nil || !strings.Contains(string(out), want) {
			t.Errorf("%q: %q, %v, want %q", program, out, err, want)
		}
		packages, err := i.Packages(t.Context())
		if version, _ := i.Version(t.Context()); err != nil || packages["some"] != "1.0" || version == "" || len(starts()) != 1 {
			t.Errorf("%q: %v, %v, %d starts", program, packages, err, len(starts()))
		}
	}
}
