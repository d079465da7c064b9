package test

import (
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/test/testenv"
)

// A healthy job prints and leaves under gpurun what it does alone, in every mode. Without the hook, gpurun puts nothing
// into the job. launcher/hook tries all habits with the hook alone; GPURUN_HABITS=all does so here.
func TestHealthyJobIsUntouched(t *testing.T) {
	python := testenv.Torch(t)
	script, err := filepath.Abs(filepath.Join(testenv.Root(t), "launcher", "hook", "testdata", "habits", "run.py"))
	if err != nil {
		t.Fatal(err)
	}
	habits := []string{"counters.Closure", "tensors.ActNormByAFlag", "effects.functions_of_torch_are_as_they_were"}
	if wanted := os.Getenv("GPURUN_HABITS"); wanted != "" {
		var all []struct{ Name string }
		if err := json.Unmarshal([]byte(runLine(t, t.TempDir(), python, "-B", script)), &all); err != nil {
			t.Fatal(err)
		}
		habits = nil
		for _, h := range all {
			if wanted == "all" || strings.Contains(h.Name, wanted) {
				habits = append(habits, h.Name)
			}
		}
	}
	for i, habit := range habits {
		t.Run(habit, func(t *testing.T) {
			t.Parallel()
			want := runLine(t, t.TempDir(), python, "-B", script, habit)
			for _, mode := range []string{"defaults", "--mode off", "--no-in-place", "launch.hooks = false"} {
				if mode == "launch.hooks = false" && i > 0 {
					continue
				}
				dir, run := t.TempDir(), filepath.Join(t.TempDir(), "run")
				words := []string{"--run-dir", run}
				switch mode {
				case "defaults":
				case "launch.hooks = false":
					words = append(words, filepath.Join(t.TempDir(), "train.toml"))
					text := fmt.Sprintf("[job]\nprogram = [%q, \"-B\", %q, %q]\nworkdir = %q\n[launch]\nhooks = false\n", python, script, habit, dir)
					if err := os.WriteFile(words[2], []byte(text), 0o600); err != nil {
						t.Fatal(err)
					}
				default:
					words = append(words, strings.Fields(mode)...)
				}
				if mode != "launch.hooks = false" {
					words = append(words, python, "-B", script, habit)
				}
				got := runLine(t, dir, binary(t), words...)
				if diff := cmp.Diff(strings.Split(want, "\n"), strings.Split(got, "\n")); diff != "" {
					t.Errorf("with %s (-alone +under gpurun):\n%s", mode, diff)
				}
				loaded, err := filepath.Glob(filepath.Join(run, "attempt-0", "probe-*"))
				if err != nil {
					t.Fatal(err)
				}
				if off := mode == "--mode off" || mode == "launch.hooks = false"; off && len(loaded) > 0 {
					t.Errorf("with %s the hook is installed: %q", mode, loaded)
				}
			}
		})
	}
}
