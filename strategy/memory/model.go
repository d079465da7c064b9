package memory

// A TrainedModel is what is fixed about the model that a rank trains, whatever the plan. Bytes
// and counts are of the whole model, also where ranks hold parts of it. A zero is not known.
type TrainedModel struct {
	Class      string `json:"class"`
	Parameters int64  `json:"parameters"` // their number
	Trainable  int64  `json:"trainable"`  // the number of those that get gradients
	// Bytes are those of the parameters by dtype, as PyTorch names it: "float32".
	Bytes map[string]int64 `json:"bytes,omitempty"`
	// Buffers are the bytes of the buffers.
	Buffers int64 `json:"buffer_bytes,omitempty"`
	// Outside is the number of parameters outside all lists of blocks.
	Outside int64 `json:"outside,omitempty"`
	// Cast is the number of parameters that autocast keeps a 16-bit copy of while a step's
	// forward and backward last: the weights of linear and convolution modules. CastOutside
	// are those of them outside the blocks.
	Cast        int64 `json:"cast,omitempty"`
	CastOutside int64 `json:"cast_outside,omitempty"`
	// Largest is the number of parameters of the largest single one.
	Largest int64 `json:"largest,omitempty"`
	// Embedding is the number of parameters of all embeddings; Tied says that one of them
	// is the output's weight, too.
	Embedding int64 `json:"embedding,omitempty"`
	Tied      bool  `json:"tied,omitempty"`
	// Vocabulary is the width of the widest linear module, Hidden its input's.
	Vocabulary int64 `json:"vocabulary,omitempty"`
	Hidden     int64 `json:"hidden,omitempty"`
	// Convolutional says that more of the calls are convolutions than linear modules, or
	// that every block has one over an image.
	Convolutional bool `json:"convolutional,omitempty"`
	// Attention says that one of the modules is called attention.
	Attention bool `json:"attention,omitempty"`
	// Compiled says that torch.compile or TorchScript runs some of it.
	Compiled bool        `json:"compiled,omitempty"`
	Blocks   []BlockList `json:"blocks,omitempty"`
}

// A BlockList is a list of repeated modules of one class, innermost lists only.
type BlockList struct {
	Path       string `json:"path"` // "transformer.h"
	Class      string `json:"class"`
	Count      int    `json:"count"`
	Parameters int64  `json:"parameters,omitempty"` // the number of all its blocks' together
}

// Dtype is the dtype that most of the parameters' bytes have, as plans name it: fp32,
// bf16, fp16; empty where none is known.
func (m *TrainedModel) Dtype() string {
	most, name := int64(0), ""
	for dtype, bytes := range m.Bytes {
		if bytes > most || bytes == most && dtype < name {
			most, name = bytes, dtype
		}
	}
	return Dtype(name)
}

// Dtype is PyTorch's name of a dtype as plans have it: "bfloat16" is bf16.
func Dtype(torch string) string {
	switch torch {
	case "float32":
		return "fp32"
	case "bfloat16":
		return "bf16"
	case "float16":
		return "fp16"
	}
	return torch
}
