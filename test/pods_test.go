package test

import (
	"bytes"
	"encoding/base64"
	"fmt"
	"io/fs"
	"net"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// A pod runs the container of a manifest in namespaces of this machine: its user without a name and capabilities, its
// volumes, and a root file system that is read-only. gpurun is process 1.
type pod struct {
	t               *testing.T
	spec, container any
	claim           string // folder of the volume of the runs
	uid, group      int    // of the process, and of the volumes
	job             string // the Job's uid
}

// newPod returns the pod of a manifest with a volume, as the kubelet sets it up, that has a job's files in gpt/.
func newPod(t *testing.T, files map[string]string) pod {
	t.Helper()
	if os.Geteuid() != 0 {
		t.Skip("only root can run pods of several users")
	}
	unshared(t, "--mount", "--pid", "--fork")
	spec := at(documents(t, examples(t, "kubernetes/*.yaml")["job.yaml"])[1], "spec", "template", "spec")
	p := pod{t: t, spec: spec, container: at(spec, "containers", 0), claim: t.TempDir(), job: "7d1c"}
	p.uid, p.group = p.number("runAsUser"), p.number("fsGroup")
	gpt := filepath.Join(p.claim, "gpt")
	testenv.Check(t, os.Mkdir(gpt, 0o700))
	for name, text := range files {
		put(t, filepath.Join(gpt, name), text)
	}
	for _, folder := range []string{p.claim, gpt} {
		testenv.Check(t, os.Chown(folder, 0, p.group))
		testenv.Check(t, os.Chmod(folder, 0o775|fs.ModeSetgid))
	}
	return p
}

func (p pod) number(name string) int {
	p.t.Helper()
	n, ok := at(p.spec, "securityContext", name).(int)
	if !ok {
		p.t.Fatalf("the manifest has no %s", name)
	}
	return n
}

// makeContainer makes the root file system $1 of a container, with gpurun $2 and the volumes that follow: each a path, a
// folder or "memory", and mount options. It is read-only, as this machine's folders are in it.
const makeContainer = `set -e
root=$1 gpurun=$2; shift 2
mount --make-rprivate /
mount -t tmpfs none $root
for d in /*; do case $d in
	/dev|/proc|/run|/tmp|/lost+found) ;;
	*) if [ -L $d ]; then ln -s $(readlink $d) $root$d
		elif [ -d $d ]; then mkdir $root$d; mount --bind $d $root$d; mount -o remount,bind,ro $root$d; fi ;;
esac; done
mkdir $root/dev $root/proc $root/run $root/tmp $root/gpurun
mount --rbind /dev $root/dev
mount -t proc none $root/proc
touch $root/gpurun/gpurun; mount --bind $gpurun $root/gpurun/gpurun
while [ "$1" != -- ]; do
	mkdir -p $root$1
	if [ $2 = memory ]; then mount -t tmpfs -o $3 none $root$1; else mount --bind $2 $root$1; mount -o remount,bind,$3 $root$1; fi
	shift 3
done
shift
mount -o remount,ro $root
exec chroot $root "$@"
`

// command is the container, with environment variables more than the manifest's. It must be started in a folder.
func (p pod) command(env ...string) *exec.Cmd {
	p.t.Helper()
	words := []string{"--mount", "--pid", "--fork", "sh", "-c", makeContainer, "sh", p.t.TempDir(), build(p.t)}
	for _, m := range list(p.container, "volumeMounts") {
		path, name := at(m, "mountPath").(string), at(m, "name")
		i := slices.IndexFunc(list(p.spec, "volumes"), func(v any) bool { return at(v, "name") == name })
		switch volume := list(p.spec, "volumes")[i]; {
		case at(volume, "emptyDir") != nil:
			words = append(words, path, "memory", fmt.Sprintf("mode=2777,gid=%d", p.group))
		case at(volume, "persistentVolumeClaim") != nil:
			words = append(words, path, p.claim, "rw")
		default: // the secret
			secret := p.t.TempDir()
			put(p.t, filepath.Join(secret, "secret"), strings.Repeat("07", 32))
			if err := os.Chown(filepath.Join(secret, "secret"), 0, p.group); err != nil {
				p.t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(secret, "secret"), 0o440); err != nil {
				p.t.Fatal(err)
			}
			words = append(words, path, secret, "ro")
		}
	}
	if at(p.container, "securityContext", "readOnlyRootFilesystem") != true {
		p.t.Fatal("the manifest's root file system can be written")
	}
	words = append(words, "--", "setpriv", "--reuid", fmt.Sprint(p.uid), "--regid", fmt.Sprint(p.uid), "--groups", fmt.Sprint(p.group),
		"--bounding-set=-all", "--inh-caps=-all", "--no-new-privs", "env", "-i", "-C", at(p.container, "workingDir").(string),
		"PATH=/gpurun:/usr/local/bin:/usr/bin:/bin", "KUBERNETES_SERVICE_HOST=10.96.0.1", "HOME=/", "CUDA_VISIBLE_DEVICES=", "PYTHON_EXEC="+testenv.Python(p.t))
	for _, e := range list(p.container, "env") {
		name := at(e, "name").(string)
		value, given := at(e, "value").(string)
		switch {
		case !given: // a field of the pod
			value = p.job
		case name == "GPURUN_NNODES":
			value = "1"
		}
		words = append(words, name+"="+value)
	}
	words = append(words, env...)
	for _, w := range list(p.container, "command") {
		words = append(words, strings.ReplaceAll(w.(string), "$(GPURUN_JOB_ID)", p.job))
	}
	return exec.CommandContext(p.t.Context(), "unshare", words...)
}

// kill ends all processes of a container, as they are in one namespace. unshare's --kill-child does not, where the user
// changes.
func kill(t *testing.T, container *exec.Cmd) {
	t.Helper()
	if err := syscall.Kill(onlyChild(t, container.Process.Pid), syscall.SIGKILL); err != nil {
		t.Error(err)
	}
}

// run runs the container to its end, and returns its exit code and output.
func (p pod) run(env ...string) (int, string) {
	p.t.Helper()
	cmd := p.command(env...)
	out, _ := cmd.CombinedOutput() // its exit code counts
	return cmd.ProcessState.ExitCode(), string(out)
}

// path is a file in the folder of the job.
func (p pod) path(words ...string) string {
	return filepath.Join(append([]string{p.claim, "gpt"}, words...)...)
}

// stepwise runs out of memory with a batch of 8, and saves a checkpoint at each step. In its first life it waits to be
// killed at step 3.
const stepwise = `import argparse, os, sys, time
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int, default=8)
p.add_argument("--accum", type=int, default=1)
p.add_argument("--resume")
args = p.parse_args()
if args.bs > 4:
    sys.exit("RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB total capacity; 14.80 GiB already allocated; 2.81 MiB free; 15.00 GiB reserved in total by PyTorch)")
for n in range(int(args.resume[-1]) + 1 if args.resume else 1, 6):
    print("step %d" % n, flush=True)
    open("part", "w").write("x")
    os.replace("part", "checkpoint-%d" % n)
    if n == 3 and not os.path.exists("waits"):
        open("waits", "w").close()
        time.sleep(3600)
`

// A pod that replaces a killed one resumes its run as another user of the volume's group, with the plan that fits. A
// third user starts the next run, and can use all files there. A user who is not in the group is refused, and
// cannot read the runs.
func TestPodsOfSeveralUsersShareARun(t *testing.T) {
	p := newPod(t, map[string]string{"train.py": stepwise, "train.toml": `[job]
script = "train.py"
recipe = "none"
[launch]
nproc_per_node = 1
[knobs]
micro_batch_size = { arg = "--bs", default = 8 }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
[resume]
latest = "checkpoint-*"
args = ["--resume", "{latest}"]
[progress]
step = 'step (\d+)'
[notify]
command = ["sh", "-c", "umask 0; cat >>notified"]
on = ["rescued", "trained"]
`})
	first := p.command()
	var said bytes.Buffer
	first.Stdout, first.Stderr = &said, &said
	testenv.Check(t, first.Start())
	await(t, "step 3", func() bool { _, err := os.Stat(p.path("waits")); return err == nil || gone(first.Process.Pid) })
	kill(t, first)
	_ = first.Wait()
	stranger := p
	stranger.uid, stranger.group = p.uid+1, p.group+1
	if code, out := stranger.run(); code != strategy.CodeUsage || !strings.Contains(out, fmt.Sprintf("it belongs to another user (uid %d)", p.uid)) {
		t.Errorf("another group: %d\n%s", code, out)
	}
	second := p
	second.uid += 2
	code, out := second.run()
	v := verdictOf(t, p.path(".gpurun", "train", "7d1c"))
	if code != 0 || len(v.Attempts) != 3 || v.Attempts[0].Cause != cause.CUDAOOM || v.Attempts[2].Plan[strategy.MicroBatchSize] != "4" || !strings.Contains(out, "checkpoint-3") {
		t.Fatalf("as another user: %d, %s after %d attempts\n%s\nbefore:\n%s", code, v.Outcome, len(v.Attempts), out, &said)
	}
	third := p
	third.uid, third.job = p.uid+3, "8e2d"
	code, out = third.run()
	if code != 0 || strings.Contains(out, "warning") {
		t.Errorf("the next run: %d\n%s", code, out)
	}
	if text, err := os.ReadFile(p.path("notified")); strings.Count(string(text), `"event":"trained"`) != 2 {
		t.Errorf("notified of %s, %v", text, err)
	}
	p.checkModes()
}

// checkModes checks that the runs are for the volume's group alone. Python writes what it compiles as it likes, and a
// rank's claim is for the rank.
func (p pod) checkModes() {
	p.t.Helper()
	err := filepath.WalkDir(p.path(".gpurun"), func(path string, d fs.DirEntry, err error) error {
		if err != nil || d.Name() == "claim" || d.Type()&fs.ModeSymlink != 0 || filepath.Base(filepath.Dir(path)) == "__pycache__" {
			return err
		}
		info, err := d.Info()
		if err == nil && (info.Mode().Perm()&0o007 != 0 || info.Mode()&0o040 == 0 || d.IsDir() && info.Mode()&0o070 != 0o070) {
			p.t.Errorf("%s has mode %v", path, info.Mode())
		}
		return err
	})
	if err != nil {
		p.t.Error(err)
	}
}

// A job of real PyTorch is rescued in the pod of the example: its user has no name, and only its volumes can be written
// to.
// The losses are those of the untouched job.
func TestRescueInAReadOnlyPod(t *testing.T) {
	python := testenv.Torch(t)
	lab(t)
	script := testenv.Page(t, "test/testdata/cpu/constants.py")
	untouched := runLine(t, home(t, map[string]string{"constants.py": script}), python, "constants.py")
	var before, peak int
	if _, err := fmt.Sscanf(lastLine(untouched, "data "), "data %d %d", &before, &peak); err != nil {
		t.Fatalf("%v in %s", err, untouched)
	}
	toml := fmt.Sprintf("[job]\ncommand = \"%s constants.py\"\n[limits]\ndevice_memory = \"%dMiB\"\n[recovery]\nin_place = false\nnever = [\"split\", \"loss-parts\"]\n", python, before+(peak-before)*6/10)
	for name, env := range map[string][]string{"its HOME": nil, "HOME is read-only": {"HOME=/"}} {
		t.Run(name, func(t *testing.T) {
			p := newPod(t, map[string]string{"constants.py": script, "train.toml": toml})
			p.uid = 1000670000 // as OpenShift chooses it
			code, out := p.run(env...)
			v := verdictOf(t, p.path(".gpurun", "train", p.job))
			if code != 0 || len(v.Attempts) != 2 || v.Attempts[0].Changed.String() != "checkpointing none→full" {
				t.Errorf("%d, %s after %d attempts\n%s", code, v.Outcome, len(v.Attempts), out)
			}
			if diff := cmp.Diff(losses(untouched), losses(out)); diff != "" {
				t.Errorf("losses (-untouched +rescued):\n%s", diff)
			}
			p.checkModes()
			if forgets := strings.Contains(out, "cannot remember the plans of this job"); forgets != (env != nil) {
				t.Errorf("without a place for its state: %t\n%s", forgets, out)
			}
		})
	}
}

// webhook is a webhook of JobSet's controller, which sets defaults and checks objects.
func webhook(name, path, group, resource, address, authority string, operations ...any) object {
	return object{
		"name": name, "admissionReviewVersions": []any{"v1"}, "sideEffects": "None", "failurePolicy": "Fail",
		"clientConfig": object{"url": "https://" + address + path, "caBundle": authority},
		"rules":        []any{object{"apiGroups": []any{group}, "apiVersions": []any{"*"}, "operations": operations, "resources": []any{resource}}},
	}
}

// startJobSet starts JobSet's controller, jobset-controller in the folder of the API server, with its webhooks.
func (c *kubernetes) startJobSet(config string) {
	c.t.Helper()
	program := filepath.Join(filepath.Dir(os.Getenv("GPURUN_KUBE_APISERVER")), "jobset-controller")
	if _, err := os.Stat(program); err != nil {
		c.t.Skipf("no controller of JobSet beside kube-apiserver: %v", err)
	}
	dir, address := c.t.TempDir(), freeAddress(c.t)
	_, port, err := net.SplitHostPort(address)
	if err != nil {
		c.t.Fatal(err)
	}
	if out, err := exec.Command("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=jobset", "-addext", "subjectAltName=IP:127.0.0.1",
		"-keyout", filepath.Join(dir, "tls.key"), "-out", filepath.Join(dir, "tls.crt")).CombinedOutput(); err != nil {
		c.t.Fatalf("%v\n%s", err, out)
	}
	text, err := os.ReadFile(filepath.Join(dir, "tls.crt"))
	if err != nil {
		c.t.Fatal(err)
	}
	settings := filepath.Join(dir, "controller.yaml")
	put(c.t, settings, fmt.Sprintf(`{"apiVersion": "config.jobset.x-k8s.io/v1alpha1", "kind": "Configuration", "leaderElection": {"leaderElect": false},
"internalCertManagement": {"enable": false}, "webhook": {"host": "127.0.0.1", "port": %s, "certDir": %q}, "metrics": {"bindAddress": "0"}, "health": {"healthProbeBindAddress": "0"}}`, port, dir))
	daemon(c.t, program, "--kubeconfig", config, "--config", settings)
	authority, kind := base64.StdEncoding.EncodeToString(text), "jobset.x-k8s.io"
	const api = "/apis/admissionregistration.k8s.io/v1/"
	for path, o := range map[string]object{
		"mutatingwebhookconfigurations": {"kind": "MutatingWebhookConfiguration", "webhooks": []any{
			webhook("mjobset.kb.io", "/mutate-jobset-x-k8s-io-v1alpha2-jobset", kind, "jobsets", address, authority, "CREATE"),
			webhook("mpod.kb.io", "/mutate--v1-pod", "", "pods", address, authority, "CREATE")}},
		"validatingwebhookconfigurations": {"kind": "ValidatingWebhookConfiguration", "webhooks": []any{
			webhook("vjobset.kb.io", "/validate-jobset-x-k8s-io-v1alpha2-jobset", kind, "jobsets", address, authority, "CREATE", "UPDATE"),
			webhook("vpod.kb.io", "/validate--v1-pod", "", "pods", address, authority, "CREATE")}},
	} {
		o["apiVersion"], o["metadata"] = "admissionregistration.k8s.io/v1", object{"name": "jobset"}
		if said, code := c.make(api+path, o); code != 201 {
			c.t.Fatalf("%s: %d: %v", path, code, at(said, "message"))
		}
	}
	c.await("JobSet's controller", func() bool {
		connection, err := net.Dial("tcp", address)
		if err == nil {
			connection.Close()
		}
		return err == nil
	})
}

// The JobSet of the example runs under its real controller: all pods are restarted if a GPU is lost, and resume the run.
// If no plan fits, the JobSet fails at once.
func TestJobSetOnKubernetes(t *testing.T) {
	lab(t)
	c := newKubernetes(t, "garbage-collector-controller")
	if !c.makeCRDs() {
		t.Skip("GPURUN_KUBE_CRDS names no folder of CRDs")
	}
	c.restrict()
	c.await("the API of JobSet", func() bool { _, code, _ := c.ask("GET", jobSets, nil); return code == 200 })
	c.startJobSet(c.config)
	for name, test := range map[string]struct {
		script, condition string
		restarts          float64
		codes             []int
	}{
		"75": {"", "Completed", 1, []int{0, 0, 75, 75}}, // the script that loses its GPU once
		"12": {"echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free.' >&2\nexit 1\n", "Failed", 0, []int{12, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKubelet(t, c)
			k.pair(test.script, "jobset.yaml", "train-node-0-0.train", jobSets)
			condition, codes := k.waits(jobSets+"/train", nil)
			standing, _, _ := k.ask("GET", jobSets+"/train", nil)
			if restarts, _ := at(standing, "status", "restarts").(float64); condition["type"] != test.condition || !slices.Equal(codes, test.codes) || restarts != test.restarts {
				t.Errorf("%v after %v and %v restarts", condition, codes, restarts)
			}
			runs, _ := filepath.Glob(filepath.Join(k.n.dir, ".gpurun", "*", "*", "verdict.json"))
			if uid := at(standing, "metadata", "uid").(string); len(runs) != 1 || !strings.Contains(runs[0], uid) {
				t.Errorf("the runs are %v, want that of %s", runs, uid)
			}
			k.ask("DELETE", jobSets+"/train", object{"propagationPolicy": "Background"})
			k.await("the end of the JobSet", func() bool {
				k.looks()
				all, _, _ := k.ask("GET", pods, nil)
				_, code, _ := k.ask("GET", jobSets+"/train", nil)
				return code == 404 && len(list(all, "items")) == 0
			})
		})
	}
}

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
		testenv.Check(t, os.MkdirAll(filepath.Join(dir, name), 0o755))
	}
	for _, name := range []string{"bin", "lib", "lib64"} {
		testenv.Check(t, os.Symlink("usr/"+name, filepath.Join(dir, name)))
	}
	p := &podman{image: fmt.Sprintf("localhost/gpurun-test:%d", os.Getpid())}
	if out, err := exec.Command("sh", "-c", `tar -C "$0" -c . | podman import - "$1"`, dir, p.image).CombinedOutput(); err != nil {
		t.Skipf("no podman here: %v %s", err, out)
	}
	t.Cleanup(func() { _ = exec.Command("podman", "rmi", "--force", p.image).Run() }) // no other test has it
	reason := ""
	for _, options := range [][]string{nil, {"--runtime", "runc"}} { // not every runtime runs within a container
		p.run = slices.Concat([]string{"podman"}, options, []string{"run", "--rm", "--network", "host", "--ulimit", "nofile=1024:1024", "--ulimit", "nproc=4096:4096", "-v", "/usr:/usr:ro"})
		out, err := exec.Command(p.run[0], append(p.run[1:], p.image, "true")...).CombinedOutput()
		if err == nil {
			return p
		}
		reason = string(out)
	}
	t.Skipf("podman runs no container here: %s", reason)
	return nil
}

// job returns a command in a job's folder with gpurun in a container.
func (p *podman) job(t *testing.T, dir string, words ...string) *exec.Cmd {
	t.Helper()
	all := slices.Concat(p.run, []string{"-v", binary(t) + ":/gpurun:ro", "-v", dir + ":/job", "-w", "/job"}, words)
	cmd := exec.Command(all[0], all[1:]...)
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
		testenv.Check(t, cmd.Start())
		await(t, "steps", func() bool { _, err := os.Stat(filepath.Join(dir, "ready")); return err == nil })
		if out, err := exec.Command("podman", "stop", name).CombinedOutput(); err != nil {
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
		cmd := exec.Command(binary(t), append(slices.Clone(p.run), p.image, "sh", "train.sh")...)
		cmd.Dir = t.TempDir()
		out, err := cmd.CombinedOutput()
		if err == nil || cmd.ProcessState.ExitCode() != 2 || !strings.Contains(string(out), p.image+" gpurun sh train.sh\n") {
			t.Errorf("%v\n%s", err, out)
		}
	})
}
