package hook

import (
	"bytes"
	"fmt"
	"math/rand/v2"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
	"github.com/gpurun/gpurun/test/testenv"
)

// The words of errors that did not happen, as a model or a dataset may write them.
var quotations = map[string]string{
	"CUDA":     "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.94 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved by PyTorch but unallocated.",
	"CUDA 1.x": "RuntimeError: CUDA out of memory. Tried to allocate 20.00 MiB (GPU 0; 15.90 GiB total capacity; 14.80 GiB already allocated; 2.81 MiB free; 15.00 GiB reserved in total by PyTorch)",
	"CPU":      "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096000000 bytes. Error code 12 (Cannot allocate memory)",
	"host":     "numpy._core._exceptions._ArrayMemoryError: Unable to allocate 14.9 GiB for an array with shape (2000000000,) and data type float64",
	"Slurm":    "slurmstepd: error: Detected 1 oom_kill event in StepId=11.0. Some of the step tasks have been OOM Killed.",
	"kernel":   "[ 12.3] Memory cgroup out of memory: Killed process 4242 (python) total-vm:103421132kB, anon-rss:98230412kB",
}

// asTraceback is a quotation as the end of a traceback.
func asTraceback(words string) string {
	return "Traceback (most recent call last):\n  File \"train.py\", line 90, in <module>\n    main()\n  File \"train.py\", line 61, in main\n    loss.backward()\n" +
		"  File \"/v/lib/python3.11/site-packages/torch/_tensor.py\", line 521, in backward\n    torch.autograd.backward(\n" + words
}

// ways are how a script comes to write a text. In TEXT is what it writes.
var ways = map[string]string{
	"sample":  "print('generated:'); print(TEXT)",
	"row":     "sys.stderr.write('row 17: ' + repr({'text': TEXT})[:40] + '\\n' + TEXT + '\\n')",
	"message": "try:\n    raise ValueError('bad row: ' + TEXT)\nexcept ValueError as e:\n    print('skipped:', e, file=sys.stderr)",
	"logging": "import logging; logging.error('%s', TEXT)",
}

// deaths are how a script ends, and what that means. Some quote the text once more.
var deaths = map[string]struct {
	script string
	cause  cause.Code
}{
	"KeyError":             {"{}['loss']", cause.UserError},
	"KeyError, quoted":     {"raise KeyError(TEXT)", cause.UserError},
	"ValueError, quoted":   {"raise ValueError('bad row:\\n' + TEXT)", cause.UserError},
	"RuntimeError, quoted": {"raise RuntimeError('row 17 holds: ' + TEXT)", cause.UserError},
	"segfault":             {"sys.stdout.flush(); import signal; os.kill(os.getpid(), signal.SIGSEGV)", cause.Segfault},
	"exit 3":               {"sys.exit(3)", cause.Unknown},
	"abort":                {"sys.stdout.flush(); os.abort()", cause.Unknown},
	"killed":               {"sys.stdout.flush(); os.kill(os.getpid(), 9)", cause.Unknown},
	"device assert":        {"raise RuntimeError('CUDA error: device-side assert triggered\\nCUDA kernel errors might be asynchronously reported at some other API call')", cause.DeviceAssert},
}

// memoryEnds are the ends by which memory really can have run out, where a kernel says so.
func agrees(quoted, death string) bool {
	return death == "killed" && (quoted == "Slurm" || quoted == "kernel")
}

// diagnosed runs a script as the one rank of an attempt, and gives what is to be made of
// what it wrote, told and ended with.
func diagnosed(t *testing.T, r *trial, script string) (strategy.Diagnosis, string) {
	t.Helper()
	cmd := r.command(t, script)
	var out, err bytes.Buffer
	cmd.Stdout, cmd.Stderr = &out, &err
	if e := cmd.Run(); e != nil {
		if _, ended := e.(*exec.ExitError); !ended {
			t.Fatal(e)
		}
	}
	evidence := strategy.Evidence{Ranks: 1}
	for source, text := range map[string][]byte{"stdout": out.Bytes(), "stderr": err.Bytes()} {
		scanner := cause.NewScanner(source)
		scanner.OnFinding = func(s cause.Finding) {
			evidence.Add(strategy.Fact{Time: time.Now(), Rank: 0, Source: source, Content: (*strategy.Finding)(&s)})
		}
		scanner.Write(text) // a Scanner's Write never fails
		scanner.Close()
	}
	if fact, ok := read(filepath.Join(r.dir, "rank0", probeFile), probeFile, 0); ok {
		evidence.Add(fact)
	}
	exit := &strategy.Exit{Code: cmd.ProcessState.ExitCode()}
	if status := cmd.ProcessState.Sys().(syscall.WaitStatus); status.Signaled() {
		exit.Signal = int(status.Signal())
		exit.Code = 128 + exit.Signal
	}
	evidence.Add(strategy.Fact{Time: time.Now(), Rank: 0, Source: "exit", Content: exit})
	return strategy.Diagnose(evidence), fmt.Sprintf("stdout:\n%s\nstderr:\n%s\nended with %d", out.String(), err.String(), exit.Code)
}

// hostile is a script that writes a text in some ways, and then dies.
func hostile(text string, say []string, death string) string {
	var b strings.Builder
	fmt.Fprintf(&b, "import os, sys\nTEXT = %s\n", pythonString(text))
	for _, way := range say {
		b.WriteString(way + "\n")
	}
	fmt.Fprintf(&b, "def main():\n    %s\nmain()\n", death)
	return b.String()
}

func pythonString(s string) string {
	return strings.NewReplacer(`\x00`, "").Replace(strconv.QuoteToASCII(s))
}

// TestTextIsNoFailure: a script that prints the words of an out-of-memory error, in any
// way, and then dies of something else, died of that.
func TestTextIsNoFailure(t *testing.T) {
	for quoted, words := range quotations {
		for form, text := range map[string]string{"line": words, "traceback": asTraceback(words)} {
			for way, say := range ways {
				for name, death := range deaths {
					if agrees(quoted, name) {
						continue
					}
					all := os.Getenv("GPURUN_HOSTILE") != "" // as make stress has it
					if !all && quoted != "CUDA" && way != "sample" {
						continue
					}
					for _, bare := range []bool{false, true} {
						if even := len(quoted+form+way+name)%2 == 0; !all && bare != even {
							continue // each combination with the probe or without
						}
						t.Run(fmt.Sprintf("%s/%s/%s/%s/bare=%v", quoted, form, way, name, bare), func(t *testing.T) {
							t.Parallel()
							r := newTrial(t)
							r.bare = bare
							if d, output := diagnosed(t, r, hostile(text, []string{say}, death.script)); d.Cause != death.cause {
								t.Errorf("%s, %q; want %s\n%s", d.Cause, d.Error, death.cause, output)
							}
						})
					}
				}
			}
		}
	}
}

// raises is what PyTorch's allocator does, without one.
const raises = `
class OutOfMemoryError(RuntimeError): pass
OutOfMemoryError.__module__ = "torch"
def allocate():
    raise OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free.")
`

// genuine are scripts that run out of memory, and say so or not.
var genuine = map[string]struct {
	script string
	cause  cause.Code
	told   bool // only the process itself can tell
}{
	"raised":                    {script: "allocate()"},
	"host":                      {script: "bytearray(1 << 62)", cause: cause.HostOOM},
	"CPU allocator":             {script: "raise RuntimeError(\"[enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096000000 bytes. Error code 12 (Cannot allocate memory)\")", cause: cause.HostOOM},
	"raised again":              {script: "try:\n    allocate()\nexcept RuntimeError:\n    print('out of memory at step 7')\n    raise"},
	"raised again, named":       {script: "try:\n    allocate()\nexcept RuntimeError as e:\n    raise e"},
	"chained":                   {script: "try:\n    allocate()\nexcept RuntimeError as e:\n    raise ValueError('the step failed') from e"},
	"chained twice":             {script: "try:\n    try:\n        allocate()\n    except RuntimeError as e:\n        raise KeyError('step') from e\nexcept KeyError as e:\n    raise RuntimeError('training failed') from e"},
	"the handler's answer":      {script: "try:\n    allocate()\nexcept RuntimeError:\n    raise RuntimeError('training failed')"},
	"the handler's words":       {script: "try:\n    allocate()\nexcept RuntimeError as e:\n    raise ValueError(f'step 7: {e}')"},
	"printed, and exit 1":       {script: "import traceback\ntry:\n    allocate()\nexcept RuntimeError:\n    traceback.print_exc()\n    sys.exit(1)"},
	"in a thread":               {script: "import threading\nt = threading.Thread(target=allocate)\nt.start(); t.join()\nsys.exit(1)"},
	"in a pool of threads":      {script: "from concurrent.futures import ThreadPoolExecutor\nwith ThreadPoolExecutor(1) as pool:\n    pool.submit(allocate).result()"},
	"in a loader's worker":      {script: "raise RuntimeError('Caught OutOfMemoryError in DataLoader worker process 0.\\nOriginal Traceback (most recent call last):\\n  File \"/v/torch/utils/data/_utils/worker.py\", line 308, in _worker_loop\\n    data = fetcher.fetch(index)\\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\\n')"},
	"output at exit":            {script: "import atexit\natexit.register(lambda: print('wandb: Run history:\\nwandb:  loss 0.1\\nwandb: Synced 5 files', file=sys.stderr))\nallocate()"},
	"a writer at exit fails":    {script: "import atexit\natexit.register(lambda: sys.stderr.write('Traceback (most recent call last):\\n  File \"train.py\", line 1, in <module>\\n  File \"/v/site-packages/wandb/sdk/wandb_run.py\", line 9, in _atexit_cleanup\\nValueError: I/O operation on closed file.\\n'))\nallocate()"},
	"a worker fails after it":   {script: "import atexit\natexit.register(lambda: sys.stderr.write('Traceback (most recent call last):\\n  File \"<string>\", line 1, in <module>\\n  File \"/usr/lib/python3.11/multiprocessing/spawn.py\", line 122, in spawn_main\\nEOFError: Ran out of input\\n'))\nallocate()"},
	"after another one's words": {script: "print('KeyError: 1')\nallocate()"},
	"thrown":                    {script: "sys.stderr.write(\"terminate called after throwing an instance of 'c10::OutOfMemoryError'\\n  what():  CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free.\\n\")\nsys.stderr.flush()\nos.abort()"},
	"a watchdog aborts":         {script: "import traceback\ntry:\n    allocate()\nexcept RuntimeError:\n    traceback.print_exc()\nsys.stderr.write('[rank0]:[E810 03:04:11.0 ProcessGroupNCCL.cpp:683] [Rank 0] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78, OpType=BROADCAST, Timeout(ms)=600000) ran for 600096 milliseconds before timing out.\\n')\nsys.stderr.flush()\nos.abort()"},
	"a crash after the end":     {script: "import atexit, signal\natexit.register(lambda: os.kill(os.getpid(), signal.SIGSEGV))\nallocate()", told: true},
	"killed by the kernel":      {script: "print('[ 12.3] Memory cgroup out of memory: Killed process 4242 (python) total-vm:103421132kB, anon-rss:98230412kB', flush=True)\nos.kill(os.getpid(), 9)", cause: cause.HostOOM},
}

// TestGenuineIsStillSeen: a job that really ran out of memory is reported so.
func TestGenuineIsStillSeen(t *testing.T) {
	for name, g := range genuine {
		for _, bare := range []bool{false, true} {
			if bare && g.told {
				continue
			}
			t.Run(fmt.Sprintf("%s/bare=%v", name, bare), func(t *testing.T) {
				t.Parallel()
				r := newTrial(t)
				r.bare = bare
				want := g.cause
				if want == "" {
					want = cause.CUDAOOM
				}
				if d, output := diagnosed(t, r, "import os, sys\n"+raises+g.script+"\n"); d.Cause != want {
					t.Errorf("%s, %q; want %s\n%s", d.Cause, d.Error, want, output)
				}
			})
		}
	}
}

// hostileRuns is how many random scripts are run; make stress asks for more.
func hostileRuns(t *testing.T) int {
	n := 20
	if text := os.Getenv("GPURUN_HOSTILE"); text != "" {
		var err error
		if n, err = strconv.Atoi(text); err != nil {
			t.Fatal(err)
		}
	}
	return n
}

// TestHostileText: of random mixes of such texts, whatever the end, none is taken for an
// out-of-memory error. GPURUN_SEED repeats a run.
func TestHostileText(t *testing.T) {
	random := rand.New(rand.NewPCG(testenv.Of(t), 1))
	for i := range hostileRuns(t) {
		quoted := pick(random, quotations)
		text := quotations[quoted]
		for random.IntN(3) == 0 {
			text += "\n" + quotations[pick(random, quotations)]
		}
		if random.IntN(2) == 0 {
			text = asTraceback(text)
		}
		text = mangle(random, text)
		var say []string
		for range 1 + random.IntN(3) {
			say = append(say, ways[pick(random, ways)])
			for range random.IntN(3) {
				say = append(say, "print('epoch', 3, 'of', 10)")
			}
		}
		death := pick(random, deaths)
		if death == "killed" && strings.ContainsAny(text, "kK") {
			death = "exit 3" // a kernel's line would agree with it
		}
		r := newTrial(t)
		r.bare = random.IntN(2) == 0
		script := hostile(text, say, deaths[death].script)
		if d, output := diagnosed(t, r, script); d.Cause == cause.CUDAOOM || d.Cause == cause.HostOOM || d.Cause == cause.GPUOccupied {
			t.Errorf("run %d, by %s, bare=%v: %s\n%s\n%s", i, death, r.bare, d.Cause, script, output)
		}
	}
}

// pick chooses one key of a map.
func pick[V any](random *rand.Rand, of map[string]V) string {
	keys := make([]string, 0, len(of))
	for k := range of {
		keys = append(keys, k)
	}
	slices.Sort(keys) // the same one for the same seed
	return keys[random.IntN(len(keys))]
}

// mangle changes a text as tokenizers, loggers and terminals do.
func mangle(random *rand.Rand, text string) string {
	switch random.IntN(6) {
	case 0:
		return "[rank0]: " + strings.ReplaceAll(text, "\n", "\n[rank0]: ")
	case 1:
		return strings.ReplaceAll(text, "\n", "\r\n")
	case 2:
		return "\x1b[31m" + text + "\x1b[0m"
	case 3:
		return "During handling of the above exception, another exception occurred:\n\n" + text
	case 4:
		return text[:len(text)/2+random.IntN(len(text)/2)]
	}
	return text
}
