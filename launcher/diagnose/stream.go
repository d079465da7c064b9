package diagnose

import (
	"bufio"
	"bytes"
	"fmt"
	"io"
	"os"
	"time"

	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A streamRead is the content of one stream.
type streamRead struct {
	facts []strategy.Fact
	step  int // the last one
	head  outputHead
	bytes int64 // its length
	// several: a collector of logs has put the output of several containers or processes there.
	several bool
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
		if log, err := ranks.OpenLog(name); err == nil { // with its tail files
			defer log.Close()
			in = log
		}
	}
	text, err := asText(name, in)
	if err != nil {
		return streamRead{}, err
	}
	r := newStreamReader(rank, source)
	err = r.read(text)
	if err != nil {
		return r.result, fmt.Errorf("read the job's output %s: %w", name, err)
	}
	return r.end(), nil
}

// blockSize is how many bytes are read at once.
const blockSize = 256 << 10

// A streamReader makes facts of the output of one stream.
type streamReader struct {
	rank     int
	source   string
	result   streamRead
	evidence strategy.Evidence
	scanner  *cause.Scanner
	format   *wrapping

	cut    []byte            // the beginning of a line that has not ended
	parts  map[string][]byte // lines that a collector has cut, by writer and stream
	batch  []byte            // lines of one writer
	stamps [][]byte          // their times
	before int               // the number of lines before the batch
	lines  int               // the number of all lines so far
	writer string            // of the batch
	seen   map[int]heard     // when and from whom a finding first came, by its number
}

// heard is where a finding comes from.
type heard struct {
	at     time.Time
	writer string
}

func newStreamReader(rank int, source string) *streamReader {
	r := &streamReader{rank: rank, source: source, scanner: cause.NewScanner(source), parts: map[string][]byte{},
		seen: map[int]heard{}}
	r.scanner.OnFinding = r.found
	return r
}

// found makes a fact of a finding. One that is reported again keeps its time and its source.
func (r *streamReader) found(f cause.Finding) {
	rank := r.rank
	if rank < 0 {
		rank = f.Rank
	}
	from, again := r.seen[f.Seq]
	if !again {
		from.writer = r.writer
		if i := f.Line - r.before - 1; i >= 0 && i < len(r.stamps) {
			from.at = timeOf(r.stamps[i])
		}
		r.seen[f.Seq] = from
	}
	source := r.source
	if from.writer != "" {
		source = from.writer
	}
	r.evidence.Add(strategy.Fact{Rank: rank, Time: from.at, Source: source,
		Content: (*strategy.Finding)(&f)}.WithText(shapes.Output))
}

// read reads text to its end.
func (r *streamReader) read(in *bufio.Reader) error {
	start, _ := in.Peek(sniffed) // the next read returns an error again
	r.format = wrappingOf(start)
	ahead := readAhead(in)
	defer ahead.stop()
	for {
		block, err := ahead.next()
		r.result.bytes += int64(len(block))
		if r.format == nil {
			_, _ = r.scanner.Write(block)     // a Scanner's Write never fails
			_, _ = r.result.head.Write(block) // nor does this one
		} else {
			r.unwrap(block)
		}
		if err == io.EOF {
			return nil
		}
		if err != nil {
			return err
		}
	}
}

// end returns all facts once the stream has ended.
func (r *streamReader) end() streamRead {
	if len(r.cut) > 0 {
		r.line(r.cut)
	}
	for _, text := range r.parts { // lines whose end is missing
		r.batch = append(append(r.batch, text...), '\n')
	}
	r.flush()
	r.scanner.Close()
	r.result.facts = r.evidence.Facts
	if g := r.scanner.Growth(); g != nil {
		r.result.facts = append(r.result.facts, strategy.Fact{Rank: r.rank, Source: r.source, Content: (*strategy.Growth)(g)})
	}
	r.result.step = r.scanner.LastStep()
	return r.result
}

// lineLimit is how many bytes are read of a collector's line.
const lineLimit = 1 << 20

// unwrap reads a block of a collector's lines.
func (r *streamReader) unwrap(block []byte) {
	for len(block) > 0 {
		line, rest, whole := bytes.Cut(block, []byte{'\n'})
		block = rest
		if len(r.cut) > 0 || !whole {
			r.cut = append(r.cut, line[:min(len(line), max(lineLimit-len(r.cut), 0))]...)
			if !whole {
				break
			}
			line = r.cut
		}
		r.line(line)
		r.cut = r.cut[:0]
	}
	r.flush()
}

// line reads a line of a collector. A line in another format is passed on unchanged.
func (r *streamReader) line(line []byte) {
	line = bytes.TrimSuffix(line, []byte{'\r'})
	e, ok := r.format.parse(line)
	if !ok {
		e = entry{text: line, writer: r.writer}
	}
	if e.writer != r.writer {
		r.flush()
		r.result.several = r.result.several || r.writer != ""
		r.writer = e.writer
	}
	key := e.writer + " " + e.stream
	switch text := r.parts[key]; {
	case e.partial:
		r.parts[key] = append(text, e.text[:min(len(e.text), max(lineLimit-len(text), 0))]...)
	default:
		// A newline within a line becomes a carriage return, which separates lines, too: the
		// numbers of the lines stay those of the file.
		if text != nil {
			r.batch = append(r.batch, text...)
			delete(r.parts, key)
		}
		r.batch = append(r.batch, bytes.ReplaceAll(e.text, []byte{'\n'}, []byte{'\r'})...)
	}
	r.batch = append(r.batch, '\n')
	r.stamps = append(r.stamps, e.stamp)
	r.lines++
}

// flush passes the batch on to the scanner.
func (r *streamReader) flush() {
	r.scanner.From(r.writer)
	_, _ = r.scanner.Write(r.batch)     // a Scanner's Write never fails
	_, _ = r.result.head.Write(r.batch) // nor does this one
	r.batch, r.stamps, r.before = r.batch[:0], r.stamps[:0], r.lines
}
