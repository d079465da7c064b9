package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

func TestInterpreterOfTheCommandsTorchrun(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"other/bin/torchrun": "#!" + dir + "/other/bin/python3\n", "other/bin/python3": "", "train.toml": "[job]\ncommand = \"other/bin/torchrun -m pkg\"\n",
	} {
		if err := os.MkdirAll(filepath.Join(dir, filepath.Dir(name)), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	j, err := Load(filepath.Join(dir, "train.toml"), nil)
	if err != nil {
		t.Fatal(err)
	}
	path, _, err := j.interpreter(commandline.Environ{})
	if want := filepath.Join(dir, "other/bin/python3"); err != nil || path != want {
		t.Errorf("Find = %s, %v, want %s", path, err, want)
	}
}

// The error of a missing interpreter is the user's to mend; a program needs none.
func TestInterpreterOfAJob(t *testing.T) {
	dir := t.TempDir()
	for name, test := range map[string]struct {
		job Job
		env commandline.Environ
	}{
		"named by the job":           {Job{Kind: Script, Python: "none/python"}, nil},
		"the job's own variables":    {Job{Kind: Script, Env: map[string]string{"PYTHON_EXEC": "none/python"}}, commandline.Environ{"PYTHON_EXEC": "/bin/sh"}},
		"the variables of a machine": {Job{Kind: Module}, commandline.Environ{"PYTHON_EXEC": "none/python"}},
	} {
		test.job.Workdir = dir
		path, _, err := test.job.interpreter(test.env)
		if errext.Hint(err) == "" || !strings.Contains(err.Error(), filepath.Join(dir, "none/python")+" does not exist") {
			t.Errorf("%s: %q, %v", name, path, err)
		}
	}
	if path, why, err := (&Job{Kind: Program}).interpreter(nil); path != "" || why == "" || err != nil {
		t.Errorf("a program: %q, %q, %v", path, why, err)
	}
}

// Who wants another interpreter has to name it where the job's is named.
func TestPythonBy(t *testing.T) {
	dir, env := typedAt(t)
	plain, line := filepath.Join(dir, "plain.toml"), filepath.Join(dir, "line.toml")
	put(t, plain, "[job]\nscript = \"train.py\"\n")
	put(t, line, "[job]\ncommand = \"python train.py\"\n")
	for line, want := range map[string]string{
		"python train.py": "command", "uv run python train.py": "command", "torchrun train.py": "--python", "train.py": "--python",
		plain: "job.python", line: "job.command",
	} {
		if j, _, err := Open(t.Context(), strings.Fields(line), env, dir); err != nil || j.PythonBy() != want {
			t.Errorf("%s: %v, %v, want %s", line, j, err, want)
		}
	}
}
