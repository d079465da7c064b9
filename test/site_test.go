package test

import (
	"bytes"
	"fmt"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"sync"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// A site has a configuration that root wrote, a folder of fits for a group, and a gpurun that looks there.
type site struct {
	dir, gpurun string
}

const (
	siteGroup = 5000
	siteUsers = 20
)

func newSite(t *testing.T) site {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can be several users")
	}
	s := site{dir: t.TempDir()}
	s.gpurun = filepath.Join(s.dir, "gpurun")
	link := "-X github.com/gpurun/gpurun/launcher/job.SiteConfig=" + filepath.Join(s.dir, "etc", "config.toml")
	if out, err := exec.Command("go", "build", "-ldflags", link, "-o", s.gpurun, "../cmd/gpurun").CombinedOutput(); err != nil {
		t.Fatalf("go build: %v\n%s", err, out)
	}
	fits := filepath.Join(s.dir, "fits")
	for _, err := range []error{
		os.Chmod(s.dir, 0o755), os.Chmod(filepath.Dir(s.dir), 0o755), os.Mkdir(filepath.Join(s.dir, "etc"), 0o755),
		os.Mkdir(fits, 0o700), os.Chown(fits, 0, siteGroup), os.Chmod(fits, 0o770|os.ModeSetgid|os.ModeSticky),
	} {
		testenv.Check(t, err)
	}
	return s
}

func (s site) configure(t *testing.T, text string) {
	t.Helper()
	testenv.Check(t, os.WriteFile(filepath.Join(s.dir, "etc", "config.toml"), []byte(text), 0o644))
}

// run runs gpurun as a user, in that user's own copy of the job, and returns its output.
func (s site) run(t *testing.T, uid int, args ...string) (string, int) {
	t.Helper()
	home := filepath.Join(s.dir, fmt.Sprintf("home%d", uid))
	work := filepath.Join(home, fmt.Sprintf("project%d", uid))
	if err := os.MkdirAll(work, 0o755); err != nil {
		t.Error(err)
	}
	for name, text := range map[string]string{
		"train.toml": fmt.Sprintf("[job]\nprogram = [\"sh\", \"train.sh\", \"--bs\", \"8\", \"--seed\", \"%d\"]\n[launch]\nnproc_per_node = 1\n"+
			"[knobs]\nmicro_batch_size = { arg = \"--bs\" }\ngradient_accumulation_steps = { arg = \"--accum\", default = 1 }\n", uid),
		"train.sh": "case \"$*\" in\n*'--bs 8'*)\n" +
			"echo 'RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB total capacity; 14.80 GiB already allocated; 2.81 MiB free; 15.00 GiB reserved in total by PyTorch)' >&2\n" +
			"exit 1 ;;\nesac\n",
	} {
		if err := os.WriteFile(filepath.Join(work, name), []byte(text), 0o644); err != nil {
			t.Error(err)
		}
	}
	for _, path := range []string{home, work} {
		if err := os.Chown(path, uid, uid); err != nil {
			t.Error(err)
		}
	}
	cmd := exec.CommandContext(t.Context(), s.gpurun, args...)
	var out bytes.Buffer
	cmd.Dir, cmd.Stdout, cmd.Stderr = work, &out, &out
	cmd.Env = []string{"PATH=" + os.Getenv("PATH"), "HOME=" + home, "XDG_CONFIG_DIRS=" + os.DevNull, "CUDA_VISIBLE_DEVICES="}
	cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: uint32(uid), Gid: uint32(uid), Groups: []uint32{siteGroup}}}
	_ = cmd.Run() // its exit code counts
	return out.String(), cmd.ProcessState.ExitCode()
}

// Twenty users train the same job at once, each in a folder of their own and with another seed. The next one is told
// of the plan that fitted, and starts with it where the site trusts the group. None can loosen what the site locks.
func TestUsersOfASite(t *testing.T) {
	lab(t)
	s := newSite(t)
	const locked = "locked = [\"recovery.max_attempts\"]\n[recovery]\nmax_attempts = 5\n"
	shared := "[fits]\nshared = \"" + filepath.Join(s.dir, "fits") + "\"\n"
	s.configure(t, locked+shared)
	var all sync.WaitGroup
	for n := range siteUsers {
		all.Go(func() {
			if out, code := s.run(t, 6000+n, "train.toml"); code != 0 || strings.Contains(out, "warning") {
				t.Errorf("user %d: %d\n%s", n, code, out)
			}
		})
	}
	all.Wait()
	files, err := filepath.Glob(filepath.Join(s.dir, "fits", "v1", "*", "*"))
	if err != nil || len(files) != siteUsers {
		t.Errorf("%d files, want one of each user for one job: %v, %v", len(files), files, err)
	}
	for _, test := range []struct {
		config, want string
		code         int
		args         []string
	}{
		{locked + shared, "for another user this job fitted with micro batch 8→4, accumulation 1→2: it starts as written", 0, []string{"plan", "train.toml"}},
		{locked + shared, "attempt 1: micro batch 8→4", 0, []string{"--run-id", "own", "train.toml"}},
		{locked + shared + "trust = \"group\"\n", "starting with the plan that fitted", 0, []string{"--run-id", "group", "train.toml"}},
		{locked, "recovery.max_attempts is locked at 5 by " + filepath.Join(s.dir, "etc", "config.toml") + ":1", 2, []string{"--max-attempts", "6", "train.toml"}},
	} {
		s.configure(t, test.config)
		uid := 7000 // knows the job after the second case
		if strings.Contains(test.config, "group") {
			uid = 7001
		}
		if out, code := s.run(t, uid, test.args...); code != test.code || !strings.Contains(out, test.want) {
			t.Errorf("%v: %d, want %q\n%s", test.args, code, test.want, out)
		}
	}
}
