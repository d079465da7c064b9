package test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// podman runs commands in containers with this machine's /usr.
type podman struct {
	image string
	run   []string // podman run, with its options
}

// openPodman makes an image without files. Without a podman that runs here the test is skipped.
func openPodman(t *testing.T) *podman {
	t.Helper()
	t.Setenv("XDG_CONFIG_HOME", t.TempDir()) // podman does not take /dev/null for a folder
	dir := t.TempDir()
	for _, name := range []string{"dev", "etc", "job", "proc", "sys", "tmp", "usr", "var/tmp"} {
		if err := os.MkdirAll(filepath.Join(dir, name), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		if err := os.Symlink("usr/"+name, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
	}
	p := &podman{image: fmt.Sprintf("localhost/gpurun-test:%d", os.Getpid())}
	if out, err := osexec.Command("sh", "-c", `tar -C "$0" -c . | podman import - "$1"`, dir, p.image).CombinedOutput(); err != nil {
		t.Skipf("no podman here: %v %s", err, out)
	}
	t.Cleanup(func() { _ = osexec.Command("podman", "rmi", "--force", p.image).Run() }) // no other test has it
	reason := ""
	for _, options := range [][]string{nil, {"--runtime", "runc"}} { // not every runtime runs within a container
		p.run = slices.Concat([]string{"podman"}, options, []string{"run", "--rm", "--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "-v", "/usr:/usr:ro"})
		out, err := osexec.Command(p.run[0], append(p.run[1:], p.image, "true")...).CombinedOutput()
		if err == nil {
			return p
		}
		reason = string(out)
	}
	t.Skipf("podman runs no container here: %s", reason)
	return nil
}

// job returns a command in a job's folder with gpurun in a container.
func (p *podman) job(t *testing.T, dir string, words ...string) *osexec.Cmd {
	t.Helper()
	all := slices.Concat(p.run, []string{"-v", binary(t) + ":/gpurun:ro", "-v", dir + ":/job", "-w", "/job"}, words)
	cmd := osexec.Command(all[0], all[1:]...)
	cmd.Env = append(os.Environ(), crewMark+dir)
	return cmd
}

// TestPodman runs gpurun in containers of podman: a job is rescued, and podman stop ends one in time. In front of
// podman gpurun is refused.
func TestPodman(t *testing.T) {
	lab(t)
	p := openPodman(t)
	t.Run("rescued", func(t *testing.T) {
		dir := nodesJob(t)
		rest(t, dir)
		nights{job: dir}.edit(t, "train.sh", "[ $RANK = 2 ] || exec sleep 1000", "")
		out, code := ended(t, p.job(t, dir, p.image, "/gpurun", "--run-dir", "run", "train.toml"))
		if code != 0 {
			t.Fatalf("code %d\n%s", code, out)
		}
		if v := readVerdict(t, filepath.Join(dir, "run")); len(v.Attempts) != 2 || v.Attempts[1].Plan[strategy.MicroBatchSize] != "4" {
			t.Errorf("%+v\n%s", v, out)
		}
	})
	t.Run("stopped", func(t *testing.T) {
		dir := home(t, map[string]string{"train.sh": savesLate, "train.toml": nodesTOML})
		name := "gpurun-" + filepath.Base(filepath.Dir(dir))
		cmd := p.job(t, dir, "--name", name, "--stop-timeout", "30", p.image, "/gpurun", "--run-dir", "run", "train.toml")
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		await(t, "steps", func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
		if out, err := osexec.Command("podman", "stop", name).CombinedOutput(); err != nil {
			t.Fatalf("%v %s", err, out)
		}
		_ = cmd.Wait() // its code is checked
		if v := readVerdict(t, filepath.Join(dir, "run")); cmd.ProcessState.ExitCode() != 143 || v.Code != 143 {
			t.Errorf("code %d, %+v", cmd.ProcessState.ExitCode(), v)
		}
		if _, err := os.Stat(filepath.Join(dir, "saved")); err != nil {
			t.Error(err)
		}
	})
	t.Run("in front", func(t *testing.T) {
		cmd := osexec.Command(binary(t), append(slices.Clone(p.run), p.image, "sh", "train.sh")...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), p.image+" gpurun sh train.sh\n") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
