package diagnose

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"unicode"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy/cause"
)

const oom = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    loss.backward()\n" +
	"torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.20 GiB is free.\n"

// tree writes files below a fresh folder.
func tree(t *testing.T, files map[string]string) string {
	t.Helper()
	dir := t.TempDir()
	for name, text := range files {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		if err := os.WriteFile(path, []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	return dir
}

func packedText(t testing.TB, text string) string {
	t.Helper()
	var b bytes.Buffer
	w := gzip.NewWriter(&b)
	if _, err := w.Write([]byte(text)); err != nil {
		t.Fatal(err)
	}
	if err := w.Close(); err != nil {
		t.Fatal(err)
	}
	return b.String()
}

// TestCollect: whatever a launcher left is read, and says on which rank it began.
func TestCollect(t *testing.T) {
	files := map[string]string{
		"job.log":                         oom,
		"job.log.gz":                      packedText(t, oom),
		"run/rdzv/attempt_0/0/stdout.log": "step 1\n",
		"run/rdzv/attempt_0/1/stderr.log": oom,
		"run/rdzv/attempt_1/0/stdout.log": "step 1\n",
		"cut/attempt-0/rank0/stdout.log":  "step 1\n",
		"cut/attempt-0/rank3/stderr.log":  oom,
		"cut/journal.jsonl":               `{"v":2,"kind":"started","event":{"n":0}}` + "\n",

		"three/attempt-0/rank0/stdout.log":        "step 1\n",
		"three/attempt-0/node-1/rank1/stdout.log": "step 1\n",
		"three/attempt-0/node-2/rank2/stderr.log": oom,
		"three/journal.jsonl":                     `{"v":2,"kind":"started","event":{"n":0}}` + "\n",
		"three/node-2/journal.jsonl":              "",
	}
	dir := tree(t, files)
	tests := []struct {
		name    string
		attempt int
		cause   cause.Code
		rank    int
		ranks   int
	}{
		{"job.log", -1, cause.CUDAOOM, -1, 0},
		{"job.log.gz", -1, cause.CUDAOOM, -1, 0},
		{"run", -1, cause.None, -1, 1},
		{"run", 0, cause.CUDAOOM, 1, 2},
		{"run/rdzv/attempt_0/1", -1, cause.CUDAOOM, 1, 0},
		{"cut", -1, cause.CUDAOOM, 3, 2},
		{"cut/journal.jsonl", 0, cause.CUDAOOM, 3, 2},
		{"three", -1, cause.CUDAOOM, 2, 3},
		{"three/attempt-0", -1, cause.CUDAOOM, 2, 3},
		{"three/attempt-0/node-2/rank2", -1, cause.CUDAOOM, 2, 0},
		{"three/node-2", -1, cause.CUDAOOM, 2, 3},
		{"three/node-2/journal.jsonl", 0, cause.CUDAOOM, 2, 3},
	}
	for _, test := range tests {
		in, err := Collector{Attempt: test.attempt}.Collect(filepath.Join(dir, test.name))
		if err != nil {
			t.Errorf("%s: %v", test.name, err)
			continue
		}
		d := Diagnose(in)
		rank := -1
		if d.Rank != nil {
			rank = *d.Rank
		}
		if d.Cause != test.cause || rank != test.rank || in.Evidence.Ranks != test.ranks {
			t.Errorf("%s: %s on rank %d of %d, want %s on rank %d of %d", test.name, d.Cause, rank, in.Evidence.Ranks, test.cause, test.rank, test.ranks)
		}
	}
}

// TestInvalidOutputPathIsRefused: the hint says what to name instead.
func TestInvalidOutputPathIsRefused(t *testing.T) {
	dir := tree(t, map[string]string{
		"xz": "\xfd7zXZ\x00rest", "train.log.zst": "\x28\xb5\x2f\xfdrest", "powershell": "\xff\xfes\x00t\x00",
		"bytes": "\x01\x02\x03\x04\x05\x06\x10\x11\x12", "empty/x": "",
	})
	for name, hint := range map[string]string{
		"xz": "xz -dc", "train.log.zst": "decompress it: zstd -dc", "powershell": "convert it: iconv -f UTF-16",
		"bytes": "name the file", "missing": "", "empty": "",
	} {
		_, err := Collector{Attempt: -1}.Collect(filepath.Join(dir, name))
		if err == nil {
			t.Errorf("%s was read", name)
			continue
		}
		if got := errext.Hint(err); !strings.Contains(got, hint) || (got == "") != (hint == "") {
			t.Errorf("%s: the hint is %q", name, got)
		}
	}
	for _, word := range []string{"0", "x=a", "-1=a"} {
		if _, err := (Collector{}).Ranks([]string{word}); err == nil {
			t.Errorf("--rank %s was taken", word)
		}
	}
}

// TestDiagnosisAsJSON: what is not known is null, and lists are never absent.
func TestDiagnosisAsJSON(t *testing.T) {
	code := 3
	in, err := Collector{Stdin: strings.NewReader(""), Attempt: -1, ExitCode: &code}.Collect("-")
	if err != nil {
		t.Fatal(err)
	}
	text, err := json.Marshal(Diagnose(in))
	if err != nil {
		t.Fatal(err)
	}
	for _, want := range []string{`"file":"-"`, `"rank":null`, `"device":null`, `"requested_bytes":null`, `"symptoms":[]`, `"evidence":[]`} {
		if !strings.Contains(string(text), want) {
			t.Errorf("no %s in %s", want, text)
		}
	}
	var b strings.Builder
	if n, err := Diagnose(in).WriteTo(&b); err != nil || int(n) != b.Len() || !strings.HasPrefix(b.String(), "-: ended with exit code 3") {
		t.Errorf("%d, %v: %q", n, err, b.String())
	}
}

// What a hostile job left is neither obeyed by a terminal nor followed elsewhere.
func TestHostileArtifacts(t *testing.T) {
	const message = "BadError: \u202ered\u009b31m hf_AbCdEfGhIjKlMnOpQrStUvWxYz0123 \u200b"
	dir := tree(t, map[string]string{
		"secret":                     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n",
		"run/attempt_0/0/stderr.log": "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n" + message + "\n",
	})
	rank := filepath.Join(dir, "run", "attempt_0", "0")
	if err := os.Symlink(filepath.Join(dir, "secret"), filepath.Join(rank, "stdout.log")); err != nil {
		t.Fatal(err)
	}
	if err := syscall.Mkfifo(filepath.Join(rank, "error.json"), 0o600); err != nil {
		t.Fatal(err)
	}
	code := 1
	in, err := Collector{Attempt: -1, ExitCode: &code}.Collect(filepath.Join(dir, "run"))
	if err != nil {
		t.Fatal(err)
	}
	var b strings.Builder
	if _, err := Diagnose(in).WriteTo(&b); err != nil {
		t.Fatal(err)
	}
	if strings.Contains(b.String(), "out of memory") {
		t.Errorf("a link was followed: %s", b.String())
	}
	if !strings.Contains(b.String(), `BadError: \u202ered\x9b31m *** \u200b`) || strings.ContainsFunc(b.String(), func(r rune) bool { return r != '\n' && !unicode.IsGraphic(r) }) {
		t.Errorf("shown: %q", b.String())
	}
}

// A file that is called as a folder of torchrun's leads nowhere.
func TestAFileNamedAsAnAttempt(t *testing.T) {
	dir := tree(t, map[string]string{"x/attempt_a.txt": "not an attempt\n"})
	_, err := Collector{Attempt: -1}.Collect(dir)
	if err == nil || !strings.HasPrefix(err.Error(), dir+" holds no stdout.log") {
		t.Errorf("%v", err)
	}
}
