package ranks

import (
	"strings"
	"testing"

	"pgregory.net/rapid"
)

func TestFinishedUnits(t *testing.T) {
	tests := []struct{ units, rest string }{
		{"", ""},
		{"", "text"},
		{"line\n", ""},
		{"line\nline\n", "text"},
		{"", "\r"},
		{"", "\r10%"},
		{"\r10%", "\r20%"},
		{"10%", "\r20%"},
		{"\r10%\r20%", "\r30%\r"},
		{"", "text\r"},
		{"line\r\n", "text\r"},
		{"line\n\r1%", "\r2%"},
	}
	for _, test := range tests {
		p := test.units + test.rest
		if n := finished([]byte(p)); p[:n] != test.units {
			t.Errorf("of %q the units %q are finished, want %q", p, p[:n], test.units)
		}
	}
}

func TestPrefixed(t *testing.T) {
	tests := []struct{ in, out string }{
		{"a\nb\n", "P a\nP b\n"},
		{"\n\n", "P \nP \n"},
		{"a\r\nb", "P a\r\nP b"},
		{"\r10%\r20%", "\rP 10%\rP 20%"},
		{"a\r\r\n", "P a\rP \r\n"},
	}
	for _, test := range tests {
		v := &view{prefix: "P ", start: true}
		if got := string(v.appendPrefixed(nil, []byte(test.in))); got != test.out {
			t.Errorf("%q is shown as %q, want %q", test.in, got, test.out)
		}
	}
}

// TestUnitsLoseNothing writes anything at all in any pieces: a rank that has the
// console to itself for a while sees all of its bytes there, whatever they are.
func TestUnitsLoseNothing(t *testing.T) {
	text := rapid.StringOfN(rapid.RuneFrom([]rune("ab\n\r")), 0, 40, -1)
	dir := t.TempDir()
	rapid.Check(t, func(rt *rapid.T) {
		screen := newScreen()
		o, err := OpenOutput(OutputOptions{Ranks: []int{0, 1}, Dir: dir, Stdout: screen})
		if err != nil {
			rt.Fatal(err)
		}
		out, _ := o.Files(0)
		want := ""
		for _, piece := range rapid.SliceOf(text).Draw(rt, "pieces") {
			writeOutput(t, out, piece)
			want += piece
		}
		wait(t, o)
		if got := screen.String(); got != want {
			rt.Fatalf("the console shows %q, want %q", got, want)
		}
	})
}

func TestALineWithoutEndTakesLittleMemory(t *testing.T) {
	var count counter
	o := open(t, 2, OutputOptions{Stdout: &count, MaxBytes: 1 << 20})
	out, _ := o.Files(0)
	chunk := strings.Repeat("0123456789abcdef", 64<<10)
	for range 8 {
		writeOutput(t, out, chunk)
	}
	v := o.ranks[0].streams[0].view
	wait(t, o)
	if got := cap(v.rest); got > 4*longestUnit {
		t.Errorf("%d bytes are held for an unfinished line", got)
	}
	if count.n+v.dropped < 8<<20 {
		t.Errorf("%d bytes reach the console", count.n)
	}
}

// counter is a console that only counts; one goroutine writes to it.
type counter struct{ n int64 }

func (c *counter) Write(p []byte) (int, error) {
	c.n += int64(len(p))
	return len(p), nil
}
