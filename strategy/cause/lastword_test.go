package cause

import (
	"encoding/json"
	"testing"
)

const oomWords = "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.15 GiB of which 1.20 GiB is free."

// TestLastWord: an exception is classified by its class and its own message, not by what it
// quotes.
func TestLastWord(t *testing.T) {
	oom := &Exception{Class: "torch.OutOfMemoryError", Message: oomWords, Traceback: "Traceback (most recent call last):\n  File \"t.py\", line 9, in step\n    loss.backward()\n"}
	for _, c := range []struct {
		name string
		e    Exception
		want Code
	}{
		{"PyTorch's", *oom, CUDAOOM},
		{"PyTorch's before 1.13", Exception{Class: "RuntimeError", Message: oomWords}, CUDAOOM},
		{"a class of any name", Exception{Class: "Oom", Message: oomWords}, CUDAOOM},
		{"a key", Exception{Class: "KeyError", Message: "'" + oomWords + "'"}, UserError},
		{"a row", Exception{Class: "mylib.DatasetError", Message: "row 17: torch.OutOfMemoryError: " + oomWords}, UserError},
		{"a sentence", Exception{Class: "RuntimeError", Message: "row 17 holds: " + oomWords}, UserError},
		{"a class of any name quotes", Exception{Class: "Oops", Message: "row 17 holds: " + oomWords}, UserError},
		{"a traceback", Exception{Class: "ValueError", Message: "bad row:\nTraceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    main()\ntorch.OutOfMemoryError: " + oomWords}, UserError},
		{"a chain", Exception{Class: "RuntimeError", Message: "bad row:\nTraceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    main()\ntorch.OutOfMemoryError: " + oomWords +
			"\n\nThe above exception was the direct cause of the following exception:\n"}, UserError},
		{"a library names its place", Exception{Class: "RuntimeError", Message: "/tmp/te/common/util/cuda_runtime.cpp:80 in function alloc: CUDA Error: out of memory"}, CUDAOOM},
		{"a server's cache", Exception{Class: "ValueError", Message: "No available memory for the cache blocks. Try increasing `gpu_memory_utilization` when initializing the engine."}, CUDAOOM},
		{"inductor passes it on", Exception{Class: "torch._inductor.exc.InductorError", Message: "OutOfMemoryError: " + oomWords}, CUDAOOM},
		{"dynamo passes it on", Exception{Class: "torch._dynamo.exc.BackendCompilerFailed", Message: "backend='inductor' raised:\nOutOfMemoryError: " + oomWords}, CUDAOOM},
		{"a replica passes it on", Exception{Class: "torch.OutOfMemoryError", Message: "Caught OutOfMemoryError in replica 1 on device 1.\nOriginal Traceback (most recent call last):\n  File \"/v/torch/nn/parallel/parallel_apply.py\", line 83, in _worker\n    output = module(*input, **kwargs)\ntorch.OutOfMemoryError: " + oomWords}, CUDAOOM},
		{"a worker passes a key on", Exception{Class: "RuntimeError", Message: "Caught KeyError in DataLoader worker process 0.\nOriginal Traceback (most recent call last):\n  File \"t.py\", line 3, in __getitem__\n    row[text]\nKeyError: '" + oomWords + "'"}, UserError},
		{"spawn passes it on", Exception{Class: "torch.multiprocessing.spawn.ProcessRaisedException", Message: "\n\n-- Process 0 terminated with the following error:\nTraceback (most recent call last):\n  File \"t.py\", line 3, in run\n    loss.backward()\ntorch.OutOfMemoryError: " + oomWords}, CUDAOOM},
		{"raised from it", Exception{Class: "ValueError", Message: "the step failed", Inner: oom, Explicit: true}, CUDAOOM},
		{"its handler's answer", Exception{Class: "RuntimeError", Message: "training failed", Inner: oom, Caught: true}, CUDAOOM},
		{"its handler repeats it", Exception{Class: "ValueError", Message: "step 7: " + oomWords, Inner: oom}, CUDAOOM},
		{"its handler's mistake", Exception{Class: "KeyError", Message: "'mem'", Inner: oom, Caught: true}, UserError},
		{"a retry in its handler fails", Exception{Class: "RuntimeError", Message: "mat1 and mat2 shapes cannot be multiplied", Inner: oom}, UserError},
		{"a peer was lost in its handler", Exception{Class: "torch.distributed.DistBackendError", Message: "NCCL error in: x.cpp:1, remote process exited or there was a network error, NCCL version 2.20.5", Inner: oom}, CUDAOOM},
		{"an assertion in its handler", Exception{Class: "RuntimeError", Message: "CUDA error: device-side assert triggered", Inner: oom, Caught: true}, DeviceAssert},
		{"raised from a full disk", Exception{Class: "datasets.exceptions.DatasetGenerationError", Message: "An error occurred while generating the dataset", Inner: &Exception{Class: "OSError", Message: "[Errno 28] No space left on device"}, Explicit: true}, DiskFull},
	} {
		if got := LastWord(c.e); got.Code != c.want || !got.Raised || got.Text == "" {
			t.Errorf("%s: %s (raised %v), %q; want %s", c.name, got.Code, got.Raised, got.Text, c.want)
		}
	}
	if got := LastWord(Exception{Class: "ValueError", Message: "the step failed", Inner: oom, Explicit: true}); got.Phase != Backward || got.Figures.Requested == nil {
		t.Errorf("of the reason: phase %s, figures %+v", got.Phase, got.Figures)
	}
}

// TestErrorFileSeparatesExceptionFromMessage: @record writes one text, with the exception's own
// message at the end.
func TestErrorFileSeparatesExceptionFromMessage(t *testing.T) {
	const frames = "Traceback (most recent call last):\n  File \"t.py\", line 3, in main\n    main()\n"
	raised := frames + "torch.OutOfMemoryError: " + oomWords + "\n"
	for _, c := range []struct {
		name, message, stack string
		want                 Code
	}{
		{"raised", "OutOfMemoryError: " + oomWords, raised, CUDAOOM},
		{"a key quotes it", "KeyError: '" + oomWords + "'", frames + "KeyError: '" + oomWords + "'\n", UserError},
		{"a message quotes its traceback", "ValueError: bad row:\n" + raised, frames + "ValueError: bad row:\n" + raised, UserError},
		{"raised from it", "ValueError: the step failed", raised + "\nThe above exception was the direct cause of the following exception:\n\n" + frames + "ValueError: the step failed\n", CUDAOOM},
		{"a mistake in the handling of it", "KeyError: 'mem'", raised + "\nDuring handling of the above exception, another exception occurred:\n\n" + frames + "KeyError: 'mem'\n", UserError},
		{"the handler's answer", "RuntimeError: training failed", raised + "\nDuring handling of the above exception, another exception occurred:\n\n" + frames + "RuntimeError: training failed\n", CUDAOOM},
		{"a retry in the handler", "RuntimeError: bad shape", raised + "\nDuring handling of the above exception, another exception occurred:\n\n" + frames + "  File \"t.py\", line 7, in retry\n    step()\nRuntimeError: bad shape\n", UserError},
	} {
		text, err := json.Marshal(map[string]any{"message": map[string]any{"message": c.message, "extraInfo": map[string]string{"py_callstack": c.stack, "timestamp": "1700000000"}}})
		if err != nil {
			t.Fatal(err)
		}
		if got, _, ok := ErrorFile(text); !ok || got.Code != c.want {
			t.Errorf("%s: %s, %q, %v; want %s", c.name, got.Code, got.Text, ok, c.want)
		}
	}
}

// TestFindingsHaveTracebacks: a finding shows whether its exception leaves the program, is part
// of another one's message, or was raised from another.
func TestFindingsHaveTracebacks(t *testing.T) {
	const top = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    main()\n"
	for _, c := range []struct {
		name, log   string
		top, quoted bool
		from        Code
	}{
		{"it leaves the program", top + "KeyError: 1\n", true, false, ""},
		{"it is logged", "Traceback (most recent call last):\n  File \"t.py\", line 3, in step\n    f()\nKeyError: 1\n", false, false, ""},
		{"a child's", "Traceback (most recent call last):\n  File \"<string>\", line 1, in <module>\n  File \"/usr/lib/python3.11/multiprocessing/spawn.py\", line 122, in spawn_main\nKeyError: 1\n", false, false, ""},
		{"of a writer at exit", "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n  File \"/v/site-packages/wandb/sdk/run.py\", line 9, in finish\nKeyError: 1\n", false, false, ""},
		{"in a message", top + "ValueError: bad row:\n" + top + "torch.OutOfMemoryError: " + oomWords + "\n", true, true, ""},
		{"in a message, on its line", top + "ValueError: bad row: " + top + "torch.OutOfMemoryError: " + oomWords + "\n", true, true, ""},
		{"raised from", top + "torch.OutOfMemoryError: " + oomWords + "\n\nThe above exception was the direct cause of the following exception:\n\n" + top + "ValueError: x\n", true, false, CUDAOOM},
		{"a mistake in the handling", top + "torch.OutOfMemoryError: " + oomWords + "\n\nDuring handling of the above exception, another exception occurred:\n\n" + top + "KeyError: 1\n", true, false, ""},
		{"the handler's answer", top + "torch.OutOfMemoryError: " + oomWords + "\n\nDuring handling of the above exception, another exception occurred:\n\n" + top + "RuntimeError: x\n", true, false, CUDAOOM},
	} {
		all := Scan("stderr", c.log)
		if len(all) == 0 {
			t.Errorf("%s: nothing is found", c.name)
			continue
		}
		if got := all[len(all)-1]; got.Top != c.top || got.Quoted != c.quoted || got.From != c.from {
			t.Errorf("%s: top %v, quoted %v, from %q; want %v, %v, %q (%s)", c.name, got.Top, got.Quoted, got.From, c.top, c.quoted, c.from, got.Text)
		}
	}
}

// The source code of a frame contains messages that the program may never print.
func TestSourceCodeIsNotOutput(t *testing.T) {
	source := "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n    raise KeyError(\"" + oomWords + "\")\n"
	if got := LastWord(Exception{Class: "KeyError", Message: "'" + oomWords + "'", Traceback: source}); got.Code != UserError {
		t.Errorf("told by the process: %s", got.Code)
	}
	for _, s := range Scan("stderr", source+"KeyError: '"+oomWords+"'\n") {
		if s.Code != UserError {
			t.Errorf("in the output: %+v", s)
		}
	}
}
