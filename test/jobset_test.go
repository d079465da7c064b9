package test

import (
	"encoding/base64"
	"fmt"
	"net"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"
)

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
	if out, err := osexec.Command("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", "2", "-subj", "/CN=jobset", "-addext", "subjectAltName=IP:127.0.0.1",
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
