package ranks

import (
	"context"
	"fmt"
	"io"
	"regexp"
	"strings"
	"sync"
	"testing"
)

// BenchmarkRanks measures bytes through pipe, log, console queue, scanner and the
// search for steps, for ranks that write as fast as they can.
func BenchmarkRanks(b *testing.B) {
	for _, ranks := range []int{1, 8, 64} {
		for _, step := range []*regexp.Regexp{nil, regexp.MustCompile(`step (\d+)`)} {
			b.Run(fmt.Sprintf("ranks=%d/step=%v", ranks, step != nil), func(b *testing.B) {
				benchmarkRanks(b, ranks, step)
			})
		}
	}
}

func benchmarkRanks(b *testing.B, ranks int, step *regexp.Regexp) {
	o := OutputOptions{Dir: b.TempDir(), Stdout: io.Discard, Step: step, MaxBytes: 16 << 20}
	for k := range ranks {
		o.Ranks = append(o.Ranks, k)
	}
	out, err := OpenOutput(o)
	if err != nil {
		b.Fatal(err)
	}
	block := []byte(strings.Repeat("step 100 | loss 2.3456 | grad norm 1.0000 | lr 3.0e-04 | 1234 tokens/s\n", 900))
	b.SetBytes(int64(len(block)))
	b.ReportAllocs()
	b.ResetTimer()
	var all sync.WaitGroup
	for k := range ranks {
		stdout, _ := out.Files(k)
		n := b.N / ranks
		if k < b.N%ranks {
			n++
		}
		all.Go(func() {
			for range n {
				stdout.Write(block)
			}
		})
	}
	all.Wait()
	if err := out.Wait(context.Background()); err != nil {
		b.Fatal(err)
	}
}
