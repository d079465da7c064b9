package memory

import (
	"fmt"
	"math"
	"strconv"
	"strings"
)

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
		return 0, fmt.Errorf("%q is no number of parameters", word)
	}
	n *= factor
	if n < 1e6 || n > 1e13 {
		return 0, fmt.Errorf("%q is not between a million and ten trillion parameters", word)
	}
	return int64(math.Round(n)), nil
}

// published are decoders of known shape, by their number of parameters. The shapes
// between them are interpolated, so that each width and count is chosen to grow with the size, as the
// public configurations of these models have it (of GPT-3: table 2.1 of its paper); the
// vocabulary is GPT-2's, rounded up, and from 3 billion parameters on Llama 3's.
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

// near is how far a size may be from a published one to be called by its name.
const near = 0.01

// keysWidth is the width of keys and values that is assumed: 8 heads of 128, as most
// decoders from 3 billion parameters on have them.
const keysWidth = 1024

// OfSize is the decoder that is assumed of a number of parameters alone. Each of its
// figures grows with the number, or stays.
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
		Parameters: parameters, Layers: between(lo.layers, hi.layers, 1), Hidden: between(lo.hidden, hi.hidden, 64), Heads: between(lo.heads, hi.heads, 1),
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
