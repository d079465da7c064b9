package testenv

import (
	"bufio"
	"fmt"
	"io"
	"os/exec"
	"strings"
	"sync"
	"testing"
)

// answering runs a program, and then its function answer for each line of input. If the request has "count",
// it prints the number of Python lines that were executed.
const answering = `
import gc, json, sys
names = {"__name__": "reader"}
exec(compile(sys.stdin.buffer.read(int(sys.stdin.buffer.readline())), "program", "exec"), names)
count = 0
def trace(frame, event, arg):
    global count
    count += 1
    return trace
sys.setrecursionlimit(5000)
for line in sys.stdin.buffer:
    given, count = json.loads(line), 0
    sys.settrace(trace if given.get("count") else None)
    said = names["answer"](given)
    sys.settrace(None)
    print(count if given.get("count") else said, flush=True)
    gc.collect()
`

// answers is one interpreter for all tests of a package, since starting one takes longer than most answers.
// It ends when the tests end and close its input.
type answers struct {
	mu   sync.Mutex
	in   io.WriteCloser
	out  *bufio.Reader
	errs strings.Builder
}

var (
	startAnswers sync.Once
	running      *answers
)

// Answer returns the line that the function answer of a Python program returns for a request in JSON. All
// tests of a package must name the same program. Without a Python the test is skipped.
func Answer(t testing.TB, program string, request []byte) []byte {
	t.Helper()
	path := Python(t)
	startAnswers.Do(func() {
		a := &answers{}
		cmd := exec.Command(path, "-I", "-S", "-c", answering)
		cmd.Stderr = &a.errs
		in, err := cmd.StdinPipe()
		if err != nil {
			t.Fatal(err)
		}
		out, err := cmd.StdoutPipe()
		if err != nil {
			t.Fatal(err)
		}
		if err := cmd.Start(); err != nil {
			t.Fatal(err)
		}
		a.in, a.out, running = in, bufio.NewReader(out), a
		if _, err := fmt.Fprintf(a.in, "%d\n%s", len(program), program); err != nil {
			t.Fatal(err)
		}
	})
	if running == nil {
		t.Fatal("the interpreter did not start")
	}
	running.mu.Lock()
	defer running.mu.Unlock()
	if _, err := running.in.Write(append(request, '\n')); err != nil {
		t.Fatal(err)
	}
	line, err := running.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, running.errs.String())
	}
	return line
}
