package output

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"
)

func TestATailIsTheEnd(t *testing.T) {
	chunk := []byte(strings.Repeat("0123456789", 3*tailSize/10))
	rapid.Check(t, func(t *rapid.T) {
		var tail tail
		var all []byte
		for _, n := range rapid.SliceOf(rapid.IntRange(0, len(chunk))).Draw(t, "chunks") {
			tail.add(chunk[:n])
			all = append(all, chunk[:n]...)
		}
		if got, want := string(tail.buf), string(all); !strings.HasSuffix(want, got) || len(got) < min(len(want), tailSize) || len(got) > 2*tailSize {
			t.Fatalf("%d bytes are kept of %d", len(got), len(want))
		}
		if tail.cut != (len(tail.buf) < len(all)) {
			t.Fatalf("cut is %v for %d of %d bytes", tail.cut, len(tail.buf), len(all))
		}
	})
}

func TestTailIsReadable(t *testing.T) {
	o := open(t, 1, Options{})
	stdout, stderr := o.Files(0)
	write(t, stdout, "on stdout\n")
	write(t, stderr, "\n")
	wait(t, o)
	if diff := cmp.Diff([]string{"on stdout"}, o.Tail(0, 10)); diff != "" {
		t.Errorf("while nothing is on stderr: %s", diff)
	}

	o = open(t, 1, Options{})
	stdout, stderr = o.Files(0)
	write(t, stdout, "on stdout\n")
	write(t, stderr, "one\n\r 10%|#\r 20%|##\r\n\x1b[31mred\x1b[0m\x00 \xff\xfe\t.\n\x1b]0;title\x07end\r\n\n")
	wait(t, o)
	if diff := cmp.Diff([]string{" 20%|##", "red \uFFFD\t.", "end"}, o.Tail(0, 4)[1:]); diff != "" {
		t.Error(diff)
	}
	if got := o.Tail(0, 1); len(got) != 1 || got[0] != "end" {
		t.Errorf("the last line is %q", got)
	}
	if got := o.Tail(1, 10); got != nil {
		t.Errorf("a rank of another node has the tail %q", got)
	}
}

func TestTailOfALongStreamStartsWithALine(t *testing.T) {
	o := open(t, 1, Options{})
	out, _ := o.Files(0)
	flood(t, out, 200)
	wait(t, o)
	lines := o.Tail(0, 1000)
	if len(lines) < tailSize>>10-1 {
		t.Errorf("%d lines are kept", len(lines))
	}
	for _, line := range lines {
		if line != strings.Repeat("x", 1023) {
			t.Errorf("line %q", line)
		}
	}
}

func TestLastTraceback(t *testing.T) {
	o := open(t, 4, Options{})
	_, stderr := o.Files(0)
	write(t, stderr, tracebackIs+"\n  File \"a.py\", line 1\nKeyError: 1\n\nThe above exception was the direct cause:\n\n"+
		tracebackIs+"\n  File \"b.py\", line 2\n    f()\nValueError: 2\nbye\n")
	_, stderr = o.Files(1)
	write(t, stderr, "[rank1]: "+tracebackIs+"\n[rank1]:   File \"c.py\", line 3\n[rank1]: KeyError: 3\n[rank1]: bye\n")
	stdout, _ := o.Files(2)
	write(t, stdout, tracebackIs+"\n  File \"d.py\", line 4\nKeyError: 4\n")
	wait(t, o)
	for rank, want := range [][]string{
		{`  File "b.py", line 2`, "    f()", "ValueError: 2"},
		{`  File "c.py", line 3`, "KeyError: 3"},
		{`  File "d.py", line 4`, "KeyError: 4"},
		nil,
		nil, // of another node
	} {
		got := o.LastTraceback(rank)
		if diff := cmp.Diff(want, got[max(0, len(got)-len(want)):]); want != nil && diff != "" || want == nil && got != nil {
			t.Errorf("rank %d: %q, want %q", rank, got, want)
		}
	}
}

// An exception that no cause is known for still has its traceback in the tail.
func TestATracebackInATail(t *testing.T) {
	lines := []string{"before", "[rank1]: " + tracebackIs, "[rank1]:   File", "[rank1]: KeyError: 3", "after"}
	if diff := cmp.Diff([]string{tracebackIs, "  File", "KeyError: 3"}, traceback(lines)); diff != "" {
		t.Error(diff)
	}
	long := append([]string{tracebackIs}, strings.Split(strings.Repeat("  frame,", 100)+"KeyError: 4", ",")...)
	if got := traceback(long); len(got) != mostFrames || got[mostFrames-1] != "KeyError: 4" {
		t.Errorf("of a long traceback: %q", got)
	}
	if got := traceback([]string{"KeyError: 5"}); got != nil {
		t.Errorf("without a traceback: %q", got)
	}
}
