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
	_ "github.com/gpurun/gpurun/test/testenv"
)

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
