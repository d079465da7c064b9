package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// A plan is proposed in the place where the user wrote the job: with its launcher and
// the flags of gpurun, but for the run directory, which is another one next time.
func TestAProposalIsWhereTheJobWasWritten(t *testing.T) {
	dir := t.TempDir()
	t.Setenv("SEED", "3")
	t.Setenv("MORE", "--a b")
	for _, name := range []string{"train.py", "train.sh"} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte("import torch\n"), 0o755); err != nil {
			t.Fatal(err)
		}
	}
	const knobs = "\n[knobs]\nmicro_batch_size = { arg = \"--bs\" }\ngradient_accumulation_steps = { env = \"ACCUM\", default = 1 }\n"
	for name, c := range map[string]struct {
		job  string
		args []string
		want strategy.Proposal
	}{
		"script": {
			job:  "script = \"train.py\"\nargs = [\"--x\", \"1\", \"--bs\", \"8\"]\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "args", Words: []string{"--x", "1", "--bs", "4"}},
		},
		"script without arguments, with variables": {
			job:  "script = \"train.py\"\nargs = [\"--bs=8\"]\nenv = { A = \"1\" }\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "args", Words: []string{"--bs=4"}, HasEnv: true},
		},
		"program": {
			job:  "program = [\"./train.sh\", \"--bs\", \"8\"]\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "program", Words: []string{"./train.sh", "--bs", "4"}},
		},
		"program, changed in args": {
			job:  "program = [\"./train.sh\", \"--x\"]\nargs = [\"--bs\", \"8\"]\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "args", Words: []string{"--bs", "4"}},
		},
		"program, changed before args": {
			job:  "program = [\"./train.sh\", \"--bs\", \"8\"]\nargs = [\"--x\"]\n[launch]\nnproc_per_node = 1",
			want: strategy.Proposal{File: "train.toml", Key: "program", Words: []string{"./train.sh", "--bs", "4", "--x"}, NoArgs: true},
		},
		"program with torchrun": {
			job:  "program = [\"torchrun\", \"--nproc-per-node\", \"2\", \"train.py\"]\nargs = [\"--bs\", \"8\"]",
			want: strategy.Proposal{File: "train.toml", Key: "args", Words: []string{"--bs", "4"}},
		},
		"command": {
			job:  "command = \"A=1 torchrun --nproc-per-node 2 train.py --bs 8\"",
			want: strategy.Proposal{File: "train.toml", Key: "command", Words: []string{"torchrun", "--nproc-per-node", "2", "train.py", "--bs", "4"}, Env: map[string]string{"A": "1"}, HasEnv: true},
		},
		"command with variables": {
			job: "command = \"SEED=$SEED torchrun --nproc-per-node 2 train.py --seed $SEED $MORE \\\"$MORE\\\" --bs 8\"",
			want: strategy.Proposal{File: "train.toml", Key: "command", Words: []string{"torchrun", "--nproc-per-node", "2", "train.py", "--seed", "3", "--a", "b", "--a b", "--bs", "4"},
				Sources: map[int]string{5: "$SEED", 6: "$MORE", 7: "", 8: `"$MORE"`}, Env: map[string]string{"SEED": "3"}, EnvSources: map[string]string{"SEED": "SEED=$SEED"}, HasEnv: true},
		},
		"command line": {
			args: []string{"--run-dir", "old", "--nproc-per-node", "2", "--run-dir=older", "--quiet", "train.py", "--bs", "8"},
			want: strategy.Proposal{Words: []string{"gpurun", "--nproc-per-node", "2", "--quiet", "train.py", "--bs", "4"}},
		},
	} {
		t.Run(name, func(t *testing.T) {
			args := c.args
			if args == nil {
				args = []string{filepath.Join(dir, "train.toml")}
				if err := os.WriteFile(args[0], []byte("[job]\n"+c.job+knobs), 0o644); err != nil {
					t.Fatal(err)
				}
			}
			j, _, err := Open(t.Context(), args, os.Environ(), dir)
			if err != nil {
				t.Fatal(err)
			}
			if c.args != nil { // a command line has no [knobs]
				j.Knobs = map[string]any{"micro_batch_size": map[string]any{"arg": "--bs"}, "gradient_accumulation_steps": map[string]any{"env": "ACCUM", "default": int64(1)}}
			}
			p, err := Prepare(t.Context(), j, Surroundings{Environ: os.Environ()})
			if err != nil {
				t.Fatal(err)
			}
			plan := p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "4", strategy.GradientAccumulationSteps: "2"})
			got, err := p.Propose(plan, nil, dir, 1, nowhere)
			if err != nil {
				t.Fatal(err)
			}
			if c.want.Env == nil {
				c.want.Env = map[string]string{}
			}
			c.want.Env["ACCUM"] = "2"
			if diff := cmp.Diff(c.want, got); diff != "" {
				t.Errorf("-want +got\n%s", diff)
			}
		})
	}
}

// Arguments in the code are proposed in the code's own words, with the line.
func TestProposedCallsAreNamedAsInTheCode(t *testing.T) {
	calls := []strategy.Call{{Name: "lightning.pytorch.Trainer", Keyword: "accumulate_grad_batches", To: 4}, {Name: "lightning.pytorch.Trainer", Keyword: "precision", To: "bf16"}}
	trainer := format.CodeCall{Name: "pl.Trainer", Whole: []string{"lightning.pytorch.Trainer"}, Line: 8}
	other := format.CodeCall{Name: "pl.LightningModule", Whole: []string{"lightning.pytorch.LightningModule"}, Line: 2}
	for want, found := range map[string][]format.CodeCall{
		`pl.Trainer(…, accumulate_grad_batches=4, precision="bf16") (train.py:8)`:     {other, trainer},
		`lightning.pytorch.Trainer(…, accumulate_grad_batches=4, precision="bf16")`:   {other},
		`lightning.pytorch.Trainer(…, accumulate_grad_batches=4, precision="bf16")  `: {trainer, trainer},
	} {
		if got := inPython(calls, format.ScriptCode{{Path: "train.py", Calls: found}}); len(got) != 1 || got[0] != strings.TrimSpace(want) {
			t.Errorf("%q, want %q", got, want)
		}
	}
}
