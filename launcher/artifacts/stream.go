package artifacts

import (
	"fmt"
	"io"
	"os"

	"github.com/gpurun/gpurun/launcher/ranklog"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A streamRead is what one stream showed.
type streamRead struct {
	facts []strategy.Fact
	step  int // the last one
	head  head
	bytes int64 // that it had
}

// stream reads one file to its end, in constant memory. A finding without a
// rank of its own is the given one's. A file that cannot be a job's output is an
// error with a hint.
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
		if log, err := ranklog.Open(name); err == nil { // with what is kept beside it
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
