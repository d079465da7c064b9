package memory

// An Architecture is a transformer's shape, as far as its memory depends on it. A zero is
// not known.
type Architecture struct {
	// Parameters is the number of the model's parameters.
	Parameters int64 `json:"parameters"`
	Layers     int64 `json:"layers"`
	Hidden     int64 `json:"hidden"`
	Heads      int64 `json:"heads"`
	// KVHeads is the number of heads of keys and values; equal to Heads without groups.
	KVHeads int64 `json:"kv_heads"`
	// HeadWidth is the width of one head where it is not Hidden / Heads.
	HeadWidth int64 `json:"head_width,omitempty"`
	// Intermediate is the width inside of a block's feed-forward part.
	Intermediate int64 `json:"intermediate"`
	Vocabulary   int64 `json:"vocabulary"`
	// Positions is the number of learned positions, Types that of learned token types.
	Positions int64 `json:"positions,omitempty"`
	Types     int64 `json:"types,omitempty"`
	// Tied says that the input's embedding is the output's weight, too.
	Tied bool `json:"tied,omitempty"`
	// Gated says that the feed-forward part has a gate (three matrices, as in Llama) and no
	// biases; without it there are two, with biases, as in GPT-2 and BERT.
	Gated bool `json:"gated,omitempty"`
	// Composed says that the activation function is computed by several operations, each
	// of which holds its input: "gelu_new" in transformers.
	Composed bool `json:"composed,omitempty"`
	// Assumed says that layers, widths and heads are not the model's own, Like what they
	// were taken from; AssumedVocabulary the same of the vocabulary.
	Assumed           bool   `json:"assumed,omitempty"`
	AssumedVocabulary bool   `json:"assumed_vocabulary,omitempty"`
	Like              string `json:"like,omitempty"`
}

// keys is the width of a block's keys, and of its values; queries that of its queries.
// An assumed shape has no whole number of heads of a whole width.
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

// Count is the number of parameters that the shape has: exact for Llama's and GPT-2's,
// without the small parts that other families add.
func (a Architecture) Count() int64 { return a.Layers*a.block() + a.outside() }

// largest is the number of parameters of the largest single module: what DeepSpeed's
// estimators call the largest layer.
func (a Architecture) largest() int64 { return max(a.embedding(), a.Hidden*a.Intermediate) }

// filled has what follows from the rest in place of what is not known.
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
