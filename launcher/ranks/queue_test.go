package ranks

import (
	"bytes"
	"testing"
	"testing/synctest"
	"time"
)

func add(q *queue, n int) bool {
	return q.put(n, func(buf []byte) []byte { return append(buf, bytes.Repeat([]byte{'.'}, n)...) })
}

func TestFullQueueDelaysAReaderOnce(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, time.Second)
		start := time.Now()
		if !add(q, 100) || time.Since(start) != 0 {
			t.Fatal("an empty queue does not take what fits")
		}
		if add(q, 1) || time.Since(start) != time.Second {
			t.Fatalf("a full queue holds back for %v", time.Since(start))
		}
		for range 1000 {
			if add(q, 1) {
				t.Fatal("a full queue takes more")
			}
		}
		if time.Since(start) != time.Second {
			t.Errorf("a writer that does not move holds back for %v", time.Since(start))
		}
	})
}

func TestAWriterThatIsALittleSlowLosesNothing(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, time.Second)
		got := make(chan int)
		go func() {
			total := 0
			var buf []byte
			for ok := true; ok; {
				time.Sleep(100 * time.Millisecond)
				buf, ok = q.take(buf, func() {})
				total += len(buf)
				q.moved()
			}
			got <- total
		}()
		for range 8 { // The writer takes 100 bytes in 0.1 s: 0.7 s of waiting.
			if !add(q, 100) {
				t.Error("bytes are lost")
			}
		}
		q.close()
		if total := <-got; total != 800 {
			t.Errorf("%d bytes arrive, want 800", total)
		}
		if add(q, 1) {
			t.Error("a closed queue takes bytes")
		}
	})
}

func TestPatienceIsBoundedInTheLongRun(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		q := newQueue(100, time.Second)
		end := make(chan struct{})
		go func() { // A writer at a tenth of the reader's pace.
			defer close(end)
			var buf []byte
			for ok := true; ok; {
				time.Sleep(time.Second)
				buf, ok = q.take(buf, func() {})
				q.moved()
			}
		}()
		start, waited, lost := time.Now(), time.Duration(0), 0
		for range 10000 {
			time.Sleep(100 * time.Millisecond)
			before := time.Now()
			if !add(q, 100) {
				lost++
			}
			waited += time.Since(before)
		}
		if most := time.Second + time.Since(start)/100 + 10*time.Millisecond; waited > most {
			t.Errorf("the reader waited %v, want at most %v", waited, most)
		}
		if lost < 8000 || lost > 9500 {
			t.Errorf("%d of 10000 are lost", lost)
		}
		q.close()
		<-end
	})
}

func TestAQueueGivesMemoryBack(t *testing.T) {
	large := make([]byte, 1<<20)
	if got := recycle(large, 100); got != nil {
		t.Errorf("a buffer of %d bytes is kept for 100", cap(got))
	}
	if got := recycle(large, 1<<19); cap(got) != 1<<20 || len(got) != 0 {
		t.Errorf("a buffer that is needed is not reused")
	}
}
