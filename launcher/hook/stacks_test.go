package hook

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

func TestParseStacks(t *testing.T) {
	const worker = "Thread 0x00007f0000000001 (most recent call first):\n  File \"/usr/lib/python3.11/threading.py\", line 320 in wait\n  File \"/usr/lib/python3.11/threading.py\", line 995 in _bootstrap\n\n"
	const main = "Thread 0x00007f0000000002 (most recent call first):\n  File \"/home/u/my, \"dear\" job.py\", line 7 in step\n  File \"/home/u/train.py\", line 9 in <module>\n"
	want := []cause.StackFrame{{File: "/home/u/my, \"dear\" job.py", Line: 7, Function: "step"}, {File: "/home/u/train.py", Line: 9, Function: "<module>"}}
	const torch = "Thread 0x00007f0000000002 (most recent call first):\n  File \"/usr/lib/torch/autograd/__init__.py\", line 197 in backward\n"
	backward := []cause.StackFrame{{File: "/usr/lib/torch/autograd/__init__.py", Line: 197, Function: "backward"}}
	const runpy = "  File \"<frozen runpy>\", line 198 in _run_module_as_main\n"
	for name, test := range map[string]struct {
		text    string
		frames  []cause.StackFrame
		threads int
		whole   bool
	}{
		"one thread":            {"Current " + strings.ToLower(main[:1]) + main[1:], want, 1, true},
		"behind a worker":       {worker + "Current " + strings.ToLower(main[:1]) + main[1:], want, 2, true},
		"a worker was found":    {"Current " + strings.ToLower(worker[:1]) + worker[1:] + main, want, 2, true},
		"names, as of 3.14":     {strings.Replace(main, "2 (most", "2 [python] (most", 1), want, 1, true},
		"no module":             {worker, []cause.StackFrame{{File: "/usr/lib/python3.11/threading.py", Line: 320, Function: "wait"}, {File: "/usr/lib/python3.11/threading.py", Line: 995, Function: "_bootstrap"}}, 1, false},
		"half a line":           {strings.TrimSuffix(main, "\n"), want[:1], 1, false},
		"its innermost calls":   {worker + torch, backward, 2, false},
		"python -m":             {worker + torch + runpy, append(backward[:1:1], cause.StackFrame{File: "<frozen runpy>", Line: 198, Function: "_run_module_as_main"}), 2, true},
		"a hundred calls":       {worker + torch + "  ...\n", backward, 2, false},
		"no frame":              {"Thread 0x00007f0000000001 (most recent call first):\n  <no Python frame>\n", nil, 0, false},
		"nothing":               {"", nil, 0, false},
		"frames without thread": {"  File \"a.py\", line 1 in b\n", nil, 0, false},
	} {
		got, whole := parseStacks([]byte(test.text))
		if whole != test.whole || cmp.Diff(test.frames, got.Frames) != "" || got.Threads != test.threads {
			t.Errorf("%s: %+v, %v", name, got, whole)
		}
	}
}

func TestParseSpied(t *testing.T) {
	const text = `[{"pid":7,"thread_id":9,"thread_name":"worker","os_thread_id":9,"frames":[{"name":"wait","filename":"/a.py","line":1}]},
		{"pid":7,"thread_id":8,"thread_name":"MainThread","os_thread_id":7,"active":false,"owns_gil":false,"frames":[{"name":"step","filename":"/t.py","module":null,"short_filename":"t.py","line":5,"locals":null}]}]`
	want := strategy.Stack{PID: 7, Threads: 2, Frames: []cause.StackFrame{{File: "/t.py", Line: 5, Function: "step"}}}
	if got, ok := parseSpied([]byte(text), 7); !ok || cmp.Diff(want, got) != "" {
		t.Errorf("%+v, %v", got, ok)
	}
	for _, text := range []string{"", "{}", "[]", `[{"os_thread_id":7,"frames":[]}]`} {
		if got, ok := parseSpied([]byte(text), 7); ok {
			t.Errorf("%q: %+v", text, got)
		}
	}
}

// py-spy itself, where it is installed, says where a process is that has no probe.
func TestSpied(t *testing.T) {
	if _, err := exec.LookPath("py-spy"); err != nil {
		t.Skip("py-spy is not installed")
	}
	script := filepath.Join(t.TempDir(), "sleeps.py")
	if err := os.WriteFile(script, []byte("import time\n\ndef sleeps():\n    print('now', flush=True)\n    time.sleep(1000)\n\nsleeps()\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command("python3", script)
	out, err := cmd.StdoutPipe()
	if err != nil || cmd.Start() != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { cmd.Process.Kill(); cmd.Wait() })
	if _, err := out.Read(make([]byte, 4)); err != nil {
		t.Fatal(err)
	}
	s, ok := Spied(cmd.Process.Pid)
	if !ok || len(s.Frames) == 0 || s.Frames[0].Function != "sleeps" {
		t.Errorf("%+v, %v", s, ok)
	}
}
