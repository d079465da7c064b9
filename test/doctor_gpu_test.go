package test

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/doctor"
)

// visit runs gpurun doctor, and returns its results by name.
func visit(t *testing.T, c card, env []string, flags ...string) map[string]doctor.Result {
	t.Helper()
	cmd := osexec.Command(binary(t), append([]string{"doctor", "--json"}, flags...)...)
	cmd.Dir = t.TempDir()
	cmd.Env = append(append(os.Environ(), "PYTHON_EXEC="+c.python), env...)
	begin := time.Now()
	out, err := cmd.Output()
	var r doctor.Report
	if failed := json.Unmarshal(out, &r); failed != nil {
		t.Fatalf("%v, %v\n%s", err, failed, out)
	}
	t.Logf("%v took %s: %s", flags, time.Since(begin).Round(time.Millisecond), r.Summary())
	results := map[string]doctor.Result{}
	for _, one := range r.Checks {
		t.Logf("%-8s %-15s %s", one.State, one.Name, one.Found)
		results[one.Name] = one
	}
	if code := cmd.ProcessState.ExitCode(); code != r.Code() {
		t.Errorf("exit code %d with %d problems", code, r.Problems)
	}
	if took := time.Since(begin); took > time.Minute {
		t.Errorf("took %s", took)
	}
	return results
}

// free waits until the GPU's memory is free again.
func (c card) free(t *testing.T) {
	t.Helper()
	await(t, "the GPU's memory to be free", func() bool {
		used, _ := c.level(t)
		return used < c.before+512<<20
	})
}

// A working GPU, a GPU in use, and a hidden GPU. No memory is held afterwards.
func TestDoctorOnAGPU(t *testing.T) {
	c := realCard(t)
	results := visit(t, c, nil)
	for _, name := range []string{"interpreter", "torch", "devices", "other users", "NCCL"} {
		if r := results[name]; r.State != doctor.OK && (name != "NCCL" || r.State != doctor.Skipped) {
			t.Errorf("%+v", r)
		}
	}
	if r := results["health"]; r.State == doctor.Problem || r.State == doctor.Skipped {
		t.Errorf("%+v", r)
	}
	c.free(t)

	dir := home(t, map[string]string{"hold.py": holder})
	cmd, _ := c.start(t, dir, c.python, filepath.Join(dir, "hold.py"), "4")
	defer func() { _, _ = cmd.Process.Kill(), cmd.Wait() }()
	await(t, "somebody to use the GPU", func() bool {
		ready, err := filepath.Glob(filepath.Join(dir, "ready*"))
		return err == nil && len(ready) > 0
	})
	results = visit(t, c, []string{"CUDA_VISIBLE_DEVICES=0"})
	if r := results["other users"]; r.State != doctor.Warning || !strings.Contains(r.Found, "GPU 0: ") {
		t.Errorf("%+v", r)
	}
	if r := visit(t, c, []string{"CUDA_VISIBLE_DEVICES="})["devices"]; r.State != doctor.Warning || !strings.Contains(r.Found, "hides") {
		t.Errorf("%+v", r)
	}
}
