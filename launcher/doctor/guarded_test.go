package doctor

import (
	"bytes"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/python"
)

// strayed is an interpreter that starts a process in a separate session and then hangs,
// and the file in which that process and itself say their numbers.
func strayed(t *testing.T) (path, pids string) {
	t.Helper()
	dir := t.TempDir()
	path, pids = filepath.Join(dir, "python3"), filepath.Join(dir, "pids")
	text := fmt.Sprintf("#!/bin/sh\nsetsid sleep 1000 >/dev/null 2>&1 </dev/null &\necho $$ $! >%[1]s.new\nmv %[1]s.new %[1]s\nexec sleep 1000\n", pids)
	if err := os.WriteFile(path, []byte(text), 0o755); err != nil {
		t.Fatal(err)
	}
	return path, pids
}

// areGone waits until the processes in a file have ended.
func areGone(t *testing.T, pids string) {
	t.Helper()
	for pid := range strings.FieldsSeq(awaitFile(t, pids)) {
		for end := time.Now().Add(2 * time.Minute); ; time.Sleep(5 * time.Millisecond) {
			stat, err := os.ReadFile("/proc/" + pid + "/stat")
			if err != nil || bytes.Contains(stat, []byte(") Z ")) {
				break
			}
			if time.Now().After(end) {
				t.Fatalf("process %s is left", pid)
			}
		}
	}
}

// An interpreter that hangs leaves nothing when the question is given up.
func TestHangingInterpreterLeavesNoProcess(t *testing.T) {
	path, pids := strayed(t)
	p := &patient{python: python.At(path, t.TempDir(), commandline.ParseEnviron(os.Environ()))}
	ctx, cancel := context.WithCancel(t.Context())
	go func() {
		awaitFile(t, pids)
		cancel()
	}()
	if r := p.run(ctx, []check{{name: "interpreter", examine: interpreter}}); r[0].State != Problem && r[0].State != Warning {
		t.Errorf("%+v", r)
	}
	areGone(t, pids)
}

// Nor does it when the doctor is killed.
func TestKilledDoctorLeavesNoProcess(t *testing.T) {
	path, pids := strayed(t)
	text, err := json.Marshal(examination{Subject{Dir: t.TempDir()}, []string{"interpreter"}})
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(os.Args[0])
	cmd.Env = append(os.Environ(), childVariable+"="+string(text), "PYTHON_EXEC="+path)
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	awaitFile(t, pids)
	if err := errors.Join(cmd.Process.Kill(), cmd.Wait()); err == nil {
		t.Error("it was not killed")
	}
	areGone(t, pids)
}

// What a question has on its standard input arrives, and a failure has its reason.
func TestGuardedOutput(t *testing.T) {
	ctx := python.Guarded(t.Context())
	python3, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("no python3")
	}
	i := python.At(python3, t.TempDir(), commandline.ParseEnviron(os.Environ()))
	in := bytes.Repeat([]byte("x"), 1<<20)
	if said, err := i.Output(ctx, "import sys; print(len(sys.stdin.read()))", in); err != nil || string(said) != "1048576\n" {
		t.Errorf("%q, %v", said, err)
	}
	if _, err := i.Output(ctx, "raise SystemExit('no')", nil); err == nil || !strings.Contains(err.Error(), "code 1: no") {
		t.Error(err)
	}
	if _, err := i.Output(ctx, "import os; os.kill(os.getpid(), 9)", nil); err == nil || !strings.Contains(err.Error(), unix.SignalName(unix.SIGKILL)) {
		t.Error(err)
	}
}
