package strategy

import (
	"fmt"
	"slices"
	"strings"
	"testing"
	"time"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy/cause"
)

var t0 = time.Date(2026, 3, 2, 10, 0, 0, 0, time.UTC)

// at makes a fact of a rank, some seconds into the attempt.
func at(rank, seconds int, f Fact) Fact {
	f.Rank, f.Time = rank, t0.Add(time.Duration(seconds)*time.Second)
	return f
}

// says makes the facts of a rank's output.
func says(rank, seconds int, log string) []Fact {
	var facts []Fact
	// Each text is a separate stream.
	for _, s := range cause.Scan(fmt.Sprintf("rank%d at %d", rank, seconds), log) {
		facts = append(facts, at(rank, seconds, Fact{Source: "stderr", Content: (*Finding)(&s)}))
	}
	return facts
}

func exits(rank, seconds, code int) []Fact {
	e := &Exit{Code: code, PID: 100 + rank}
	if code > 128 {
		e.Signal = code - 128
	}
	return []Fact{at(rank, seconds, Fact{Source: "exit", Content: e})}
}

func stopped(rank, seconds int) []Fact {
	return []Fact{at(rank, seconds, Fact{Source: "exit", Content: &Exit{Code: 143, Signal: 15, Stopped: true}})}
}

func one(rank, seconds int, f Fact) []Fact { return []Fact{at(rank, seconds, f)} }

const (
	oomForward = `Traceback (most recent call last):
  File "train.py", line 9, in <module>
    out = model(x)
  File "/v/torch/nn/functional.py", line 1753, in linear
    return torch._C._nn.linear(input, weight, bias)
torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 80.00 GiB of which 1.00 GiB is free. Including non-PyTorch memory, this process has 79.00 GiB memory in use. Of the allocated memory 70.00 GiB is allocated by PyTorch, and 3.00 GiB is reserved by PyTorch but unallocated.
`
	oomCrowded = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 1.00 GiB is free. Process 99 has 70.00 GiB memory in use. Including non-PyTorch memory, this process has 9.00 GiB memory in use. Of the allocated memory 8.00 GiB is allocated by PyTorch, and 256.00 MiB is reserved by PyTorch but unallocated.\n"
	oomHuge    = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 900.00 GiB. GPU 0 has a total capacity of 80.00 GiB of which 70.00 GiB is free.\n"
	oomCaught  = "CUDA out of memory. Tried to allocate 2.00 GiB (GPU 0; 8.00 GiB total capacity)\nSkipping batch 4\n"
	watchdog   = "[rank1]:[E810 03:04:11.0 ProcessGroupNCCL.cpp:683] [Rank 1] Watchdog caught collective operation timeout: WorkNCCL(SeqNum=78, OpType=BROADCAST, Timeout(ms)=600000) ran for 600096 milliseconds before timing out.\n"
	valueError = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    f()\nValueError: bad label 7\n"
	workerDied = "Traceback (most recent call last):\n  File \"train.py\", line 3, in <module>\n    next(it)\nRuntimeError: DataLoader worker (pid(s) 77) exited unexpectedly\n"
)

// diagnoses are attempts with the expected diagnosis.
var diagnoses = []struct {
	name  string
	facts []Fact
	stop  int
	want  Diagnosis
}{
	{
		name:  "every rank ends well",
		facts: slices.Concat(says(0, 1, oomCaught), exits(0, 9, 0), exits(1, 9, 0)),
		want:  Diagnosis{Cause: cause.None, Rank: -1},
	},
	{
		name:  "an error that the rank prints, and yet it ends with 0",
		facts: slices.Concat(says(0, 1, oomForward), exits(0, 9, 0)),
		want:  Diagnosis{Cause: cause.None, Rank: -1},
	},
	{
		name:  "one rank runs out of memory, the others time out",
		facts: slices.Concat(says(0, 5, watchdog), says(1, 2, oomForward), exits(1, 3, 1), stopped(0, 8)),
		want: Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Forward, Rank: 1, Ranks: []int{1}, Device: "cuda:1",
			Fragmented: true, Symptoms: []cause.Code{cause.NCCLTimeout}, ExitCode: 1},
	},
	{
		name:  "the rank hangs after its traceback and is stopped",
		facts: slices.Concat(says(1, 2, oomForward), stopped(0, 40), stopped(1, 40)),
		want: Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Forward, Rank: 1, Ranks: []int{1}, Device: "cuda:1",
			Fragmented: true},
	},
	{
		name:  "no rank makes a step, and all are stopped",
		facts: slices.Concat([]Fact{at(-1, 40, Fact{Source: "gpurun", Content: &Stall{For: Seconds(time.Minute)}})}, stopped(0, 41), stopped(1, 41)),
		want:  Diagnosis{Cause: cause.Hang, Fatal: true, Rank: -1},
	},
	{
		name:  "somebody stops the run",
		facts: slices.Concat(says(0, 1, oomCaught), stopped(0, 2), stopped(1, 2)),
		stop:  15,
		want:  Diagnosis{Cause: cause.None, Rank: -1},
	},
	{
		name:  "late",
		facts: slices.Concat(one(1, 1, Fact{Source: "stdout", Content: &Progress{Steps: 400, First: 1, Last: 400}}), says(1, 2, oomForward), exits(1, 3, 1)),
		want: Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Phase: cause.Forward, Rank: 1, Ranks: []int{1}, Device: "cuda:1",
			Fragmented: true, Late: true, ExitCode: 1},
	},
	{
		name:  "another exception after a caught out-of-memory error",
		facts: slices.Concat(says(0, 1, oomCaught), says(0, 9, valueError), exits(0, 10, 1)),
		want:  Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 0, Ranks: []int{0}, ExitCode: 1},
	},
	{
		name:  "another process fills the card",
		facts: slices.Concat(says(0, 1, oomCrowded), exits(0, 2, 1)),
		want:  Diagnosis{Cause: cause.GPUOccupied, Fatal: true, Rank: 0, Ranks: []int{0}, Device: "cuda:0", ExitCode: 1},
	},
	{
		name: "the other process is a rank of this job",
		facts: slices.Concat(says(0, 1, oomCrowded), exits(0, 2, 1),
			one(-1, 2, Fact{Source: "nvml", Content: &Tenant{Device: "cuda:0", Bytes: 100 << 20}})),
		want: Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Rank: 0, Ranks: []int{0}, Device: "cuda:0", ExitCode: 1},
	},
	{
		name:  "a request that no card can serve",
		facts: slices.Concat(says(0, 1, oomHuge), exits(0, 2, 1)),
		want:  Diagnosis{Cause: cause.CUDAOOM, Fatal: true, Rank: 0, Ranks: []int{0}, Device: "cuda:0", Impossible: true, ExitCode: 1},
	},
	{
		name:  "SIGKILL and the cgroup's counter",
		facts: slices.Concat(exits(2, 3, 137), stopped(0, 4), one(-1, 5, Fact{Source: "cgroup", Content: &Kills{Count: 1, Group: "/job"}}), says(0, 4, watchdog)),
		want:  Diagnosis{Cause: cause.HostOOM, Fatal: true, Rank: 2, Ranks: []int{2}, Symptoms: []cause.Code{cause.NCCLTimeout}, ExitCode: 137},
	},
	{
		name:  "SIGKILL and no proof, before the others' symptoms",
		facts: slices.Concat(exits(2, 3, 137), says(0, 4, watchdog), exits(0, 5, 134)),
		want:  Diagnosis{Cause: cause.Unknown, Fatal: true, Rank: 2, Ranks: []int{2}, Symptoms: []cause.Code{cause.NCCLTimeout}, ExitCode: 137},
	},
	{
		name:  "SIGKILL and no proof, and an exception that follows from it",
		facts: slices.Concat(exits(2, 3, 137), says(0, 4, valueError), exits(0, 5, 1)),
		want:  Diagnosis{Cause: cause.Unknown, Fatal: true, Rank: 2, Ranks: []int{2}, ExitCode: 137},
	},
	{
		name:  "a loader's worker dies, and the cgroup's counter says of what",
		facts: slices.Concat(says(0, 1, workerDied), exits(0, 2, 1), one(-1, 3, Fact{Source: "cgroup", Content: &Kills{Count: 2, Group: "/job"}})),
		want:  Diagnosis{Cause: cause.HostOOM, Fatal: true, Rank: 0, Ranks: []int{0}, ExitCode: 1},
	},
	{
		name:  "SIGBUS with words about shared memory",
		facts: slices.Concat(says(0, 1, "ERROR: Unexpected bus error encountered in worker. This might be caused by insufficient shared memory (shm).\n"), exits(0, 2, 135)),
		want:  Diagnosis{Cause: cause.SharedMemory, Fatal: true, Rank: 0, Ranks: []int{0}, Symptoms: []cause.Code{cause.Segfault}, ExitCode: 135},
	},
	{
		name:  "SIGSEGV",
		facts: slices.Concat(exits(1, 2, 139), stopped(0, 3)),
		want:  Diagnosis{Cause: cause.Segfault, Fatal: true, Rank: 1, Ranks: []int{1}, ExitCode: 139},
	},
	{
		name: "error.json, before its rank has ended",
		facts: slices.Concat(one(3, 1, Fact{Source: "error.json", Content: &Finding{Code: cause.UserError, Raised: true, Rank: 3, Text: "ValueError: x", Phase: cause.NoPhase}}),
			stopped(3, 6), stopped(0, 6)),
		want: Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 3, Ranks: []int{3}},
	},
	{
		name:  "the first of two errors in time",
		facts: slices.Concat(says(0, 9, valueError), says(1, 5, valueError), exits(0, 10, 1), exits(1, 6, 1)),
		want:  Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 1, Ranks: []int{0, 1}, ExitCode: 1},
	},
	{
		name:  "an exit and no word",
		facts: exits(0, 2, 1),
		want:  Diagnosis{Cause: cause.Unknown, Fatal: true, Rank: 0, Ranks: []int{0}, ExitCode: 1},
	},
	{
		name:  "a warning does not outdo the exception",
		facts: slices.Concat(says(0, 1, "host:1:2 [0] misc/x.cc:100 NCCL WARN Call to ibv_open_device failed\n"), says(0, 2, valueError), exits(0, 3, 1)),
		want:  Diagnosis{Cause: cause.UserError, Fatal: true, Rank: 0, Ranks: []int{0}, ExitCode: 1},
	},
	{
		name:  "the hardware explains the illegal access",
		facts: slices.Concat(says(0, 1, "RuntimeError: CUDA error: an illegal memory access was encountered\n"), says(-1, 2, "NVRM: Xid (PCI:0000:06:00): 79, pid=1, GPU has fallen off the bus.\n"), exits(0, 3, 1)),
		want:  Diagnosis{Cause: cause.GPUHardware, Fatal: true, Rank: -1, Symptoms: []cause.Code{cause.IllegalAccess}},
	},
	{
		name: "the job trains on the CPU",
		facts: slices.Concat(says(0, 1, "RuntimeError: [enforce fail at alloc_cpu.cpp:117] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes. Error code 12 (Cannot allocate memory)\n"),
			exits(0, 2, 1)),
		want: Diagnosis{Cause: cause.HostOOM, Fatal: true, Rank: 0, Ranks: []int{0}, Device: "cpu", ExitCode: 1},
	},
}

func TestDiagnose(t *testing.T) {
	for _, c := range diagnoses {
		t.Run(c.name, func(t *testing.T) {
			got := Diagnose(Evidence{Ranks: 4, Facts: c.facts, StopSignal: c.stop})
			checkBecause(t, got, c.facts)
			want := c.want
			if want.Phase == "" {
				want.Phase = cause.NoPhase
			}
			if want.Symptoms == nil {
				want.Symptoms = []cause.Code{}
			}
			// Advice, rules and figures have separate tests.
			want.Rules, want.Figures, want.Because, want.Error, want.Place, want.Advice = got.Rules, got.Figures, got.Because, got.Error, got.Place, got.Advice
			if diff := cmp.Diff(want, got); diff != "" {
				t.Errorf("diagnosis (-want +got):\n%s", diff)
			}
		})
	}
}

// checkBecause checks that the facts that support a diagnosis exist, each once.
func checkBecause(t *testing.T, d Diagnosis, facts []Fact) {
	t.Helper()
	seen := map[int]bool{}
	for _, i := range d.Because {
		if i < 0 || i >= len(facts) || seen[i] {
			t.Errorf("Because = %v of %d facts", d.Because, len(facts))
		}
		seen[i] = true
	}
	if d.Fatal && len(d.Because) == 0 {
		t.Error("a fatal diagnosis rests on nothing")
	}
}

// Facts of different ranks arrive in any order; their times are what counts.
func TestDiagnoseIgnoresTheOrderOfFacts(t *testing.T) {
	for _, c := range diagnoses {
		reversed := slices.Clone(c.facts)
		slices.Reverse(reversed)
		if distinct(c.facts) {
			a := Diagnose(Evidence{Facts: c.facts, StopSignal: c.stop})
			b := Diagnose(Evidence{Facts: reversed, StopSignal: c.stop})
			if a.Cause != b.Cause || a.Rank != b.Rank || a.Fatal != b.Fatal || a.Phase != b.Phase {
				t.Errorf("%s: %s on rank %d, and reversed %s on rank %d", c.name, a.Cause, a.Rank, b.Cause, b.Rank)
			}
		}
	}
}

// distinct reports whether no two facts of an attempt have the same time.
func distinct(facts []Fact) bool {
	seen := map[time.Time]bool{}
	for _, f := range facts {
		if seen[f.Time] {
			return false
		}
		seen[f.Time] = true
	}
	return true
}

func TestDiagnoseWords(t *testing.T) {
	d := Diagnose(Evidence{Facts: slices.Concat(says(1, 2, oomForward), exits(1, 3, 1))})
	if !strings.HasPrefix(d.Error, "torch.OutOfMemoryError: CUDA out of memory.") {
		t.Errorf("Error = %q, want the exception's line", d.Error)
	}
	if d.Requested == nil || *d.Requested != 2<<30 || d.Capacity == nil || *d.Capacity != 80<<30 {
		t.Errorf("figures = %+v, want 2 GiB of 80 GiB", d.Figures)
	}
	if d.Advice != "" {
		t.Errorf("Advice = %q, want none where a rung answers", d.Advice)
	}
	killed := Diagnose(Evidence{Facts: append(exits(0, 3, 137), Fact{Rank: -1, Source: "cgroup", Content: Gap("no cgroup memory.events on this node")})})
	for _, w := range []string{"SIGKILL", "oom_kill", "could not be read"} {
		if !strings.Contains(killed.Advice, w) {
			t.Errorf("Advice = %q, want it to mention %q", killed.Advice, w)
		}
	}
	huge := Diagnose(Evidence{Facts: slices.Concat(says(0, 1, oomHuge), exits(0, 2, 1))})
	if !strings.Contains(huge.Advice, "single request") {
		t.Errorf("Advice = %q, want it to speak of a single request", huge.Advice)
	}
}

func TestEvidenceFromLog(t *testing.T) {
	code := func(n int) *int { return &n }
	for _, c := range []struct {
		name  string
		log   string
		exit  *int
		cause cause.Code
		fatal bool
	}{
		{"an error and no exit code", oomForward, nil, cause.CUDAOOM, true},
		{"an error at the end and exit code 0", oomForward, code(0), cause.CUDAOOM, true},
		{"an error, steps and exit code 0", oomForward + "step 1 loss 2\n", code(0), cause.None, false},
		{"an error, a good end and exit code 0", oomForward + "Training completed.\n", code(0), cause.None, false},
		{"a caught error and no exit code", oomCaught, nil, cause.None, false},
		{"nothing and no exit code", "step 1 loss 2\n", nil, cause.None, false},
		{"nothing and an exit code", "step 1 loss 2\n", code(3), cause.Unknown, true},
		{"killed", "step 1 loss 2\n", code(-9), cause.Unknown, true},
		{"killed, as a shell says it", "step 1 loss 2\n", code(137), cause.Unknown, true},
		{"a warning and no exit code", "h:1:2 [0] NCCL WARN Call to x failed\n", nil, cause.NCCLError, false},
		{"a warning and an exit code", "h:1:2 [0] NCCL WARN Call to x failed\n", code(1), cause.NCCLError, true},
		{"talk of memory and no exit code", "Tip: if you see CUDA out of memory, use less\n", nil, cause.None, false},
	} {
		d := Diagnose(EvidenceFromLog(cause.Scan("log", c.log), c.exit))
		if d.Cause != c.cause || d.Fatal != c.fatal {
			t.Errorf("%s: %s, fatal %v, want %s, fatal %v", c.name, d.Cause, d.Fatal, c.cause, c.fatal)
		}
	}
}
