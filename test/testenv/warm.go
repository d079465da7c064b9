package testenv

import (
	"bufio"
	_ "embed"
	"encoding/json"
	"fmt"
	"io"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"testing"
)

//go:embed warm.py
var warmProgram string

// A warmInterpreter has imported PyTorch, and runs each script in a fork of itself.
type warmInterpreter struct {
	folder string // its socket
	stdin  io.Closer
	cmd    *exec.Cmd
}

// started are the interpreters that tests needed, by their paths.
var started struct {
	mu sync.Mutex
	by map[string]*warmInterpreter
}

// warm returns the interpreter with a path, which it starts if it is the first to need it.
func warm(path string) (*warmInterpreter, error) {
	started.mu.Lock()
	defer started.mu.Unlock()
	if w := started.by[path]; w != nil {
		return w, nil
	}
	w, err := startWarm(path)
	if err == nil {
		if started.by == nil {
			started.by = map[string]*warmInterpreter{}
		}
		started.by[path] = w
	}
	return w, err
}

func startWarm(path string) (*warmInterpreter, error) {
	folder, err := os.MkdirTemp("", "gpurun-warm-")
	if err != nil {
		return nil, err
	}
	w := &warmInterpreter{folder: folder, cmd: exec.Command(path, "-c", warmProgram, filepath.Join(folder, "socket"))}
	// The variables that the C library and OpenMP read at the start, as gpurun sets them for a job on the CPU
	// under a ceiling, so that freed memory is returned.
	w.cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "CUDA_VISIBLE_DEVICES=", "MALLOC_MMAP_THRESHOLD_=131072",
		"MALLOC_ARENA_MAX=1", "OMP_NUM_THREADS=1"}
	w.cmd.Stderr = os.Stderr
	if w.stdin, err = w.cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := w.cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	if err := w.cmd.Start(); err != nil {
		return nil, err
	}
	if _, err := bufio.NewReader(out).ReadString('\n'); err != nil {
		return nil, fmt.Errorf("start an interpreter with PyTorch: %w", err)
	}
	return w, nil
}

func stopWarm() {
	for _, w := range started.by {
		w.stdin.Close() // closing its input ends it
		_ = w.cmd.Wait()
		os.RemoveAll(w.folder)
	}
}

// Warmed runs the script of a command, whose program is an interpreter that has PyTorch, to its end. The script
// runs in its own session like a rank, but in a fork of an interpreter that has already imported PyTorch,
// which takes a second. The test's package must use Isolate.
func Warmed(t testing.TB, cmd *exec.Cmd) (stdout, stderr string, code int) {
	t.Helper()
	Torch(t)
	w, err := warm(cmd.Path)
	if err != nil {
		t.Fatal(err)
	}
	environ := map[string]string{}
	for _, word := range cmd.Env {
		name, value, _ := strings.Cut(word, "=")
		environ[name] = value
	}
	dir, err := filepath.Abs(cmd.Dir)
	if err != nil {
		t.Fatal(err)
	}
	outputs := t.TempDir()
	out, errs := filepath.Join(outputs, "stdout"), filepath.Join(outputs, "stderr")
	c, err := net.Dial("unix", filepath.Join(w.folder, "socket"))
	if err != nil {
		t.Fatal(err)
	}
	defer c.Close()
	if err := json.NewEncoder(c).Encode(
		map[string]any{"argv": cmd.Args[1:], "folder": dir, "environ": environ, "stdout": out, "stderr": errs}); err != nil {
		t.Fatal(err)
	}
	if _, err := fmt.Fscan(c, &code); err != nil {
		t.Fatalf("no exit code of %q: %v", cmd.Args, err)
	}
	for path, text := range map[string]*string{out: &stdout, errs: &stderr} {
		written, err := os.ReadFile(path)
		if err != nil {
			t.Fatal(err)
		}
		*text = string(written)
	}
	return stdout, stderr, code
}
