package job

import (
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// framework makes a folder of packages with torchtune's files in it, and its
// launcher, which runs on its own interpreter.
func framework(t *testing.T) (packages, tune, python string) {
	t.Helper()
	system, err := exec.LookPath("python3")
	if err != nil {
		t.Skip("this machine has no python3")
	}
	packages = t.TempDir()
	python = filepath.Join(packages, "python3")
	tune = filepath.Join(packages, "bin", "tune")
	for name, text := range map[string]string{
		"recipes/full_finetune_distributed.py":  "import torchtune\n",
		"recipes/configs/llama3_2/1B_full.yaml": "batch_size: 4\n",
		"trl/accelerate_configs/zero3.yaml":     "distributed_type: DEEPSPEED\ndeepspeed_config: {zero_stage: 3}\n",
		"bin/tune":                              "#!" + python + "\n",
		"bin/trl":                               "#!" + python + "\n",
		"python3":                               "#!/bin/sh\nexec " + system + " \"$@\"\n",
	} {
		path := filepath.Join(packages, name)
		put(t, path, text)
	}
	return packages, tune, python
}

// unwrapped takes a framework's launcher off a command, in this process's environment.
func unwrapped(t *testing.T, typed []string, env map[string]string, dir string) (commandline.Inner, bool, error) {
	t.Helper()
	return frameworkLaunchers(t.Context(), commandline.ParseEnviron(os.Environ()))(words{env: env, dir: dir, seen: commandline.Known.SeeThrough(typed)})
}

// TestUnwrapSite: a launcher's own files are found by its own interpreter, which
// the ranks run on, too.
func TestUnwrapSite(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "")
	packages, tune, python := framework(t)
	env := map[string]string{"PYTHONPATH": packages}
	words := []string{tune, "run", "--nproc_per_node", "2", "full_finetune_distributed", "--config", "llama3_2/1B_full", "batch_size=2"}
	inner, known, err := unwrapped(t, words, env, t.TempDir())
	if err != nil || !known {
		t.Fatalf("%v, %v", known, err)
	}
	want := commandline.Inner{
		Kind: Script, Ranks: "2", Env: map[string]string{"PYTHON_EXEC": python}, RankStarter: commandline.RankStarter{Wrapper: "tune run", Alone: true},
		Argv: []string{filepath.Join(packages, "recipes/full_finetune_distributed.py"), "--config", filepath.Join(packages, "recipes/configs/llama3_2/1B_full.yaml"), "batch_size=2"},
	}
	if diff := cmp.Diff(want, inner); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
	// A file in the working directory is not the framework's.
	words[6] = "llama3_2/8B_full"
	_, _, err = unwrapped(t, words, env, packages)
	if errext.Hint(err) == "" || !strings.Contains(err.Error(), "recipes/configs/llama3_2/8B_full.yaml") {
		t.Errorf("a configuration that is not there: %v", err)
	}
	if _, _, err = unwrapped(t, words, nil, packages); err == nil {
		t.Error("the recipe is found in the working directory")
	}
}

// TestUnwrapPackagedConfiguration: a launcher's configuration that the framework
// brings with it is read among the packages of the launcher's interpreter.
func TestUnwrapPackagedConfiguration(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "")
	packages, tune, _ := framework(t)
	trl := filepath.Join(filepath.Dir(tune), "trl")
	env := map[string]string{"PYTHONPATH": packages}
	inner, known, err := unwrapped(t, []string{trl, "sft", "--accelerate_config", "zero3", "--output_dir", "o"}, env, t.TempDir())
	if err != nil || !known || inner.Env["ACCELERATE_DEEPSPEED_ZERO_STAGE"] != "3" {
		t.Errorf("%v, %v, %v", inner, known, err)
	}
	_, _, err = unwrapped(t, []string{trl, "sft", "--accelerate_config", "zero9"}, env, t.TempDir())
	if err == nil || !strings.Contains(err.Error(), "trl/accelerate_configs/zero9.yaml is not among the packages") {
		t.Errorf("a configuration that is not there: %v", err)
	}
}

// TestUnwrapPython: the interpreter that the user names is stronger than the
// launcher's, and a program gets none.
func TestUnwrapPython(t *testing.T) {
	t.Setenv("PYTHON_EXEC", "")
	packages, tune, python := framework(t)
	launcher := filepath.Join(filepath.Dir(tune), "deepspeed")
	if err := os.Rename(tune, launcher); err != nil {
		t.Fatal(err)
	}
	for _, test := range []struct {
		words []string
		env   map[string]string
		want  string
	}{
		{[]string{launcher, "train.py"}, nil, python},
		{[]string{"bin/deepspeed", "train.py"}, nil, python},
		{[]string{launcher, "train.py"}, map[string]string{"PYTHON_EXEC": "/opt/python"}, ""},
		{[]string{launcher, "--no_python", "./train.sh"}, nil, ""},
		{[]string{"python3", "-m", "deepspeed", "train.py"}, nil, ""},
	} {
		inner, known, err := unwrapped(t, test.words, test.env, packages)
		if err != nil || !known || inner.Env["PYTHON_EXEC"] != test.want {
			t.Errorf("%q: %q, %v, %v; want %q", test.words, inner.Env["PYTHON_EXEC"], known, err, test.want)
		}
	}
}
