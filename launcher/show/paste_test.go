package show

import (
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/gpurun/gpurun/strategy"
	"github.com/pelletier/go-toml/v2"
)

// awkward are words that shells and TOML read in their own ways.
var awkward = []string{
	"train.py", "--lr", "1e-4", "it's", `say "hi"`, "$HOME", "`id`", "a b", "", "*", "~/x", "#no", "a\\b", "!!", "é→", "{a,b}", "k=v w", "=ls",
	"two\nlines", "tab\tand 100%", "bell\a'quoted'", "ends\n", "[1,2]", "a;b&c|d>e", "\\u0041",
}

// The words that gpurun proposes are read back by a shell as they are.
func TestProposalCanBePastedIntoAShell(t *testing.T) {
	env := map[string]string{"PYTORCH_CUDA_ALLOC_CONF": "expandable_segments:True,max_split_size_mb:128", "GREETING": "it's\t$me"}
	for _, shell := range []string{"sh", "bash"} {
		if _, err := exec.LookPath(shell); err != nil {
			t.Logf("no %s here", shell)
			continue
		}
		hints := (paste{strategy.Proposal{Env: env, Words: append([]string{"show"}, awkward...)}}).hints()
		line, ok := strings.CutPrefix(hints[0], "to start with this plan next time, type: ")
		if !ok || len(hints) != 1 {
			t.Fatalf("hints %q", hints)
		}
		script := "show() { printf '%s\\000' \"$GREETING\" \"$PYTORCH_CUDA_ALLOC_CONF\" \"$@\"; }\n" + line + "\n"
		out, err := exec.Command(shell, "-c", script).Output()
		if err != nil {
			t.Fatalf("%s: %v", shell, err)
		}
		want := append([]string{env["GREETING"], env["PYTORCH_CUDA_ALLOC_CONF"]}, awkward...)
		got := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Errorf("%s: -want +got\n%s", shell, diff)
		}
	}
}

// What is proposed for a train.toml is TOML.
func TestProposalCanBePastedIntoATrainFile(t *testing.T) {
	type table struct {
		Args, Program []string
		Command       string
		Env           map[string]string
	}
	read := func(text string) (got table) {
		t.Helper()
		if err := toml.Unmarshal([]byte(text), &got); err != nil {
			t.Fatalf("%s: %v", text, err)
		}
		return got
	}
	after := func(hint, start string) string {
		t.Helper()
		rest, ok := strings.CutPrefix(hint, start)
		if !ok {
			t.Fatalf("%q does not start with %q", hint, start)
		}
		return rest
	}
	const set = "to start with this plan next time, set in [job] of train.toml: "
	env := map[string]string{"A": "x \"y\"", "B": "2"}

	hints := (paste{strategy.Proposal{File: "train.toml", Key: "args", Words: awkward, Env: env}}).hints()
	got := read(after(hints[0], set) + "\n" + after(hints[1], "and next to it: "))
	if diff := cmp.Diff(table{Args: awkward, Env: env}, got); diff != "" {
		t.Errorf("args: -want +got\n%s", diff)
	}
	hints = (paste{strategy.Proposal{File: "train.toml", Key: "program", Words: awkward, Env: env, HasEnv: true}}).hints()
	got = read(after(hints[0], set) + "\nenv = { OLD = \"0\", " + after(hints[1], "and add to its env: ") + " }")
	if diff := cmp.Diff(table{Program: awkward, Env: map[string]string{"OLD": "0", "A": env["A"], "B": "2"}}, got); diff != "" {
		t.Errorf("program: -want +got\n%s", diff)
	}
	hints = (paste{strategy.Proposal{File: "train.toml", Key: "command", Words: []string{"torchrun", "train.py", "it's", `"x"`}, Env: env}}).hints()
	if len(hints) != 1 {
		t.Errorf("command: %q", hints)
	}
	if got := read(after(hints[0], set)).Command; got != `A='x "y"' B=2 torchrun train.py 'it'\''s' '"x"'` {
		t.Errorf("command: %s", got)
	}
}

// Variables that the user wrote stay variables in what is proposed.
func TestVariablesStay(t *testing.T) {
	p := paste{strategy.Proposal{File: "train.toml", Key: "command", Words: []string{"train.py", "--seed", "3", "--a", "b", "--bs", "4"}, Env: map[string]string{"LR": "2", "X": "1"},
		Sources: map[int]string{2: "$SEED", 3: "$MORE", 4: ""}, EnvSources: map[string]string{"LR": "LR=$LR"}}}
	want := `command = "LR=$LR X=1 train.py --seed $SEED $MORE --bs 4"`
	if got := p.hints(); len(got) != 1 || !strings.HasSuffix(got[0], want) {
		t.Errorf("%q, want %s", got, want)
	}
}

// TestCheckpointingHintNamesWhatTheModelHas: its method, its blocks, or neither.
func TestCheckpointingHintNamesWhatTheModelHas(t *testing.T) {
	for want, m := range map[string]*strategy.Model{
		"call set_grad_checkpointing() of the model (VisionTransformer)": {Class: "VisionTransformer", Switch: "set_grad_checkpointing", Blocks: []strategy.Blocks{{Path: "blocks", Class: "Block", Count: 12}}},
		"import torch.utils.checkpoint and call torch.utils.checkpoint.checkpoint(block, *arguments, use_reentrant=False) in place of each Layer of model.encoder.layers": {Class: "Net", Blocks: []strategy.Blocks{{Path: "encoder.layers", Class: "Layer", Count: 4}}},
		"import torch.utils.checkpoint and call torch.utils.checkpoint.checkpoint(block, *arguments, use_reentrant=False) in place of each Layer of model[0]":             {Class: "Sequential", Blocks: []strategy.Blocks{{Path: "0", Class: "Layer", Count: 4}}},
		"import torch.utils.checkpoint and call torch.utils.checkpoint.checkpoint(block, *arguments, use_reentrant=False) in place of each block":                         {Class: "Net"},
		"in place of each Layer of model.encoder.layers and each Head of model.heads and each C of model.c and of other lists":                                            {Class: "Net", Blocks: []strategy.Blocks{{Path: "encoder.layers", Class: "Layer"}, {Path: "heads", Class: "Head"}, {Path: "c", Class: "C"}, {Path: "d", Class: "D"}}},
	} {
		proposal := strategy.Proposal{Turned: strategy.Plan{strategy.ActivationCheckpointing: "full"}, Unchanged: true, Model: m}
		hints := paste{proposal}.codeHints()
		if len(hints) != 1 || !strings.HasSuffix(hints[0], want) {
			t.Errorf("%q, want %q", hints, want)
		}
	}
}
