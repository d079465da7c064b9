package cause

import "math"

// triggers are the substrings without which a line of an ordinary log means
// nothing: the marks of tracebacks, and one word of every pattern.
var triggers = func() []string {
	t := []string{
		"Traceback (most", "File \"", "File ~", "File /", ".py in ", ".py](http", `File c:\`, `File C:\`, "Cell In[", "│ ❱ ",
		"Exception ignored in", "Exception in thread", "Logging error",
		"MemoryError", "OutOfMemoryError", "KeyboardInterrupt",
	}
	for _, p := range patterns {
		t = append(t, trigger(p.words))
	}
	return t
}()

// trigger chooses the word of a pattern that ordinary lines are least likely to
// hold: the longest one.
func trigger(words []string) string {
	longest := words[0]
	for _, w := range words {
		if len(w) > len(longest) {
			longest = w
		}
	}
	return longest
}

// window is how many bytes of a trigger the prefilter looks at, the length of
// the shortest trigger. The search steps by up to window-1 bytes at a time.
const window = 6

// A prefilter finds the first trigger in a text by the Wu–Manber algorithm: it
// looks at two bytes at a time, and skips as far as no trigger can begin.
// Reading a log is mostly this loop.
type prefilter struct {
	shift   [1 << 16]uint8
	bucket  [1 << 16]uint8 // 1 + index into buckets of the triggers whose window ends in the pair
	buckets [][]string
}

var lines = newPrefilter(triggers)

func newPrefilter(words []string) *prefilter {
	f := &prefilter{}
	for i := range f.shift {
		f.shift[i] = window - 1
	}
	seen := map[string]bool{}
	for _, w := range words {
		if len(w) < window {
			panic("cause: trigger is too short: " + w)
		}
		if seen[w] {
			continue
		}
		seen[w] = true
		for i := 0; i+1 < window; i++ {
			pair := uint16(w[i]) | uint16(w[i+1])<<8
			f.shift[pair] = min(f.shift[pair], uint8(window-2-i))
		}
		last := uint16(w[window-2]) | uint16(w[window-1])<<8
		if f.bucket[last] == 0 {
			f.buckets = append(f.buckets, nil)
			if len(f.buckets) > math.MaxUint8 {
				panic("cause: too many different triggers")
			}
			f.bucket[last] = uint8(len(f.buckets))
		}
		f.buckets[f.bucket[last]-1] = append(f.buckets[f.bucket[last]-1], w)
	}
	return f
}

// find returns where the first trigger begins in p, and math.MaxInt without one.
func (f *prefilter) find(p []byte) int {
	for i := window - 2; i+1 < len(p); {
		pair := uint16(p[i]) | uint16(p[i+1])<<8
		if s := f.shift[pair]; s != 0 {
			i += int(s)
			continue
		}
		start := i - (window - 2)
		for _, w := range f.buckets[f.bucket[pair]-1] {
			if p[start] == w[0] && len(p)-start >= len(w) && string(p[start:start+len(w)]) == w {
				return start
			}
		}
		i++
	}
	return math.MaxInt
}
