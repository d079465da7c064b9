package script

import (
	"bufio"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"os/exec"
	"strings"
	"sync"
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
)

// answers runs Program once and answers one request a line. Where a request has "count", the
// answer is how many lines of Python it takes to read its sources.
const answers = `
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
    if given.get("count"):
        assert json.loads(said)["failed"] == [], said
        said = str(count)
    print(said, flush=True)
    gc.collect()
`

// A reader is one interpreter that reads the sources of all tests: to start one for each
// takes longer than to read.
type reader struct {
	mu   sync.Mutex
	in   io.WriteCloser
	out  *bufio.Reader
	errs strings.Builder
}

var python = sync.OnceValues(func() (*reader, error) {
	path := os.Getenv("GPURUN_TEST_PYTHON")
	if path == "" {
		path = "python3"
	}
	r := &reader{}
	cmd := exec.Command(path, "-I", "-S", "-c", answers) // it ends with the tests, which close its input
	cmd.Stderr = &r.errs
	var err error
	if r.in, err = cmd.StdinPipe(); err != nil {
		return nil, err
	}
	out, err := cmd.StdoutPipe()
	if err != nil {
		return nil, err
	}
	r.out = bufio.NewReader(out)
	if err = cmd.Start(); err != nil {
		return nil, err
	}
	_, err = fmt.Fprintf(r.in, "%d\n%s", len(Program), Program)
	return r, err
})

// read is what the interpreter prints for some sources, the script first.
func read(t *testing.T, count bool, sources ...format.Source) []byte {
	t.Helper()
	r, err := python()
	if err != nil {
		t.Skipf("this machine has no Python: %v", err)
	}
	input, err := Input(sources, 600)
	if err != nil {
		t.Fatal(err)
	}
	if count {
		var given map[string]any
		if err := json.Unmarshal(input, &given); err != nil {
			t.Fatal(err)
		}
		given["count"] = true
		if input, err = json.Marshal(given); err != nil {
			t.Fatal(err)
		}
	}
	r.mu.Lock()
	defer r.mu.Unlock()
	if _, err = r.in.Write(append(input, '\n')); err != nil {
		t.Fatal(err)
	}
	line, err := r.out.ReadBytes('\n')
	if err != nil {
		t.Fatalf("%v\n%s", err, r.errs.String())
	}
	return line
}
