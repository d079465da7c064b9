package cause

import (
	"bytes"
	"os"
	"os/exec"
	"path/filepath"
	"regexp"
	"strings"
	"testing"
)

// largeLog is an ordinary log of about 64 MiB.
func largeLog() []byte {
	log := ordinaryLog()
	return bytes.Repeat(log, 64<<20/len(log)+1)
}

// BenchmarkLargeLog classifies a large ordinary log, for comparison with BenchmarkGrep.
func BenchmarkLargeLog(b *testing.B) {
	log := largeLog()
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		s := NewScanner("stdout")
		for p := log; len(p) > 0; {
			n := min(len(p), 64<<10)
			_, _ = s.Write(p[:n]) // a Scanner's Write never fails
			p = p[n:]
		}
		s.Close()
	}
}

// BenchmarkGrep searches the same log with grep -E for the lines of the catalogue, in the C
// locale, in which grep is fastest. It finds lines, but no causes.
func BenchmarkGrep(b *testing.B) {
	grep, err := exec.LookPath("grep")
	if err != nil {
		b.Skip("no grep on this machine")
	}
	dir := b.TempDir()
	log := largeLog()
	if err := os.WriteFile(filepath.Join(dir, "log"), log, 0o644); err != nil {
		b.Fatal(err)
	}
	var expressions strings.Builder
	for _, p := range patterns {
		var words []string
		for _, w := range p.words {
			words = append(words, regexp.QuoteMeta(w))
		}
		expressions.WriteString(strings.Join(words, ".*") + "\n")
	}
	if err := os.WriteFile(filepath.Join(dir, "patterns"), []byte(expressions.String()), 0o644); err != nil {
		b.Fatal(err)
	}
	b.SetBytes(int64(len(log)))
	for b.Loop() {
		cmd := exec.Command(grep, "-aEc", "-f", "patterns", "log")
		cmd.Dir = dir
		cmd.Env = append(os.Environ(), "LC_ALL=C")
		out, err := cmd.CombinedOutput()
		if len(bytes.TrimSpace(out)) == 0 || cmd.ProcessState.ExitCode() > 1 {
			b.Fatalf("grep: %v: %s", err, out)
		}
	}
}
