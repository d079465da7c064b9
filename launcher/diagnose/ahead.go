package diagnose

import "io"

// An aheadReader reads the next block of a file, and unpacks it, while the last one is scanned.
type aheadReader struct {
	blocks chan aheadBlock
	free   chan []byte
	last   []byte
	quit   chan struct{}
	done   chan struct{}
}

// An aheadBlock is a part of a file, with the error that ended it.
type aheadBlock struct {
	bytes []byte
	err   error
}

func readAhead(in io.Reader) *aheadReader {
	const blocks = 3 // one that is read, one that waits, and one that is scanned
	r := &aheadReader{blocks: make(chan aheadBlock, 1), free: make(chan []byte, blocks), quit: make(chan struct{}),
		done: make(chan struct{})}
	for range blocks {
		r.free <- make([]byte, blockSize)
	}
	go func() {
		defer close(r.done)
		for {
			var block []byte
			select {
			case block = <-r.free:
			case <-r.quit:
				return
			}
			n, err := fill(block, in)
			select {
			case r.blocks <- aheadBlock{block[:n], err}:
			case <-r.quit:
				return
			}
			if err != nil {
				return
			}
		}
	}()
	return r
}

// fill reads until the block is full. io.ReadFull would change the error at the end, which
// a truncated archive also has.
func fill(block []byte, in io.Reader) (n int, err error) {
	for n < len(block) && err == nil {
		var more int
		more, err = in.Read(block[n:])
		n += more
	}
	return n, err
}

// next returns the next block, which is valid until the next call. The last one comes with an
// error, io.EOF at the end.
func (r *aheadReader) next() ([]byte, error) {
	if r.last != nil {
		r.free <- r.last[:blockSize]
		r.last = nil
	}
	b := <-r.blocks
	r.last = b.bytes
	return b.bytes, b.err
}

// stop ends the reading.
func (r *aheadReader) stop() {
	close(r.quit)
	<-r.done
}
