package recipes_test

import (
	"bytes"
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
)

// TestConformanceOfAccelerateLaunch: the variables are those that accelerate launch itself sets,
// except the rendezvous and the number of threads, which gpurun sets in its own way.
func TestConformanceOfAccelerateLaunch(t *testing.T) {
	if wanted := strings.Fields(os.Getenv(conformance)); len(wanted) == 0 || wanted[0] != "all" && !strings.Contains(os.Getenv(conformance), "accelerate") {
		t.Skip("make conformance installs the frameworks and runs their launchers")
	}
	folder := t.TempDir()
	save(t, folder, map[string][]byte{
		"zero.yaml": []byte(accelerateYAML),
		"fsdp.yaml": []byte("compute_environment: LOCAL_MACHINE\ndistributed_type: FSDP\nnum_processes: 2\nnum_machines: 1\nmixed_precision: 'no'\nfsdp_config:\n" +
			"  fsdp_version: 2\n  fsdp_offload_params: true\n  fsdp_transformer_layer_cls_to_wrap: GPT2Block\n  fsdp_auto_wrap_policy: TRANSFORMER_BASED_WRAP\n"),
		"multi.yaml": []byte("compute_environment: LOCAL_MACHINE\ndistributed_type: MULTI_GPU\nnum_processes: 2\nnum_machines: 1\nmixed_precision: fp16\ngpu_ids: 0,1\ndynamo_config:\n  dynamo_backend: inductor\n"),
	})
	lines := []string{
		"--num_processes 2 --multi_gpu --num_machines 1 train.py",
		"--num_processes 1 --mixed_precision no train.py",
		"--config_file zero.yaml train.py --x",
		"--config_file fsdp.yaml --fsdp_offload_params false train.py",
		"--config_file multi.yaml --mixed-precision no train.py",
		"--use_deepspeed --zero_stage 3 --offload_optimizer_device cpu --num_processes 2 --num_machines 1 --mixed_precision no train.py",
	}
	want := launchEnvironments(t, folder, lines)
	read := func(name string) ([]byte, error) { return os.ReadFile(filepath.Join(folder, name)) }
	for i, line := range lines {
		inner, _, err := recipes.Unwrap(append([]string{"accelerate", "launch"}, strings.Fields(line)...), nil, read)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		for _, own := range []string{"MASTER_ADDR", "MASTER_PORT", "OMP_NUM_THREADS", "PYTHONPATH"} {
			delete(want[i], own)
		}
		if want[i]["ACCELERATE_USE_CPU"] == "False" {
			delete(want[i], "ACCELERATE_USE_CPU")
		}
		if diff := cmp.Diff(want[i], inner.Env); diff != "" {
			t.Errorf("%s (-want +got):\n%s", line, diff)
		}
	}
}

// launchEnvironments runs accelerate launch itself on each command line.
func launchEnvironments(t *testing.T, folder string, lines []string) []map[string]string {
	t.Helper()
	var words [][]string
	for _, line := range lines {
		words = append(words, strings.Fields(line))
	}
	input, err := json.Marshal(words)
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("conformance/accelerate/launch.py")
	if err != nil {
		t.Fatal(err)
	}
	python, err := filepath.Abs(environment(t, "accelerate"))
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, script)
	cmd.Dir, cmd.Stdin = folder, bytes.NewReader(input)
	cmd.Env = append(os.Environ(), "HF_HOME="+folder, "HOME="+folder, "CUDA_VISIBLE_DEVICES=", "PYTHONDONTWRITEBYTECODE=1")
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	printed := bytes.Split(bytes.TrimSpace(out), []byte("\n"))
	var want []map[string]string
	if err := json.Unmarshal(printed[len(printed)-1], &want); err != nil || len(want) != len(lines) {
		t.Fatalf("%v in %s", err, out)
	}
	return want
}
