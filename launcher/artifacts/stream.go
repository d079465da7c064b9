package artifacts

import (
	"fmt"
	"io"
	"os"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// A streamRead is what one stream showed.
type streamRead struct {
	facts []strategy.Fact
	step  int   // the last one
	bytes int64 // that it had
}

// stream reads one file to its end, in constant memory. A sighting without a
// rank of its own is the given one's. A file that cannot be
// a job's output is an error with a hint.
func (c Collector) stream(rank int, source, name string) (streamRead, error) {
	in := c.Stdin
	if name != "-" {
		f, err := os.Open(name)
		if err != nil {
			return streamRead{}, fmt.Errorf("read the job's output: %w", err)
		}
		defer f.Close()
		in = f
	}
	in, err := asText(name, in)
	if err != nil {
		return streamRead{}, err
	}
	var read streamRead
	scanner := cause.NewScanner(source)
	scanner.OnSighting = func(s cause.Sighting) {
		of := rank
		if of < 0 {
			of = s.Rank
		}
		if s.Seq <= len(read.facts) { // its message went on
			read.facts[s.Seq-1].Sighting = &s
			return
		}
		read.facts = append(read.facts, strategy.Fact{Rank: of, Source: source, Sighting: &s})
	}
	if read.bytes, err = io.Copy(scanner, in); err != nil {
		return read, fmt.Errorf("read the job's output %s: %w", name, err)
	}
	scanner.Close()
	if g := scanner.Growth(); g != nil {
		read.facts = append(read.facts, strategy.Fact{Rank: rank, Source: source, Growth: g})
	}
	read.step = scanner.LastStep()
	return read, nil
}
