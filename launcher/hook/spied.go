package hook

import (
	"context"
	"encoding/json"
	"io"
	"os/exec"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// spyBound is how long py-spy may take.
const spyBound = 5 * time.Second

// Spied runs py-spy to find where a process is; false where py-spy is missing, or not permitted.
func Spied(pid int) (strategy.Stack, bool) {
	ctx, cancel := context.WithTimeout(context.Background(), spyBound)
	defer cancel()
	spy := exec.CommandContext(ctx, "py-spy", "dump", "--json", "--pid", strconv.Itoa(pid))
	spy.WaitDelay = time.Second
	out, err := spy.StdoutPipe()
	if err != nil || spy.Start() != nil {
		return strategy.Stack{}, false
	}
	text, _ := io.ReadAll(io.LimitReader(out, largestStacks))
	if err := spy.Wait(); err != nil {
		return strategy.Stack{}, false
	}
	return parseSpied(text, pid)
}

// parseSpied reads the document of py-spy dump --json, of 0.3 and 0.4.
func parseSpied(text []byte, pid int) (strategy.Stack, bool) {
	var threads []struct {
		ID     int `json:"os_thread_id"`
		Frames []struct {
			Name     string `json:"name"`
			Filename string `json:"filename"`
			Line     int    `json:"line"`
		} `json:"frames"`
	}
	if json.Unmarshal(text, &threads) != nil {
		return strategy.Stack{}, false
	}
	for _, t := range threads {
		if t.ID != pid || len(t.Frames) == 0 { // the main thread has the process's number
			continue
		}
		s := strategy.Stack{PID: pid, Threads: len(threads)}
		for _, f := range t.Frames[:min(mostFrames, len(t.Frames))] {
			s.Frames = append(s.Frames, cause.StackFrame{File: short([]byte(f.Filename)), Line: f.Line,
				Function: short([]byte(f.Name))})
		}
		return s, true
	}
	return strategy.Stack{}, false
}
