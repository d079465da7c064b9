package ranks

import (
	"bytes"
	"fmt"
	"io"
	"os"
	"strings"
	"testing"
	"testing/synctest"
	"time"
)

// dam is a writer that takes nothing until it is opened.
type dam struct {
	opened chan struct{}
	said   bytes.Buffer
}

func (g *dam) Write(p []byte) (int, error) {
	<-g.opened
	return g.said.Write(p)
}

func TestWordsAreWrittenWhenWriteReturns(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		w := NewMessages(&said)
		for i := range 100 {
			fmt.Fprintf(w, "line %d\n", i)
			if !strings.HasSuffix(said.String(), fmt.Sprintf("line %d\n", i)) {
				t.Fatalf("after line %d: %q", i, said.String())
			}
		}
		w.Close()
	})
}

// A pipe without a reader holds gpurun up once, and then no more until there is one.
func TestUnreadWordsDelayNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &dam{opened: make(chan struct{})}
		w := NewMessages(g)
		began := time.Now()
		var want strings.Builder
		for i := range 1000 {
			fmt.Fprintf(io.MultiWriter(w, &want), "line %d\n", i)
		}
		if took := time.Since(began); took > messagesPatience {
			t.Errorf("1000 lines that nobody read took %v", took)
		}
		close(g.opened)
		synctest.Wait()
		if g.said.String() != want.String() {
			t.Errorf("said %d bytes, want %d", g.said.Len(), want.Len())
		}
		w.Close()
	})
}

func TestWordsSkipAStoppedReader(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		g := &dam{opened: make(chan struct{})}
		w := NewMessages(g)
		fmt.Fprintln(w, "the verdict")
		began := time.Now()
		w.Close()
		if took := time.Since(began); took > messagesClose {
			t.Errorf("closed after %v", took)
		}
		close(g.opened)
		<-w.queue.done
	})
}

// A reader that is slow, but reads, gets everything.
func TestWordsWaitForAReaderThatIsSlow(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		var said bytes.Buffer
		slow := writerFunc(func(p []byte) (int, error) {
			time.Sleep(messagesClose * 9 / 10)
			return said.Write(p)
		})
		w := NewMessages(slow)
		var want strings.Builder
		for i := range 4 {
			fmt.Fprintf(io.MultiWriter(w, &want), "%d %s\n", i, strings.Repeat("x", consolePiece))
		}
		w.Close()
		if said.String() != want.String() {
			t.Errorf("said %d bytes, want %d", said.Len(), want.Len())
		}
	})
}

type writerFunc func([]byte) (int, error)

func (f writerFunc) Write(p []byte) (int, error) { return f(p) }

func TestWordsToAClosedPipeAreLost(t *testing.T) {
	r, pipe, err := os.Pipe()
	if err != nil {
		t.Fatal(err)
	}
	r.Close()
	defer pipe.Close()
	w := NewMessages(pipe)
	for range 3 {
		if n, err := fmt.Fprintln(w, "to nobody"); n != 10 || err != nil {
			t.Errorf("wrote %d, %v", n, err)
		}
	}
	w.Close()
}
