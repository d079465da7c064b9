package job

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/launcher/commandline"
	interpreter "github.com/gpurun/gpurun/launcher/python"
)

// TestModuleSource: the source of a module is found as Python would find it, and
// is not looked for where the module's name decides the recipe.
func TestModuleSource(t *testing.T) {
	packages, _, python := framework(t)
	work, other := t.TempDir(), t.TempDir()
	for path, text := range map[string]string{
		filepath.Join(work, "train.py"):                       "here",
		filepath.Join(work, "pkg/__main__.py"):                "package",
		filepath.Join(work, "torchtitan/train.py"):            "a copy",
		filepath.Join(other, "train.py"):                      "hidden",
		filepath.Join(other, "elsewhere.py"):                  "on the path",
		filepath.Join(packages, "recipes/installed/train.py"): "installed",
	} {
		put(t, path, text)
	}
	for module, want := range map[string]string{
		"train": "here", "pkg": "package", "elsewhere": "on the path", "recipes.installed.train": "installed", "nowhere": "", "torchtitan.train": "",
	} {
		env := commandline.Environ{"PYTHONPATH": other + ":" + packages}
		s := Inspected{Job: Job{Kind: Module, Argv: []string{module}, Workdir: work, Recipe: "auto"}, env: env, Interpreter: interpreter.At(python, work, env)}
		if got, _ := s.moduleSource(t.Context()); string(got) != want {
			t.Errorf("%s: %q, want %q", module, got, want)
		}
	}
	env := commandline.ParseEnviron(os.Environ())
	s := Inspected{Job: Job{Argv: []string{"json.tool"}, Workdir: work, Recipe: "auto"}, env: env, Interpreter: interpreter.At(python, work, env)}
	if source, path := s.moduleSource(t.Context()); len(source) == 0 || path == "" {
		t.Error("the interpreter's own modules are not found")
	}
}
