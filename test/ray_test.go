package test

import (
	"cmp"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A rayNode is a Ray of one node.
type rayNode struct {
	program, address, dir string
}

// openRay starts a Ray. GPURUN_TEST_RAY names its program; without one the test is skipped.
func openRay(t *testing.T) *rayNode {
	t.Helper()
	program, err := osexec.LookPath(cmp.Or(os.Getenv("GPURUN_TEST_RAY"), "ray"))
	if err != nil {
		t.Skipf("there is no Ray: %v", err)
	}
	dir, err := os.MkdirTemp("", "ray-") // its sockets need a short path
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { os.RemoveAll(dir) })
	port := freePort(t)
	// Its processes end with the namespace.
	words := append(unshared(t, "--pid", "--fork", "--mount-proc", "--kill-child"), program, "start", "--head", "--block", "--node-ip-address", "127.0.0.1", "--port", freePort(t),
		"--dashboard-port", port, "--num-cpus", "2", "--num-gpus", "0", "--object-store-memory", "80000000", "--temp-dir", dir, "--disable-usage-stats")
	cmd := osexec.Command(words[0], words[1:]...)
	cmd.Env = append(os.Environ(), "PATH="+filepath.Dir(program)+":"+filepath.Dir(binary(t))+":"+os.Getenv("PATH"))
	log, err := os.Create(filepath.Join(dir, "log"))
	if err != nil {
		t.Fatal(err)
	}
	defer log.Close()
	cmd.Stdout, cmd.Stderr = log, log
	if err := cmd.Start(); err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() {
		_ = cmd.Process.Kill()
		_ = cmd.Wait() // it was killed
	})
	r := &rayNode{program: program, address: "http://127.0.0.1:" + port, dir: dir}
	await(t, "Ray's jobs", func() bool { return r.run("job", "list").Run() == nil })
	return r
}

// freePort returns a port that no process listens on.
func freePort(t *testing.T) string {
	t.Helper()
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	_, port, err := net.SplitHostPort(l.Addr().String())
	if err != nil {
		t.Fatal(err)
	}
	return port
}

func (r *rayNode) run(words ...string) *osexec.Cmd {
	cmd := osexec.Command(r.program, words...)
	cmd.Env = append(os.Environ(), "RAY_ADDRESS="+r.address, "PATH="+filepath.Dir(r.program)+":"+os.Getenv("PATH"))
	return cmd
}

// submit runs the documented line, adapted to a job's folder and a machine without GPUs.
func (r *rayNode) submit(t *testing.T, dir string, options ...string) (out string, err error) {
	t.Helper()
	blocks, err := testenv.Blocks(contents(t, filepath.Join(testenv.Root(t), "docs"))["schedulers.md"])
	if err != nil {
		t.Fatal(err)
	}
	at := slices.IndexFunc(blocks, func(b testenv.Block) bool { return strings.HasPrefix(b.Text, "ray job submit ") })
	line := strings.NewReplacer("ray job submit", "ray job submit "+strings.Join(options, " "), "--entrypoint-num-gpus 8", "", "/data/runs/night", dir+"/run", "/data/train.toml", dir+"/train.toml").Replace(blocks[at].Text)
	cmd := r.run()
	cmd.Path, cmd.Args = "/bin/sh", []string{"sh", "-c", line}
	text, err := cmd.CombinedOutput()
	return string(text), err
}

// savesLate saves 5 s after SIGTERM, which is more than Ray waits by default.
const savesLate = `trap 'sleep 5; echo saved >saved; exit 0' TERM
echo "step 1"; echo x >ready
while :; do sleep 0.1; done
`

// A Ray job that is gpurun is rescued, ends with gpurun's code, and when Ray stops it the ranks have the time to
// save.
func TestRayJobs(t *testing.T) {
	lab(t)
	r := openRay(t)
	dir := nodesJob(t)
	rest(t, dir)
	edit := func(dir string) {
		nights{job: dir}.edit(t, "train.toml", "[job]", "[job]\nworkdir = "+strconv.Quote(dir))
	}
	edit(dir)
	nights{job: dir}.edit(t, "train.sh", "[ $RANK = 2 ] || exec sleep 1000", "")
	out, err := r.submit(t, dir)
	if err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if v := readVerdict(t, filepath.Join(dir, "run")); v.Code != 0 || len(v.Attempts) != 2 || v.Attempts[1].Plan[strategy.MicroBatchSize] != "4" {
		t.Errorf("%+v\n%s", v, out)
	}

	late := home(t, map[string]string{"train.sh": savesLate, "train.toml": nodesTOML})
	edit(late)
	if out, err := r.submit(t, late, "--no-wait", "--submission-id", "late"); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	await(t, "steps", func() bool { _, err := os.Stat(filepath.Join(late, "ready")); return err == nil })
	if out, err := r.run("job", "stop", "late").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	if _, err := os.Stat(filepath.Join(late, "saved")); err != nil {
		t.Error(err)
	}
	if v := readVerdict(t, filepath.Join(late, "run")); v.Code != 143 {
		t.Errorf("%+v", v)
	}

	bug := home(t, map[string]string{"train.sh": "exit 3\n", "train.toml": nodesTOML})
	edit(bug)
	out, err = r.submit(t, bug)
	if v := readVerdict(t, filepath.Join(bug, "run")); err == nil || v.Code != 1 || !strings.Contains(out, "failed with exit code 1") {
		t.Errorf("%v, %+v\n%s", err, v, out)
	}
}
