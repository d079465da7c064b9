package memory

import (
	"errors"
	"testing"
)

// The shapes of published models have the published numbers of parameters.
func TestCountsOfPublishedModels(t *testing.T) {
	for name, c := range map[string]struct {
		config string
		want   int64
	}{
		"Llama-2-7B":   {`{"model_type": "llama", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 11008, "num_attention_heads": 32, "num_hidden_layers": 32, "vocab_size": 32000, "tie_word_embeddings": false, "max_position_embeddings": 4096}`, 6_738_415_616},
		"Llama-3.1-8B": {`{"model_type": "llama", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 128256}`, 8_030_261_248},
		"Llama-3.2-1B": {`{"model_type": "llama", "hidden_act": "silu", "hidden_size": 2048, "intermediate_size": 8192, "num_attention_heads": 32, "num_key_value_heads": 8, "head_dim": 64, "num_hidden_layers": 16, "vocab_size": 128256, "tie_word_embeddings": true}`, 1_235_814_400},
		"Mistral-7B":   {`{"model_type": "mistral", "hidden_act": "silu", "hidden_size": 4096, "intermediate_size": 14336, "num_attention_heads": 32, "num_key_value_heads": 8, "num_hidden_layers": 32, "vocab_size": 32000}`, 7_241_732_096},
		"GPT-2":        {`{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 768, "n_head": 12, "n_layer": 12, "n_positions": 1024, "n_ctx": 1024, "vocab_size": 50257}`, 124_439_808},
		"GPT-2 medium": {`{"model_type": "gpt2", "activation_function": "gelu_new", "n_embd": 1024, "n_head": 16, "n_layer": 24, "n_positions": 1024, "n_ctx": 1024, "n_inner": null, "vocab_size": 50257}`, 354_823_168},
	} {
		a, err := OfConfig([]byte(c.config))
		if err != nil || a.Parameters != c.want {
			t.Errorf("%s: %d parameters, want %d (%v)", name, a.Parameters, c.want, err)
		}
	}
	if gpt2Base.Count() != 124_439_808 {
		t.Errorf("GPT-2 has %d parameters", gpt2Base.Count())
	}
}

func TestIncompleteConfigs(t *testing.T) {
	for text, want := range map[string]string{
		`{`:                                     "it is not JSON: unexpected end of JSON input",
		`{"hidden_size": 8, "num_layers": 2}`:   "it has no vocabulary of the model",
		`{"vocab_size": 100, "num_layers": 2}`:  "it has no hidden size of the model",
		`{"vocab_size": 100, "hidden_size": 8}`: "it has no number of layers of the model",
	} {
		if _, err := OfConfig([]byte(text)); err == nil || err.Error() != want {
			t.Errorf("%s: %v, want %s", text, err, want)
		}
	}
	if _, err := OfConfig([]byte(`{"num_local_experts": 8, "vocab_size": 100, "hidden_size": 8, "num_layers": 2}`)); !errors.Is(err, ErrExperts) {
		t.Errorf("a mixture of experts: %v", err)
	}
	a, err := OfConfig([]byte(`{"model_type": "gemma3", "text_config": {"vocab_size": 100, "hidden_size": 256, "num_hidden_layers": 2}}`))
	if err != nil || a.Hidden != 256 || a.Intermediate != 1024 || a.Heads != 2 {
		t.Errorf("a nested configuration: %+v, %v", a, err)
	}
}

// Sizes in the forms in which people write them, and words that are not sizes.
func TestSizes(t *testing.T) {
	for word, want := range map[string]int64{"7B": 7e9, "350M": 350e6, "1.3e9": 1.3e9, "0.5b": 5e8, "1_300_000_000": 1.3e9, "1T": 1e12} {
		if n, err := Size(word); err != nil || n != want {
			t.Errorf("%s: %d, %v", word, n, err)
		}
	}
	for _, word := range []string{"", "B", "7X", "0x10000000", "inf", "nan", "-7B", "7", "1e30", "seven", "7 B B", "7BB"} {
		if n, err := Size(word); err == nil {
			t.Errorf("%q is taken for %d", word, n)
		}
	}
}

// A size alone gets the shape of published models of that size, and a size between two gets one
// of both.
func TestShapeFromSize(t *testing.T) {
	for size, want := range map[int64][4]int64{
		8_030_000_000: {32, 4096, 14336, 128256}, 6_740_000_000: {32, 4096, 11008, 128256}, 124_000_000: {12, 768, 3072, 50304}, 70_600_000_000: {80, 8192, 28672, 128256},
	} {
		a := OfSize(size)
		if got := [4]int64{a.Layers, a.Hidden, a.Intermediate, a.Vocabulary}; got != want || !a.Assumed || a.Parameters != size {
			t.Errorf("%d: %v, want %v", size, got, want)
		}
	}
	for size, like := range map[int64]string{8e9: "Llama-3.1-8B", 7e9: "between Llama-2-7B and Llama-3.1-8B", 2e6: "as small as Pythia-14M", 2e12: "beyond Llama-3.1-405B"} {
		if a := OfSize(size); a.Like != like || a.Layers < 1 || a.Hidden < 1 || a.Heads < 1 || a.Intermediate < 1 {
			t.Errorf("%d: %+v", size, a)
		}
	}
}

// The shape follows from a process's description of its model.
func TestShapeFromModel(t *testing.T) {
	m := TrainedModel{Class: "LlamaForCausalLM", Parameters: 8_030_261_248, Hidden: 4096, Vocabulary: 128256, Blocks: []BlockList{{Path: "model.layers", Count: 32, Parameters: 32 * llama8B.block()}}}
	a, ok := OfModel(m)
	if !ok || a.Layers != 32 || a.Hidden != 4096 || a.Parameters != m.Parameters || a.Intermediate != 14336 {
		t.Errorf("%+v", a)
	}
	if _, ok := OfModel(TrainedModel{Parameters: 5, Blocks: m.Blocks}); ok {
		t.Error("a model without a width has a shape")
	}
}
