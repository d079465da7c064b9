package recipes_test

import (
	"bytes"
	"encoding/json"
	"fmt"
	"maps"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/rogpeppe/go-internal/txtar"

	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// framework finds a Python that can import a module: the one that
// GPURUN_TEST_PYTHON names, else python3. The test is skipped without one.
func framework(t *testing.T, modules string) string {
	t.Helper()
	python := os.Getenv("GPURUN_TEST_PYTHON")
	if python == "" {
		python = "python3"
	}
	for module := range strings.FieldsSeq(modules) {
		find := "import importlib.util, sys; sys.exit(importlib.util.find_spec('" + module + "') is None)"
		if err := exec.Command(python, "-c", find).Run(); err != nil {
			t.Skipf("%s cannot import %s: set GPURUN_TEST_PYTHON to one that can", python, module)
		}
	}
	return python
}

// A job is one command for testdata/python/parse.py, and what it should read.
type job struct {
	Kind  string   `json:"kind"`
	Argv  []string `json:"argv"`
	Ranks int      `json:"ranks"`
	name  string
	want  strategy.Plan
}

// TestRealParsers gives every golden command, before and after its change, to
// the framework's own parser.
func TestRealParsers(t *testing.T) {
	if testing.Short() {
		t.Skip("importing the frameworks takes seconds")
	}
	for kind, modules := range map[string]string{"hf": "torch transformers accelerate deepspeed", "deepspeed": "torch deepspeed"} {
		t.Run(kind, func(t *testing.T) {
			t.Parallel()
			python := framework(t, modules)
			dir := t.TempDir()
			var jobs []job
			for _, file := range golden(t) {
				if name := filepath.Base(file); strings.HasPrefix(name, kind+"-") {
					jobs = append(jobs, realJobs(t, kind, file, filepath.Join(dir, name))...)
				}
			}
			if len(jobs) == 0 {
				t.Fatal("no golden files to try")
			}
			for i, answer := range parsed(t, python, jobs) {
				compareReal(t, jobs[i], answer)
			}
		})
	}
}

// realJobs writes a scene's files into dir; file names in the command become
// absolute, since all commands are parsed by one process.
func realJobs(t *testing.T, kind, file, dir string) []job {
	t.Helper()
	archive, err := txtar.ParseFile(file)
	if err != nil {
		t.Fatal(err)
	}
	s := readScene(t, archive)
	files := map[string][]byte{}
	for name, text := range s.cmd.Files {
		moved := filepath.Join(dir, name)
		files[moved] = text
		for i, word := range s.cmd.Argv {
			s.cmd.Argv[i] = strings.Replace(word, name, moved, 1)
		}
	}
	for name := range files {
		for other, text := range s.cmd.Files { // a file that names another
			files[name] = bytes.ReplaceAll(files[name], []byte(`"`+other+`"`), []byte(`"`+filepath.Join(dir, other)+`"`))
			_ = text
		}
	}
	s.cmd.Files = files
	plan, _, err := s.recipe.Read(s.cmd, s.at)
	if err != nil {
		return nil // a golden error
	}
	save(t, files)
	change, err := s.recipe.Apply(s.cmd, plan.With(s.plan), s.at, filepath.Join(dir, "attempt"))
	if err != nil {
		return nil
	}
	copies := map[string][]byte{}
	for name, text := range change.Files {
		copies[filepath.Join(dir, "attempt", name)] = text
	}
	save(t, copies)
	name := strings.TrimSuffix(filepath.Base(file), ".txtar")
	return []job{
		{kind, s.cmd.Argv, s.at.Ranks, name + " before", plan},
		{kind, change.Argv, s.at.Ranks, name + " after", plan.With(s.plan)},
	}
}

func save(t *testing.T, files map[string][]byte) {
	t.Helper()
	for name, text := range files {
		if err := os.MkdirAll(filepath.Dir(name), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(name, text, 0o644); err != nil {
			t.Fatal(err)
		}
	}
}

// parsed runs the frameworks' parsers. They train nothing: no device is shown.
func parsed(t *testing.T, python string, jobs []job) []map[string]any {
	t.Helper()
	input, err := json.Marshal(jobs)
	if err != nil {
		t.Fatal(err)
	}
	script, err := filepath.Abs("testdata/python/parse.py")
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(python, script)
	cmd.Dir = t.TempDir()
	cmd.Env = append(os.Environ(), "TRITON_HOME="+cmd.Dir, "HF_HOME="+cmd.Dir, "CUDA_VISIBLE_DEVICES=", "HF_HUB_OFFLINE=1", "RANK=0", "WORLD_SIZE=1", "LOCAL_RANK=0", "MASTER_ADDR=127.0.0.1", "MASTER_PORT=0", "PYTHONDONTWRITEBYTECODE=1")
	cmd.Stdin = bytes.NewReader(input)
	var stderr bytes.Buffer
	cmd.Stderr = &stderr
	output, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	lines := bytes.Split(bytes.TrimSpace(output), []byte("\n"))
	var answers []map[string]any
	if err := json.Unmarshal(lines[len(lines)-1], &answers); err != nil || len(answers) != len(jobs) {
		t.Fatalf("%v in %s\n%s", err, output, stderr.String())
	}
	return answers
}

func compareReal(t *testing.T, j job, answer map[string]any) {
	t.Helper()
	if fault, failed := answer["error"]; failed {
		t.Errorf("%s: %s\n%v", j.name, strings.Join(j.Argv, " "), fault)
		return
	}
	for _, key := range slices.Sorted(maps.Keys(answer)) {
		k := strategy.Knob(key)
		want, known := j.want[k]
		if !known {
			continue
		}
		got := fmt.Sprint(answer[key])
		if k == strategy.Optimizer {
			got = string(canonicalOptimizer(t, got))
		}
		if got != string(want) {
			t.Errorf("%s: %s is %s, want %s\n%s", j.name, k, got, want, strings.Join(j.Argv, " "))
		}
	}
}

// canonicalOptimizer reads an --optim word through the recipe.
func canonicalOptimizer(t *testing.T, word string) strategy.Value {
	t.Helper()
	plan, _, err := catalogued(t, "hf-trainer").Read(recipes.Command{Argv: []string{"x.py", "--optim", word}}, recipes.Topology{Ranks: 1})
	if err != nil {
		t.Fatal(err)
	}
	return plan[strategy.Optimizer]
}
