package test

import (
	"fmt"
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
)

// Jobs of different makes run out of memory, and nothing in place is allowed. Where the batch is an argument that its name
// suggests, the job is relaunched with half of it, once the process has confirmed it, and prints the losses of the
// untouched job. No job trains with an argument that does something else.
func TestBatchesOfDifferentMake(t *testing.T) {
	for _, test := range []struct {
		script, modules string
		lab             bool
		ranks           string
		by              string // the argument that changed the micro batch; empty: none
		attempts        int
		says            string
	}{
		{script: "argparse_", by: "--batch-size", attempts: 2, lab: true}, // TestJobsWithoutASetting has one
		{script: "config_file", modules: "yaml", by: "train.batch_size of conf.yaml", attempts: 2, lab: true},
		{script: "constants_", attempts: 1, lab: true},
		{script: "functions", by: "--per-gpu-batch", attempts: 2, lab: true},
		{script: "iterable", by: "--batch-size", attempts: 2, lab: true},
		{script: "two_names", by: "--batch-size", attempts: 3, says: "--train-batch-size does not set micro batch 16, the process uses 32: all ranks are stopped before their first step"},
		{script: "unused", attempts: 2, says: "--accum does not set accumulation 2, the process uses 1: all ranks are stopped before their first step", lab: true},
		{script: "undivided", attempts: 2, says: "the gradients would not have the scale that they had"},
		{script: "gan", by: "--batch-size", attempts: 2, lab: true},
		{script: "ddp", ranks: "2", by: "--batch-size", attempts: 2, lab: true},
		{script: "click_", modules: "click", by: "--batch-size", attempts: 2, lab: true},
		{script: "typer_", modules: "typer", by: "--bs", attempts: 2, lab: true},
		{script: "fire_", modules: "fire", by: "--batch_size", attempts: 2, lab: true},
		{script: "hydra_", modules: "hydra", by: "train.batch_size", attempts: 2, lab: true},
		{script: "accelerate_", modules: "accelerate", by: "--batch-size", attempts: 2, lab: true},
		{script: "lightning_", modules: "lightning", by: "--batch-size", attempts: 2, lab: true},
		{script: "trainer", modules: "transformers accelerate", by: "the recipe", attempts: 2, lab: true},
	} {
		t.Run(test.script, func(t *testing.T) {
			if test.lab {
				lab(t)
			}
			t.Parallel()
			python := pythonWith(t, "torch "+test.modules)
			dir := copyOf(t, filepath.Join("testdata", "makes"))
			line := []string{test.script + ".py"}
			if test.ranks != "" {
				line = append([]string{"-m", "torch.distributed.run", "--nproc-per-node", test.ranks}, line...)
			}
			untouched := runLine(t, dir, python, line...)
			var before, peak int
			if _, err := fmt.Sscanf(lastLine(untouched, "data "), "data %d %d", &before, &peak); err != nil {
				t.Fatalf("%v in %s", err, untouched)
			}
			words := []string{"--run-dir", "run", "--no-in-place", "--never", "checkpointing,split,loss-parts,offload-activations", "--device-memory", fmt.Sprintf("%dMiB", before+(peak-before)*3/4), python}
			cmd := osexec.CommandContext(t.Context(), binary(t), append(words, line...)...)
			cmd.Dir, cmd.Env = dir, append(insideEnv(), append(onCPU, "XDG_STATE_HOME="+t.TempDir())...)
			said, _ := cmd.CombinedOutput() // those without an argument end with 12
			v := verdictOf(t, filepath.Join(dir, "run"))
			want := strategy.Exhausted
			if test.by != "" {
				want = strategy.Trained
			}
			if v.Outcome != want || len(v.Attempts) != test.attempts || !strings.Contains(string(said), test.says) {
				t.Fatalf("%s after %d attempts, want %s after %d: %s\n%s", v.Outcome, len(v.Attempts), want, test.attempts, v.Reason, tail(said, 30))
			}
			if test.by == "" {
				if got := losses(string(said)); len(got) > 0 {
					t.Errorf("it has trained: %q", got)
				}
				return
			}
			plain, again := losses(untouched), losses(string(said))
			slices.Sort(plain) // of several ranks
			slices.Sort(again)
			if diff := cmp.Diff(plain, again); diff != "" || v.Attempts[0].Changed[strategy.MicroBatchSize][1] == "" {
				t.Errorf("changed %s; losses (-untouched +relaunched):\n%s", v.Attempts[0].Changed, diff)
			}
			if journal, err := os.ReadFile(filepath.Join(dir, "run", "journal.jsonl")); err != nil || test.by != "the recipe" && !strings.Contains(string(journal), fmt.Sprintf(`"micro_batch_size":{"name":%q`, test.by)) {
				t.Errorf("%s did not change it: %v", test.by, err)
			}
		})
	}
}
