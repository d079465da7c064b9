package test

import (
	"bytes"
	"crypto/tls"
	"encoding/json"
	"fmt"
	"io"
	"maps"
	"net/http"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"syscall"
	"testing"
	"time"

	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/test/testenv"
)

// A kubernetes is a real API server with the controllers of jobs and cron jobs, and no node.
type kubernetes struct {
	t      *testing.T
	url    string
	http   *http.Client
	config string // path of a configuration for clients
}

// newKubernetes starts the programs in the folder of GPURUN_KUBE_APISERVER, a path: etcd, kube-apiserver and
// kube-controller-manager, with more controllers than those of jobs.
func newKubernetes(t *testing.T, controllers ...string) *kubernetes {
	t.Helper()
	server := os.Getenv("GPURUN_KUBE_APISERVER")
	if server == "" {
		t.Skip("GPURUN_KUBE_APISERVER names no kube-apiserver, with etcd and kube-controller-manager beside it")
	}
	bin, dir := filepath.Dir(server), t.TempDir()
	key, tokens := filepath.Join(dir, "key"), filepath.Join(dir, "tokens")
	if out, err := exec.Command("openssl", "genrsa", "-out", key, "2048").CombinedOutput(); err != nil {
		t.Fatalf("%v\n%s", err, out)
	}
	put(t, tokens, "lab,lab,1,system:masters\n")
	store, peers, port := "http://"+freeAddress(t), "http://"+freeAddress(t), strings.TrimPrefix(freeAddress(t), "127.0.0.1:")
	client := &http.Client{Timeout: 30 * time.Second, Transport: &http.Transport{TLSClientConfig: &tls.Config{InsecureSkipVerify: true}}} // its own, on this machine
	config := filepath.Join(dir, "config")
	c := &kubernetes{t, "https://127.0.0.1:" + port, client, config}
	daemon(t, filepath.Join(bin, "etcd"), "--data-dir", filepath.Join(dir, "etcd"), "--listen-client-urls", store, "--advertise-client-urls", store,
		"--listen-peer-urls", peers, "--initial-advertise-peer-urls", peers, "--initial-cluster", "default="+peers, "--unsafe-no-fsync")
	daemon(t, filepath.Join(bin, "kube-apiserver"), "--etcd-servers", store, "--bind-address", "127.0.0.1", "--advertise-address", "127.0.0.1", "--secure-port", port,
		"--cert-dir", filepath.Join(dir, "certs"), "--token-auth-file", tokens, "--authorization-mode", "RBAC", "--service-account-issuer", "https://lab",
		"--service-account-key-file", key, "--service-account-signing-key-file", key, "--service-cluster-ip-range", "10.96.0.0/16", "--disable-admission-plugins", "ServiceAccount")
	c.await("the API server", func() bool { _, code, _ := c.ask("GET", "/readyz", nil); return code == 200 })
	put(t, config, fmt.Sprintf(`{"apiVersion": "v1", "kind": "Config", "current-context": "lab", "contexts": [{"name": "lab", "context": {"cluster": "lab", "user": "lab"}}],
"clusters": [{"name": "lab", "cluster": {"server": %q, "insecure-skip-tls-verify": true}}], "users": [{"name": "lab", "user": {"token": "lab"}}]}`, c.url))
	daemon(t, filepath.Join(bin, "kube-controller-manager"), "--kubeconfig", config, "--leader-elect=false", "--controllers="+strings.Join(append(controllers, "job-controller", "cronjob-controller"), ","), "--secure-port", "0")
	return c
}

// of returns the same cluster for a subtest.
func (c *kubernetes) of(t *testing.T) *kubernetes { return &kubernetes{t, c.url, c.http, c.config} }

// makeCRDs creates the CRDs of the files in the folder GPURUN_KUBE_CRDS; false for none.
func (c *kubernetes) makeCRDs() bool {
	c.t.Helper()
	folder := os.Getenv("GPURUN_KUBE_CRDS")
	files, err := filepath.Glob(filepath.Join(folder, "*.yaml"))
	if folder == "" || err != nil {
		return false
	}
	for _, name := range files {
		text, err := os.ReadFile(name)
		if err != nil {
			c.t.Fatal(err)
		}
		if said, code := c.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", documents(c.t, string(text))[0]); code != 201 {
			c.t.Fatalf("%s: %d: %v", name, code, at(said, "message"))
		}
	}
	return len(files) > 0
}

// restrict enforces the Pod Security Standard "restricted".
func (c *kubernetes) restrict() {
	c.t.Helper()
	label := object{"metadata": object{"labels": object{"pod-security.kubernetes.io/enforce": "restricted"}}}
	if said, code, err := c.ask("PATCH", "/api/v1/namespaces/default", label); err != nil || code != 200 {
		c.t.Fatalf("%d: %v, %v", code, at(said, "message"), err)
	}
}

func (c *kubernetes) await(what string, there func() bool) {
	c.t.Helper()
	for deadline := time.Now().Add(3 * time.Minute); !there(); time.Sleep(200 * time.Millisecond) {
		if time.Now().After(deadline) {
			c.t.Fatalf("there is no end of waiting for %s", what)
		}
	}
}

type object = map[string]any

// ask sends a request to the API server.
func (c *kubernetes) ask(method, path string, body object) (answer object, code int, err error) {
	text, _ := json.Marshal(body)
	request, err := http.NewRequest(method, c.url+path, bytes.NewReader(text))
	if err != nil {
		return nil, 0, err
	}
	request.Header.Set("Authorization", "Bearer lab")
	request.Header.Set("Content-Type", map[bool]string{true: "application/merge-patch+json", false: "application/json"}[method == "PATCH"])
	response, err := c.http.Do(request)
	if err != nil {
		return nil, 0, err
	}
	defer response.Body.Close()
	said, err := io.ReadAll(response.Body)
	json.Unmarshal(said, &answer)
	return answer, response.StatusCode, err
}

// make creates an object with strict validation: unknown fields are errors.
func (c *kubernetes) make(path string, body object) (object, int) {
	c.t.Helper()
	made, code, err := c.ask("POST", path+"?fieldValidation=Strict", body)
	if err != nil {
		c.t.Fatal(err)
	}
	return made, code
}

// at looks up a value; nil if it is missing.
func at(v any, path ...any) any {
	for _, key := range path {
		switch node := v.(type) {
		case object:
			v = node[key.(string)]
		case []any:
			if key.(int) >= len(node) {
				return nil
			}
			v = node[key.(int)]
		default:
			return nil
		}
	}
	return v
}

func list(v any, path ...any) []any {
	all, _ := at(v, path...).([]any)
	return all
}

const (
	pods     = "/api/v1/namespaces/default/pods"
	jobs     = "/apis/batch/v1/namespaces/default/jobs"
	cronJobs = "/apis/batch/v1/namespaces/default/cronjobs"
	jobSets  = "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets"
)

// A kubelet runs the pods of a cluster as processes of this machine. It supports one container per pod, and
// fields in its environment.
type kubelet struct {
	*kubernetes
	n       unwatched
	begun   map[string]bool // by pod
	codes   map[string]int
	running map[string]*exec.Cmd
}

func newKubelet(t *testing.T, c *kubernetes) *kubelet {
	return &kubelet{c.of(t), newUnwatched(t), map[string]bool{}, map[string]int{}, map[string]*exec.Cmd{}}
}

// pair creates the launch of an example, with two nodes on this machine, that runs a script; empty for the one that loses
// its GPU once.
func (k *kubelet) pair(script, example, head, path string) {
	k.t.Helper()
	if script != "" {
		put(k.t, filepath.Join(k.n.dir, "train.sh"), script)
	}
	secret := filepath.Join(k.n.dir, "secret")
	if err := os.WriteFile(secret, []byte(strings.Repeat("07", 32)), 0o400); err != nil {
		k.t.Fatal(err)
	}
	text := strings.NewReplacer("/runs/gpt", "/srv/gpt", `value: "4"`, `value: "2"`, "completions: 4", "completions: 2", "parallelism: 4", "parallelism: 2",
		head, "127.0.0.1", "/run/gpurun/secret", secret).Replace(examples(k.t, "kubernetes/*.yaml")[example])
	all := documents(k.t, text)
	if said, code := k.make(path, all[len(all)-1]); code != 201 {
		k.t.Fatalf("%d: %v", code, at(said, "message"))
	}
}

// looks starts new pods, and reports ended ones.
func (k *kubelet) looks() {
	k.t.Helper()
	all, _, err := k.ask("GET", pods, nil)
	if err != nil {
		k.t.Fatal(err)
	}
	for _, pod := range list(all, "items") {
		name := at(pod, "metadata", "name").(string)
		if !k.begun[name] {
			k.begun[name] = true
			k.make(pods+"/"+name+"/binding", object{"apiVersion": "v1", "kind": "Binding", "metadata": object{"name": name}, "target": object{"apiVersion": "v1", "kind": "Node", "name": "lab"}})
			k.runs(name, pod)
		}
		if cmd := k.running[name]; cmd != nil && at(pod, "metadata", "deletionTimestamp") != nil {
			cmd.Process.Signal(syscall.SIGTERM)
			k.ended(name, cmd)
			k.ask("DELETE", pods+"/"+name, object{"gracePeriodSeconds": 0})
		}
		if cmd := k.running[name]; cmd != nil && gone(cmd.Process.Pid) {
			k.ended(name, cmd)
		}
	}
}

// gone reports whether a process has ended, even if it is a zombie.
func gone(pid int) bool {
	stat, err := os.ReadFile(fmt.Sprintf("/proc/%d/stat", pid))
	_, state, _ := strings.Cut(string(stat), ") ")
	return err != nil || strings.HasPrefix(state, "Z")
}

func (k *kubelet) runs(name string, pod any) {
	k.t.Helper()
	container := at(pod, "spec", "containers", 0)
	env := map[string]string{}
	for _, e := range list(container, "env") {
		value, given := at(e, "value").(string)
		if path, _ := at(e, "valueFrom", "fieldRef", "fieldPath").(string); !given { // metadata.labels['name']
			kind, name, _ := strings.Cut(strings.TrimSuffix(strings.TrimPrefix(path, "metadata."), "']"), "['")
			value, _ = at(pod, "metadata", kind, name).(string)
		}
		env[at(e, "name").(string)] = value
	}
	var words []string
	for _, w := range list(container, "command") {
		for name, value := range env {
			w = strings.ReplaceAll(w.(string), "$("+name+")", value)
		}
		words = append(words, w.(string))
	}
	cmd := exec.Command("sh", append([]string{"-c", `exec "$@"`, "sh"}, words...)...)
	cmd.Dir = strings.ReplaceAll(at(container, "workingDir").(string), "/srv/gpt", k.n.dir)
	cmd.Env = append(os.Environ(), "PATH="+k.n.path, "XDG_STATE_HOME="+k.n.dir, "CUDA_VISIBLE_DEVICES=", "KUBERNETES_SERVICE_HOST=10.96.0.1")
	for name, value := range env {
		cmd.Env = append(cmd.Env, name+"="+value)
	}
	var log bytes.Buffer
	cmd.Stdout, cmd.Stderr = &log, &log
	if err := cmd.Start(); err != nil {
		k.t.Fatal(err)
	}
	k.running[name] = cmd
	k.t.Cleanup(func() { k.t.Logf("%s: exit %d\n%s", name, k.codes[name], &log) })
	k.tells(name, "Running", object{"running": object{}})
}

func (k *kubelet) ended(name string, cmd *exec.Cmd) {
	cmd.Wait()
	delete(k.running, name)
	k.codes[name] = cmd.ProcessState.ExitCode()
	k.tells(name, map[bool]string{true: "Succeeded", false: "Failed"}[k.codes[name] == 0], object{"terminated": object{"exitCode": k.codes[name], "finishedAt": time.Now().UTC().Format(time.RFC3339)}})
}

func (k *kubelet) tells(name, phase string, state object) {
	k.t.Helper()
	_, code, err := k.ask("PATCH", pods+"/"+name+"/status", object{"status": object{"phase": phase,
		"containerStatuses": []any{object{"name": "train", "image": "x", "imageID": "", "ready": phase == "Running", "restartCount": 0, "state": state}}}})
	if err != nil || code != 200 {
		k.t.Fatalf("%s is %s: %d, %v", name, phase, code, err)
	}
}

// waits runs the pods until the job at a path is over, and returns its last condition and the exit codes of its
// pods, in order.
func (k *kubelet) waits(path string, now func()) (condition object, codes []int) {
	k.t.Helper()
	k.await("the end of "+path, func() bool {
		k.looks()
		if now != nil {
			now()
		}
		standing, _, err := k.ask("GET", path, nil)
		if err != nil {
			k.t.Fatal(err)
		}
		for _, c := range list(standing, "status", "conditions") {
			if kind := at(c, "type"); at(c, "status") == "True" && (kind == "Complete" || kind == "Completed" || kind == "Failed") {
				condition = c.(object)
			}
		}
		return condition != nil
	})
	return condition, slices.Sorted(maps.Values(k.codes))
}

// written returns the documentation's cron job.
func written(t *testing.T) object {
	t.Helper()
	var cron object
	testenv.Check(t, yaml.Unmarshal([]byte(nightly(t)["cronjob.yaml"]), &cron))
	return cron
}

// once returns a job as the cron job creates it.
func once(cron object, name string) object {
	return object{"apiVersion": "batch/v1", "kind": "Job", "metadata": object{"name": name}, "spec": at(cron, "spec", "jobTemplate", "spec")}
}

// The documented cron job on a real API server is accepted as written. A night in which the GPU is lost has
// two pods and one run. If no plan fits, the job ends with its first pod. An evicted pod does not count.
func TestNightlyOnKubernetes(t *testing.T) {
	lab(t)
	c := newKubernetes(t)
	t.Run("strictly", func(t *testing.T) {
		c := c.of(t)
		cron := written(t)
		if said, code := c.make(cronJobs, cron); code != 201 {
			t.Fatalf("%d: %v", code, at(said, "message"))
		}
		cron["metadata"] = object{"name": "wrong"}
		at(cron, "spec").(object)["concurencyPolicy"] = "Forbid"
		if _, code := c.make(cronJobs, cron); code != 400 {
			t.Errorf("a key that is not there: %d", code)
		}
		c.ask("DELETE", cronJobs+"/nightly", nil)
	})
	on := func(t *testing.T) *kubelet {
		return newKubelet(t, c)
	}
	t.Run("75", func(t *testing.T) {
		k, cron := on(t), written(t)
		at(cron, "spec").(object)["schedule"] = "* * * * *"
		if said, code := k.make(cronJobs, cron); code != 201 {
			t.Fatalf("%d: %v", code, at(said, "message"))
		}
		name := ""
		k.await("the minute", func() bool {
			all, _, _ := k.ask("GET", jobs, nil)
			name, _ = at(all, "items", 0, "metadata", "name").(string)
			return name != ""
		})
		k.ask("DELETE", cronJobs+"/nightly?propagationPolicy=Orphan", nil)
		condition, codes := k.waits(jobs+"/"+name, nil)
		if condition["type"] != "Complete" || !slices.Equal(codes, []int{0, 75}) {
			t.Errorf("%v after %v", condition, codes)
		}
		k.n.over(t)
		if runs, _ := filepath.Glob(filepath.Join(k.n.dir, ".gpurun", "*", name)); len(runs) != 1 {
			t.Errorf("no run is called %s", name)
		}
		k.clears()
	})
	t.Run("12", func(t *testing.T) {
		k := on(t)
		put(t, filepath.Join(k.n.dir, "train.sh"), "echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free.' >&2\nexit 1\n")
		if said, code := k.make(jobs, once(written(t), "exhausted")); code != 201 {
			t.Fatalf("%d: %v", code, at(said, "message"))
		}
		condition, codes := k.waits(jobs+"/exhausted", nil)
		if condition["type"] != "Failed" || condition["reason"] != "PodFailurePolicy" || !slices.Equal(codes, []int{12}) {
			t.Errorf("%v after %v", condition, codes)
		}
		k.clears()
	})
	t.Run("evicted", func(t *testing.T) { evicted(t, on(t)) })
}

// evicted removes a pod of a job that may not fail at all.
func evicted(t *testing.T, k *kubelet) {
	job := once(written(t), "evicted")
	put(t, filepath.Join(k.n.dir, "train.sh"), "[ -e been ] && exit 0\ntouch been\nexec tail -f /dev/null\n")
	at(job, "spec").(object)["backoffLimit"] = 0
	if said, code := k.make(jobs, job); code != 201 {
		t.Fatalf("%d: %v", code, at(said, "message"))
	}
	gone := false
	condition, codes := k.waits(jobs+"/evicted", func() {
		if _, err := os.Stat(filepath.Join(k.n.dir, "been")); err == nil && !gone {
			gone = true
			name := slices.Collect(maps.Keys(k.begun))[0]
			if said, code := k.make(pods+"/"+name+"/eviction", object{"apiVersion": "policy/v1", "kind": "Eviction", "metadata": object{"name": name}}); code != 201 {
				t.Errorf("%d: %v", code, at(said, "message"))
			}
		}
	})
	if condition["type"] != "Complete" || !slices.Equal(codes, []int{0, 143}) {
		t.Errorf("%v after %v", condition, codes)
	}
	k.clears()
}

// clears removes the jobs and their pods.
func (k *kubelet) clears() {
	k.ask("DELETE", jobs, object{"propagationPolicy": "Background"})
	k.ask("DELETE", pods, object{"gracePeriodSeconds": 0})
}
