package test

import (
	"bytes"
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
	"time"
)

// TestSnapshotOnAGPU lets jobs fill a real GPU's memory in several ways, and checks the summary. It needs
// GPURUN_TEST_PYTHON, and at most 5 GiB of one GPU.
func TestSnapshotOnAGPU(t *testing.T) {
	python, installed, devices := rescueMachine(t)
	if why := (scene{gpus: 1, needs: []string{"torch"}}).lacks(installed, len(devices)); why != "" {
		t.Skip(why)
	}
	for _, test := range []struct {
		way, mode string
		want      []string // expressions; NAME@ is the line of job.py that bears the name
		kept      bool
	}{
		{"ordinary", "oom", []string{
			`memory at the failure: [23]\.\d GiB of 4\.0 GiB held, \d+ MiB more requested; by line:`, `(GiB|MiB)  job\.py:(UP@|ACT@) forward`,
		}, true},
		{"logits", "oom", []string{`giant: logits 10×1024×50257 fp32, (2 times )?1\.9 GiB, at job\.py:\d+ .* → compute the loss in chunks`}, true},
		{"leak", "always", []string{`leak: 48 MiB stay with every step, by job\.py:LEAK@ main \([\d.]+ [MG]iB so far\)`, `job\.py:LEAK@ main`}, true},
		{"fragmented", "always", []string{`fragmented: 1\.\d GiB lie free within what is held, the largest piece \d+ MiB`, `job\.py:PIECE@ main`}, true},
		{"late", "oom", []string{`not known: .* GiB were allocated after step 3, .*launch\.snapshot = "always"`}, true},
		{"late", "off", nil, false},
		{"outlived", "oom", nil, false},
	} {
		t.Run(test.way+" "+test.mode, func(t *testing.T) {
			out, run := snapshotRun(t, python, test.way, test.mode)
			said := aboutMemory(out)
			t.Logf("\n%s", strings.Join(said, "\n"))
			all := strings.Join(said, "\n")
			for _, want := range test.want {
				if !regexp.MustCompile(lineNumbers(t, want)).MatchString(all) {
					t.Errorf("nothing of %s in\n%s", lineNumbers(t, want), tail(out, 60))
				}
			}
			if strings.Contains(all, "attention") {
				t.Error("the model has no attention")
			}
			if len(test.want) == 0 && len(said) > 0 || len(said) > 5 {
				t.Errorf("%d lines", len(said))
			}
			files, err := filepath.Glob(filepath.Join(run, "attempt-0", "rank0", "snapshot-*.pickle"))
			if err != nil || len(files) > 0 != test.kept {
				t.Errorf("files %q, %v", files, err)
			}
			opensInMemoryViz(t, python, files)
		})
	}
	t.Run("cost", func(t *testing.T) {
		cmd := osexec.CommandContext(t.Context(), python, filepath.Join("testdata", "snapshot", "job.py"), "cost", filepath.Join("..", "launcher", "hook", "inside", "base", "digest.py"))
		out, err := cmd.CombinedOutput()
		at := bytes.LastIndex(out, []byte("COST "))
		if err != nil || at < 0 {
			t.Fatalf("%v\n%s", err, tail(out, 30))
		}
		t.Logf("%s", out[at:])
	})
}

// snapshotRun runs one variant of the job, which nothing can rescue, and returns gpurun's output.
func snapshotRun(t *testing.T, python, way, mode string) (out []byte, run string) {
	t.Helper()
	dir := copyOf(t, filepath.Join("testdata", "snapshot"))
	text := fmt.Sprintf("[job]\nscript = \"job.py\"\nargs = [%q]\n[launch]\nsnapshot = %q\n[recovery]\nmode = \"off\"\n", way, mode)
	if err := os.WriteFile(filepath.Join(dir, "train.toml"), []byte(text), 0o644); err != nil {
		t.Fatal(err)
	}
	run = filepath.Join(dir, "run")
	cmd := osexec.CommandContext(t.Context(), binary(t), "--run-dir", run, filepath.Join(dir, "train.toml"))
	cmd.Env = append(insideEnv(), "PYTHON_EXEC="+python, "CUDA_VISIBLE_DEVICES=0")
	cmd.WaitDelay = 5 * time.Second
	out, err := cmd.CombinedOutput()
	if trained := bytes.Contains(out, []byte("TRAINED")); (err == nil) != trained || trained != (way == "outlived") {
		t.Fatalf("%v\n%s", err, tail(out, 60))
	}
	return out, run
}

// aboutMemory returns gpurun's lines about what filled the memory.
func aboutMemory(out []byte) (said []string) {
	for line := range strings.Lines(string(out)) {
		words, its := strings.CutPrefix(strings.TrimRight(line, "\n"), "gpurun: ")
		switch {
		case its && strings.HasPrefix(words, "memory at the failure"):
			said = append(said, words)
		case its && len(said) > 0 && strings.HasPrefix(words, "  ") && !strings.HasPrefix(words, "  attempt"):
			said = append(said, words)
		}
	}
	return said
}

// lineNumbers replaces names of lines of job.py with their numbers.
func lineNumbers(t *testing.T, want string) string {
	t.Helper()
	text, err := os.ReadFile(filepath.Join("testdata", "snapshot", "job.py"))
	if err != nil {
		t.Fatal(err)
	}
	for i, line := range strings.Split(string(text), "\n") {
		if _, name, marked := strings.Cut(line, "  # "); marked && name == strings.ToUpper(name) {
			want = strings.ReplaceAll(want, name+"@", fmt.Sprint(i+1))
		}
	}
	return want
}

// opensInMemoryViz opens the files with PyTorch's own viewer as a script, which does not need to import
// PyTorch.
func opensInMemoryViz(t *testing.T, python string, files []string) {
	t.Helper()
	found, err := osexec.Command(python, "-c", "import importlib.util as u; print(u.find_spec('torch').submodule_search_locations[0])").Output()
	if err != nil {
		t.Fatal(err)
	}
	viewer := filepath.Join(strings.TrimSpace(string(found)), "cuda", "_memory_viz.py")
	for _, file := range files {
		for _, plot := range []string{"trace_plot", "segment_plot"} {
			cmd := osexec.Command(python, viewer, plot, file, "-o", filepath.Join(t.TempDir(), "out.html"))
			if out, err := cmd.CombinedOutput(); err != nil {
				t.Errorf("memory_viz %s: %v\n%s", plot, err, tail(out, 10))
			}
		}
	}
}
