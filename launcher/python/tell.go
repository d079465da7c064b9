package python

import (
	"context"
	"crypto/sha256"
	"fmt"
	"slices"
)

// programAnswer is what the interpreter said to a program, or why it did not.
type programAnswer struct {
	text []byte
	err  error
}

// fromInput runs the program that comes before the rest of its standard input, after its
// length: a whole program as a word would be what ps shows of it.
const fromInput = "import sys; exec(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())))"

// Tell runs a program that imports nothing but what comes with Python, with some
// bytes on its standard input, and returns what it prints, up to 4 MiB. It runs apart
// from the job: its working directory, its variables for Python and its packages are
// not seen. The same program with the same input is run once. The error says why it
// does not tell: it cannot be run, fails, or takes longer than half a minute; or ctx is
// done.
func (i *Interpreter) Tell(ctx context.Context, program string, in []byte) ([]byte, error) {
	select {
	case i.asking <- struct{}{}:
		defer func() { <-i.asking }()
	case <-ctx.Done():
		return nil, context.Cause(ctx)
	}
	key := sha256.Sum256(append([]byte(program+"\x00"), in...))
	if known, there := i.told[key]; there {
		return known.text, known.err
	}
	limited, cancel := context.WithTimeout(ctx, i.bound)
	defer cancel()
	said, err := i.output(limited, slices.Concat(fmt.Appendf(nil, "%d\n", len(program)), []byte(program), in), "-I", "-S", "-c", i.program(fromInput))
	switch {
	case ctx.Err() != nil:
		return nil, context.Cause(ctx) // it may answer another time
	case limited.Err() != nil:
		err = fmt.Errorf("it has not answered after %s", i.bound)
	}
	if err != nil {
		err = fmt.Errorf("ask %s: %w", i.Path(), err)
	}
	if i.told == nil {
		i.told = map[[sha256.Size]byte]programAnswer{}
	}
	i.told[key] = programAnswer{[]byte(said), err}
	return []byte(said), err
}
