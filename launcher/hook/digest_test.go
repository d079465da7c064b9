package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/memory"
	"github.com/gpurun/gpurun/test/testenv"
)

// measured is what a GPT-2 reports of itself, its input 16 × 2048 tokens.
var measured = &memory.Measurement{
	Shape: []int{16, 2048}, Longest: 16 * 2048, Autocast: "bfloat16",
	Model: &memory.TrainedModel{Vocabulary: 50257, Hidden: 768, Attention: true, Bytes: map[string]int64{"float32": 1 << 29}},
}

// digests runs some Python in which d is digest.py, for each item of a JSON list, and gives what
// it makes of each, as JSON. Nothing that is installed can be imported there.
func digests(t *testing.T, makes string, items any) []json.RawMessage {
	t.Helper()
	program := `
import json, pickle, sys
sys.path.append(".")
from inside.base import digest as d
` + makes + `
json.dump([made(item) for item in json.load(sys.stdin)], sys.stdout)
`
	text, err := json.Marshal(items)
	if err != nil {
		t.Fatal(err)
	}
	cmd := exec.Command(testenv.Python(t), "-I", "-S", "-B", "-c", program)
	cmd.Stdin = strings.NewReader(string(text))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	var all []json.RawMessage
	if err := json.Unmarshal(out, &all); err != nil {
		t.Fatalf("%v\n%s", err, stderr.String())
	}
	if err != nil {
		t.Fatal(err)
	}
	return all
}

// words are the lines for people of one digest, and the short form.
func words(t *testing.T, digest []byte) (lines, brief string) {
	t.Helper()
	path := filepath.Join(t.TempDir(), "snapshot-0.json")
	if err := os.WriteFile(path, digest, 0o600); err != nil {
		t.Fatal(err)
	}
	s, err := readDigest(path, measured)
	if err != nil {
		t.Fatal(err)
	}
	if len(s.Words()) > 5 {
		t.Error("more than five lines")
	}
	return strings.Join(s.Words(), "\n"), s.Brief()
}

// The lines at the end of a run, and the one of an attempt.
func TestDigestNamesWhatFilledTheMemory(t *testing.T) {
	names, all := []string{}, [][2]string{}
	for name, want := range map[string][2]string{
		"transformer": {`
memory at the failure: 3.9 GiB of 4.0 GiB held, 144 MiB more requested; by line:
    2.2 GiB  model.py:88 forward
    768 MiB  model.py:90 forward
    612 MiB  model.py:52 forward
    336 MiB  train.py:60 main (weights)`,
			"memory at the failure: 3.9 GiB of 4.0 GiB held, 144 MiB more requested, most by model.py:88 forward (2.2 GiB)"},
		"logits": {`
memory at the failure: 15.4 GiB of 20.0 GiB held, 6.1 GiB more requested; by line:
   12.0 GiB  model.py:88 forward
    3.1 GiB  model.py:104 forward (logits)
    336 MiB  train.py:60 main (weights)
  giant: logits 16×2048×50257 fp32, 6.1 GiB, at train.py:66 loss_of → compute the loss in chunks, or with a fused linear cross entropy`,
			"memory at the failure: 15.4 GiB of 20.0 GiB held, 6.1 GiB more requested, most by model.py:88 forward (12.0 GiB); logits 16×2048×50257 fp32, 6.1 GiB"},
		"leak": {`
memory at the failure: 968 MiB of 1.0 GiB held, 60 MiB more requested; by line:
    420 MiB  model.py:88 forward
    336 MiB  train.py:60 main (weights)
    120 MiB  train.py:78 remember
  leak: 24 MiB stay with every step, by train.py:78 remember (96 MiB so far)`,
			"memory at the failure: 968 MiB of 1.0 GiB held, 60 MiB more requested, most by model.py:88 forward (420 MiB); a leak: 24 MiB stay with every step, by train.py:78 remember (96 MiB so far)"},
		"fragmented": {`
memory at the failure: 2.0 GiB of 2.0 GiB held, 300 MiB more requested; by line:
   1010 MiB  model.py:40 forward
  fragmented: 1010 MiB lie free within what is held, the largest piece 10 MiB`,
			"memory at the failure: 2.0 GiB of 2.0 GiB held, 300 MiB more requested, most by model.py:40 forward (1010 MiB); fragmented"},
		"late": {`
memory at the failure: 2.0 GiB of 2.0 GiB held, 60 MiB more requested; by line:
    1.6 GiB  27 blocks of 60 MiB, no line known
    336 MiB  train.py:60 main (weights)
     56 MiB  train.py:72 main (optimizer state)
  not known: 1.6 GiB were allocated after step 3, when recording had ended, or by the backward pass, and have no line: launch.snapshot = "always" records all of them`,
			"memory at the failure: 2.0 GiB of 2.0 GiB held, 60 MiB more requested"},
	} {
		names, all = append(names, name), append(all, want)
	}
	made := digests(t, `
def made(name):
    with open("testdata/snapshots/%s.pickle" % name, "rb") as f:
        return d.digest(pickle.load(f))`, names)
	for i, want := range all {
		t.Run(names[i], func(t *testing.T) {
			lines, brief := words(t, made[i])
			if lines != strings.TrimPrefix(want[0], "\n") {
				t.Errorf("got\n%s\nwant%s", lines, want[0])
			}
			if brief != want[1] {
				t.Errorf("got %s\nwant %s", brief, want[1])
			}
		})
	}
}

// A frame is one of a stack as PyTorch gives it.
type stackFrame struct {
	File string `json:"filename"`
	Name string `json:"name"`
	Line int    `json:"line"`
}

// The line that represents a stack.
func TestDigestPicksTheLineOfAStack(t *testing.T) {
	const torch, hf = "/v/lib/python3.11/site-packages/torch/", "/v/lib/python3.11/site-packages/transformers/"
	call := stackFrame{torch + "nn/modules/module.py", "_call_impl", 1}
	tests := []struct {
		name   string
		frames []stackFrame
		want   string // file:function what
	}{
		{"the user's model", []stackFrame{{torch + "nn/functional.py", "linear", 2}, call, {"/j/model.py", "forward", 3}, call, {"/j/train.py", "main", 4}}, "/j/model.py forward "},
		{"a library's model", []stackFrame{{torch + "nn/functional.py", "softmax", 2}, call, {hf + "models/gpt2/modeling_gpt2.py", "forward", 3}, call, {hf + "trainer.py", "train", 4}, {"/j/train.py", "<module>", 4}}, hf + "models/gpt2/modeling_gpt2.py forward "},
		{"a helper below the user's model", []stackFrame{{hf + "activations.py", "forward", 3}, call, {"/j/model.py", "forward", 3}, call, {"/j/train.py", "main", 4}}, "/j/model.py forward "},
		{"weights", []stackFrame{{torch + "nn/modules/module.py", "convert", 3}, {torch + "nn/modules/module.py", "_apply", 3}, {"/j/train.py", "main", 4}}, "/j/train.py main weights"},
		{"optimizer state", []stackFrame{{torch + "optim/adamw.py", "step", 3}, {hf + "trainer.py", "train", 4}, {"/j/train.py", "main", 4}}, hf + "trainer.py train optimizer state"},
		{"only PyTorch", []stackFrame{{torch + "utils/checkpoint.py", "backward", 3}}, torch + "utils/checkpoint.py backward "},
		{"Python's own", []stackFrame{{"/usr/lib/python3.11/contextlib.py", "inner", 3}, {"<string>", "f", 1}, {"/j/train.py", "main", 4}}, "/j/train.py main "},
		{"none", nil, "  "},
	}
	stacks := make([][]stackFrame, len(tests))
	for i, test := range tests {
		stacks[i] = test.frames
	}
	made := digests(t, `
def made(stack):
    file, line, function, what, attention = d.place_of(stack or [], {})
    return " ".join((file, function, what))`, stacks)
	for i, test := range tests {
		if got := strings.ReplaceAll(string(made[i]), `"`, ""); got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Where all was recorded, what has no stack is of the backward pass; where the job records by
// itself, or nothing was recorded, the report says so.
func TestDigestReportsAllocationsWithoutALine(t *testing.T) {
	stack := []stackFrame{{"/j/model.py", "forward", 3}}
	type told map[string]any
	tests := []struct {
		name   string
		told   told
		stacks [2][]stackFrame
		want   string
		misses string
	}{
		{"the backward pass", told{"recording": true}, [2][]stackFrame{stack}, "gradients, and what else the backward pass makes", ""},
		{"after the third step", told{"until": 3}, [2][]stackFrame{stack}, "one block, no line known", "after step 3"},
		{"by the job", told{"foreign": true}, [2][]stackFrame{}, "2 blocks of 1.0 GiB, no line known", "by itself"},
		{"never", nil, [2][]stackFrame{}, "2 blocks of 1.0 GiB, no line known", "\"always\""},
		{"too many", told{"recording": true, "pieces": 1}, [2][]stackFrame{stack, stack}, "1.0 GiB  model.py:3 forward", "the lines of 1.0 GiB: of 2 blocks only the largest 1 were looked up"},
	}
	items := make([]map[string]any, len(tests))
	for i, test := range tests {
		items[i] = map[string]any{"told": test.told, "stacks": test.stacks}
	}
	made := digests(t, `
def made(item):
    told = dict({"device": 0, "wanted": 0, "allowed": 0, "from": 0, "until": 0, "marks": [], "stack": [], "foreign": False, "recording": False}, **item["told"] or {})
    d.PIECES = told.get("pieces", 200000)
    blocks = [{"size": 1 << 30, "requested_size": 1 << 30, "state": "active_allocated", "frames": s} for s in item["stacks"]]
    return d.digest({"segments": [{"device": 0, "total_size": 2 << 30, "blocks": blocks}], "device_traces": [], "gpurun": told})`, items)
	for i, test := range tests {
		said, _ := words(t, made[i])
		if !strings.Contains(said, test.want) || !strings.Contains(said, test.misses) || (test.misses == "") == strings.Contains(said, "not known") {
			t.Errorf("%s:\n%s", test.name, said)
		}
	}
}

// A digest of many blocks and long names is as small as any other, and made in a bounded time.
func TestDigestOfManyBlocksIsSmall(t *testing.T) {
	made := digests(t, `
import time
def made(n):
    name = {"filename": "/j/" + "\\" * 1000000 + ".py", "line": 1, "name": "f"}
    stacks = [[dict(name, line=i)] + [name] * 30 for i in range(100)]
    blocks = [{"address": i, "size": 512, "requested_size": 512, "state": "active_allocated", "frames": list(stacks[i % 100])} for i in range(n)]
    trace = [{"action": "alloc", "addr": i, "size": 512, "time_us": i + 1, "frames": blocks[i]["frames"]} for i in range(n)]
    told = {"device": 0, "wanted": 1 << 30, "allowed": 0, "from": 0, "until": 0, "marks": list(range(0, n, n // 100)), "stack": [name], "foreign": False, "recording": True}
    began = time.process_time()
    made = d.digest({"segments": [{"device": 0, "total_size": n * 512, "blocks": blocks}], "device_traces": [trace], "gpurun": told})
    return {"seconds": time.process_time() - began, "bytes": len(json.dumps(made)), "places": len(made["top"])}`, []int{100_000})
	var got struct {
		Seconds       float64
		Bytes, Places int
	}
	if err := json.Unmarshal(made[0], &got); err != nil {
		t.Fatal(err)
	}
	t.Logf("%+v", got)
	if got.Places != 8 || got.Bytes > mostDigest/10 || got.Seconds > 20 {
		t.Errorf("%+v", got)
	}
}
