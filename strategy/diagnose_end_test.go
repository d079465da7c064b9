package strategy

import (
	"fmt"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	oomTop = `Traceback (most recent call last):
  File "train.py", line 9, in <module>
    main()
  File "train.py", line 5, in main
    loss.backward()
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 80.00 GiB of which 1.00 GiB is free.
`
	thrown      = "terminate called after throwing an instance of 'c10::OutOfMemoryError'\n  what():  CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 80.00 GiB of which 1.00 GiB is free.\n"
	thrownOut   = "terminate called after throwing an instance of 'std::runtime_error'\n  what():  bad file\n"
	leftBehind  = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    dist.barrier()\ntorch.distributed.DistBackendError: NCCL error in: ../torch/csrc/distributed/c10d/ProcessGroupNCCL.cpp:1333, internal error, NCCL version 2.18.1\nncclInternalError: Internal check failed.\n"
	childFailed = "Traceback (most recent call last):\n  File \"/v/bin/torchrun\", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n"
	kernelOOM   = "[ 12.3] Memory cgroup out of memory: Killed process 4242 (python) total-vm:103421132kB, anon-rss:98230412kB\n"
)

// prefixed is a rank's output with PyTorch's prefix on each line.
func prefixed(rank int, text string) string {
	prefix := fmt.Sprintf("[rank%d]: ", rank)
	return prefix + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n"+prefix) + "\n"
}

// tells makes the facts of a report of gpurun's hook in a rank.
func tells(rank, seconds int, e cause.Exception) []Fact {
	word := cause.LastWord(e)
	word.Stream, word.Seq = "probe", 1
	return one(rank, seconds, Fact{Source: "probe", Content: (*Finding)(&word)})
}

var keyError = cause.Exception{Class: "KeyError", Message: "'loss'"}

// TestExitsOutrankOutput: a rank's output counts as far as its end confirms it.
func TestExitsOutrankOutput(t *testing.T) {
	oom := cause.Exception{Class: "torch.OutOfMemoryError", Message: "CUDA out of memory. Tried to allocate 2.00 GiB."}
	for _, c := range []struct {
		name  string
		facts []Fact
		cause cause.Code
	}{
		{"its own word names another error", slices.Concat(says(0, 1, oomTop), tells(0, 2, keyError), exits(0, 3, 1)), cause.UserError},
		{"its own word names the error", slices.Concat(says(0, 1, oomTop), tells(0, 2, oom), exits(0, 3, 139)), cause.CUDAOOM},
		{"its own word is about a child", slices.Concat(says(0, 1, oomTop), tells(0, 2, cause.Exception{Class: "subprocess.CalledProcessError", Message: "Command '['python', 't.py']' returned non-zero exit status 1."}), exits(0, 3, 1)), cause.CUDAOOM},
		{"its own word is about a peer, and the text is a sample", slices.Concat(says(0, 1, oomTop), tells(0, 2, cause.Exception{Class: "torch.distributed.DistBackendError", Message: "NCCL error in: x.cpp:1, remote process exited or there was a network error, NCCL version 2.20.5"}), exits(0, 3, 1)), cause.NCCLError},
		{"its own word is CUDA's through NCCL, which says more on its own lines", slices.Concat(says(0, 1, "node1:77:91 [0] include/alloc.h:205 NCCL WARN Cuda failure 2 'out of memory'\n"),
			tells(0, 2, cause.Exception{Class: "torch.distributed.DistBackendError", Message: "NCCL error in: x.hpp:219, unhandled cuda error (run with NCCL_DEBUG=INFO for details), NCCL version 2.18.1"}), exits(0, 3, 1)), cause.CUDAOOM},
		{"numbers that are none behind the assertion that it tells of", slices.Concat(says(0, 1, "x.cu:1: f: block: [0,0,0], thread: [0,0,0] Assertion `probability tensor contains either `inf`, `nan` or element < 0` failed.\n"),
			tells(0, 2, cause.Exception{Class: "RuntimeError", Message: "CUDA error: device-side assert triggered"}), exits(0, 3, 1)), cause.Diverged},
		{"a text about a port, and a KeyError", slices.Concat(says(0, 1, "RuntimeError: The server socket has failed to listen on any local network address.\n"), tells(0, 2, keyError), exits(0, 3, 1)), cause.UserError},
		{"SIGSEGV", slices.Concat(says(0, 1, oomTop), exits(0, 3, 139)), cause.Segfault},
		{"SIGKILL", slices.Concat(says(0, 1, oomTop), exits(0, 3, 137)), cause.Unknown},
		{"SIGTERM of somebody else", slices.Concat(says(0, 1, oomTop), exits(0, 3, 143)), cause.Preempted},
		{"gpurun sent the signal", slices.Concat(says(0, 1, oomTop), stopped(0, 3)), cause.CUDAOOM},
		{"SIGABRT", slices.Concat(says(0, 1, oomTop), exits(0, 3, 134)), cause.Unknown},
		{"SIGABRT of the same exception", slices.Concat(says(0, 1, thrown), exits(0, 3, 134)), cause.CUDAOOM},
		{"SIGABRT of another exception", slices.Concat(says(0, 1, oomTop), says(0, 2, thrownOut), exits(0, 3, 134)), cause.Unknown},
		{"SIGABRT of the watchdog that follows", slices.Concat(says(0, 1, oomTop), says(0, 2, watchdog), exits(0, 3, 134)), cause.CUDAOOM},
		{"the watchdog came before", slices.Concat(says(0, 1, watchdog), says(0, 2, oomTop), exits(0, 3, 134)), cause.NCCLTimeout},
		{"a code that is no exception's", slices.Concat(says(0, 1, oomTop), exits(0, 3, 3)), cause.Unknown},
		{"make's code", slices.Concat(says(0, 1, oomTop), says(0, 2, "make: *** [Makefile:3: train] Error 1\n"), exits(0, 3, 2)), cause.CUDAOOM},
		{"another exception left the program", slices.Concat(says(0, 1, oomTop), says(0, 2, valueError), exits(0, 3, 1)), cause.UserError},
		{"a launcher's child ran out, and its peer was left behind", slices.Concat(says(0, 1, oomTop), says(0, 2, leftBehind), says(0, 3, childFailed), exits(0, 4, 1)), cause.CUDAOOM},
		{"the ranks of a launcher that prefixes their lines", slices.Concat(says(0, 1, prefixed(2, oomTop)+prefixed(1, valueError)), says(0, 3, childFailed), exits(0, 4, 1)), cause.CUDAOOM},
		{"a launcher's child prints a text, and dies of its own", slices.Concat(says(0, 1, oomTop+valueError), says(0, 3, childFailed), exits(0, 4, 1)), cause.UserError},
		{"the kernel's line, and SIGKILL", slices.Concat(says(0, 1, kernelOOM), exits(0, 3, 137)), cause.HostOOM},
		{"the kernel's line, and an exit with 1", slices.Concat(says(0, 1, kernelOOM), says(0, 2, valueError), exits(0, 3, 1)), cause.UserError},
		{"the kernel's line, and a loader's worker that was killed", slices.Concat(says(0, 1, kernelOOM), says(0, 2, workerDied), exits(0, 3, 1)), cause.HostOOM},
		{"another rank ended for a cause of its own", slices.Concat(says(0, 1, oomTop), tells(1, 2, keyError), exits(1, 3, 1), stopped(0, 4)), cause.UserError},
		{"another rank crashed", slices.Concat(says(0, 1, oomTop), exits(1, 3, 139), stopped(0, 4)), cause.Segfault},
		{"another rank is a victim", slices.Concat(says(0, 1, oomTop), says(1, 2, watchdog), exits(1, 3, 134), stopped(0, 4)), cause.CUDAOOM},
		{"another rank hung after it, too", slices.Concat(says(0, 1, oomTop), says(1, 2, oomTop), stopped(1, 4), stopped(0, 4)), cause.CUDAOOM},
	} {
		t.Run(c.name, func(t *testing.T) {
			d := Diagnose(Evidence{Ranks: 2, Facts: c.facts})
			checkBecause(t, d, c.facts)
			if d.Cause != c.cause || !d.Fatal {
				t.Errorf("%s (fatal %v), %q; want %s", d.Cause, d.Fatal, d.Error, c.cause)
			}
		})
	}
}

// TestProcessReportIsTheError: people see the process's report, not a text in its output.
func TestProcessReportIsTheError(t *testing.T) {
	d := Diagnose(Evidence{Ranks: 1, Facts: slices.Concat(tells(0, 1, keyError), says(0, 2, oomTop), exits(0, 3, 1))})
	if d.Error != "KeyError: 'loss'" || d.Requested != nil {
		t.Errorf("error %q, %v bytes requested", d.Error, d.Requested)
	}
}

// The place of an out-of-memory error is reported as well: the line of the job's code, not of
// gpurun's code in its process.
func TestPlaceOfAnOutOfMemoryError(t *testing.T) {
	text := `Traceback (most recent call last):
  File "/home/u/train.py", line 25, in <module>
    loss = model(x).sum()
  File "/home/u/.gpurun/t/r/attempt-0/probe-77/inside/root.py", line 9, in call
    return plain(self, x)
  File "/v/lib/python3.11/site-packages/torch/nn/modules/linear.py", line 134, in forward
    return F.linear(input, self.weight, self.bias)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.
`
	d := Diagnose(Evidence{Ranks: 1, Facts: slices.Concat(says(0, 1, text), exits(0, 3, 1))})
	if got := d.Sentence(); got != "CUDA out of memory in forward on rank 0 at train.py:25 (wanted 2.0 GiB)" {
		t.Errorf("%q", got)
	}
	if d.Place == nil || d.Place.Words() != "/home/u/train.py:25: loss = model(x).sum()" {
		t.Errorf("%+v", d.Place)
	}
}

// A crash in native code is memory that ran out if memory had run out in the process before, under a limit of its
// data, which only a job on the CPU has.
func TestCrashWithoutMemoryIsMemory(t *testing.T) {
	for _, test := range []struct {
		accelerator string
		again       []InPlace
		want        cause.Code
		device      string
	}{
		{"cpu", []InPlace{{Remedy: RemedyCheckpointing}}, cause.HostOOM, "cpu"},
		{"cpu", nil, cause.Segfault, ""},
		{"cuda", []InPlace{{Remedy: RemedyCheckpointing}}, cause.Segfault, ""},
	} {
		report := Fact{Rank: 0, Source: "probe", Content: &ProcessReport{PID: 7, InPlace: test.again}}
		d := Diagnose(Evidence{Ranks: 1, Accelerator: test.accelerator, Facts: append([]Fact{report}, exits(0, 3, 139)...)})
		if d.Cause != test.want || d.Device != test.device || d.ExitCode != 139 {
			t.Errorf("%s with %v: %s on %q", test.accelerator, test.again, d.Cause, d.Device)
		}
	}
}

// If there is only one rank, no other rank waits for it.
func TestHintForAHangOfOneRank(t *testing.T) {
	for ranks, others := range map[int]bool{1: false, 2: true} {
		d := Diagnose(Evidence{Ranks: ranks, Facts: []Fact{{Rank: -1, Content: &Stall{}}}})
		if d.Cause != cause.Hang || d.Advice == "" || strings.Contains(d.Advice, "others") != others {
			t.Errorf("%d ranks: %s, %q", ranks, d.Cause, d.Advice)
		}
	}
}
