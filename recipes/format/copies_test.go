package format

import (
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"strings"
	"testing"
)

// TestDiffsApply: git makes the new text from the old one.
func TestDiffsApply(t *testing.T) {
	if _, err := exec.LookPath("git"); err != nil {
		t.Skip(err)
	}
	r := rand.New(rand.NewPCG(1, 2))
	text := func() string {
		var b strings.Builder
		for range r.IntN(30) {
			fmt.Fprintf(&b, "%s%d\n", strings.Repeat("-", r.IntN(3)), r.IntN(6))
		}
		if r.IntN(4) == 0 {
			b.WriteString("+ end")
		}
		return b.String()
	}
	for range 60 {
		old, next := text(), text()
		if old == next || old == "" || next == "" {
			continue
		}
		dir := t.TempDir()
		if err := os.WriteFile(filepath.Join(dir, "x"), []byte(old), 0o600); err != nil {
			t.Fatal(err)
		}
		git := exec.CommandContext(t.Context(), "git", "apply", "-")
		git.Dir, git.Stdin = dir, strings.NewReader(string(Unified("a/x", []byte(old), "b/x", []byte(next))))
		out, err := git.CombinedOutput()
		got, _ := os.ReadFile(filepath.Join(dir, "x"))
		if err != nil || string(got) != next {
			t.Fatalf("%v: %s\n%q\n%q", err, out, old, next)
		}
	}
}
