package diagnose

import (
	"fmt"
	"io"
	"maps"
	"runtime"
	"slices"
	"strings"
	"testing"
)

// ordinaryLines are lines of a training without errors.
func ordinaryLines() string {
	var b strings.Builder
	for i := range 2000 {
		fmt.Fprintf(&b, "2026-03-02 10:%02d:%02d,123 - INFO - iteration %8d/ 500000 | consumed samples: %12d | learning rate: 1.500E-04 | lm loss: %.6E | grad norm: 0.482 |\n", i/60%60, i%60, i, i*512, 2.31+float64(i%7)/100)
		fmt.Fprintf(&b, "{'loss': %.4f, 'grad_norm': 0.8812, 'learning_rate': 9.6e-05, 'epoch': %.2f}\n", 1.2+float64(i%11)/50, float64(i)/1000)
	}
	return b.String()
}

// largeLogs are pieces of logs that are repeated up to the size of a large one, by what they are
// full of.
func largeLogs() map[string]string {
	lines := ordinaryLines()
	const at = "2026-03-02T10:00:00.123456789Z"
	return map[string]string{
		"lines":      lines,
		"bars":       strings.Repeat("\r 37%|███▋      | 370/1000 [02:10<03:41,  2.84it/s, loss=2.31]", 5000),
		"one line":   strings.Repeat("0123456789 abcdefghi ", 50000),
		"colours":    strings.ReplaceAll(lines, "INFO", "\x1b[32mINFO\x1b[0m"),
		"findings":   strings.Repeat("| WARNING: ran out of memory in iteration 12: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.20 GiB is free., skipping the batch\nstep 12 loss 2.0\n", 5000),
		"exceptions": strings.Repeat(oom+"step 12 loss 2.0\n", 3000),
		"docker": eachLine(lines, func(_ int, line string) string {
			return `{"log":"` + line + `\n","stream":"stdout","time":"` + at + `"}`
		}),
		"cri":      eachLine(lines, func(_ int, line string) string { return at + " stdout F " + line }),
		"journald": eachLine(lines, func(_ int, line string) string { return "Mar  2 10:00:00 gpu-07 python3[4711]: " + line }),
		"json": eachLine(lines, func(i int, line string) string {
			return `{"__REALTIME_TIMESTAMP":"1772445600000000","_PID":"4711","SYSLOG_IDENTIFIER":"python3","MESSAGE":"` + line + `"}`
		}),
	}
}

// A repeated reader returns a text again and again, up to a size.
type repeated struct {
	text []byte
	at   int
	left int64
}

func (r *repeated) Read(p []byte) (int, error) {
	if r.left <= 0 {
		return 0, io.EOF
	}
	n := copy(p[:min(int64(len(p)), r.left)], r.text[r.at:])
	r.at, r.left = (r.at+n)%len(r.text), r.left-int64(n)
	return n, nil
}

// BenchmarkLargeFile diagnoses large logs, by what they are full of.
func BenchmarkLargeFile(b *testing.B) {
	logs := largeLogs()
	for _, name := range slices.Sorted(maps.Keys(logs)) {
		b.Run(strings.ReplaceAll(name, " ", "-"), func(b *testing.B) {
			const size = 64 << 20
			b.SetBytes(size)
			for b.Loop() {
				in := &repeated{text: []byte(logs[name]), left: size}
				if _, err := (Collector{Stdin: in, Attempt: -1}).Collect("-"); err != nil {
					b.Fatal(err)
				}
			}
		})
	}
}

// Memory use does not depend on the size of a file, whatever it is full of.
func TestLargeFileInBoundedMemory(t *testing.T) {
	const (
		size  = 16 << 20
		limit = 6 << 20 // the blocks that are read ahead, and what a scanner keeps
	)
	for name, text := range largeLogs() {
		in := &measured{repeated: repeated{text: []byte(text), left: size}}
		in.least = heap()
		if _, err := (Collector{Stdin: in, Attempt: -1}).Collect("-"); err != nil {
			t.Fatal(err)
		}
		if used := int64(in.most) - int64(in.least); used > limit || in.left > 0 {
			t.Errorf("%s: %d bytes in use while %d were read", name, used, size-in.left)
		}
	}
}

// A measured reader notes the memory in use.
type measured struct {
	repeated
	least, most uint64
	reads       int
}

func (m *measured) Read(p []byte) (int, error) {
	const rarely = 32
	if m.reads++; m.reads%rarely == 0 {
		m.most = max(m.most, heap())
	}
	return m.repeated.Read(p[:min(len(p), 64<<10)])
}

// heap is the memory in use after a collection.
func heap() uint64 {
	runtime.GC()
	var m runtime.MemStats
	runtime.ReadMemStats(&m)
	return m.HeapAlloc
}
