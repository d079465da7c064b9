package snapshot

import (
	"errors"
	"fmt"
)

// A dump is what a snapshot of PyTorch's allocator holds, as far as it is used here.
type dump struct {
	segments []segment
	traces   map[int][]entry // by device, the oldest first
	told     told
	patience *patience
}

// A segment is memory that the allocator has from the driver.
type segment struct {
	device int
	size   int64
	blocks []block
}

// A block is a piece of a segment, of a tensor or free.
type block struct {
	address   int64
	size      int64
	requested int64
	free      bool
	frames    *list
}

// An entry is one thing that the allocator did.
type entry struct {
	action  string
	address int64
	size    int64
	time    int64 // in microseconds since 1970, 0 where it is not known
	frames  *list
}

// told is what the probe says beside PyTorch's own words.
type told struct {
	known     bool
	device    int
	wanted    int64
	allowed   int64
	phase     string
	steps     int
	recording bool // still, when memory ran out
	from      int  // the step with which the recording began
	until     int  // the step after which it ended, -1 for not yet
	marks     []int64
	stack     *list // of the request that failed
	missing   string
	trimmed   string
	unseen    bool // the job records by itself: what, is its own choice
}

// parse reads a snapshot: PyTorch's own _dump_snapshot, or the probe's.
func parse(p *patience, text []byte) (*dump, error) {
	value, err := decode(p, text)
	if err != nil {
		return nil, err
	}
	d := &dump{traces: map[int][]entry{}, patience: p}
	switch v := value.(type) {
	case *list: // as PyTorch 1.13 had it
		return d, d.segmentsOf(v)
	case *dict:
		if v.get("segments") == nil {
			return nil, errors.New("a pickle, and no snapshot of PyTorch's allocator")
		}
		d.told = tellings(dictOf(v.get("gpurun")))
		return d, errors.Join(d.segmentsOf(listOf(v.get("segments"))), d.tracesOf(listOf(v.get("device_traces"))))
	}
	return nil, errors.New("a pickle, and no snapshot of PyTorch's allocator")
}

func (d *dump) segmentsOf(l *list) error {
	pieces := 0
	for _, each := range l.items {
		s := dictOf(each)
		blocks := listOf(s.get("blocks")).items
		if pieces += 1 + len(blocks); pieces > mostPieces {
			return errPieces
		}
		if d.patience.over(1 + len(blocks)) {
			return d.patience.err
		}
		made := segment{device: int(size(s.get("device"))), size: size(s.get("total_size"))}
		for _, each := range blocks {
			made.blocks = append(made.blocks, blockOf(dictOf(each)))
		}
		d.segments = append(d.segments, made)
	}
	return nil
}

func (d *dump) tracesOf(l *list) error {
	pieces := 0
	for device, trace := range l.items {
		entries := listOf(trace).items
		if pieces += 1 + len(entries); pieces > mostPieces {
			return errPieces
		}
		for _, each := range entries {
			if d.patience.over(1) {
				return d.patience.err
			}
			e := dictOf(each)
			action, _ := e.get("action").(string)
			d.traces[device] = append(d.traces[device], entry{
				action: action, address: whole(e.get("addr")), size: size(e.get("size")), time: whole(e.get("time_us")), frames: listOf(e.get("frames")),
			})
		}
	}
	return nil
}

func blockOf(b *dict) block {
	state, _ := b.get("state").(string)
	made := block{
		address: whole(b.get("address")), size: size(b.get("size")), requested: size(b.get("requested_size")),
		free: state == "inactive", frames: listOf(b.get("frames")),
	}
	if past := listOf(b.get("history")); len(past.items) > 0 { // until PyTorch 2.0
		made.frames, made.requested = listOf(dictOf(past.items[0]).get("frames")), size(dictOf(past.items[0]).get("real_size"))
	}
	if made.requested == 0 || made.requested > made.size {
		made.requested = made.size
	}
	return made
}

func tellings(d *dict) told {
	text := func(key string) string {
		s, _ := d.get(key).(string)
		return short(s, 200)
	}
	t := told{
		known: d != nil, device: int(size(d.get("device"))), wanted: size(d.get("wanted")), allowed: size(d.get("allowed")), phase: text("phase"), steps: int(size(d.get("steps"))),
		from: int(size(d.get("from"))), until: int(whole(d.get("until"))), stack: listOf(d.get("stack")),
		missing: text("missing"), trimmed: text("trimmed"),
	}
	t.unseen, _ = d.get("foreign").(bool)
	t.recording, _ = d.get("recording").(bool)
	for _, at := range listOf(d.get("marks")).items {
		t.marks = append(t.marks, whole(at))
	}
	return t
}

func listOf(v any) *list {
	if l, ok := v.(*list); ok {
		return l
	}
	return &list{}
}

func dictOf(v any) *dict {
	d, _ := v.(*dict)
	return d
}

func whole(v any) int64 {
	n, _ := v.(int64)
	return n
}

// mostSize bounds sizes and mostPieces how many there are: a pickle can name one list many
// times, and no sum of sizes may overflow.
const (
	mostSize   = 1 << 40
	mostPieces = 1 << 20
)

var errPieces = fmt.Errorf("a snapshot of more than %d blocks or entries", mostPieces)

// size is a number of bytes, or another count; what cannot be one is 0.
func size(v any) int64 {
	n := whole(v)
	if n < 0 || n > mostSize {
		return 0
	}
	return n
}

// short cuts a text.
func short(s string, n int) string {
	if len(s) > n {
		return s[:n] + "…"
	}
	return s
}
