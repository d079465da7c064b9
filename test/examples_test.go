package test

import (
	"fmt"
	"io"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"go.yaml.in/yaml/v3"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/test/testenv"
)

// examples returns the files of a folder of examples, by name.
func examples(t *testing.T, pattern string) map[string]string {
	t.Helper()
	found, err := filepath.Glob(filepath.Join(testenv.Root(t), "examples", pattern))
	if err != nil || len(found) < 3 {
		t.Fatalf("examples/%s: %d files, %v", pattern, len(found), err)
	}
	texts := map[string]string{}
	for _, name := range found {
		texts[filepath.Base(name)] = testenv.Page(t, strings.TrimPrefix(name, testenv.Root(t)+"/"))
	}
	return texts
}

// slurmFlags are the flags of sbatch that the examples use.
var slurmFlags = []string{"job-name", "array", "begin", "partition", "nodes", "ntasks-per-node", "gpus-per-node", "time", "signal", "requeue", "no-requeue", "open-mode", "output"}

// Each batch script is a shell script, and requests from Slurm what gpurun needs, before its first command.
func TestExamplesOfSlurm(t *testing.T) {
	for name, text := range examples(t, "slurm/*.sbatch") {
		cmd := exec.Command("bash", "-n")
		cmd.Stdin = strings.NewReader(text)
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%s: %v\n%s", name, err, out)
		}
		asked, commands := map[string]string{}, false
		for line := range strings.Lines(text) {
			m := regexp.MustCompile(`^#SBATCH --([a-z-]+)(?:=(\S+))?\n$`).FindStringSubmatch(line)
			switch {
			case m != nil && (commands || !slices.Contains(slurmFlags, m[1])), m == nil && strings.HasPrefix(line, "#SBATCH"):
				t.Errorf("%s: Slurm does not read %q", name, line)
			case m != nil:
				asked[m[1]] = m[2]
			default:
				commands = commands || !strings.HasPrefix(line, "#") && line != "\n"
			}
		}
		signal := "USR1@300"
		if strings.Contains(text, "\ntrap 'kill -USR1 ") { // the shell passes the signal on
			signal = "B:" + signal
		}
		if asked["ntasks-per-node"] != "1" || asked["open-mode"] != "append" || asked["signal"] != signal {
			t.Errorf("%s: it asks for %v", name, asked)
		}
		if alone := asked["nodes"] == "1"; alone == strings.Contains(text, "srun --mpi=pmi2 gpurun ") || alone != strings.Contains(text, "srun gpurun ") {
			t.Errorf("%s: %s nodes, by another srun", name, asked["nodes"])
		}
	}
}

// Jobs are started again if and only if they can continue. The exit code is that of the job.
func TestExamplesOfSlurmStartAgain(t *testing.T) {
	for name, text := range examples(t, "slurm/*.sbatch") {
		for code, again := range map[int]bool{0: false, 1: false, 12: false, 75: true, 137: true, 143: false} {
			dir := home(t, map[string]string{
				"srun": fmt.Sprintf("#!/bin/sh\nexit %d\n", code), "scontrol": "#!/bin/sh\necho $* >>said\n", "scancel": "#!/bin/sh\necho scancel $* >>said\n",
				"sbatch": "#!/bin/sh\necho 78\n",
			})
			cmd := exec.Command("bash", "-c", text)
			cmd.Dir, cmd.Env = dir, []string{"PATH=" + dir + ":" + os.Getenv("PATH"), "SLURM_JOB_ID=76", "SLURM_ARRAY_JOB_ID=75", "SLURM_ARRAY_TASK_ID=3"}
			out, _ := cmd.CombinedOutput()
			want := map[bool]string{true: "requeue 76\n"}[again]
			switch {
			case strings.Contains(name, "array") && again:
				want = "requeue 75_3\n"
			case strings.Contains(name, "requeue-exit"): // Slurm requeues
				want = ""
			case strings.Contains(name, "nightly"): // the next night is queued already
				want = map[bool]string{false: "scancel 78\n"}[again]
			}
			if said, _ := os.ReadFile(filepath.Join(dir, "said")); string(said) != want || cmd.ProcessState.ExitCode() != code {
				t.Errorf("%s after %d: %q and %d, want %q\n%s", name, code, said, cmd.ProcessState.ExitCode(), want, out)
			}
		}
	}
}

// documents returns the documents of a YAML file.
func documents(t *testing.T, text string) (all []object) {
	t.Helper()
	for dec := yaml.NewDecoder(strings.NewReader(text)); ; {
		var o object
		err := dec.Decode(&o)
		if err == io.EOF {
			return all
		}
		if err != nil {
			t.Fatalf("%v in:\n%s", err, text)
		}
		all = append(all, o)
	}
}

// nodesOf describes the nodes of each manifest: the place of the Job's specification, and the values that
// Kubernetes, JobSet and the trainer add.
var nodesOf = map[string]struct {
	document int
	spec     []any
	head     string
	env      []string
}{
	"job.yaml":    {1, []any{"spec"}, "train-0.train", nil},
	"jobset.yaml": {0, []any{"spec", "replicatedJobs", 0, "template", "spec"}, "train-node-0-0.train", nil},
	"trainjob.yaml": {0, []any{"spec", "template", "spec", "replicatedJobs", 0, "template", "spec"}, "train-node-0-0.train",
		[]string{"PET_NNODES=4", "PET_NODE_RANK=2", "PET_MASTER_ADDR=train-node-0-0.train", "PET_MASTER_PORT=29500", "PET_NPROC_PER_NODE=8"}},
}

// Each manifest makes four nodes of one launch, which know the head and have the secret as a private file. It
// stops trying if another try cannot help.
func TestExamplesOfKubernetes(t *testing.T) {
	texts := examples(t, "kubernetes/*.yaml")
	for name, of := range nodesOf {
		spec := at(documents(t, texts[name])[of.document], of.spec...)
		pod := at(spec, "template", "spec")
		container := at(pod, "containers", 0)
		env := append([]string{"KUBERNETES_SERVICE_HOST=10.96.0.1", "JOB_COMPLETION_INDEX=2"}, of.env...)
		for _, e := range list(container, "env") {
			value, ok := at(e, "value").(string)
			if !ok { // a field of the pod
				value = "7"
			}
			env = append(env, at(e, "name").(string)+"="+value)
		}
		p, err := cluster.Detect(env)
		if err != nil || p.Nodes != 4 || p.NodeRank != 2 || p.Head != of.head || p.GangID != "7" {
			t.Errorf("%s: %+v, %v", name, p, err)
		}
		if n := at(spec, "completions"); n != nil && (n != 4 || at(spec, "parallelism") != 4 || at(spec, "completionMode") != "Indexed") {
			t.Errorf("%s: it has not four pods at once, each with its number", name)
		}
		codes := at(spec, "podFailurePolicy", "rules", 0, "onExitCodes")
		if at(codes, "containerName") != at(container, "name") || !slices.Equal(list(codes, "values"), []any{1, 2, 12, 70}) {
			t.Errorf("%s: it gives up after %v", name, codes)
		}
		secret := slices.IndexFunc(list(pod, "volumes"), func(v any) bool { return at(v, "secret", "defaultMode") == 0o400 })
		mounted := slices.ContainsFunc(list(container, "volumeMounts"), func(m any) bool { return at(m, "mountPath") == "/run/gpurun" && at(m, "name") == "secret" })
		if secret < 0 || !mounted || !slices.Contains(env, "GPURUN_SECRET_FILE=/run/gpurun/secret") {
			t.Errorf("%s: the secret is no file of gpurun's own", name)
		}
	}
}

// Each manifest satisfies the Pod Security Standard "restricted", by user, privileges and root file system. It has
// requests and limits, bounded volumes in memory, an end of its finished pods, and the volume, the policy and the monitor
// of the other files select it.
func TestExamplesOfKubernetesAreRestricted(t *testing.T) {
	texts := examples(t, "kubernetes/*.yaml")
	policy, monitor := documents(t, texts["network.yaml"])[0], documents(t, texts["pod-monitor.yaml"])[0]
	label := object{"app.kubernetes.io/name": "train"}
	for name, of := range nodesOf {
		all := documents(t, texts[name])
		template := at(all[of.document], append(slices.Clone(of.spec), "template")...)
		pod, container := at(template, "spec"), at(template, "spec", "containers", 0)
		resources := at(container, "resources")
		if resources == nil { // the trainer adds them
			resources = at(all[1], "spec", "trainer", "resourcesPerNode")
		}
		whole := of.spec // with all Jobs of the launch
		if i := slices.Index(whole, any("replicatedJobs")); i >= 0 {
			whole = whole[:i]
		}
		for what, test := range map[string]struct{ got, want any }{
			"user":                 {at(pod, "securityContext", "runAsNonRoot"), true},
			"number of the user":   {at(pod, "securityContext", "runAsUser"), 10001},
			"group of the volumes": {at(pod, "securityContext", "fsGroup"), 10001},
			"system calls":         {at(pod, "securityContext", "seccompProfile", "type"), "RuntimeDefault"},
			"token":                {at(pod, "automountServiceAccountToken"), false},
			"privileges":           {at(container, "securityContext", "allowPrivilegeEscalation"), false},
			"root file system":     {at(container, "securityContext", "readOnlyRootFilesystem"), true},
			"capabilities":         {at(container, "securityContext", "capabilities", "drop"), []any{"ALL"}},
			"requested memory":     {at(resources, "requests", "memory"), at(resources, "limits", "memory")},
			"GPUs":                 {at(resources, "limits", "nvidia.com/gpu"), 8},
			"labels":               {at(template, "metadata", "labels"), label},
			"metrics":              {at(container, "ports", 0, "name"), at(monitor, "spec", "podMetricsEndpoints", 0, "port")},
			"end":                  {at(all[of.document], append(slices.Clone(whole), "ttlSecondsAfterFinished")...), 604800},
		} {
			if diff := cmp.Diff(test.want, test.got); diff != "" || test.got == nil {
				t.Errorf("%s: %s: (-want +got)\n%s", name, what, diff)
			}
		}
		if at(resources, "requests", "cpu") == nil {
			t.Errorf("%s: it requests no processors", name)
		}
		checkVolumes(t, name, pod, at(documents(t, texts["volume.yaml"])[0], "metadata", "name"))
	}
	from := at(policy, "spec", "ingress", 0)
	if diff := cmp.Diff(label, at(policy, "spec", "podSelector", "matchLabels")); diff != "" || !cmp.Equal(label, at(from, "from", 0, "podSelector", "matchLabels")) || at(from, "ports") != nil {
		t.Errorf("the pods do not reach each other on all ports: %v\n%s", from, diff)
	}
	if selector := at(monitor, "spec", "selector", "matchLabels"); at(selector, "app.kubernetes.io/name") != "train" || at(selector, "batch.kubernetes.io/job-completion-index") != "0" {
		t.Errorf("metrics of %v", selector)
	}
}

// checkVolumes checks that each volume of a manifest is mounted, that the emptyDirs are bounded, with /dev/shm alone in
// memory, and that the runs are in the claim.
func checkVolumes(t *testing.T, name string, pod, claim any) {
	t.Helper()
	mounted := map[any]any{} // path by volume
	for _, m := range list(pod, "containers", 0, "volumeMounts") {
		mounted[at(m, "name")] = at(m, "mountPath")
	}
	for _, v := range list(pod, "volumes") {
		path := mounted[at(v, "name")]
		if at(v, "emptyDir") != nil && at(v, "emptyDir", "sizeLimit") == nil || path == nil {
			t.Errorf("%s: the volume %v is unbounded or unused", name, v)
		}
		if at(v, "emptyDir", "medium") == "Memory" != (path == "/dev/shm") || path == "/runs" != (at(v, "persistentVolumeClaim", "claimName") == claim) {
			t.Errorf("%s: the volume at %v is %v", name, path, v)
		}
	}
	for _, path := range []any{"/runs", "/dev/shm", "/tmp"} {
		if !slices.Contains(slices.Collect(maps.Values(mounted)), path) {
			t.Errorf("%s: no volume at %v", name, path)
		}
	}
}

// paths are the API server's paths for the kinds of the manifests.
var paths = map[string]string{
	"Service": "/api/v1/namespaces/default/services", "PersistentVolumeClaim": "/api/v1/namespaces/default/persistentvolumeclaims", "Job": jobs,
	"NetworkPolicy": "/apis/networking.k8s.io/v1/namespaces/default/networkpolicies", "PodMonitor": "/apis/monitoring.coreos.com/v1/namespaces/default/podmonitors",
	"JobSet":          jobSets,
	"TrainingRuntime": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainingruntimes", "TrainJob": "/apis/trainer.kubeflow.org/v1alpha1/namespaces/default/trainjobs",
}

// The indexed Job on a real API server: its pods are one launch. If a GPU is lost, all pods are replaced, and
// the run continues. If no plan fits, the Job ends at once.
func TestManyNodesOnKubernetes(t *testing.T) {
	lab(t)
	c := newKubernetes(t)
	for name, test := range map[string]struct {
		script, condition string
		codes             []int
	}{
		"75": {"", "Complete", []int{0, 0, 75, 75}}, // the script that loses its GPU once
		"12": {"echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 24.00 GiB of which 1.00 GiB is free.' >&2\nexit 1\n", "Failed", []int{12, 12}},
	} {
		t.Run(name, func(t *testing.T) {
			k := newKubelet(t, c)
			k.pair(test.script, "job.yaml", "train-0.train", jobs)
			condition, codes := k.waits(jobs+"/train", nil)
			if condition["type"] != test.condition || !slices.Equal(codes, test.codes) {
				t.Errorf("%v after %v", condition, codes)
			}
			runs, _ := filepath.Glob(filepath.Join(k.n.dir, ".gpurun", "*", "*", "verdict.json"))
			if len(runs) != 1 {
				t.Errorf("%d runs", len(runs))
			}
			k.clears()
			k.await("the end of the Job", func() bool { _, code, _ := k.ask("GET", jobs+"/train", nil); return code == 404 })
		})
	}
}

// A real API server accepts the manifests as written, without unknown fields, and their pods where the Pod Security
// Standard "restricted" is enforced. Kinds that Kubernetes itself does not have need their CRDs.
func TestExamplesOnKubernetes(t *testing.T) {
	lab(t)
	c := newKubernetes(t)
	known := c.makeCRDs()
	c.restrict()
	for name, text := range examples(t, "kubernetes/*.yaml") {
		t.Run(name, func(t *testing.T) {
			c := c.of(t)
			if of, launch := nodesOf[name]; launch {
				c.admits(at(documents(t, text)[of.document], append(slices.Clone(of.spec), "template")...).(object))
			}
			for _, o := range documents(t, text) {
				path := paths[o["kind"].(string)]
				if strings.Contains(path, ".x-k8s.io/") || strings.Contains(path, ".kubeflow.org/") || strings.Contains(path, ".coreos.com/") {
					if !known {
						t.Skip("GPURUN_KUBE_CRDS names no folder of CRDs")
					}
					c.await("the API of "+path, func() bool { _, code, _ := c.ask("GET", path, nil); return code == 200 })
				}
				if said, code := c.make(path, o); code != 201 {
					t.Fatalf("%v: %d: %v", o["kind"], code, at(said, "message"))
				}
				at(o, "metadata").(object)["name"] = "wrong"
				at(o, "spec").(object)["parallelity"] = 4
				if _, code := c.make(path, o); code != 400 {
					t.Errorf("%v: a key that is not there: %d", o["kind"], code)
				}
			}
		})
	}
}

// admits checks, without creating it, that the pod of a template is admitted, and that it is not with a capability.
func (c *kubernetes) admits(template object) {
	c.t.Helper()
	pod := object{"apiVersion": "v1", "kind": "Pod", "metadata": object{"name": "admitted"}, "spec": template["spec"]}
	container := at(pod, "spec", "containers", 0, "securityContext").(object)
	for _, test := range []struct {
		capabilities any
		code         int
	}{{container["capabilities"], 201}, {object{"add": []any{"SYS_ADMIN"}}, 403}} {
		container["capabilities"] = test.capabilities
		if said, code, err := c.ask("POST", pods+"?dryRun=All&fieldValidation=Strict", pod); code != test.code {
			c.t.Errorf("a pod with the capabilities %v: %d: %v, %v", test.capabilities, code, at(said, "message"), err)
		}
	}
}
