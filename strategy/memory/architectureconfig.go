package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"slices"
	"strings"
)

// ErrExperts says that a model is a mixture of experts, whose shape says too little.
var ErrExperts = errors.New("it is a mixture of experts")

// configKeys are the names under which families of transformers write the same figure into config.json.
var configKeys = map[string][]string{
	"layers":       {"num_hidden_layers", "n_layer", "n_layers", "num_layers"},
	"hidden":       {"hidden_size", "n_embd", "d_model", "dim"},
	"heads":        {"num_attention_heads", "n_head", "n_heads"},
	"kv heads":     {"num_key_value_heads", "n_kv_heads", "num_kv_heads"},
	"head width":   {"head_dim"},
	"intermediate": {"intermediate_size", "n_inner", "ffn_dim", "ffn_hidden_size", "d_ff"},
	"vocabulary":   {"vocab_size"},
	"positions":    {"max_position_embeddings", "n_positions", "n_ctx"},
	"types":        {"type_vocab_size"},
	"experts":      {"num_local_experts", "num_experts", "n_routed_experts", "moe_num_experts"},
}

// gated are the model types with a gate whose activation function does not say so; an
// activation function silu or swish does. learned are those with learned positions.
var (
	gated   = []string{"gemma", "gemma2", "gemma3", "gemma3_text", "t5", "modernbert"}
	learned = []string{"gpt2", "bert", "roberta", "opt", "gpt_bigcode", "xlm-roberta", "electra", "distilbert", "gpt_neo"}
)

// OfConfig reads the shape of a model from the config.json that Hugging Face's
// transformers keep beside its weights. Of a model with a vision part it is the text's.
func OfConfig(text []byte) (Architecture, error) {
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		return Architecture{}, fmt.Errorf("it is no JSON: %w", err)
	}
	if inner, nested := config["text_config"].(map[string]any); nested {
		if _, own := number(config, "hidden"); !own {
			config = inner
		}
	}
	if n, _ := number(config, "experts"); n > 1 {
		return Architecture{}, ErrExperts
	}
	kind, _ := config["model_type"].(string)
	function := ""
	for _, key := range []string{"hidden_act", "activation_function", "hidden_activation", "activation"} {
		if word, is := config[key].(string); is && function == "" {
			function = word
		}
	}
	a := Architecture{Gated: function == "silu" || function == "swish" || strings.HasSuffix(function, "glu") || slices.Contains(gated, kind), Composed: function == "gelu_new", Like: kind}
	for name, into := range map[string]*int64{
		"layers": &a.Layers, "hidden": &a.Hidden, "heads": &a.Heads, "kv heads": &a.KVHeads, "head width": &a.HeadWidth,
		"intermediate": &a.Intermediate, "vocabulary": &a.Vocabulary, "types": &a.Types,
	} {
		*into, _ = number(config, name)
	}
	if slices.Contains(learned, kind) {
		a.Positions, _ = number(config, "positions")
	}
	for name, n := range map[string]int64{"number of layers": a.Layers, "hidden size": a.Hidden, "vocabulary": a.Vocabulary} {
		if n <= 0 {
			return Architecture{}, fmt.Errorf("it does not say the model's %s", name)
		}
	}
	if a.Heads <= 0 {
		a.Heads = max(a.Hidden/128, 1)
	}
	tied, said := config["tie_word_embeddings"].(bool)
	a.Tied = tied || !said && (!a.Gated || strings.HasPrefix(kind, "gemma")) // transformers' default by family
	return a.filled(), nil
}

// number is a positive whole number of a configuration, under any of its names.
func number(config map[string]any, name string) (int64, bool) {
	for _, key := range configKeys[name] {
		if n, is := config[key].(float64); is && n > 0 && n < 1e12 {
			return int64(n), true
		}
	}
	return 0, false
}

// OfModel is the shape of a model that a process of the job described; false where it
// said too little.
func OfModel(m TrainedModel) (Architecture, bool) {
	if len(m.Blocks) == 0 || m.Hidden == 0 || m.Vocabulary == 0 || m.Parameters == 0 || m.Convolutional {
		return Architecture{}, false
	}
	list := slices.MaxFunc(m.Blocks, func(a, b BlockList) int { return int(a.Parameters - b.Parameters) })
	a := Architecture{
		Parameters: m.Parameters, Layers: int64(list.Count), Hidden: m.Hidden, Vocabulary: m.Vocabulary, Tied: m.Tied, Gated: true,
		Heads: max(m.Hidden/128, 1), Like: m.Class,
	}
	a.KVHeads = max(min(keysWidth*a.Heads/a.Hidden, a.Heads), 1)
	if list.Count > 0 && list.Parameters > 0 { // what is no attention is the three matrices inside
		each := list.Parameters / int64(list.Count)
		a.Intermediate = max(each-2*a.Hidden*(a.Hidden+a.keys()), 3*a.Hidden) / (3 * a.Hidden)
	}
	return a.filled(), a.Layers > 0
}
