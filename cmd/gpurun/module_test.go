package main

import (
	"os"
	"path/filepath"
	"testing"

	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/recipes"
)

// TestModuleSource: the source of a module is found as Python would find it, and
// is not looked for where the module's name tells the recipe.
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
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	for module, want := range map[string]string{
		"train": "here", "pkg": "package", "elsewhere": "on the path", "recipes.installed.train": "installed", "nowhere": "", "torchtitan.train": "",
	} {
		p := &prepared{
			job:     &job.Job{Kind: job.Module, Argv: []string{module}, Workdir: work, Recipe: "auto"},
			env:     []string{"PYTHONPATH=" + other + ":" + packages},
			python:  python,
			command: recipes.Command{Argv: []string{module}},
		}
		if got := p.moduleSource(t.Context(), module); string(got) != want {
			t.Errorf("%s: %q, want %q", module, got, want)
		}
	}
	p := &prepared{job: &job.Job{Workdir: work, Recipe: "auto"}, env: os.Environ(), python: python, command: recipes.Command{Argv: []string{"json.tool"}}}
	if len(p.moduleSource(t.Context(), "json.tool")) == 0 {
		t.Error("the interpreter's own modules are not found")
	}
}
