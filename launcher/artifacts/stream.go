package artifacts

import (
	"bufio"
	"bytes"
	"compress/bzip2"
	"compress/gzip"
	"fmt"
	"io"
	"os"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/ranklog"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A streamRead is the content of one stream.
type streamRead struct {
	facts []strategy.Fact
	step  int // the last one
	head  outputHead
	bytes int64 // its length
}

// stream reads one file to its end, in constant memory. Findings without a rank get the given
// one. The error for a file that cannot be a job's output has a hint.
func (c Collector) stream(rank int, source, name string) (streamRead, error) {
	in := c.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return streamRead{}, fmt.Errorf("read the job's output: %w", err)
		}
		defer f.Close()
		if info, err := f.Stat(); err == nil && info.Mode()&os.ModeDevice != 0 && name != os.DevNull {
			return streamRead{}, notText(name, "a device", "name the file that holds the job's output, or - for standard input")
		}
		in = f
		if log, err := ranklog.Open(name); err == nil { // with its tail files
			defer log.Close()
			in = log
		}
	}
	in, err := asText(name, in)
	if err != nil {
		return streamRead{}, err
	}
	var read streamRead
	var evidence strategy.Evidence
	scanner := cause.NewScanner(source)
	scanner.OnFinding = func(s cause.Finding) {
		of := rank
		if of < 0 {
			of = s.Rank
		}
		evidence.Add(strategy.Fact{Rank: of, Source: source, Finding: &s})
	}
	if read.bytes, err = io.Copy(io.MultiWriter(scanner, &read.head), in); err != nil {
		return read, fmt.Errorf("read the job's output %s: %w", name, err)
	}
	scanner.Close()
	read.facts = evidence.Facts
	if g := scanner.Growth(); g != nil {
		read.facts = append(read.facts, strategy.Fact{Rank: rank, Source: source, Growth: g})
	}
	read.step = scanner.LastStep()
	return read, nil
}

// sniffed is how many bytes at the start of a file show its format.
const sniffed = 4 << 10

// packed are the first bytes of formats that are no plain text, from their specifications.
var packed = []struct{ magic, name, hint string }{
	{"\xfd7zXZ\x00", "an xz archive", "unpack it: xz -dc FILE | gpurun diagnose -"},
	{"\x28\xb5\x2f\xfd", "a zstd archive", "unpack it: zstd -dc FILE | gpurun diagnose -"},
	{"PK\x03\x04", "a zip archive, such as a checkpoint of PyTorch", "name the file that holds the job's output"},
	{"\x7fELF", "a program", "name the file that holds the job's output"},
	{"\xff\xfe", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 FILE | gpurun diagnose -"},
	{"\xfe\xff", "UTF-16 text", "convert it: iconv -f UTF-16 -t UTF-8 FILE | gpurun diagnose -"},
}

// notText is the error for a file that cannot be a job's output: "the output shows nothing
// fatal" would be wrong for it.
func notText(name, what, hint string) error {
	return errext.Errorf(hint, "%s is not the output of a job: it is %s", name, what)
}

// asText unpacks gzip and bzip2, and refuses other files that are not text.
func asText(name string, in io.Reader) (io.Reader, error) {
	buffered := bufio.NewReaderSize(in, sniffed)
	start, _ := buffered.Peek(sniffed) // the next read returns an error again
	switch {
	case bytes.HasPrefix(start, []byte("\x1f\x8b")):
		unpacked, err := gzip.NewReader(buffered)
		if err != nil {
			return nil, fmt.Errorf("unpack the job's output %s: %w", name, err)
		}
		return unpacked, nil
	case bytes.HasPrefix(start, []byte("BZh")):
		return bzip2.NewReader(buffered), nil
	}
	for _, p := range packed {
		if bytes.HasPrefix(start, []byte(p.magic)) {
			return nil, notText(name, p.name, p.hint)
		}
	}
	if isBinary(start) {
		return nil, notText(name, "binary", "name the file that holds the job's output")
	}
	return buffered, nil
}

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
