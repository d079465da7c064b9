package hook

import (
	"slices"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// What a tensor is by its size: nothing that could as well be another one.
func TestShapes(t *testing.T) {
	square := &memory.Measurement{Shape: []int{4, 1024}, Longest: 4096, Model: &memory.TrainedModel{Vocabulary: 32768, Hidden: 1024, Attention: true, Bytes: map[string]int64{"bfloat16": 1}}}
	for _, test := range []struct {
		name      string
		m         *memory.Measurement
		bytes     int64
		attention bool
		what      string
		shape     []int
		dtype     string
	}{
		{"logits in 16 bits", measured, 16 * 2048 * 50257 * 2, false, "logits", []int{16, 2048, 50257}, "bf16"},
		{"shifted logits", measured, 16 * 2047 * 50257 * 4, false, "logits", []int{16, 2047, 50257}, "fp32"},
		{"of another length", measured, 16 * 2000 * 50257 * 4, false, "logits", []int{64000, 50257}, "bf16"},
		{"the output's weight", measured, 768 * 50257 * 2, false, "", nil, ""},
		{"scores", measured, 16 * 12 * 2048 * 2048 * 2, false, "attention scores", []int{16, 12, 2048, 2048}, "bf16"},
		{"a model without attention", &memory.Measurement{Shape: []int{4, 1024}, Model: &memory.TrainedModel{Vocabulary: 512, Hidden: 512}}, 4 * 8 * 1024 * 1024 * 4, false, "", nil, ""},
		{"of heads that are too narrow", &memory.Measurement{Shape: []int{4, 1024}, Model: &memory.TrainedModel{Vocabulary: 512, Hidden: 512, Attention: true}}, 512 << 20, false, "", nil, ""},
		{"a linear module's output", square, 4 * 1024 * 4096 * 2, false, "", nil, ""},
		{"the same where attention is named", square, 4 * 1024 * 4096 * 2, true, "attention scores", []int{4, 4, 1024, 1024}, "bf16"},
		{"a round vocabulary", square, 4 * 1024 * 32768 * 2, false, "logits", []int{4, 1024, 32768}, "bf16"},
		{"another number", square, 1<<30 + 512, false, "", nil, ""},
		{"a layer's output where no output is wider", &memory.Measurement{Shape: []int{4, 1024}, Model: &memory.TrainedModel{Vocabulary: 4096, Hidden: 1024, Embedding: 512 * 1024}}, 4 * 1024 * 4096 * 4, false, "", nil, ""},
		{"no model", &memory.Measurement{}, 1 << 30, false, "", nil, ""},
		{"nothing measured", nil, 1 << 30, false, "", nil, ""},
	} {
		a := shaped(heldPlace{Allocation: strategy.Allocation{Bytes: test.bytes}, Attention: test.attention}, test.m)
		if a.What != test.what || !slices.Equal(a.Shape, test.shape) || a.Dtype != test.dtype {
			t.Errorf("%s: %q %v %s, want %q %v %s", test.name, a.What, a.Shape, a.Dtype, test.what, test.shape, test.dtype)
		}
	}
}

// Of the request only the rounded size is known: by the allocator to 2 MiB, by its history to
// 512 bytes.
func TestRoundedRequests(t *testing.T) {
	n := int64(16 * 2047 * 50257 * 2)
	for _, test := range []struct {
		bytes, rounded int64
		want           string
	}{
		{n + 1000, 2<<20 - 1, "logits"},
		{n + 100, 512 - 1, "logits"},
		{n + 1000, 512 - 1, ""},
		{n - 100, 2<<20 - 1, ""},
		{16*2000*50257*2 + 1000, 2<<20 - 1, ""}, // any number of tokens would do
	} {
		if a := shaped(heldPlace{Allocation: strategy.Allocation{Bytes: test.bytes}, Rounded: test.rounded}, measured); a.What != test.want || a.What != "" && a.Bytes != n {
			t.Errorf("%+v: %+v", test, a)
		}
	}
}
