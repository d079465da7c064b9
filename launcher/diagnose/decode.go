package diagnose

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"
	"unicode/utf16"
	"unicode/utf8"

	"github.com/gpurun/gpurun/launcher/errext"
)

// sniffed is how many bytes at the start of a file show its format.
const sniffed = 64 << 10

// packed are the first bytes of formats that are no plain text, from their specifications.
var packed = []struct{ magic, name, hint string }{
	{"PK\x03\x04", "a zip archive, such as a checkpoint of PyTorch", "name the file that holds the job's output"},
	{"\x7fELF", "a program", "name the file that holds the job's output"},
}

// unread are the first bytes of compressed formats that are not read, by the program that
// decompresses them.
var unread = map[string]string{"\xfd7zXZ\x00": "xz", "\x28\xb5\x2f\xfd": "zstd"}

var errCompressed = errors.New("is compressed")

// notText is the error for a file that cannot be a job's output: "the output shows nothing
// fatal" would be wrong for it.
func notText(name, what, hint string) error {
	return errext.Errorf(hint, "%s is not the output of a job: it is %s", name, what)
}

// asText unpacks gzip and bzip2, converts UTF-16, and refuses other files that are not text.
func asText(name string, in io.Reader) (*bufio.Reader, error) {
	buffered := bufio.NewReaderSize(in, sniffed)
	start, _ := buffered.Peek(len("BZh")) // the next read returns an error again
	switch {
	case bytes.HasPrefix(start, []byte("\x1f\x8b")):
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("unpack the job's output %s: %w", name, err)
		}
		buffered = bufio.NewReaderSize(unpacked, sniffed)
	case bytes.HasPrefix(start, []byte("BZh")):
		buffered = bufio.NewReaderSize(bzip2.NewReader(buffered), sniffed)
	}
	start, _ = buffered.Peek(binaryReach)
	for magic, program := range unread {
		if bytes.HasPrefix(start, []byte(magic)) {
			return nil, errext.Errorf(fmt.Sprintf("decompress it: %s -dc FILE | gpurun diagnose -", program), "%s %w by %s, which is not read", name, errCompressed, program)
		}
	}
	for _, p := range packed {
		if bytes.HasPrefix(start, []byte(p.magic)) {
			return nil, notText(name, p.name, p.hint)
		}
	}
	if order, mark := wideText(start); order != nil {
		_, _ = buffered.Discard(mark) // it was peeked
		return bufio.NewReaderSize(&wideReader{in: buffered, order: order}, sniffed), nil
	}
	if isBinary(start) {
		return nil, notText(name, "binary", "name the file that holds the job's output")
	}
	if bytes.HasPrefix(start, []byte("\xef\xbb\xbf")) { // the byte order mark of UTF-8
		_, _ = buffered.Discard(3)
	}
	return buffered, nil
}

// binaryReach is how many bytes at the start are searched for control characters.
const binaryReach = 4 << 10

// isBinary reports whether more than a few bytes are control characters that programs do not
// print. NUL does not count: a crash and log rotation leave holes of them.
func isBinary(start []byte) bool {
	odd, all := 0, 0
	for _, c := range start {
		switch {
		case c == 0:
			continue
		case c < ' ' && (c < '\a' || c > '\r') && c != '\x1b' && c != '\x0f' && c != '\x0e':
			odd++
		}
		all++
	}
	const few = 30 // in a thousand; random bytes have about 80
	return odd > 4 && odd*1000 > few*all
}

// A byteOrder returns the number in the first two bytes.
type byteOrder func(p []byte) uint16

func littleEndian(p []byte) uint16 { return uint16(p[0]) | uint16(p[1])<<8 }
func bigEndian(p []byte) uint16    { return uint16(p[1]) | uint16(p[0])<<8 }

// wideText recognises UTF-16, which PowerShell writes for > and *>, by its byte order mark, or
// by a NUL next to nearly every byte where the beginning is missing. mark is the mark's length.
func wideText(start []byte) (order byteOrder, mark int) {
	switch {
	case bytes.HasPrefix(start, []byte("\xff\xfe")):
		return littleEndian, 2
	case bytes.HasPrefix(start, []byte("\xfe\xff")):
		return bigEndian, 2
	}
	const enough = 16
	low, high := 0, 0
	for i := 0; i+1 < len(start); i += 2 {
		switch {
		case start[i] != 0 && start[i+1] == 0:
			low++
		case start[i] == 0 && start[i+1] != 0:
			high++
		}
	}
	switch nearly := len(start) / 2 * 9 / 10; {
	case low > enough && low > nearly:
		return littleEndian, 0
	case high > enough && high > nearly:
		return bigEndian, 0
	}
	return nil, 0
}

// A wideReader converts UTF-16 to UTF-8.
type wideReader struct {
	in    io.Reader
	order byteOrder
	raw   [8 << 10]byte
	have  int    // bytes of raw that are not converted
	text  []byte // that was not read
	out   []byte // the memory of text
	err   error
}

// Read implements io.Reader.
func (r *wideReader) Read(p []byte) (int, error) {
	for len(r.text) == 0 {
		if r.err != nil {
			return 0, r.err
		}
		var n int
		n, r.err = r.in.Read(r.raw[r.have:])
		r.have += n
		r.convert(r.err != nil)
	}
	n := copy(p, r.text)
	r.text = r.text[n:]
	return n, nil
}

// convert converts the whole characters of raw. Half a character at the end is dropped.
func (r *wideReader) convert(end bool) {
	out, i := r.out[:0], 0
	for ; i+1 < r.have; i += 2 {
		c := rune(r.order(r.raw[i:]))
		if utf16.IsSurrogate(c) {
			if i+3 >= r.have && !end {
				break
			}
			var low rune
			if i+3 < r.have {
				low = rune(r.order(r.raw[i+2:]))
			}
			if c = utf16.DecodeRune(c, low); c != utf8.RuneError {
				i += 2
			}
		}
		out = utf8.AppendRune(out, c)
	}
	if end {
		i = r.have
	}
	r.have = copy(r.raw[:], r.raw[i:r.have])
	r.out, r.text = out, out
}
