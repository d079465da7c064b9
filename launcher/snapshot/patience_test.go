package snapshot

import (
	"bytes"
	"context"
	"errors"
	"runtime"
	"strings"
	"testing"
)

// calm is the patience of a test that waits for all of it.
func calm(t *testing.T) *patience { return &patience{ctx: t.Context()} }

// A glance is a context that is over when it has been looked at so many times.
type glance struct {
	context.Context
	left int
}

func (g *glance) Err() error {
	if g.left--; g.left < 0 {
		return context.DeadlineExceeded
	}
	return nil
}

// Whatever there is to do, in decoding as in the analysis, it ends with the context.
func TestNoTimeIsLeft(t *testing.T) {
	over, cancel := context.WithCancel(t.Context())
	cancel()
	if _, err := Analyze(over, text(t, "tiny"), nil); !errors.Is(err, context.Canceled) {
		t.Errorf("a context that is over: %v", err)
	}
	many := "\x80\x04]" + strings.Repeat("Na", lookEvery) + "."
	if _, err := decode(&patience{ctx: &glance{t.Context(), 1}}, []byte(many)); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("a long pickle: %v", err)
	}
	// One list of blocks in many segments: little to decode, and much to look at.
	blocks := bytes.NewBufferString("\x80\x04}(\x8c\x08segments](}(\x8c\x06blocks](")
	blocks.WriteString(strings.Repeat("}", 512) + "euq\x00" + strings.Repeat("h\x00", 1024) + "eu.")
	if _, err := Analyze(&glance{t.Context(), 1}, blocks.Bytes(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("many blocks: %v", err)
	}
	// One stack after another, of frames that are all the same.
	stacks := bytes.NewBufferString("\x80\x04}(\x8c\x08segments](}(\x8c\x06blocks](")
	stacks.WriteString("}(\x8c\x04sizeK\x01\x8c\x06frames](" + strings.Repeat("}", 1) + "q\x00" + strings.Repeat("h\x00", 255) + "eu")
	for range 300 {
		stacks.WriteString("}(\x8c\x04sizeK\x01\x8c\x06frames](" + strings.Repeat("h\x00", 256) + "eu")
	}
	stacks.WriteString("euq\x01eu.")
	// 80000 opcodes are two looks; the stacks make a third.
	if _, err := Analyze(&glance{t.Context(), 2}, stacks.Bytes(), nil); !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("many stacks: %v", err)
	}
}

// What a pickle of one-byte containers costs is bounded: several nodes are charged for each,
// and one for each place in the list that they are cloned into.
func TestContainersAreCharged(t *testing.T) {
	const n = 1000
	for name, test := range map[string]struct {
		text string
		want int
	}{
		"dictionaries":            {"(" + strings.Repeat("}", n) + "l.", n * (containerNodes + 2)},
		"tuples":                  {"(" + strings.Repeat(")", n) + "t.", n * (containerNodes + 2)},
		"a dictionary of clones":  {"(" + strings.Repeat("N", n) + "d.", n * 3},
		"values":                  {"(" + strings.Repeat("N", n) + "l.", n * 2},
		"pairs":                   {"]" + strings.Repeat("NN\x86a", n) + ".", n * (containerNodes + 3)},
		"texts":                   {"]" + strings.Repeat("\x8c\x20"+strings.Repeat("a", 32)+"a", n) + ".", n * 4},
		"a list that grows again": {"]" + strings.Repeat("Na", n) + ".", n},
	} {
		if _, err := decodeWithin(calm(t), []byte(test.text), test.want+20); err != nil {
			t.Errorf("%s: %v", name, err)
		}
		if _, err := decodeWithin(calm(t), []byte(test.text), test.want-1); err == nil {
			t.Errorf("%s cost less than %d", name, test.want)
		}
	}
}

// A frame's name is cut before it is looked at: many frames can share a long one.
func TestALongNameIsCutFirst(t *testing.T) {
	long := &dict{keys: []any{"filename"}, values: []any{strings.Repeat("\\", mostString)}}
	stack := &list{items: []any{long}}
	for range 255 {
		stack.items = append(stack.items, long)
	}
	var before, after runtime.MemStats
	runtime.ReadMemStats(&before)
	frames := framesOf(stack)
	runtime.ReadMemStats(&after)
	if took := after.TotalAlloc - before.TotalAlloc; len(frames) != 256 || took > 16<<20 {
		t.Errorf("%d frames took %d bytes", len(frames), took)
	}
}
