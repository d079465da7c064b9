package main

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// trainers are jobs, with the most lines of gpurun's own that a run of each has, and what the last twenty lines have to show.
var trainers = map[string]struct {
	flags  []string
	script string
	lines  int
	shows  []string
}{
	"a rescue in place": {nil, `folder=$(dirname "$GPURUN_PROBE_FILE")
echo '{"pid": '$$', "in_place": [{"rung": "checkpointing", "phase": "forward", "step": 7, "times": 1, "last_step": 7, "requested_bytes": 402653184,
	"seconds": 0.35, "elements": 65536, "longest": 4096, "parts": 0, "at": 1732370000.5}]}' >$folder/process.new
mv $folder/process.new $folder/process.json
sleep 1
echo trained`, 6, []string{"rank 0: out of memory in forward at step 7 (tried to allocate 384 MiB); step repeated with activation checkpointing (0.35 s)", "trained in", "1 step repeated in place"}},
	"a relaunch": {nil, `if [ "$2" -gt 4 ]; then echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB" >&2; exit 1; fi
echo trained`, 9, []string{"attempt 0: CUDA out of memory", "micro batch 8→4, accumulation 1→2", "trained after 2 attempts", "hint: "}},
	"a failure of the job": {nil, `cat >&2 <<EOF
Traceback (most recent call last):
  File "train.py", line 3, in <module>
    main()
ValueError: no such thing
EOF
exit 1`, 12, []string{"Root Cause", "ValueError: no such thing", "next: 1.", "report: "}},
	"no plan left": {[]string{"--max-attempts", "1"}, `echo "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 8.00 GiB of which 1.00 GiB is free." >&2
exit 1`, 12, []string{"error: attempt 0: CUDA out of memory", "next: 1.", "report: "}},
	"an end without a reason": {nil, `kill -SEGV $$`, 12, []string{"Root Cause", "error: attempt 0: ", "report: "}},
}

// A run has few lines of gpurun's own, and the last twenty lines show what happened, what was changed and what to do.
func TestOutputBudget(t *testing.T) {
	testenv.Python(t)
	const file = `[job]
program = ["sh", "train.sh", "--bs", "8"]
[launch]
nproc_per_node = 1
[knobs]
micro_batch_size            = { arg = "--bs" }
gradient_accumulation_steps = { arg = "--accum", default = 1 }
`
	for name, job := range trainers {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			dir := t.TempDir()
			for name, text := range map[string]string{"train.toml": file, "train.sh": job.script} {
				if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o600); err != nil {
					t.Fatal(err)
				}
			}
			out, _ := gpurunIn(dir, append(job.flags, "train.toml")...).CombinedOutput() // several of them fail
			own := 0
			lines := strings.Split(strings.TrimSuffix(string(out), "\n"), "\n")
			for i, line := range lines {
				command := strings.HasPrefix(line, "    ") && i > 0 && strings.HasPrefix(lines[i-1], "gpurun: next: ")
				if strings.HasPrefix(line, "gpurun: ") || command {
					own++
				}
			}
			if own > job.lines || own < 4 {
				t.Errorf("%d lines of gpurun's own, want %d at most:\n%s", own, job.lines, out)
			}
			end := strings.Join(lines[max(0, len(lines)-20):], "\n")
			for _, want := range job.shows {
				if !strings.Contains(end, want) {
					t.Errorf("the last lines lack %q:\n%s", want, end)
				}
			}
			t.Logf("%d lines\n%s", own, out)
		})
	}
}
