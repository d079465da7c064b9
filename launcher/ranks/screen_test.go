package ranks

import (
	"fmt"
	"io"
	"os"
	"path/filepath"
	"regexp"
	"strings"
	"sync"
	"sync/atomic"
	"syscall"
	"testing"
	"testing/synctest"
	"time"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/test/testenv"
)

// A tape keeps all that reaches a terminal.
type tape struct{ all strings.Builder }

func (t *tape) Write(p []byte) (int, error) { return t.all.Write(p) }

// still is a screen whose goroutine does nothing by itself: the test paints.
func still(to io.Writer) *Screen {
	s := openScreen(to, func() int { return 80 }, func() bool { return true })
	s.same = func(io.Writer) bool { return true }
	close(s.over)
	<-s.done
	s.waits, s.closed = false, false
	return s
}

// glass is what a terminal shows: lines, as far as a job's newlines, carriage returns and
// text make them. What else it obeys changes nothing here but for what a Screen writes.
type glass struct {
	lines []string
	at    int // in the last line
	title string
}

var sequence = regexp.MustCompile(`^(?:\x1b\[[0-?]*[ -/]*[@-~]|\x1b\]0;([^\a]*)\a)`)

func (g *glass) show(p string) {
	if g.lines == nil {
		g.lines = []string{""}
	}
	for p != "" {
		last := &g.lines[len(g.lines)-1]
		if m := sequence.FindStringSubmatch(p); m != nil {
			if m[0] == "\x1b[J" || m[0] == "\x1b[K" {
				*last = (*last)[:min(g.at, len(*last))]
			}
			if strings.HasPrefix(m[0], "\x1b]") {
				g.title = m[1]
			}
			p = p[len(m[0]):]
			continue
		}
		switch p[0] {
		case '\n':
			g.lines, g.at = append(g.lines, ""), 0
		case '\r':
			g.at = 0
		default:
			*last = fmt.Sprintf("%-*s", g.at, *last)
			*last = (*last)[:g.at] + p[:1] + (*last)[min(g.at+1, len(*last)):]
			g.at++
		}
		p = p[1:]
	}
}

func shown(text string) []string {
	g := &glass{}
	g.show(text)
	return g.lines
}

// Whatever a job writes in whatever pieces, its bytes pass as they are and in their order,
// the line is only below finished lines, and when it is gone the terminal shows what
// it would have shown without it.
func TestScreenChangesNoOutput(t *testing.T) {
	drawn := 0
	rapid.Check(t, func(t *rapid.T) {
		tape := &tape{}
		s := still(tape)
		job := s.On(tape)
		piece := rapid.OneOf(rapid.SampledFrom([]string{"\n", "\r", "\r\n", "step 1\n", "\x1b[31m", "\x1b[0m", "\x1b[K", "\x1b[2J", "\x1b]0;own\a", "█ ", "half", "\n\n"}),
			rapid.StringOf(rapid.SampledFrom([]rune("ab \n"))))
		wrote := ""
		text := strings.Join(rapid.SliceOf(piece).Draw(t, "text"), "")
		for i := 0; text != ""; i++ {
			cut := rapid.IntRange(1, min(len(text), 8)).Draw(t, "cut")
			p := text[:cut]
			text = text[cut:]
			wrote += p
			before := tape.all.Len()
			n, err := io.WriteString(job, p)
			if n != len(p) || err != nil {
				t.Fatalf("%q: %d, %v", p, n, err)
			}
			switch rapid.IntRange(0, 2).Draw(t, "meanwhile") {
			case 0:
				s.last = time.Time{} // a while passes
			case 1:
				s.Show(func(int) (string, string) { return fmt.Sprintf("line %d", i), fmt.Sprintf("title %d", i) })
				s.paint(time.Now().Add(time.Second))
			}
			if said := tape.all.String()[before:]; strings.Contains(said, "line") {
				drawn++
				if j := wrote; !endsFresh(j) {
					t.Fatalf("drawn behind %q", j)
				}
			}
		}
		s.clear()
		own := regexp.MustCompile(`line \d+\x1b\[0m\x1b\[J\r|\r\x1b\[J|(?:\x1b\[22;0t)?\x1b\]0;title \d+\a|\x1b\]0;\a\x1b\[23;0t`)
		if got := own.ReplaceAllString(tape.all.String(), ""); got != wrote {
			t.Fatalf("the terminal got %q without the screen's own, the job wrote %q", got, wrote)
		}
		if !s.cursor.draws && s.cursor.at == inText && fmt.Sprint(shown(tape.all.String())) != fmt.Sprint(shown(wrote)) {
			t.Fatalf("the terminal shows %q, want %q", shown(tape.all.String()), shown(wrote))
		}
	})
	if drawn == 0 {
		t.Error("the line was never drawn")
	}
}

// A full is a terminal that takes what the test lets it, and says then that it is full.
type full struct {
	tape
	room func(n int) int
}

func (f *full) Write(p []byte) (int, error) {
	n := f.room(len(p))
	f.all.Write(p[:n])
	if n < len(p) {
		return n, syscall.EAGAIN
	}
	return n, nil
}

var ownSequences = regexp.MustCompile(`line \d+\x1b\[0m\x1b\[J\r|\r\x1b\[J|(?:\x1b\[22;0t)?\x1b\]0;title \d+\a|\x1b\]0;\a\x1b\[23;0t`)

// A terminal that is full takes a part of what is written. The screen's own sequences stay
// whole nevertheless, and the job is told of its own bytes only.
func TestAFullTerminal(t *testing.T) {
	cuts := 0
	rapid.Check(t, func(t *rapid.T) {
		stuck := true
		terminal := &full{room: func(n int) int {
			if !stuck || rapid.Bool().Draw(t, "all") {
				return n
			}
			return rapid.IntRange(0, n).Draw(t, "room")
		}}
		s := still(terminal)
		job, wrote := s.On(terminal), ""
		text := strings.Join(rapid.SliceOf(rapid.SampledFrom([]string{"\n", "LINE 1\n", "\r 10%|█", "\x1b[31m", "\x1b[0m", "half"})).Draw(t, "text"), "")
		for i := 0; len(wrote) < len(text); i++ {
			stuck = i < 50
			p := text[len(wrote):min(len(text), len(wrote)+rapid.IntRange(1, 8).Draw(t, "piece"))]
			n, err := io.WriteString(job, p)
			if n < 0 || n > len(p) || n < len(p) && err == nil || n == len(p) && n > 0 && err != nil {
				t.Fatalf("%q: %d, %v", p, n, err)
			}
			if wrote += p[:n]; s.owed != "" {
				cuts++
			}
			s.last = time.Time{}
			if rapid.Bool().Draw(t, "paint") {
				s.Show(func(int) (string, string) { return fmt.Sprintf("line %d", i), fmt.Sprintf("title %d", i) })
				s.paint(time.Now().Add(time.Second))
			}
		}
		stuck = false
		s.clear()
		if got := ownSequences.ReplaceAllString(terminal.all.String(), ""); got != wrote {
			t.Fatalf("the terminal got %q: %q without the screen's own, the job wrote %q", terminal.all.String(), got, wrote)
		}
		if s.owed != "" || s.drawn || s.titled != "" && s.cursor.whole() {
			t.Fatalf("left behind: %q, %v, %q", s.owed, s.drawn, s.titled)
		}
	})
	if cuts == 0 {
		t.Error("no sequence was ever cut")
	}
}

// What a full terminal left of an erased line, and of a line drawn again, comes first.
func TestUnsentEvents(t *testing.T) {
	synctest.Test(t, func(t *testing.T) { // no while passes but those that are made to
		room := 1 << 20
		terminal := &full{room: func(n int) int { return min(n, room) }}
		s := still(terminal)
		job := s.On(terminal)
		s.Show(func(int) (string, string) { return "line", "" })
		room = 2
		s.paint(time.Now()) // "li"
		room = 12
		n, err := io.WriteString(job, "LINE 1\n") // all that is owed, and "\r"
		if n != 0 || err != syscall.EAGAIN {
			t.Errorf("took %d, %v", n, err)
		}
		room = 8
		if n, err = io.WriteString(job, "LINE 1\n"); n != 6 || err != syscall.EAGAIN {
			t.Errorf("took %d, %v", n, err)
		}
		s.last, room = time.Time{}, 3
		if n, err = io.WriteString(job, "\n"); n != 1 || err != nil { // and "li"
			t.Errorf("took %d, %v", n, err)
		}
		room = 1 << 20
		if n, err = io.WriteString(job, "LINE 2\n"); n != 7 || err != nil {
			t.Errorf("took %d, %v", n, err)
		}
		const line = "line\x1b[0m\x1b[J\r"
		if got, want := terminal.all.String(), line+"\r\x1b[J"+"LINE 1\n"+line+"\r\x1b[J"+"LINE 2\n"; got != want {
			t.Errorf("the terminal got %q\nwant %q", got, want)
		}
	})
}

// endsFresh reports whether all behind the last newline is no text.
func endsFresh(job string) bool {
	rest := job[strings.LastIndexByte(job, '\n')+1:]
	for {
		m := sequence.FindString(rest)
		if m == "" {
			return rest == ""
		}
		rest = rest[len(m):]
	}
}

func TestCursor(t *testing.T) {
	for _, test := range []struct {
		text                string
		fresh, draws, whole bool
	}{
		{"", true, false, true},
		{"a\n", true, false, true},
		{"a", false, false, true},
		{"a\r\n", true, false, true},
		{"a\r\r\n", true, false, true},
		{"a\r", false, false, true},
		{"a\rb", false, true, true},
		{"a\rb\n", true, true, true},
		{"\r 10%|█ ", false, true, true},
		{"\x1b[32mok\x1b[0m\n", true, false, true},
		{"\x1b[32mok\x1b[39m\n", true, false, true},
		{"\x1b[32mok\n", false, false, true},
		{"\x1b[1;31m\n\x1b[m", true, false, true},
		{"a\n\x1b[", false, false, false},
		{"a\n\x1b]0;title\n", false, false, false},
		{"a\n\x1b]0;title\a", true, false, true},
		{"a\n\x1b]0;title\x1b\\", true, false, true},
		{"a\n\xe2\x96", false, false, false},
		{"a\n\xe2\x96\x88", false, false, true},
		{"\x1b[A", true, true, true},
		{"\x1b[2K", true, false, true},
		{"\x1b[?25l", true, true, true},
		{"\x1b[?1049h", true, true, true},
		{"\x1b[?2004h", true, false, true},
		{"\x1b7", true, true, true},
		{"a\bb\n", true, true, true},
		{"\x1b(B\n", true, false, true},
	} {
		for cut := range len(test.text) + 1 { // in two pieces, wherever
			var c cursor
			c.follow([]byte(test.text[:cut]))
			c.follow([]byte(test.text[cut:]))
			if c.fresh() != test.fresh || c.draws != test.draws || c.whole() != test.whole {
				t.Errorf("%q, cut at %d: fresh %v, draws %v, whole %v", test.text, cut, c.fresh(), c.draws, c.whole())
			}
		}
	}
}

// A job that draws by itself has the words in the title, until it is over.
func TestTheTitle(t *testing.T) {
	tape := &tape{}
	s := still(tape)
	words := func(int) (string, string) { return "line", "title" }
	s.Show(words)
	s.paint(time.Now())
	io.WriteString(s.On(tape), "\r 10%|█")
	s.paint(time.Now().Add(time.Second))
	s.paint(time.Now().Add(2 * time.Second))
	io.WriteString(s.On(tape), "\r100%|█\ndone\n")
	s.paint(time.Now().Add(3 * time.Second))
	s.Begin() // the next attempt
	s.paint(time.Now().Add(4 * time.Second))
	s.clear()
	line := "line\x1b[0m\x1b[J\r"
	want := line + "\r\x1b[J" + "\r 10%|█" + "\x1b[22;0t\x1b]0;title\a" + "\r100%|█\ndone\n" + "\x1b]0;\a\x1b[23;0t" + line + "\r\x1b[J"
	if got := tape.all.String(); got != want {
		t.Errorf("the terminal got %q\nwant %q", got, want)
	}
}

// The line comes once the terminal is left alone, goes for a pause, and does not come in
// the background.
func TestTheLineComesAndGoes(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		tape := &tape{}
		var behind atomic.Bool
		s := openScreen(tape, func() int { return 80 }, func() bool { return !behind.Load() })
		defer s.Close()
		s.same = func(io.Writer) bool { return true }
		job := s.On(tape)
		expect := func(what, want string) {
			t.Helper()
			synctest.Wait()
			s.turn.Lock()
			defer s.turn.Unlock()
			if got := tape.all.String(); got != want {
				t.Fatalf("%s: %q, want %q", what, got, want)
			}
			tape.all.Reset()
		}
		const line = "line\x1b[0m\x1b[J\r"
		s.Show(func(int) (string, string) { return "line", "" })
		expect("at once", line)
		for range 3 {
			io.WriteString(job, "a\n")
			time.Sleep(screenIdle - time.Millisecond)
		}
		expect("a job that writes", "\r\x1b[Ja\n"+line+"\r\x1b[Ja\na\n")
		time.Sleep(screenBusy)
		expect("idle", line)
		s.Pause()
		expect("paused", "\r\x1b[J")
		io.WriteString(job, "b\n")
		time.Sleep(time.Second)
		expect("paused", "b\n")
		s.Resume()
		expect("resumed", line)
		time.Sleep(time.Second)
		io.WriteString(job, "half")
		time.Sleep(time.Second)
		expect("an unfinished line", "\r\x1b[Jhalf")
		io.WriteString(job, " and half\n")
		expect("a finished one", " and half\n"+line)
		io.WriteString(job, "c\n")
		expect("a fast job", "\r\x1b[Jc\n")
		behind.Store(true)
		time.Sleep(time.Second)
		expect("in the background", "")
	})
}

// A terminal that is stopped holds up its writers, as any, and no other.
func TestAScreenThatDoesNotMove(t *testing.T) {
	synctest.Test(t, func(t *testing.T) {
		r, w := io.Pipe() // nobody reads
		s := openScreen(w, func() int { return 80 }, func() bool { return true })
		s.Show(func(int) (string, string) { return "line", "" })
		synctest.Wait()
		began := time.Now()
		s.Show(nil)
		s.Pause()
		s.Resume()
		s.Close()
		if took := time.Since(began); took > 2*screenPatience {
			t.Errorf("took %s", took)
		}
		r.Close()
		<-s.done
	})
}

// Through a screen, ranks' bytes reach the console and the log as without.
func TestOutputThroughAScreen(t *testing.T) {
	tape := &lineTape{drawn: make(chan struct{})}
	s := openScreen(tape, func() int { return 80 }, func() bool { return true })
	console := tape
	s.same = func(w io.Writer) bool { return w == io.Writer(console) }
	s.Show(func(int) (string, string) { return "line", "title" })
	<-tape.drawn
	o := open(t, 1, OutputOptions{Stdout: console, Stderr: console, Screen: s})
	stdout, _ := o.Files(0)
	text := strings.Repeat("step 1\n\r 10%|█\n", 100)
	writeOutput(t, stdout, text)
	wait(t, o)
	s.Close()
	own := regexp.MustCompile(`line\x1b\[0m\x1b\[J\r|\r\x1b\[J|(?:\x1b\[22;0t)?\x1b\]0;title\a|\x1b\]0;\a\x1b\[23;0t`)
	if got := own.ReplaceAllString(tape.all.String(), ""); got != text || logOf(t, o, 0, "stdout") != text {
		t.Errorf("the job's bytes became %q", got)
	}
}

// A lineTape reports when the line is on it.
type lineTape struct {
	tape
	drawn chan struct{}
	once  sync.Once
}

func (t *lineTape) Write(p []byte) (int, error) {
	if strings.Contains(string(p), "line") {
		t.once.Do(func() { close(t.drawn) })
	}
	return t.tape.Write(p)
}

// Where the line would be in the way, or invisible, there is none.
func TestWhereThereIsAScreen(t *testing.T) {
	master, tty, err := openPTY(nil)
	if err != nil {
		t.Skipf("no pseudo-terminals here: %v", err)
	}
	defer master.Close()
	defer tty.Close()
	reader, pipe, err := os.Pipe()
	testenv.Check(t, err)
	defer reader.Close()
	defer pipe.Close()
	file, err := os.Create(filepath.Join(t.TempDir(), "file"))
	testenv.Check(t, err)
	defer file.Close()
	for _, test := range []struct {
		name           string
		stdout, stderr *os.File
		term           string
		want           bool
	}{
		{"a terminal", tty, tty, "xterm", true},
		{"stdout in a file", file, tty, "xterm", true},
		{"stdout in a pipe", pipe, tty, "xterm", false},
		{"stderr in a file", tty, file, "xterm", false},
		{"both in a pipe", pipe, pipe, "xterm", false},
		{"a terminal that obeys nothing", tty, tty, "dumb", false},
		{"a terminal that nobody knows", tty, tty, "", false},
	} {
		t.Setenv("TERM", test.term)
		s := NewScreen(test.stdout, test.stderr)
		if (s != nil) != test.want {
			t.Errorf("%s: a screen: %v", test.name, s != nil)
		}
		if _, through := s.On(test.stderr).(*onScreen); through != test.want {
			t.Errorf("%s: stderr goes through it: %v", test.name, through)
		}
		if s.On(pipe) != io.Writer(pipe) {
			t.Errorf("%s: a pipe goes through it", test.name)
		}
		s.Close()
	}
}
