package memory

import (
	"encoding/json"
	"errors"
	"fmt"
	"math"
	"slices"
	"strconv"
	"strings"
)

// An Architecture has the figures of a transformer's shape that its memory depends on. A zero is
// not known.
type Architecture struct {
	// Parameters is the number of the model's parameters.
	Parameters int64 `json:"parameters"`
	Layers     int64 `json:"layers"`
	Hidden     int64 `json:"hidden"`
	Heads      int64 `json:"heads"`
	// KVHeads is the number of heads of keys and values; equal to Heads without groups.
	KVHeads int64 `json:"kv_heads"`
	// HeadWidth is the width of one head if it is not Hidden / Heads.
	HeadWidth int64 `json:"head_width,omitempty"`
	// Intermediate is the width inside a block's feed-forward part.
	Intermediate int64 `json:"intermediate"`
	Vocabulary   int64 `json:"vocabulary"`
	// Positions is the number of learned positions, Types the number of learned token types.
	Positions int64 `json:"positions,omitempty"`
	Types     int64 `json:"types,omitempty"`
	// Tied: the input's embedding is also the output's weight.
	Tied bool `json:"tied,omitempty"`
	// Gated: the feed-forward part has a gate (three matrices, as in Llama) and no biases;
	// without it there are two, with biases, as in GPT-2 and BERT.
	Gated bool `json:"gated,omitempty"`
	// Composed: the activation function is computed by several operations, each of which holds
	// its input: "gelu_new" in transformers.
	Composed bool `json:"composed,omitempty"`
	// Assumed: layers, widths and heads are not the model's own, but those of Like.
	// AssumedVocabulary is the same for the vocabulary.
	Assumed           bool   `json:"assumed,omitempty"`
	AssumedVocabulary bool   `json:"assumed_vocabulary,omitempty"`
	Like              string `json:"like,omitempty"`
}

// keys is the width of a block's keys, and of its values; queries the width of its queries. An
// assumed shape has no whole number of heads of a whole width.
func (a Architecture) keys() int64 {
	if a.Assumed && a.HeadWidth == 0 {
		return min(a.Hidden, keysWidth)
	}
	return a.headWidth() * max(a.KVHeads, 1)
}

func (a Architecture) queries() int64 {
	if a.Assumed && a.HeadWidth == 0 {
		return a.Hidden
	}
	return a.headWidth() * max(a.Heads, 1)
}

func (a Architecture) headWidth() int64 {
	if a.HeadWidth > 0 {
		return a.HeadWidth
	}
	return a.Hidden / max(a.Heads, 1)
}

// block is the number of parameters of one block.
func (a Architecture) block() int64 {
	h, f := a.Hidden, a.Intermediate
	attention := 2*h*a.queries() + 2*h*a.keys()
	if a.Gated {
		return attention + 3*h*f + 2*h
	}
	return attention + 2*h*f + a.queries() + 2*a.keys() + h + f + h + 4*h // biases, and two layer norms with theirs
}

// embedding is the number of parameters of one embedding of the vocabulary.
func (a Architecture) embedding() int64 { return a.Vocabulary * a.Hidden }

// outside is the number of parameters outside the blocks.
func (a Architecture) outside() int64 {
	n := a.embedding() + (a.Positions+a.Types)*a.Hidden + a.Hidden
	if !a.Gated {
		n += a.Hidden
	}
	if !a.Tied {
		n += a.embedding()
	}
	return n
}

// Count is the number of parameters of the shape: exact for Llama's and GPT-2's, without the
// small parts that other families add.
func (a Architecture) Count() int64 { return a.Layers*a.block() + a.outside() }

// largest is the number of parameters of the largest single module: the largest layer in the
// terms of DeepSpeed's estimators.
func (a Architecture) largest() int64 { return max(a.embedding(), a.Hidden*a.Intermediate) }

// filled replaces unknown figures by those that follow from the others.
func (a Architecture) filled() Architecture {
	if a.KVHeads == 0 {
		a.KVHeads = a.Heads
	}
	if a.Intermediate == 0 {
		a.Intermediate = 4 * a.Hidden
	}
	if a.Parameters == 0 {
		a.Parameters = a.Count()
	}
	return a
}

// ErrExperts reports that a model is a mixture of experts, whose shape has too little
// information.
var ErrExperts = errors.New("it is a mixture of experts")

// configKeys are the names of each figure in config.json, which differ between the families of
// transformers.
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

// gated are the model types with a gate whose activation function does not show it; an activation
// function silu or swish does. learned are the model types with learned positions.
var (
	gated   = []string{"gemma", "gemma2", "gemma3", "gemma3_text", "t5", "modernbert"}
	learned = []string{"gpt2", "bert", "roberta", "opt", "gpt_bigcode", "xlm-roberta", "electra", "distilbert", "gpt_neo"}
)

// OfConfig reads the shape of a model from the config.json that Hugging Face's transformers store
// with its weights. For a model with a vision part it is the shape of the text part.
func OfConfig(text []byte) (Architecture, error) {
	var config map[string]any
	if err := json.Unmarshal(text, &config); err != nil {
		return Architecture{}, fmt.Errorf("it is not JSON: %w", err)
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
	a := Architecture{Gated: function == "silu" || function == "swish" || strings.HasSuffix(function, "glu") ||
		slices.Contains(gated, kind), Composed: function == "gelu_new", Like: kind}
	for name, into := range map[string]*int64{
		"layers": &a.Layers, "hidden": &a.Hidden, "heads": &a.Heads, "kv heads": &a.KVHeads, "head width": &a.HeadWidth,
		"intermediate": &a.Intermediate, "vocabulary": &a.Vocabulary, "types": &a.Types,
	} {
		*into, _ = number(config, name)
	}
	if slices.Contains(learned, kind) {
		a.Positions, _ = number(config, "positions")
	}
	for name, n := range map[string]int64{"number of layers": a.Layers, "hidden size": a.Hidden,
		"vocabulary": a.Vocabulary} {
		if n <= 0 {
			return Architecture{}, fmt.Errorf("it has no %s of the model", name)
		}
	}
	if a.Heads <= 0 {
		a.Heads = max(a.Hidden/128, 1)
	}
	tied, said := config["tie_word_embeddings"].(bool)
	a.Tied = tied || !said && (!a.Gated || strings.HasPrefix(kind, "gemma")) // transformers' default by family
	return a.filled(), nil
}

// number returns a positive whole number of a configuration, under any of its names.
func number(config map[string]any, name string) (int64, bool) {
	for _, key := range configKeys[name] {
		if n, is := config[key].(float64); is && n > 0 && n < 1e12 {
			return int64(n), true
		}
	}
	return 0, false
}

// OfModel is the shape of a model that a process of the job described; false if the description
// is too short.
func OfModel(m TrainedModel) (Architecture, bool) {
	if len(m.Blocks) == 0 || m.Hidden == 0 || m.Vocabulary == 0 || m.Parameters == 0 || m.Convolutional {
		return Architecture{}, false
	}
	list := slices.MaxFunc(m.Blocks, func(a, b BlockList) int { return int(a.Parameters - b.Parameters) })
	a := Architecture{
		Parameters: m.Parameters, Layers: int64(list.Count), Hidden: m.Hidden, Vocabulary: m.Vocabulary, Tied: m.Tied,
		Gated: true,
		Heads: max(m.Hidden/128, 1), Like: m.Class,
	}
	a.KVHeads = max(min(keysWidth*a.Heads/a.Hidden, a.Heads), 1)
	if list.Count > 0 && list.Parameters > 0 { // parameters outside attention are the three matrices inside
		each := list.Parameters / int64(list.Count)
		a.Intermediate = max(each-2*a.Hidden*(a.Hidden+a.keys()), 3*a.Hidden) / (3 * a.Hidden)
	}
	return a.filled(), a.Layers > 0
}

// Size reads a number of parameters as people write it: "7B", "350M", "1.3e9".
func Size(word string) (int64, error) {
	text, factor := strings.ToUpper(strings.TrimSpace(word)), 1.0
	for unit, means := range map[string]float64{"K": 1e3, "M": 1e6, "B": 1e9, "T": 1e12} {
		if number, has := strings.CutSuffix(text, unit); has {
			text, factor = number, means
		}
	}
	n, err := strconv.ParseFloat(strings.ReplaceAll(text, "_", ""), 64)
	if err != nil || strings.ContainsAny(text, "XPIN") { // hexadecimal, infinity, not a number
		return 0, fmt.Errorf("%q is not a number of parameters", word)
	}
	n *= factor
	if n < 1e6 || n > 1e13 {
		return 0, fmt.Errorf("%q is not between a million and ten trillion parameters", word)
	}
	return int64(math.Round(n)), nil
}

// published are decoders of known shape, by their number of parameters. The shapes between them
// are interpolated, so each width and count is chosen to grow with the size, as in the public
// configurations of these models (for GPT-3: table 2.1 of its paper). The vocabulary is GPT-2's,
// rounded up, and from 3 billion parameters on Llama 3's.
var published = []struct {
	name                                                  string
	parameters, layers, hidden, heads, inside, vocabulary float64
}{
	{"Pythia-14M", 14.07e6, 6, 128, 4, 512, 50304},
	{"GPT-2", 124.4e6, 12, 768, 12, 3072, 50304},
	{"GPT-2 medium", 354.8e6, 24, 1024, 16, 4096, 50304},
	{"GPT-3 760M", 760e6, 24, 1536, 16, 6144, 50304},
	{"GPT-3 1.3B", 1.3e9, 24, 2048, 24, 8192, 50304},
	{"Llama-3.2-3B", 3.213e9, 28, 3072, 24, 8192, 128256},
	{"Llama-2-7B", 6.738e9, 32, 4096, 32, 11008, 128256},
	{"Llama-3.1-8B", 8.030e9, 32, 4096, 32, 14336, 128256},
	{"Qwen2.5-32B", 32.76e9, 64, 5120, 40, 27648, 128256},
	{"Llama-3.1-70B", 70.55e9, 80, 8192, 64, 28672, 128256},
	{"Llama-3.1-405B", 405.9e9, 126, 16384, 128, 53248, 128256},
}

// near is the largest relative distance of a size from a published one under whose name it is
// shown.
const near = 0.01

// keysWidth is the assumed width of keys and values: 8 heads of 128, as in most decoders from 3
// billion parameters on.
const keysWidth = 1024

// OfSize is the decoder that is assumed for a number of parameters alone. Each of its figures
// grows with the number, or stays.
func OfSize(parameters int64) Architecture {
	n, last := float64(parameters), len(published)-1
	i := 1
	for i < last && n > published[i].parameters {
		i++
	}
	lo, hi := published[i-1], published[i]
	t := max(math.Log(n/lo.parameters)/math.Log(hi.parameters/lo.parameters), 0)
	between := func(a, b, step float64) int64 {
		return int64(math.Round(a*math.Pow(b/a, t)/step) * step)
	}
	a := Architecture{
		Parameters: parameters, Layers: between(lo.layers, hi.layers, 1), Hidden: between(lo.hidden, hi.hidden, 64),
		Heads:        between(lo.heads, hi.heads, 1),
		Intermediate: between(lo.inside, hi.inside, 256), Vocabulary: min(between(lo.vocabulary, hi.vocabulary, 64), 128256),
		Gated: true, Assumed: true, AssumedVocabulary: true, Like: "between " + lo.name + " and " + hi.name,
	}
	a.KVHeads = max(min(keysWidth*a.Heads/a.Hidden, a.Heads), 1)
	for _, m := range []struct {
		name string
		at   float64
	}{{lo.name, lo.parameters}, {hi.name, hi.parameters}} {
		if math.Abs(n/m.at-1) <= near {
			a.Like = m.name
		}
	}
	switch {
	case n < lo.parameters:
		a.Like = "as small as " + lo.name
	case n > hi.parameters*(1+near):
		a.Like = "beyond " + hi.name
	}
	return a
}
