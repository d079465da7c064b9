package recipes_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"iter"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// conformance is the environment variable that enables the real frameworks: "all", or names of
// recipes. They are installed first, which takes minutes and gigabytes, so they are not part of
// the usual tests: see make conformance.
const conformance = "GPURUN_CONFORMANCE"

// A realCase is one command for a framework's own parser (testdata/conformance/harness.py).
type realCase struct {
	Name    string            `json:"name"`
	Argv    []string          `json:"argv"`
	Env     map[string]string `json:"env"`
	Folder  string            `json:"folder"`
	Attempt string            `json:"attempt"`
	Ranks   int               `json:"ranks"`

	remedy string
	want   strategy.Plan // the plan that the framework has to read
	turn   strategy.Plan // the changes of the scene; nil before the change
}

// answers is the output of the harness.
type answers struct {
	Packages map[string]string `json:"packages"`
	Answers  []map[string]any  `json:"answers"`
}

// TestConformance gives every golden command, before and after its change, to the framework's own
// parser, and records what was verified.
func TestConformance(t *testing.T) {
	wanted := strings.Fields(os.Getenv(conformance))
	if len(wanted) == 0 {
		t.Skip("make conformance installs the frameworks and runs their parsers")
	}
	parsers, err := filepath.Glob("testdata/conformance/*/parse.py")
	if err != nil || len(parsers) == 0 {
		t.Fatalf("no parsers: %v", err)
	}
	for _, parser := range parsers {
		name := filepath.Base(filepath.Dir(parser))
		if wanted[0] != "all" && !slices.Contains(wanted, name) {
			continue
		}
		t.Run(name, func(t *testing.T) {
			python := environment(t, name)
			cases := realCases(t, name)
			if len(cases) == 0 {
				t.Fatal("the recipe has no golden scenes")
			}
			got := ask(t, python, name, cases)
			r := report{name: name, digest: digestOf(t, name), packages: got.Packages}
			for i, c := range cases {
				r.count(c, compareReal(c, got.Answers[i]))
			}
			for _, fault := range r.faults {
				t.Error(fault)
			}
			r.write(t)
		})
	}
	writeTable(t)
}

// environment is the interpreter of a framework's environment.
func environment(t *testing.T, name string) string {
	t.Helper()
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	cmd := exec.Command(python, "testdata/conformance/environment.py", name, filepath.Join("..", ".cache", "conformance"))
	cmd.Stderr = os.Stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("make the environment of %s: %v", name, err)
	}
	return strings.TrimSpace(string(out))
}

// realCases returns the scenes of a recipe as commands in separate folders.
func realCases(t *testing.T, name string) []realCase {
	t.Helper()
	var cases []realCase
	for scene, s := range askedScenes(t, name) {
		folder := t.TempDir()
		save(t, folder, s.cmd.Files)
		c := realCase{
			Name: scene + " before", Argv: s.cmd.Argv, Env: s.cmd.Env,
			Folder: folder, Attempt: attempt, Ranks: s.at.Ranks, want: s.held, remedy: s.remedy,
		}
		cases = append(cases, c)
		change, err := s.recipe.Apply(s.cmd, s.held.With(s.plan), s.at, attempt)
		if err != nil {
			continue // a golden error
		}
		save(t, filepath.Join(folder, attempt), change.Files)
		link(t, folder, change.Siblings)
		c.Name = strings.Replace(c.Name, " before", " after", 1)
		c.Argv, c.Env, c.want, c.turn = change.Argv, maps.Clone(s.cmd.Env), s.held.With(s.plan), s.plan
		maps.Copy(c.Env, change.Env)
		cases = append(cases, c)
	}
	return cases
}

// An askedScene is a scene with the plan that the recipe reads in its command.
type askedScene struct {
	scene
	held strategy.Plan
}

// askedScenes yields the scenes of a recipe that its framework reads, by their names: all without
// a golden error.
func askedScenes(t *testing.T, name string) iter.Seq2[string, askedScene] {
	return func(yield func(string, askedScene) bool) {
		for _, written := range golden(t) {
			s := readScene(t, written)
			if s.recipe.Name != name || s.own || s.unparsed != "" {
				continue
			}
			held, _, err := s.recipe.Read(s.cmd, s.at)
			if err != nil {
				continue // a golden error
			}
			// No setting of the framework holds these: its launcher, or the number of ranks, decides.
			maps.DeleteFunc(held, func(k strategy.Knob, _ strategy.Value) bool { return s.recipe.Knobs[k].Absent != "" })
			if !yield(written.name, askedScene{scene: s, held: held}) {
				return
			}
		}
	}
}

func save(t *testing.T, folder string, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		name = filepath.Join(folder, name)
		testenv.Check(t, os.MkdirAll(filepath.Dir(name), 0o755))
		testenv.Check(t, os.WriteFile(name, text, 0o644))
	}
}

// link puts the siblings of copied files next to the copies, as the launcher does.
func link(t *testing.T, folder string, siblings map[string]string) {
	t.Helper()
	for copied, original := range siblings {
		entries, err := os.ReadDir(filepath.Join(folder, original))
		testenv.Check(t, err)
		for _, entry := range entries {
			to := filepath.Join(folder, attempt, copied, entry.Name())
			if _, err := os.Lstat(to); err == nil {
				continue
			}
			testenv.Check(t, os.Symlink(filepath.Join(folder, original, entry.Name()), to))
		}
	}
}

// ask runs the framework's parser on all cases.
func ask(t *testing.T, python, name string, cases []realCase) answers {
	t.Helper()
	for i := range cases {
		ranks := fmt.Sprint(cases[i].Ranks)
		env := map[string]string{"RANK": "0", "LOCAL_RANK": "0", "WORLD_SIZE": ranks, "LOCAL_WORLD_SIZE": ranks, "MASTER_ADDR": "127.0.0.1", "MASTER_PORT": "0"}
		maps.Copy(env, cases[i].Env)
		cases[i].Env = env
	}
	input, err := json.Marshal(cases)
	testenv.Check(t, err)
	cmd := exec.Command(python, "testdata/conformance/harness.py", filepath.Join("testdata", "conformance", name))
	cmd.Env = append(os.Environ(), "TMPDIR="+t.TempDir(), "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	var got answers
	if err == nil {
		err = json.Unmarshal(output, &got)
	}
	if err != nil || len(got.Answers) != len(cases) {
		t.Fatalf("%v in %s\n%s", err, output, stderr.String())
	}
	return got
}

// compareReal lists the differences between what the framework reads and what gpurun reads;
// empty: none.
func compareReal(c realCase, answer map[string]any) string {
	line := "\n\t" + strings.Join(c.Argv, " ")
	if fault, failed := answer["error"]; failed {
		return fmt.Sprintf("%s: %v%s", c.Name, fault, line)
	}
	var faults []string
	for _, key := range slices.Sorted(maps.Keys(answer)) {
		k := strategy.Knob(key)
		if !slices.Contains(strategy.Knobs, k) {
			faults = append(faults, fmt.Sprintf("parse.py returns %s, which is no knob", k))
		}
		if want, known := c.want[k]; known && fmt.Sprint(answer[key]) != string(want) {
			faults = append(faults, fmt.Sprintf("%s is %v, want %s", k, answer[key], want))
		}
	}
	for k := range c.turn {
		if _, compared := answer[string(k)]; !compared && c.remedy != "" && k != strategy.Allocator {
			faults = append(faults, fmt.Sprintf("parse.py does not return %s, which the rung changes", k))
		}
	}
	if len(faults) == 0 {
		return ""
	}
	return c.Name + ": " + strings.Join(faults, "; ") + line
}

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
	testenv.Check(t, err)
	script, err := filepath.Abs("testdata/conformance/accelerate/launch.py")
	testenv.Check(t, err)
	python, err := filepath.Abs(environment(t, "accelerate"))
	testenv.Check(t, err)
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
