package test

import (
	"fmt"
	"io"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

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
		cmd := osexec.Command("bash", "-n")
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
			cmd := osexec.Command("bash", "-c", text)
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
	for name, text := range examples(t, "kubernetes/*.yaml") {
		of, known := nodesOf[name]
		if !known {
			t.Fatalf("%s: what it says of nodes is not known here", name)
		}
		spec := at(documents(t, text)[of.document], of.spec...)
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

// paths are the API server's paths for the kinds of the manifests.
var paths = map[string]string{
	"Service": "/api/v1/namespaces/default/services", "Job": jobs, "JobSet": "/apis/jobset.x-k8s.io/v1alpha2/namespaces/default/jobsets",
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
			k := &kubelet{&kubernetes{t, c.url, c.http}, newUnwatched(t), map[string]bool{}, map[string]int{}, map[string]*osexec.Cmd{}}
			if test.script != "" {
				put(t, filepath.Join(k.n.dir, "train.sh"), test.script)
			}
			secret := filepath.Join(k.n.dir, "secret")
			if err := os.WriteFile(secret, []byte(strings.Repeat("07", 32)), 0o400); err != nil {
				t.Fatal(err)
			}
			text := strings.NewReplacer("/runs/gpt", "/srv/gpt", `value: "4"`, `value: "2"`, "completions: 4", "completions: 2", "parallelism: 4", "parallelism: 2",
				"train-0.train", "127.0.0.1", "/run/gpurun/secret", secret).Replace(examples(t, "kubernetes/*.yaml")["job.yaml"])
			if said, code := k.make(jobs, documents(t, text)[1]); code != 201 {
				t.Fatalf("%d: %v", code, at(said, "message"))
			}
			condition, codes := k.waits("train", nil)
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

// A real API server accepts the manifests as written. Kinds that Kubernetes itself does not have need their
// CRDs, in files of the folder GPURUN_KUBE_CRDS.
func TestExamplesOnKubernetes(t *testing.T) {
	lab(t)
	c := newKubernetes(t)
	crds, _ := filepath.Glob(filepath.Join(os.Getenv("GPURUN_KUBE_CRDS"), "*.yaml"))
	if os.Getenv("GPURUN_KUBE_CRDS") == "" {
		crds = nil
	}
	for _, name := range crds {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		if said, code := c.make("/apis/apiextensions.k8s.io/v1/customresourcedefinitions", documents(t, string(text))[0]); code != 201 {
			t.Fatalf("%s: %d: %v", name, code, at(said, "message"))
		}
	}
	for name, text := range examples(t, "kubernetes/*.yaml") {
		t.Run(name, func(t *testing.T) {
			c := &kubernetes{t, c.url, c.http}
			for _, o := range documents(t, text) {
				path := paths[o["kind"].(string)]
				if strings.HasPrefix(path, "/apis/") && !strings.HasPrefix(path, "/apis/batch/") {
					if len(crds) == 0 {
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
