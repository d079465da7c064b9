package cause

import (
	"math"
	"slices"
	"sync"
)

// triggers are substrings: a line of an ordinary log without any of them means nothing. They are
// the signs of tracebacks, and one word of every pattern.
func triggers() []string {
	t := []string{
		"Traceback (most", "File \"", "File ~", "File /", ".py in ", ".py](http", `File c:\`, `File C:\`, "Cell In[", "│ ❱ ",
		"Exception ignored ", "Exception in thread", "Logging error", "Error in sys.excepthook",
		"MemoryError", "OutOfMemoryError", "KeyboardInterrupt", lsfBegins,
	}
	for _, p := range patterns {
		t = append(t, trigger(p.words))
	}
	return t
}

// trigger chooses the word of a pattern that is least likely in ordinary lines: the longest one.
func trigger(words []string) string {
	longest := words[0]
	for _, w := range words {
		if len(w) > len(longest) {
			longest = w
		}
	}
	return longest
}

// window is the number of bytes of a trigger that the prefilter compares, the length of the
// shortest trigger. The search steps by up to window-1 bytes at a time.
const window = 6

// A prefilter finds a trigger in a text by the Wu–Manber algorithm: it compares two bytes at a
// time, and skips as far as no trigger can begin. Reading a log spends most of its time in this
// loop.
type prefilter struct {
	shift   [1 << 16]uint8
	bucket  [1 << 16]uint8 // 1 + index into buckets of the triggers whose window ends in the pair
	buckets [][]located
}

// A located trigger has its window, as a number, at an offset.
type located struct {
	window uint64
	word   string
	offset int
}

// ordinary is text like that of most logs. The window of a trigger is the part that differs most
// from it.
const ordinary = "2026-03-02 10:00:00,123 - INFO - epoch 3: 100%| 500/2000 [00:12<31:07, 2.67s/it, loss=0.421] iteration 10/ 500 | " +
	"learning rate: 1.500E-04 | global batch size: 512 | lm loss: 2.310000E+00 | grad norm: 0.482 | number of skipped iterations: 0 | " +
	"{'loss': 1.2500, 'grad_norm': 0.8812, 'learning_rate': 9.6e-05, 'epoch': 0.01} step 1200 time per iteration (ms): 412.3 tokens per second " +
	"Saved the checkpoint to /data/run/model; validation accuracy 0.91, the best so far. Loading the dataset, the trainer is set to use all devices."

// pairOf returns the pair of bytes at i.
func pairOf(s string, i int) uint16 { return uint16(s[i]) | uint16(s[i+1])<<8 }

// windowAt returns the window that begins at i as a number.
func windowAt[T string | []byte](s T, i int) uint64 {
	w := s[i : i+window]
	return uint64(w[0]) | uint64(w[1])<<8 | uint64(w[2])<<16 | uint64(w[3])<<24 | uint64(w[4])<<32 | uint64(w[5])<<40
}

// likelihood returns how likely each pair of bytes is in text like ordinary: by the pair itself, and by its bytes,
// since other logs have other words.
func likelihood() *[1 << 16]int {
	pairs, counts := new([1 << 16]int), [256]int{}
	for _, b := range []byte(ordinary) {
		counts[b]++
	}
	for a, n := range counts {
		for b, m := range counts {
			pairs[a|b<<8] = n * m
		}
	}
	for i := range len(ordinary) - 1 {
		pairs[pairOf(ordinary, i)] += len(ordinary)
	}
	return pairs
}

// windowOf returns the offset of a trigger's window: that which shortens the fewest steps in ordinary text.
func (f *prefilter) windowOf(word string, likely *[1 << 16]int) int {
	best, least := 0, math.MaxInt
	for o := 0; o+window <= len(word); o++ {
		cost := 0
		for i := 0; i+1 < window; i++ {
			pair := pairOf(word, o+i)
			cost += likely[pair] * max(0, int(f.shift[pair])-(window-2-i))
		}
		if cost < least {
			best, least = o, cost
		}
	}
	return best
}

// lines is made on first use, like every prefilter: its tables have 128 KiB.
var lines = sync.OnceValue(func() *prefilter { return newPrefilter(triggers()) })

func newPrefilter(words []string) *prefilter {
	f := &prefilter{}
	for i := range f.shift {
		f.shift[i] = window - 1
	}
	pairs := likelihood()
	seen := map[string]bool{}
	words = slices.Clone(words)
	slices.SortStableFunc(words, func(a, b string) int { return len(a) - len(b) }) // those with a choice follow the others
	for _, w := range words {
		if len(w) < window {
			panic("cause: trigger is too short: " + w)
		}
		if seen[w] {
			continue
		}
		seen[w] = true
		o := f.windowOf(w, pairs)
		for i := 0; i+1 < window; i++ {
			pair := pairOf(w, o+i)
			f.shift[pair] = min(f.shift[pair], uint8(window-2-i))
		}
		last := pairOf(w, o+window-2)
		if f.bucket[last] == 0 {
			f.buckets = append(f.buckets, nil)
			if len(f.buckets) > math.MaxUint8 {
				panic("cause: too many different triggers")
			}
			f.bucket[last] = uint8(len(f.buckets))
		}
		f.buckets[f.bucket[last]-1] = append(f.buckets[f.bucket[last]-1], located{windowAt(w, o), w, o})
	}
	return f
}

// each calls found with every trigger in p, as often as it occurs.
func (f *prefilter) each(p []byte, found func(word string)) {
	for i := window - 2; i+1 < len(p); {
		pair := uint16(p[i]) | uint16(p[i+1])<<8
		if s := f.shift[pair]; s != 0 {
			i += int(s)
			continue
		}
		at := i - (window - 2)
		there := windowAt(p, at)
		for _, t := range f.buckets[f.bucket[pair]-1] {
			if t.window != there {
				continue
			}
			if start := at - t.offset; start >= 0 && len(p)-start >= len(t.word) &&
				string(p[start:start+len(t.word)]) == t.word {
				found(t.word)
			}
		}
		i++
	}
}

// find returns the position in p at which a trigger of the first line that has one begins, or
// math.MaxInt without one.
func (f *prefilter) find(p []byte) int {
	for i := window - 2; i+1 < len(p); {
		pair := uint16(p[i]) | uint16(p[i+1])<<8
		s := f.shift[pair]
		if s == window-1 { // most often: with a constant step the processor need not wait for the table
			i += window - 1
			continue
		}
		if s != 0 {
			i += int(s)
			continue
		}
		at := i - (window - 2)
		found := windowAt(p, at)
		for _, t := range f.buckets[f.bucket[pair]-1] {
			if t.window != found {
				continue
			}
			w, start := t.word, at-t.offset
			if start >= 0 && len(p)-start >= len(w) && string(p[start:start+len(w)]) == w {
				return start
			}
		}
		i++
	}
	return math.MaxInt
}
