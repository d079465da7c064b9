package diagnose

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"errors"
	"fmt"
	"io"

	"github.com/gpurun/gpurun/launcher/errext"
)

// sniffed is how many bytes at the start of a file show its format.
const sniffed = 64 << 10

// packed are the first bytes of formats that are no plain text, from their specifications.
var packed = []struct{ magic, name, hint string }{
	{"PK\x03\x04", "a zip archive, such as a checkpoint of PyTorch", "name the file that holds the job's output"},
	{"\x7fELF", "a program", "name the file that holds the job's output"},
}

// unread are the first bytes of formats of text that are not read, with the command that reads
// them. PowerShell writes UTF-16.
var unread = []struct{ magic, what, command string }{
	{"\xfd7zXZ\x00", "compressed by xz", "decompress it: xz -dc"},
	{"\x28\xb5\x2f\xfd", "compressed by zstd", "decompress it: zstd -dc"},
	{"\xff\xfe", "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
	{"\xfe\xff", "UTF-16", "convert it: iconv -f UTF-16 -t UTF-8"},
}

var errUnread = errors.New("which is not read")

// notText is the error for a file that cannot be a job's output: "the output shows nothing
// fatal" would be wrong for it.
func notText(name, what, hint string) error {
	return errext.Errorf(hint, "%s is not the output of a job: it is %s", name, what)
}

// asText unpacks gzip and bzip2, and refuses other files that are not text.
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
	for _, u := range unread {
		if bytes.HasPrefix(start, []byte(u.magic)) {
			return nil, errext.Errorf(u.command+" FILE | gpurun diagnose -", "%s is %s, %w", name, u.what, errUnread)
		}
	}
	for _, p := range packed {
		if bytes.HasPrefix(start, []byte(p.magic)) {
			return nil, notText(name, p.name, p.hint)
		}
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
