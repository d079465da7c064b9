package hook

import (
	"cmp"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// How a Python program below a shell ends is known by its exit code: from the kernel, or for
// an older one from the hook's note.
func TestShellHidesNoExitCode(t *testing.T) {
	for _, c := range []struct {
		code string
		want int
		line string // that starts Python; empty: with the code
	}{
		{"pass", 0, ""},
		{"1/0", 1, ""},
		{"import sys; sys.exit(3)", 3, ""},
		{"import sys; sys.exit('no data')", 1, ""},
		{"import os; os._exit(4)", 4, ""},
		{"raise KeyboardInterrupt", 130, ""},
		{"import os\nif os.fork() == 0: os._exit(5)\nos.wait()", 0, ""},
		{"import pickle, sys, os; pickle.dumps([sys.exit, os._exit])", 0, ""},
		{"import sys; sys.argv[0] = 'nosuch.py'", 0, ""},
		{"", 2, "nosuch.py"},
		{"", 1, "-m nosuch"},
	} {
		r := newTrial(t)
		cmd := r.job(t, "sh", "-c", testenv.Python(t)+" "+cmp.Or(c.line, `-c "$0"`)+"; true", c.code)
		var mu sync.Mutex
		var ends []*strategy.ProcessEnd
		p, err := openPrograms(r.dir, 0, true, func(f strategy.Fact) {
			mu.Lock()
			defer mu.Unlock()
			ends = append(ends, strategy.As[*strategy.ProcessEnd](f))
		})
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		p.Follow(cmd.Process.Pid)
		if err := cmd.Wait(); err != nil {
			t.Errorf("%s%s: %v", c.code, c.line, err)
		}
		p.Stop()
		if len(p.codes) != 1 {
			t.Errorf("%s%s: noted %v", c.code, c.line, p.codes)
		}
		for pid, code := range p.codes {
			if code != c.want {
				t.Errorf("%s%s: noted %d, want %d", c.code, c.line, code, c.want)
			}
			for _, end := range ends {
				if end.PID == pid && (end.Exit == nil || end.Exit.Code != c.want) {
					t.Errorf("%s%s: ended %+v, want %d", c.code, c.line, end.Exit, c.want)
				}
			}
		}
		if len(ends) == 0 && c.want != 0 {
			t.Errorf("%s%s: its failure was not seen", c.code, c.line)
		}
	}
}

// A program that is over before it could be followed has the name that its hook noted, so that another program after it
// is not taken for its repeat.
func TestProgramThatIsOverHasItsName(t *testing.T) {
	r := newTrial(t)
	cmd := r.job(t, testenv.Python(t), "-m", "nosuch")
	var ends []*strategy.ProcessEnd
	p, err := openPrograms(r.dir, 0, true, func(f strategy.Fact) { ends = append(ends, strategy.As[*strategy.ProcessEnd](f)) })
	if err != nil {
		t.Fatal(err)
	}
	if out, err := cmd.CombinedOutput(); err == nil {
		t.Fatalf("it ended well: %s", out)
	}
	p.Look() // it is over
	p.Stop()
	if len(ends) != 1 || ends[0].Runs != "nosuch" || ends[0].Exit == nil || ends[0].Exit.Code != 1 {
		t.Errorf("ends %+v", ends)
	}
}
