package cause

import (
	"slices"
	"strings"
	"sync"
)

// A Remark is information in the text of a finding in addition to its cause.
type Remark string

const (
	// SaysEnded: a shell, a launcher or a runtime reports no more than an exit code does.
	SaysEnded Remark = "ended"
	// SaysElsewhere: the text announces a failure that other lines describe better.
	SaysElsewhere Remark = "elsewhere"
	// SaysWorker: the text is about a data loader's worker process.
	SaysWorker Remark = "loader-worker"
	// SaysKilled: SIGKILL ended a process.
	SaysKilled Remark = "killed"
	// SaysTimeLimit: a scheduler ended the job because its time was up.
	SaysTimeLimit Remark = "time-limit"
	// SaysOOMKill: the kernel, Slurm or a container's runtime reports that a process was killed
	// because memory ran out. The end of a process has to confirm this.
	SaysOOMKill Remark = "oom-kill"
	// SaysThrown: the C++ runtime prints the exception by which it aborts.
	SaysThrown Remark = "thrown"
	// SaysWatchdog: a watchdog of the collectives ends the process, for a reason that it may not
	// know.
	SaysWatchdog Remark = "watchdog"
	// SaysNoDevice: the program requested a feature that only a GPU has.
	SaysNoDevice Remark = "no-device"
	// SaysMismatch: the driver and its library have different versions.
	SaysMismatch Remark = "mismatch"
	// SaysIndex: the program's index was out of range.
	SaysIndex Remark = "index"
	// SaysDevice: a GPU's error without a cause.
	SaysDevice Remark = "device"
	// SaysCancelled: a scheduler cancelled the job.
	SaysCancelled Remark = "cancelled"
	// SaysNode: a node failed, not one of its GPUs.
	SaysNode Remark = "node"
	// SaysComplaint: the last line of the output reports an error, as "sys.exit(message)" prints
	// it. It explains an exit with 1, and is otherwise ignored.
	SaysComplaint Remark = "complaint"
	// SaysNotRun: Python or a shell reports that a program could not be run, or was killed.
	SaysNotRun Remark = "not-run"
	// SaysExists: the program tries to make a file or a folder that already exists.
	SaysExists Remark = "exists"
	// SaysConsequence: a scheduler or a launcher ends what is left of a job after a task has ended.
	SaysConsequence Remark = "consequence"
	// SaysCut: the output ends within the traceback of the exception that ends the program.
	SaysCut Remark = "cut"
	// SaysNoGroup: the process joined no process group.
	SaysNoGroup Remark = "no-process-group"
	// SaysNotCopied: FSDP had no memory to copy a tensor into the state dict.
	SaysNotCopied Remark = "not-copied"
	// SaysOrchestrator: an assertion failed in Ray's own code, often after the worker's error.
	SaysOrchestrator Remark = "orchestrator"
	// SaysResult: NCCL's trace of the functions that returned an error, which does not name it.
	SaysResult Remark = "result"
	// SaysHook: gpurun's own code in the process raised the exception.
	SaysHook Remark = "hook"
	// SaysPrinted: the traceback begins within the program, which caught the exception and printed it, and may go on.
	SaysPrinted Remark = "printed"
	// SaysIgnored: Python ignores the exception, because it was raised while an object was removed.
	SaysIgnored Remark = "ignored"
)

// A remarkPattern adds a remark to findings whose text has one of the words.
type remarkPattern struct {
	remark Remark
	code   Code   // only in findings of this code; empty: of any
	not    string // and only without these words
	words  []string
}

// remarks is the catalogue of these patterns. A finding may match several.
var remarks = []remarkPattern{
	{remark: SaysHook, code: Unknown, words: []string{hookPackage}},
	// Shells, srun, IDEs, docker compose.
	{remark: SaysEnded, code: Unknown, not: " code 137", words: []string{
		"Aborted (core dumped)", ": Aborted", "zsh: abort", "terminate called after throwing an instance of",
		"Exited with exit code",
		"Exited with signal termination",
		"exited on signal 6 (Aborted)", "detected that one or more processes exited with non-zero status",
		"BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES", "make: *** [", "finished with exit code 1",
		"terminated with exit code 1", "exited with code 1",
	}},
	// Parents that pass on how a child ended, and NCCL, which reports a failure in CUDA on
	// separate lines.
	{remark: SaysElsewhere, words: []string{
		"multiprocessing.errors.ChildFailedError", "Some NCCL operations have failed or timed out",
		"CalledProcessError: Command",
		"ProcessExitedException", "ProcessRaisedException", "process pool was terminated abruptly",
		"subprocesses has abruptly died", "TerminatedWorkerError", "RayTaskError", "ray.exceptions.", "See root cause above",
		"See stack trace", "terminated with the following error", "It usually means the child failed", "EngineDeadError",
		"unhandled cuda error", "Error in sys.excepthook:",
	}},
	{remark: SaysWorker, words: []string{"DataLoader worker", "encountered in worker"}},
	// not Ray's guess
	{remark: SaysKilled, not: "SIGKILL by OOM killer", words: []string{"SIGKILL", "exitcode: -9", "Killed"}},
	// Slurm, PBS, LSF.
	{remark: SaysTimeLimit, code: Preempted, words: []string{"DUE TO TIME LIMIT", "walltime", "job killed: cput",
		"TERM_RUNLIMIT", "TERM_CPULIMIT", "TERM_DEADLINE"}},
	// The kernel, as dmesg shows it; slurmstepd, srun, sacct; Kubernetes; LSF and PBS.
	{remark: SaysOOMKill, code: HostOOM, words: []string{
		"oom-kill", "oom_kill", "ut of memory: Kill", "OOM Killed", "OOMKilled", "srun: error:", "xceeded step memory limit",
		"xceeded job memory limit", "being killed", "OUT_OF_MEMORY", "low on resource: memory", "TERM_MEMLIMIT", "TERM_SWAP",
		"job killed: mem", "job killed: pmem", "job killed: vmem", "job killed: pvmem",
		" killed due to ",
	}},
	{remark: SaysNotRun, code: UserError, words: []string{
		": error: ", "can't open file", ": No module named ", "Error while finding module specification for",
		": command not found",
		": not found", ": Permission denied", ": No such file or directory", ": syntax error", ": Syntax error: ",
		"SyntaxError: ", "IndentationError: ", "TabError: ",
	}},
	{remark: SaysNotRun, code: Unknown, words: []string{" Killed ", "Aborted"}},
	{remark: SaysNotRun, code: Segfault, words: []string{"egmentation fault", "Bus error"}},
	{remark: SaysExists, words: []string{"FileExistsError:"}},
	{remark: SaysThrown, words: []string{"terminate called after throwing an instance of", "what():", " Check failed: "}},
	// Messages of transformers, accelerate, Lightning, PyTorch and Ultralytics when no GPU is
	// usable.
	{remark: SaysNoDevice, words: []string{
		"Your setup doesn't support bf16/gpu", "requires a GPU", "require a GPU", "requires CUDA", "requires a CUDA",
		"requires at least one GPU", "No GPU found", "no GPU found", "o GPU available", "No supported gpu backend found",
		"CUDA is not available", "CUDA is unavailable", "CUDA not available", "cuda is not available",
		"cuda.is_available() is False", "cuda.is_available() should be True", "nvalid CUDA 'device=", "bf16 is not supported",
		"only supported on GPU", "can only be used on CUDA", "ProcessGroupNCCL is only supported with GPUs",
	}},
	{remark: SaysIndex, code: UserError, words: []string{"IndexError: "}},
	{remark: SaysMismatch, words: []string{"Driver/library version mismatch"}},
	{remark: SaysDevice, words: []string{"CUDA error", "CUDNN_STATUS", "CUBLAS_STATUS", "HIP error"}},
	{remark: SaysCancelled, code: Preempted, words: []string{"CANCELLED AT"}},
	{remark: SaysConsequence, code: Preempted, words: []string{"*** STEP", "Main process received SIG"}},
	{remark: SaysNoGroup, code: UserError, words: []string{"rocess group has not been initialized",
		"rocess group is not initialized"}},
	{remark: SaysNotCopied, code: CUDAOOM, words: []string{"Failed to clone() tensor with name"}},
	{remark: SaysNode, code: GPUHardware, words: []string{"DUE TO NODE FAIL", "Node failure on"}},
	{remark: SaysResult, code: NCCLError, words: []string{"NCCL INFO "}},
	{remark: SaysWatchdog, words: []string{"atchdog", "eartbeat monitor",
		"Some NCCL operations have failed or timed out"}},
}

// remarkWords finds the words of all patterns at once, and remarksOf lists the patterns of each
// word, in the order of the catalogue.
var (
	remarkWords = sync.OnceValue(func() *prefilter {
		var all []string
		for _, r := range remarks {
			all = append(all, r.words...)
		}
		return newPrefilter(all)
	})
	remarksOf = sync.OnceValue(func() map[string][]int {
		of := map[string][]int{}
		for i, r := range remarks {
			for _, w := range r.words {
				of[w] = append(of[w], i)
			}
		}
		return of
	})
)

// Remarks returns the remarks for a finding's text, in the order of the catalogue.
func Remarks(code Code, text string) []Remark {
	var at []int
	remarkWords().each([]byte(text), func(word string) {
		for _, i := range remarksOf()[word] {
			r := &remarks[i]
			if (r.code == "" || r.code == code) && !slices.Contains(at, i) && (r.not == "" || !strings.Contains(text, r.not)) {
				at = append(at, i)
			}
		}
	})
	slices.Sort(at)
	var found []Remark
	for _, i := range at {
		if !slices.Contains(found, remarks[i].remark) {
			found = append(found, remarks[i].remark)
		}
	}
	return found
}

// Says reports whether the finding has a remark.
func (f *Finding) Says(r Remark) bool { return slices.Contains(f.Remarks, r) }
