// Package snapshot reads what PyTorch's CUDA allocator held when memory ran out, and says
// which lines of the code held it.
//
//	pickle.go opcodes.go  a bounded reader of pickles that hold plain data
//	patience.go           the time that all of it may take
//	dump.go               a snapshot, from such a pickle
//	place.go              the line that a stack stands for
//	giant.go leaks.go     a block that is large, and those that no step frees
//	analyze.go            all of that as strategy.Snapshot
//	folder.go             the files that a rank has left
package snapshot

import (
	"cmp"
	"context"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/memory"
)

// Bounds of what is told.
const (
	mostTop   = 8
	mostLeaks = 4
)

// always is how to get what is missing.
const always = "launch.snapshot = \"always\" records all of them"

// Analyze says what a snapshot in the form of PyTorch's _dump_snapshot shows. The
// measurement is the same process's, nil where there is none. An error says that the text is
// no such snapshot, or beyond the bounds; it is ctx's own where that ends before.
func Analyze(ctx context.Context, text []byte, m *memory.Measurement) (strategy.Snapshot, error) {
	d, err := parse(&patience{ctx: ctx}, text)
	if err != nil {
		return strategy.Snapshot{}, err
	}
	if d.told.missing != "" {
		return strategy.Snapshot{Missing: d.told.missing}, nil
	}
	s := d.analyze(m)
	return s, d.patience.err
}

func (d *dump) analyze(m *memory.Measurement) strategy.Snapshot {
	device := d.device()
	s := strategy.Snapshot{From: d.told.from, Requested: d.told.wanted, Allowed: d.told.allowed}
	request := d.request(device)
	s.Requested = cmp.Or(s.Requested, request.bytes)
	d.sum(device, &s)
	known, held := places{map[*list]place{}, d.patience}, d.held(device)
	claims := make([]claim, 0, len(held)+1)
	without := int64(0)
	for _, b := range held {
		if d.patience.over(1) {
			break
		}
		claims = append(claims, claim{bytes: b.requested, place: known.of(b.frames), held: true})
		if len(b.frames.items) == 0 {
			without += b.size
		} else {
			s.Recorded = true
		}
	}
	if request.bytes > 0 {
		claims = append(claims, request)
	}
	s.Top = d.top(device, known, s.Recorded, m)
	s.Giant = giant(claims, s.Reserved+s.Requested, m)
	s.Leaks = d.leaks(device, known, s.Allocated)
	s.Missing = d.missing(s, without)
	return s
}

// device is the one that the snapshot is about: where memory ran out, or the fullest.
func (d *dump) device() int {
	if d.told.known {
		return d.told.device
	}
	sums := map[int]int64{}
	most := 0
	for _, s := range d.segments {
		if sums[s.device] += s.size; sums[s.device] > sums[most] {
			most = s.device
		}
	}
	return most
}

// The allocator rounds a request up to the first, and a segment for it to the second.
const (
	requestRounding = 512
	segmentRounding = 2 << 20
)

// request is the one that failed. The history, where there is one, knows its size and its
// stack better than the allocator's word.
func (d *dump) request(device int) claim {
	c := claim{bytes: d.told.wanted, rounded: segmentRounding - 1, place: placeOf(framesOf(listOrNone(d.told.stack)))}
	trace := d.traces[device]
	for i := len(trace) - 1; i >= 0; i-- {
		if trace[i].action != "oom" {
			continue
		}
		c.bytes, c.rounded = trace[i].size, requestRounding-1
		if p := placeOf(framesOf(trace[i].frames)); p.file != "" {
			c.place = p
		}
		break
	}
	return c
}

// held are the blocks that are in use.
func (d *dump) held(device int) []block {
	var held []block
	for _, s := range d.segments {
		for _, b := range s.blocks {
			if s.device == device && !b.free && b.size > 0 {
				held = append(held, b)
			}
		}
	}
	return held
}

// sum adds up the segments.
func (d *dump) sum(device int, s *strategy.Snapshot) {
	for _, seg := range d.segments {
		if seg.device != device {
			continue
		}
		s.Reserved += seg.size
		for _, b := range seg.blocks {
			if b.free {
				s.Free += b.size
				s.Largest = max(s.Largest, b.size)
			} else {
				s.Allocated += b.size
			}
		}
	}
}

// A key tells allocations apart: by place, or without one by size.
type key struct {
	place place
	size  int64
}

func keyOf(p place, b block) key {
	if p.file == "" {
		return key{size: b.requested}
	}
	p.attention = false
	return key{place: p}
}

func (k key) allocation(bytes int64, count int) strategy.Allocation {
	return strategy.Allocation{Bytes: bytes, Count: count, File: k.place.file, Module: moduleOf(k.place.file), Line: k.place.line, Function: k.place.function, What: k.place.what}
}

// top are the places that hold most. What has no stack is told apart by its blocks' size.
func (d *dump) top(device int, known places, recorded bool, m *memory.Measurement) []strategy.Allocation {
	type sum struct {
		bytes int64
		count int
		each  int64 // of a block, 0 where they differ
	}
	// Where all was recorded, what has no stack was made by a thread without Python.
	whole := recorded && d.told.recording && d.told.from == 0
	sums := map[key]sum{}
	for _, b := range d.held(device) {
		if d.patience.over(1) {
			break
		}
		k := keyOf(known.of(b.frames), b)
		if whole && k.place.file == "" {
			k = key{place: place{what: "gradients, and what else the backward pass makes"}}
		}
		was, seen := sums[k]
		if seen && was.each != b.requested {
			b.requested = 0
		}
		sums[k] = sum{was.bytes + b.size, was.count + 1, b.requested}
	}
	var top []strategy.Allocation
	for k, each := range sums {
		a := k.allocation(each.bytes, each.count)
		if one := shaped(claim{bytes: each.each, place: k.place}, m); a.What == "" && one.What == whatLogits {
			a.What, a.Shape, a.Dtype = one.What, one.Shape, one.Dtype
		}
		top = append(top, a)
	}
	slices.SortFunc(top, func(a, b strategy.Allocation) int {
		return cmp.Or(cmp.Compare(b.Bytes, a.Bytes), cmp.Compare(a.File, b.File), cmp.Compare(a.Line, b.Line), cmp.Compare(a.Count, b.Count), cmp.Compare(a.Function, b.Function), cmp.Compare(a.What, b.What))
	})
	return top[:min(len(top), mostTop)]
}

// missing says what is not known, and how to get it.
func (d *dump) missing(s strategy.Snapshot, without int64) string {
	switch t := d.told; {
	case s.Allocated == 0 || !t.known || !s.Recorded && t.trimmed != "":
		return t.trimmed
	case !s.Recorded && t.unseen:
		return "the job records allocations by itself, without their stacks"
	case !s.Recorded:
		return "no allocation was recorded with its stack: " + always
	case t.until > 0 && without*4 > s.Allocated:
		return fmt.Sprintf("%.1f GiB were allocated after step %d, when recording had ended, or by the backward pass, and have no line: %s", float64(without)/(1<<30), t.until, always)
	default:
		return t.trimmed
	}
}

func listOrNone(l *list) *list {
	if l == nil {
		return &list{}
	}
	return l
}
