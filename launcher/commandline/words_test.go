package commandline

import (
	"errors"
	"os/exec"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

func TestWords(t *testing.T) {
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
		{"a \\\\\\\nb", []string{"a", `\b`}},
		{"if ! for", []string{"if", "!", "for"}},
	} {
		words, err := Words(c.line)
		if err != nil {
			t.Errorf("Words(%q): %v", c.line, err)
			continue
		}
		if diff := cmp.Diff(c.want, texts(words)); diff != "" {
			t.Errorf("Words(%q) (-want +got):\n%s", c.line, diff)
		}
	}
}

func texts(words []Word) []string {
	var all []string
	for _, w := range words {
		all = append(all, w.Text)
	}
	return all
}

func TestWordsRefusesShellSyntax(t *testing.T) {
	for _, c := range []struct{ line, message, hint string }{
		{`a | b`, "| pipes", "sh"},
		{`a || b`, "|| joins", "sh"},
		{`a && b`, "&& joins", `program = ["sh", "-c", "…"]`},
		{`cd src && b`, "&& joins", "job.workdir"},
		{`cd src; b`, "; joins", "job.workdir"},
		{`source venv/bin/activate && b`, "&& joins", "job.python"},
		{`export A=1; b`, "; joins", "job.env"},
		{`a &`, "background", "sh"},
		{`a > log`, "> redirects", "separate file"},
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
		{"a # b\\\nc", "# starts", "remove"},
		{"a\nb", "line break", "backslash"},
		{"a ${x:-b c}", "$ stands", "value"},
		{"a $(b 'c", "$( runs", "value"},
		{"a *(b)", "( groups", "sh"},
		{`a 'b`, "single quote", "other quote"},
		{`a "b`, "double quote", "other quote"},
		{`a \`, "backslash", "remove"},
	} {
		words, err := Words(c.line)
		var u *ShellError
		if !errors.As(err, &u) {
			t.Errorf("Words(%q) = %q, %v, want a ShellError", c.line, texts(words), err)
			continue
		}
		if u.Offset < 0 || u.Offset > len(c.line) || !strings.HasPrefix(c.line[u.Offset:], c.message[:1]) && strings.IndexByte("$`|&;<>()*~#", c.message[0]) >= 0 {
			t.Errorf("Words(%q): %q is said of offset %d", c.line, u.Message, u.Offset)
		}
		if !strings.Contains(u.Message, c.message) || !strings.Contains(errext.Hint(err), c.hint) {
			t.Errorf("Words(%q): %q, hint %q; want %q and %q", c.line, u.Message, errext.Hint(err), c.message, c.hint)
		}
	}
}

func TestAssignments(t *testing.T) {
	words, err := Words(`A=1 B_2='x y' C="" 3D=4 E=5`)
	testenv.Check(t, err)
	env, rest := Assignments(words)
	if diff := cmp.Diff(Environ{"A": "1", "B_2": "x y", "C": ""}, env); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"3D=4", "E=5"}, rest); diff != "" {
		t.Error(diff)
	}
	quoted, err := Words(`'A'=1 b`)
	testenv.Check(t, err)
	if env, rest := Assignments(quoted); env != nil || len(rest) != 2 {
		t.Errorf("a quoted name is an assignment: %v, %q", env, rest)
	}
}

// TestWordsAgreesWithShell compares with the shell itself, on lines of the
// characters that matter.
func TestWordsAgreesWithShell(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("this machine has no sh")
	}
	piece := rapid.SampledFrom([]string{"a", "b", "é", " ", "  ", "\t", "'", `"`, `\`, "#", "~", "=", "-", "$", "\n", "?", "[", ",", "!"})
	rapid.Check(t, func(t *rapid.T) {
		line := strings.Join(rapid.SliceOfN(piece, 1, 14).Draw(t, "pieces"), "")
		words, err := Words(line)
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
			t.Fatalf("%q (-sh +Words):\n%s", line, diff)
		}
	})
}

// FuzzWords holds that no line makes the splitter panic, and that words which
// are quoted again are split into themselves.
func FuzzWords(f *testing.F) {
	for _, line := range []string{`A=1 torchrun --nproc-per-node 2 train.py "a b" 'c'\ d`, "a \\\n b", `x && y`, `"\`, `'it'"'"'s' =x 'a=b' é '' '*' 'a
b'`} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		words, err := Words(line)
		if err != nil {
			return
		}
		again, err := Words(Quote(texts(words)))
		if diff := cmp.Diff(texts(words), texts(again)); err != nil || diff != "" {
			t.Errorf("%q: %v (-want +got):\n%s", line, err, diff)
		}
	})
}

// Words is Expand where there are no variables.
func Words(line string) ([]Word, error) {
	words, _, err := Expand(line, nil)
	return words, err
}

func TestExpand(t *testing.T) {
	env := Environ{"A": "1", "S": "a b", "L": " x ", "E": "", "G": "*.py ~ $A", "Q": `it's "x"`, "ARGS": "--lr 1e-3 --bs 8"}
	for _, c := range []struct {
		line string
		want []string
		used string
	}{
		{`t --lr $A ${A} "$A" '$A' \$A $A$A`, []string{"t", "--lr", "1", "1", "1", "$A", "$A", "11"}, "A"},
		{`t $ARGS --x`, []string{"t", "--lr", "1e-3", "--bs", "8", "--x"}, "ARGS"},
		{`t "$S" $S p${S}q`, []string{"t", "a b", "a", "b", "pa", "bq"}, "S"},
		{`t p${L}q "${L}"`, []string{"t", "p", "x", "q", " x "}, "L"},
		{`t $E "" "$E" ${E}x`, []string{"t", "", "", "x"}, "E"},
		{`t $G`, []string{"t", "*.py", "~", "$A"}, "G"},
		{`t $Q`, []string{"t", "it's", `"x"`}, "Q"},
		{`t ${U:-8} ${U:-a b} "${U:-a b}" ${U:-"a b"} ${E:-$A} ${A:-x} ${U:-}`, []string{"t", "8", "a", "b", "a b", "a b", "1", "1"}, "A E U"},
		{`X=$S Y=$X t $A`, []string{"X=a b", "Y=a b", "t", "1"}, "A S X"},
		{"t --data \\\n  $A/x", []string{"t", "--data", "1/x"}, "A"},
		{`t 'a'`, []string{"t", "a"}, ""},
	} {
		words, used, err := Expand(c.line, env.Lookup)
		if err != nil {
			t.Errorf("%s: %v", c.line, err)
			continue
		}
		if diff := cmp.Diff(c.want, texts(words)); diff != "" || strings.Join(used, " ") != c.used {
			t.Errorf("%s uses %q (-want +got):\n%s", c.line, used, diff)
		}
	}
	words, _, err := Expand(`X=$S $A=2 t`, env.Lookup)
	if assigned, rest := Assignments(words); err != nil || assigned["X"] != "a b" || !slices.Equal(rest, []string{"1=2", "t"}) {
		t.Errorf("assignments: %v, %q, %v", assigned, rest, err)
	}
}

func TestExpandRefuses(t *testing.T) {
	env := Environ{"A": "1", "S": "a b"}
	for _, c := range []struct{ line, message, hint string }{
		{`t $NONE`, "$NONE is not set", "set it in job.env or in gpurun's environment, or write ${NONE:-value}"},
		{`X=1 t $X`, "$X is not set", "job.env"},
		{`t "${NONE}"`, "$NONE is not set", ""},
		{`t ${NONE:-$GONE}`, "$GONE is not set", ""},
		{`t $(date)`, "$( runs a command", `program = ["sh", "-c", "…"]`},
		{"t `date`", "` runs a command", ""},
		{`t $1`, "$ stands for more", "${NAME:-word}"},
		{`t $@ $?`, "$ stands for more", ""},
		{`t ${A%x}`, "$ stands for more", ""},
		{`t ${A:=x}`, "$ stands for more", ""},
		{`t ${#A}`, "$ stands for more", ""},
		{`t $((1+1))`, "$( runs a command", ""},
		{`t ${U:-$(date)}`, "$( runs", ""},
		{`t ${U:-*.py}`, "* stands for file names", ""},
		{`t ${U:-~/x}`, "~ stands", ""},
		{`t "${U:-'a'}"`, "a quote within a quoted ${…}", ""},
		{`t $A | tee x`, "| pipes", ""},
		{`t $A && x`, "&& joins", ""},
		{`t *.py $A`, "* stands", ""},
	} {
		words, _, err := Expand(c.line, env.Lookup)
		var u *ShellError
		if !errors.As(err, &u) || !strings.Contains(u.Message, c.message) || !strings.Contains(errext.Hint(err), c.hint) {
			t.Errorf("%s: %q, %v, hint %q; want %q and %q", c.line, texts(words), err, errext.Hint(err), c.message, c.hint)
		}
	}
}

// TestExpandAgreesWithShell compares with the shell itself, on lines of the pieces
// that matter.
func TestExpandAgreesWithShell(t *testing.T) {
	shell, err := exec.LookPath("sh")
	if err != nil {
		t.Skip("this machine has no sh")
	}
	env := Environ{"A": "1", "B": " b  c ", "E": "", "Q": `'x"y`, "S": "*\ta\nb"}
	piece := rapid.SampledFrom([]string{"a", " ", "'", `"`, `\`, "$A", "$B", "${B}", "$E", "$Q", "$S", "${E:-d e}", "${U:-", "}", "${A:-z}", "x", "="})
	rapid.Check(t, func(t *rapid.T) {
		line := strings.Join(rapid.SliceOfN(piece, 1, 10).Draw(t, "pieces"), "")
		words, _, err := Expand("x "+line, env.Lookup) // the first word is the command
		if err != nil {
			return
		}
		cmd := exec.Command(shell, "-c", "set -f; show() { for w; do printf '%s\\0' \"$w\"; done; }; show x "+line)
		cmd.Env = env.Words()
		out, err := cmd.Output()
		if err != nil {
			t.Fatalf("sh refuses %q: %v", line, err)
		}
		want := strings.Split(strings.TrimSuffix(string(out), "\x00"), "\x00")
		if diff := cmp.Diff(want, texts(words)); diff != "" {
			t.Fatalf("%q (-sh +Expand):\n%s", line, diff)
		}
	})
}
