package snapshot

import (
	"encoding/binary"
	"errors"
	"fmt"
	"math"
	"slices"
)

// Bounds of what is read: a job can write what it likes into its folder.
const (
	mostBytes  = 64 << 20
	mostNodes  = 14 << 20 // of 16 bytes: values, and places for them
	mostMarks  = 64       // containers that are open at once
	mostString = 1 << 20
)

// A list is a list, a tuple or a set of a pickle.
type list struct{ items []any }

// A dict is a dictionary of a pickle, in its order.
type dict struct{ keys, values []any }

// mostKeys is how many of a dictionary's latest keys are looked at: those of a snapshot have
// a dozen, and many may be one and the same.
const mostKeys = 64

// get gives the value of a text key, the last one where there are several; nil for none.
func (d *dict) get(key string) any {
	if d == nil {
		return nil
	}
	for i := len(d.keys) - 1; i >= max(0, len(d.keys)-mostKeys); i-- {
		if name, ok := d.keys[i].(string); ok && name == key {
			return d.values[i]
		}
	}
	return nil
}

// A mark opens a container on the stack.
type mark struct{}

// A decoder is the stack machine of pickles, without all that would call or name anything.
type decoder struct {
	in    []byte
	at    int
	stack []any
	memo  []any
	marks int
	deep  int // the most that was on the stack
	nodes int // left
	err   error
}

// decode reads a pickle of plain data: None, truths, numbers, texts, bytes, lists, tuples,
// sets and dictionaries, as protocols 2 to 5 write them. Anything else is an error that
// names the opcode, and so is what exceeds the bounds. Integers are int64 or, beyond that,
// float64.
func decode(p *patience, in []byte) (any, error) { return decodeWithin(p, in, mostNodes) }

func decodeWithin(p *patience, in []byte, nodes int) (any, error) {
	if len(in) > mostBytes {
		return nil, fmt.Errorf("read a pickle: more than %d bytes", mostBytes)
	}
	d := &decoder{in: in, nodes: nodes}
	for d.err == nil {
		start := d.at
		op := d.byte()
		if d.err != nil {
			break
		}
		if op == opStop {
			value := d.pop()
			if d.err == nil && (len(d.stack) > 0 || d.marks > 0) {
				d.err = errors.New("values are left over at its end")
			}
			if d.err == nil {
				return value, nil
			}
			break
		}
		if !d.scalar(op) && !d.container(op) && !d.recall(op) {
			d.fail("opcode %s at byte %d is not plain data", opcode(op), start)
		}
		if d.nodes < 0 {
			d.fail("more than %d values", nodes)
		}
		if p.over(1) {
			return nil, p.err
		}
	}
	return nil, fmt.Errorf("read a pickle: %w", d.err)
}

func (d *decoder) fail(format string, args ...any) {
	if d.err == nil {
		d.err = fmt.Errorf(format, args...)
	}
}

// take gives the next n bytes of the input, nil where there are fewer.
func (d *decoder) take(n uint64) []byte {
	if d.err != nil || n > uint64(len(d.in)-d.at) {
		d.fail("it is cut off at byte %d", d.at)
		return nil
	}
	taken := d.in[d.at : d.at+int(n)]
	d.at += int(n)
	return taken
}

func (d *decoder) byte() byte {
	if b := d.take(1); b != nil {
		return b[0]
	}
	return 0
}

// number reads an unsigned number of n bytes, up to eight.
func (d *decoder) number(n uint64) uint64 {
	var b [8]byte
	copy(b[:], d.take(n))
	return binary.LittleEndian.Uint64(b[:])
}

// containerNodes is what an empty list or dictionary is charged, its words for the heap
// included.
const containerNodes = 4

// push puts a value on the stack. A place there is charged once: it is used again.
func (d *decoder) push(v any) {
	d.stack = append(d.stack, v)
	if len(d.stack) > d.deep {
		d.deep = len(d.stack)
		d.nodes--
	}
}

// open puts a new container on the stack, of so many items.
func (d *decoder) open(v any, items int) {
	d.nodes -= containerNodes + items
	d.push(v)
}

// fresh puts a new number or text on the stack, of so many bytes.
func (d *decoder) fresh(v any, bytes int) {
	d.nodes -= 1 + bytes/16
	d.push(v)
}

// pop takes a value, which is no mark.
func (d *decoder) pop() any {
	if v, ok := d.top().(mark); ok || d.err != nil {
		if d.err == nil {
			d.fail("%T where a value is wanted", v)
		}
		return nil
	}
	v := d.stack[len(d.stack)-1]
	d.stack = d.stack[:len(d.stack)-1]
	return v
}

func (d *decoder) top() any {
	if len(d.stack) == 0 {
		d.fail("nothing is on the stack at byte %d", d.at)
		return nil
	}
	return d.stack[len(d.stack)-1]
}

// above takes what was pushed since the last mark, and the mark. It is valid until the next
// push.
func (d *decoder) above() []any {
	for i := len(d.stack) - 1; i >= 0; i-- {
		if _, ok := d.stack[i].(mark); ok {
			items := d.stack[i+1:]
			d.stack = d.stack[:i]
			d.marks--
			return items
		}
	}
	d.fail("no mark is on the stack at byte %d", d.at)
	return nil
}

// scalar carries out the opcodes of single values, and tells whether op is one.
func (d *decoder) scalar(op byte) bool {
	switch op {
	case opNone:
		d.push(nil)
	case opTrue, opFalse:
		d.push(op == opTrue)
	case opBinInt:
		d.fresh(int64(int32(d.number(4))), 8)
	case opBinInt1:
		d.push(int64(d.number(1)))
	case opBinInt2:
		d.fresh(int64(d.number(2)), 8)
	case opLong1:
		d.fresh(d.long(uint64(d.byte())), 8)
	case opBinFloat:
		var b [8]byte
		copy(b[:], d.take(8))
		d.fresh(math.Float64frombits(binary.BigEndian.Uint64(b[:])), 8)
	case opShortText, opShortBytes:
		d.text(d.number(1))
	case opText, opBytes:
		d.text(d.number(4))
	case opText8, opBytes8:
		d.text(d.number(8))
	default:
		return false
	}
	return true
}

// long reads a number of n bytes in two's complement.
func (d *decoder) long(n uint64) any {
	b := d.take(n)
	if len(b) == 0 {
		return int64(0)
	}
	negative := b[len(b)-1]&0x80 != 0
	if len(b) <= 8 {
		var whole [8]byte
		if negative {
			whole = [8]byte{255, 255, 255, 255, 255, 255, 255, 255}
		}
		copy(whole[:], b)
		return int64(binary.LittleEndian.Uint64(whole[:]))
	}
	value := 0.0
	for i := len(b) - 1; i >= 0; i-- {
		value = value*256 + float64(b[i])
	}
	if negative {
		value -= math.Pow(256, float64(len(b)))
	}
	return value
}

func (d *decoder) text(n uint64) {
	if n > mostString {
		d.fail("a text of %d bytes", n)
		return
	}
	d.fresh(string(d.take(n)), int(n))
}

// container carries out the opcodes of lists, tuples, sets and dictionaries.
func (d *decoder) container(op byte) bool {
	switch op {
	case opMark:
		if d.marks++; d.marks > mostMarks {
			d.fail("more than %d containers are open at once", mostMarks)
		}
		d.push(mark{})
	case opEmptyList, opEmptyTuple, opEmptySet:
		d.open(&list{}, 0)
	case opEmptyDict:
		d.open(&dict{}, 0)
	case opList, opTuple, opFrozenSet:
		items := slices.Clone(d.above())
		d.open(&list{items}, len(items))
	case opTuple1, opTuple2, opTuple3:
		items := make([]any, op-opTuple1+1)
		for i := len(items) - 1; i >= 0; i-- {
			items[i] = d.pop()
		}
		d.open(&list{items}, len(items))
	case opDict:
		items := slices.Clone(d.above())
		d.open(&dict{}, len(items)) // the clone, too
		d.set(items)
	case opAppend:
		v := d.pop()
		d.extend([]any{v})
	case opAppends, opAddItems:
		d.extend(d.above())
	case opSetItem:
		v := d.pop()
		k := d.pop()
		d.set([]any{k, v})
	case opSetItems:
		d.set(d.above())
	default:
		return false
	}
	return true
}

// extend adds items to the list on top of the stack.
func (d *decoder) extend(items []any) {
	l, ok := d.top().(*list)
	if !ok {
		d.fail("items are added to what is no list at byte %d", d.at)
		return
	}
	d.nodes -= len(items)
	l.items = append(l.items, items...)
}

// set adds keys and values in turn to the dictionary on top of the stack.
func (d *decoder) set(items []any) {
	into, ok := d.top().(*dict)
	if !ok || len(items)%2 != 0 {
		d.fail("keys are set in what is no dictionary at byte %d", d.at)
		return
	}
	d.nodes -= len(items)
	into.keys, into.values = slices.Grow(into.keys, len(items)/2), slices.Grow(into.values, len(items)/2)
	for i := 0; i < len(items); i += 2 {
		into.keys, into.values = append(into.keys, items[i]), append(into.values, items[i+1])
	}
}

// recall carries out the opcodes of the memo, and those that say how the rest is written.
func (d *decoder) recall(op byte) bool {
	switch op {
	case opProto:
		if version := d.byte(); version > 5 {
			d.fail("protocol %d is unknown", version)
		}
	case opFrame:
		d.number(8)
	case opMemoize:
		d.remember(uint64(len(d.memo)))
	case opBinPut:
		d.remember(d.number(1))
	case opLongBinPut:
		d.remember(d.number(4))
	case opBinGet:
		d.push(d.remembered(d.number(1)))
	case opLongBinGet:
		d.push(d.remembered(d.number(4)))
	default:
		return false
	}
	return true
}

// remember keeps what is on top of the stack. Writers number it without gaps.
func (d *decoder) remember(n uint64) {
	v := d.top()
	if _, ok := v.(mark); ok || n > uint64(len(d.memo)) {
		d.fail("memo entry %d is out of order at byte %d", n, d.at)
		return
	}
	if n == uint64(len(d.memo)) {
		d.nodes--
		d.memo = append(d.memo, v)
		return
	}
	d.memo[n] = v
}

func (d *decoder) remembered(n uint64) any {
	if n >= uint64(len(d.memo)) {
		d.fail("memo entry %d is not there at byte %d", n, d.at)
		return nil
	}
	return d.memo[n]
}
