package cause

import (
	"bytes"
	"fmt"
	"testing"
)

// ordinaryLog is a training log without errors: log lines of two frameworks, and a progress bar.
func ordinaryLog() []byte {
	var b bytes.Buffer
	for i := range 2000 {
		fmt.Fprintf(&b, "2026-03-02 10:%02d:%02d,123 - INFO - iteration %8d/ 500000 | consumed samples: %12d | elapsed time per iteration (ms): 412.3 | learning rate: 1.500E-04 | lm loss: %.6E | grad norm: 0.482 |\n", i/60%60, i%60, i, i*512, 2.31+float64(i%7)/100)
		fmt.Fprintf(&b, "{'loss': %.4f, 'grad_norm': 0.8812, 'learning_rate': 9.6e-05, 'epoch': %.2f}\n", 1.2+float64(i%11)/50, float64(i)/1000)
		fmt.Fprintf(&b, "\r %2d%%|███████▌                              | %d/2000 [10:12<31:07,  2.67s/it]", i*100/2000, i)
		if i%50 == 0 {
			b.WriteString("\nSaved checkpoint to /data/run/checkpoint; validation perplexity 12.91, tokens per second 31152\n")
		}
	}
	return b.Bytes()
}

// BenchmarkScanner reads an ordinary log in writes of 64 KiB, as a pipe gives it.
func BenchmarkScanner(b *testing.B) {
	log := ordinaryLog()
	s := NewScanner("stdout")
	s.OnFinding = func(at Finding) { b.Fatalf("a finding in an ordinary log: %+v", at) }
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		for p := log; len(p) > 0; {
			n := min(len(p), 64<<10)
			if _, err := s.Write(p[:n]); err != nil {
				b.Fatal(err)
			}
			p = p[n:]
		}
	}
}

// BenchmarkScannerAfterError continues in a state in which the scanner reads every line.
func BenchmarkScannerAfterError(b *testing.B) {
	log := ordinaryLog()
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		s := NewScanner("stdout")
		if _, err := s.Write([]byte("RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB\n")); err != nil {
			b.Fatal(err)
		}
		if _, err := s.Write(log); err != nil {
			b.Fatal(err)
		}
	}
}
