package job

import (
	"errors"
	"os/exec"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestSplit(t *testing.T) {
	for _, c := range []struct {
		line string
		want []string
	}{
		{``, nil},
		{"  \t ", nil},
		{`python train.py --lr 1e-3`, []string{"python", "train.py", "--lr", "1e-3"}},
		{`a 'b c' "d e" f\ g`, []string{"a", "b c", "d e", "f g"}},
		{`a '' ""`, []string{"a", "", ""}},
		{`a'b'"c"\d`, []string{"abcd"}},
		{`'a"b' "c'd"`, []string{`a"b`, `c'd`}},
		{`"a\"b\\c\d\$"`, []string{`a"b\c\d$`}},
		{`'$HOME * ; | ~'`, []string{"$HOME * ; | ~"}},
		{`"* ; | ~ # < ("`, []string{"* ; | ~ # < ("}},
		{`a#b x~ model=[a,b] {a,b} a?b !`, []string{"a#b", "x~", "model=[a,b]", "{a,b}", "a?b", "!"}},
		{"a \\\n  b\\\nc", []string{"a", "bc"}},
		{"a \"b\\\nc\"", []string{"a", "bc"}},
		{"\n\na b\n\n", []string{"a", "b"}},
		{`a \$x`, []string{"a", "$x"}},
	} {
		words, err := split(c.line)
		if err != nil {
			t.Errorf("split(%q): %v", c.line, err)
			continue
		}
		if diff := cmp.Diff(c.want, texts(words)); diff != "" {
			t.Errorf("split(%q) (-want +got):\n%s", c.line, diff)
		}
	}
}

func texts(words []word) []string {
	var all []string
	for _, w := range words {
		all = append(all, w.text)
	}
	return all
}

func TestSplitRefusesWhatOnlyAShellDoes(t *testing.T) {
	for _, c := range []struct{ line, message, hint string }{
		{`a | b`, "| pipes", "sh"},
		{`a || b`, "|| joins", "sh"},
		{`a && b`, "&& joins", `program = ["sh", "-c", "…"]`},
		{`cd src && b`, "&& joins", "job.workdir"},
		{`cd src; b`, "; joins", "job.workdir"},
		{`source venv/bin/activate && b`, "&& joins", "job.python"},
		{`export A=1; b`, "; joins", "job.env"},
		{`a &`, "background", "sh"},
		{`a > log`, "> redirects", "file of its own"},
		{`a 2>&1`, "> redirects", "sh"},
		{`a < in`, "< redirects", "sh"},
		{`a $HOME`, "$ stands", "value"},
		{`a "$HOME"`, "$ stands", "value"},
		{"a `b`", "` runs", "value"},
		{"a \"`b`\"", "` runs", "value"},
		{`(a)`, "( groups", "sh"},
		{`a *.py`, "* stands", "names"},
		{`a ~/x`, "~ stands", "path"},
		{`HF_HOME=~/hf a`, "~ stands", "path"},
		{`a # b`, "# starts", "remove"},
		{"a\nb", "line break", "backslash"},
		{`a 'b`, "single quote", "other quote"},
		{`a "b`, "double quote", "other quote"},
		{`a \`, "backslash", "remove"},
	} {
		words, err := split(c.line)
		var u *UsageError
		if !errors.As(err, &u) {
			t.Errorf("split(%q) = %q, %v, want a UsageError", c.line, texts(words), err)
			continue
		}
		if !strings.Contains(u.Message, c.message) || !strings.Contains(u.Hint, c.hint) {
			t.Errorf("split(%q): %q, hint %q; want %q and %q", c.line, u.Message, u.Hint, c.message, c.hint)
		}
	}
}

func TestAssignments(t *testing.T) {
	words, err := split(`A=1 B_2='x y' C="" 3D=4 E=5`)
	if err != nil {
		t.Fatal(err)
	}
	env, rest := takeAssignments(words)
	if diff := cmp.Diff(map[string]string{"A": "1", "B_2": "x y", "C": ""}, env); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"3D=4", "E=5"}, rest); diff != "" {
		t.Error(diff)
	}
	quoted, err := split(`'A'=1 b`)
	if err != nil {
		t.Fatal(err)
	}
	if env, rest := takeAssignments(quoted); env != nil || len(rest) != 2 {
		t.Errorf("a quoted name is an assignment: %v, %q", env, rest)
	}
}

// TestSplitAgreesWithShell compares with the shell itself, on lines of the
// characters that matter.
func TestSplitAgreesWithShell(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("this machine has no sh")
	}
	piece := rapid.SampledFrom([]string{"a", "b", "é", " ", "  ", "\t", "'", `"`, `\`, "#", "~", "=", "-", "$", "\n", "?", "[", ",", "!"})
	rapid.Check(t, func(t *rapid.T) {
		line := strings.Join(rapid.SliceOfN(piece, 1, 14).Draw(t, "pieces"), "")
		words, err := split(line)
		if err != nil {
			return
		}
		// Without globbing: in an empty folder a pattern stands for itself. The
		// first word keeps what follows from being an assignment or a keyword.
		script := "set -f; show() { for w; do printf '%s\\0' \"$w\"; done; }; show x " + strings.TrimLeft(line, " \t\n")
		out, err := exec.Command(shell, "-c", script).Output()
		if err != nil {
			t.Fatalf("sh refuses %q: %v", line, err)
		}
		got := append([]string{"x"}, texts(words)...)
		want := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if diff := cmp.Diff(want, got); diff != "" {
			t.Fatalf("%q (-sh +split):\n%s", line, diff)
		}
	})
}

// FuzzSplit holds that no line makes the splitter panic, and that words which
// are quoted again are split into themselves.
func FuzzSplit(f *testing.F) {
	for _, line := range []string{`A=1 torchrun --nproc-per-node 2 train.py "a b" 'c'\ d`, "a \\\n b", `x && y`, `"\`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := split(line)
		if err != nil {
			return
		}
		var quoted []string
		for _, w := range texts(words) {
			quoted = append(quoted, "'"+strings.ReplaceAll(w, "'", `'\''`)+"'")
		}
		again, err := split(strings.Join(quoted, " "))
		if diff := cmp.Diff(texts(words), texts(again)); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", line, err, diff)
		}
		if _, err := commandFrom(line, false, nil, "", nil); err != nil && err.Error() == "" {
			t.Errorf("%q is refused without a word", line)
		}
	})
}
