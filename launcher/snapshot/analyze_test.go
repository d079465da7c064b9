package snapshot

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/memory"
)

// measured is what a GPT-2 says of itself, its input 16 × 2048 tokens.
var measured = &memory.Measurement{
	Shape: []int{16, 2048}, Longest: 16 * 2048, Autocast: "bfloat16",
	Model: &memory.Model{Vocabulary: 50257, Hidden: 768, Attention: true, Bytes: map[string]int64{"float32": 1 << 29}},
}

// text gives a file of testdata, which make.py has made with Python's pickle.
func text(t testing.TB, name string) []byte {
	t.Helper()
	b, err := os.ReadFile(filepath.Join("testdata", name+".pickle"))
	if err != nil {
		t.Fatal(err)
	}
	return b
}

// The lines at the end of a run, and the one of an attempt.
func TestWhatPeopleRead(t *testing.T) {
	for name, want := range map[string][2]string{
		"transformer": {`
memory at the failure: 3.9 GiB of 4.0 GiB held, 144 MiB more wanted; by line:
    2.2 GiB  model.py:88 forward
    768 MiB  model.py:90 forward
    612 MiB  model.py:52 forward
    336 MiB  train.py:60 main (weights)`,
			"memory at the failure: 3.9 GiB of 4.0 GiB held, 144 MiB more wanted, most by model.py:88 forward (2.2 GiB)"},
		"logits": {`
memory at the failure: 15.4 GiB of 20.0 GiB held, 6.1 GiB more wanted; by line:
   12.0 GiB  model.py:88 forward
    3.1 GiB  model.py:104 forward (logits)
    336 MiB  train.py:60 main (weights)
  giant: logits 16×2048×50257 fp32, 6.1 GiB, at train.py:66 loss_of → compute the loss in chunks, or with a fused linear cross entropy`,
			"memory at the failure: 15.4 GiB of 20.0 GiB held, 6.1 GiB more wanted, most by model.py:88 forward (12.0 GiB); logits 16×2048×50257 fp32, 6.1 GiB"},
		"leak": {`
memory at the failure: 968 MiB of 1.0 GiB held, 60 MiB more wanted; by line:
    420 MiB  model.py:88 forward
    336 MiB  train.py:60 main (weights)
    120 MiB  train.py:78 remember
  leak: 24 MiB stay with every step, by train.py:78 remember (96 MiB so far)`,
			"memory at the failure: 968 MiB of 1.0 GiB held, 60 MiB more wanted, most by model.py:88 forward (420 MiB); a leak: 24 MiB stay with every step, by train.py:78 remember (96 MiB so far)"},
		"fragmented": {`
memory at the failure: 2.0 GiB of 2.0 GiB held, 300 MiB more wanted; by line:
   1010 MiB  model.py:40 forward
  fragmented: 1010 MiB lie free within what is held, the largest piece 10 MiB`,
			"memory at the failure: 2.0 GiB of 2.0 GiB held, 300 MiB more wanted, most by model.py:40 forward (1010 MiB); fragmented"},
		"late": {`
memory at the failure: 2.0 GiB of 2.0 GiB held, 60 MiB more wanted; by line:
    1.6 GiB  27 blocks of 60 MiB, no line known
    336 MiB  train.py:60 main (weights)
     56 MiB  train.py:72 main (optimizer state)
  not known: 1.6 GiB were allocated after step 3, when recording had ended, or by the backward pass, and have no line: launch.snapshot = "always" records all of them`,
			"memory at the failure: 2.0 GiB of 2.0 GiB held, 60 MiB more wanted"},
		"bare-2": {`
memory at the failure: 1020 MiB held; by line:
   1020 MiB  17 blocks of 60 MiB, no line known`, "memory at the failure: 1020 MiB held"},
		"bare-5": {`
memory at the failure: 1020 MiB held; by line:
   1020 MiB  17 blocks of 60 MiB, no line known`, "memory at the failure: 1020 MiB held"},
	} {
		t.Run(name, func(t *testing.T) {
			s, err := Analyze(t.Context(), text(t, name), measured)
			if err != nil {
				t.Fatal(err)
			}
			if got := strings.Join(s.Words(), "\n"); got != strings.TrimPrefix(want[0], "\n") {
				t.Errorf("got\n%s\nwant%s", got, want[0])
			}
			if got := s.Brief(); got != want[1] {
				t.Errorf("got %s\nwant %s", got, want[1])
			}
			if len(s.Words()) > 5 {
				t.Error("more than five lines")
			}
		})
	}
}

// What a tensor is by its size: nothing that could as well be another one.
func TestShapes(t *testing.T) {
	square := &memory.Measurement{Shape: []int{4, 1024}, Longest: 4096, Model: &memory.Model{Vocabulary: 32768, Hidden: 1024, Attention: true, Bytes: map[string]int64{"bfloat16": 1}}}
	for _, test := range []struct {
		name  string
		m     *memory.Measurement
		bytes int64
		at    place
		what  string
		shape []int
		dtype string
	}{
		{"logits in 16 bits", measured, 16 * 2048 * 50257 * 2, place{}, "logits", []int{16, 2048, 50257}, "bf16"},
		{"shifted logits", measured, 16 * 2047 * 50257 * 4, place{}, "logits", []int{16, 2047, 50257}, "fp32"},
		{"of another length", measured, 16 * 2000 * 50257 * 4, place{}, "logits", []int{64000, 50257}, "bf16"},
		{"the output's weight", measured, 768 * 50257 * 2, place{}, "", nil, ""},
		{"scores", measured, 16 * 12 * 2048 * 2048 * 2, place{}, "attention scores", []int{16, 12, 2048, 2048}, "bf16"},
		{"a model without attention", &memory.Measurement{Shape: []int{4, 1024}, Model: &memory.Model{Vocabulary: 512, Hidden: 512}}, 4 * 8 * 1024 * 1024 * 4, place{}, "", nil, ""},
		{"of heads that are too narrow", &memory.Measurement{Shape: []int{4, 1024}, Model: &memory.Model{Vocabulary: 512, Hidden: 512, Attention: true}}, 512 << 20, place{}, "", nil, ""},
		{"a linear module's output", square, 4 * 1024 * 4096 * 2, place{}, "", nil, ""},
		{"the same where attention is named", square, 4 * 1024 * 4096 * 2, place{attention: true}, "attention scores", []int{4, 4, 1024, 1024}, "bf16"},
		{"a round vocabulary", square, 4 * 1024 * 32768 * 2, place{}, "logits", []int{4, 1024, 32768}, "bf16"},
		{"another number", square, 1<<30 + 512, place{}, "", nil, ""},
		{"a layer's output where no output is wider", &memory.Measurement{Shape: []int{4, 1024}, Model: &memory.Model{Vocabulary: 4096, Hidden: 1024, Embedding: 512 * 1024}}, 4 * 1024 * 4096 * 4, place{}, "", nil, ""},
		{"no model", &memory.Measurement{}, 1 << 30, place{}, "", nil, ""},
		{"nothing measured", nil, 1 << 30, place{}, "", nil, ""},
	} {
		a := shaped(claim{bytes: test.bytes, place: test.at}, test.m)
		if a.What != test.what || len(a.Shape) != len(test.shape) || a.Dtype != test.dtype {
			t.Errorf("%s: %q %v %s, want %q %v %s", test.name, a.What, a.Shape, a.Dtype, test.what, test.shape, test.dtype)
			continue
		}
		for i := range a.Shape {
			if a.Shape[i] != test.shape[i] {
				t.Errorf("%s: %v, want %v", test.name, a.Shape, test.shape)
			}
		}
	}
}

// Of the request only the rounded size is known: by the allocator to 2 MiB, by its history to
// 512 bytes.
func TestRoundedRequests(t *testing.T) {
	n := int64(16 * 2047 * 50257 * 2)
	for _, test := range []struct {
		c    claim
		want string
	}{
		{claim{bytes: n + 1000, rounded: segmentRounding - 1}, "logits"},
		{claim{bytes: n + 100, rounded: requestRounding - 1}, "logits"},
		{claim{bytes: n + 1000, rounded: requestRounding - 1}, ""},
		{claim{bytes: n - 100, rounded: segmentRounding - 1}, ""},
		{claim{bytes: 16*2000*50257*2 + 1000, rounded: segmentRounding - 1}, ""}, // any number of tokens would do
	} {
		if a := shaped(test.c, measured); a.What != test.want || a.What != "" && a.Bytes != n {
			t.Errorf("%+v: %+v", test.c, a)
		}
	}
}

// The line that a stack stands for.
func TestPlaces(t *testing.T) {
	const torch, hf = "/v/lib/python3.11/site-packages/torch/", "/v/lib/python3.11/site-packages/transformers/"
	call := frame{torch + "nn/modules/module.py", "_call_impl", 1}
	for _, test := range []struct {
		name   string
		frames []frame
		want   string // file:function what
	}{
		{"the user's model", []frame{{torch + "nn/functional.py", "linear", 2}, call, {"/j/model.py", "forward", 3}, call, {"/j/train.py", "main", 4}}, "/j/model.py forward "},
		{"a library's model", []frame{{torch + "nn/functional.py", "softmax", 2}, call, {hf + "models/gpt2/modeling_gpt2.py", "forward", 3}, call, {hf + "trainer.py", "train", 4}, {"/j/train.py", "<module>", 4}}, hf + "models/gpt2/modeling_gpt2.py forward "},
		{"a helper below the user's model", []frame{{hf + "activations.py", "forward", 3}, call, {"/j/model.py", "forward", 3}, call, {"/j/train.py", "main", 4}}, "/j/model.py forward "},
		{"weights", []frame{{torch + "nn/modules/module.py", "convert", 3}, {torch + "nn/modules/module.py", "_apply", 3}, {"/j/train.py", "main", 4}}, "/j/train.py main weights"},
		{"optimizer state", []frame{{torch + "optim/adamw.py", "step", 3}, {hf + "trainer.py", "train", 4}, {"/j/train.py", "main", 4}}, hf + "trainer.py train optimizer state"},
		{"only PyTorch", []frame{{torch + "utils/checkpoint.py", "backward", 3}}, torch + "utils/checkpoint.py backward "},
		{"Python's own", []frame{{"/usr/lib/python3.11/contextlib.py", "inner", 3}, {"<string>", "f", 1}, {"/j/train.py", "main", 4}}, "/j/train.py main "},
		{"none", nil, "  "},
	} {
		p := placeOf(test.frames)
		if got := p.file + " " + p.function + " " + p.what; got != test.want {
			t.Errorf("%s: %q, want %q", test.name, got, test.want)
		}
	}
}

// Where all was recorded, what has no stack is of the backward pass; where stacks were left
// out for the size of the file, that is what is said.
func TestWhatHasNoLine(t *testing.T) {
	stack := &list{items: []any{&dict{keys: []any{"filename", "line", "name"}, values: []any{"/j/model.py", int64(3), "forward"}}}}
	none := &list{}
	for _, test := range []struct {
		name   string
		told   told
		stacks [2]*list
		want   string
		misses string
	}{
		{"the backward pass", told{known: true, recording: true}, [2]*list{stack, none}, "gradients, and what else the backward pass makes", ""},
		{"after the third step", told{known: true, until: 3}, [2]*list{stack, none}, "one block, no line known", "after step 3"},
		{"left out", told{known: true, recording: true, trimmed: "too long"}, [2]*list{none, none}, "2 blocks of 1.0 GiB, no line known", "too long"},
		{"by the job", told{known: true, unseen: true}, [2]*list{none, none}, "2 blocks of 1.0 GiB, no line known", "by itself"},
		{"never", told{known: true}, [2]*list{none, none}, "2 blocks of 1.0 GiB, no line known", "\"always\""},
	} {
		d := &dump{patience: calm(t), told: test.told, segments: []segment{{size: 2 << 30, blocks: []block{
			{size: 1 << 30, requested: 1 << 30, frames: test.stacks[0]}, {size: 1 << 30, requested: 1 << 30, frames: test.stacks[1]},
		}}}}
		said := strings.Join(d.analyze(nil).Words(), "\n")
		if !strings.Contains(said, test.want) || !strings.Contains(said, test.misses) || (test.misses == "") == strings.Contains(said, "not known") {
			t.Errorf("%s:\n%s", test.name, said)
		}
	}
}
