package cause

import (
	"slices"
	"strings"
)

// A Remark is what the words of a finding tell beside their cause.
type Remark string

// The remarks.
const (
	// SaysEnded: a shell, a launcher or a runtime only says that a process failed.
	// An exit code says as much.
	SaysEnded Remark = "ended"
	// SaysElsewhere: the words announce a failure that further words say better.
	SaysElsewhere Remark = "elsewhere"
	// SaysWorker: the words are about a data loader's worker process.
	SaysWorker Remark = "loader-worker"
	// SaysKilled: a process was ended by SIGKILL.
	SaysKilled Remark = "killed"
	// SaysTimeLimit: a scheduler ended the job because its time was up.
	SaysTimeLimit Remark = "time-limit"
	// SaysOOMKill: the kernel, Slurm or a container's runtime tells that a process was
	// killed for memory, which the end of a process has to bear out.
	SaysOOMKill Remark = "oom-kill"
	// SaysThrown: the runtime of C++ tells of the exception by which it aborts.
	SaysThrown Remark = "thrown"
	// SaysWatchdog: a watchdog of the collectives ends the process, for a reason that
	// it may not know.
	SaysWatchdog Remark = "watchdog"
	// SaysNoDevice: the program was denied what only a GPU has.
	SaysNoDevice Remark = "no-device"
	// SaysMismatch: the driver and its library are not of one version.
	SaysMismatch Remark = "mismatch"
	// SaysIndex: the program's index was out of range.
	SaysIndex Remark = "index"
	// SaysDevice: a GPU's error, whose cause the words do not tell.
	SaysDevice Remark = "device"
	// SaysCancelled: a scheduler cancelled the job.
	SaysCancelled Remark = "cancelled"
	// SaysNode: a node failed, not one of its GPUs.
	SaysNode Remark = "node"
	// SaysComplaint: the last line of the output tells in plain words that something is
	// wrong, as "sys.exit(words)" does. It explains an exit with 1, and is else nothing.
	SaysComplaint Remark = "complaint"
	// SaysNotRun: Python or a shell says that a program could not be run, or was killed.
	SaysNotRun Remark = "not-run"
	// SaysExists: the program makes a file or a folder that is there already.
	SaysExists Remark = "exists"
)

// A remarkPattern is one form of words with what it tells beside a cause.
type remarkPattern struct {
	remark Remark
	words  string
	code   Code   // only in findings of this code; empty: of any
	not    string // and only without these words
}

// remarks is the catalogue of such words. A finding may match several.
var remarks = []remarkPattern{
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "Aborted (core dumped)"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "zsh: abort"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "terminate called after throwing an instance of"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "Exited with exit code"}, // srun
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "exited on signal 6 (Aborted)"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "detected that one or more processes exited with non-zero status"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "make: *** ["},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "finished with exit code 1"}, // IDEs
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "terminated with exit code 1"},
	{remark: SaysEnded, code: Unknown, not: " code 137", words: "exited with code 1"}, // docker compose
	{remark: SaysElsewhere, words: "multiprocessing.errors.ChildFailedError"},
	{remark: SaysElsewhere, words: "Some NCCL operations have failed or timed out"},
	// Parents that pass on how a child ended.
	{remark: SaysElsewhere, words: "CalledProcessError: Command"},
	{remark: SaysElsewhere, words: "ProcessExitedException"},
	{remark: SaysElsewhere, words: "ProcessRaisedException"},
	{remark: SaysElsewhere, words: "process pool was terminated abruptly"},
	{remark: SaysElsewhere, words: "subprocesses has abruptly died"},
	{remark: SaysElsewhere, words: "TerminatedWorkerError"},
	{remark: SaysElsewhere, words: "RayTaskError"},
	{remark: SaysElsewhere, words: "ray.exceptions."},
	{remark: SaysElsewhere, words: "See root cause above"},
	{remark: SaysElsewhere, words: "See stack trace"},
	{remark: SaysElsewhere, words: "It usually means the child failed"},
	{remark: SaysElsewhere, words: "EngineDeadError"},
	// NCCL says on lines of its own what failed in CUDA.
	{remark: SaysElsewhere, words: "unhandled cuda error"},
	{remark: SaysWorker, words: "DataLoader worker"},
	{remark: SaysKilled, words: "SIGKILL"},
	{remark: SaysKilled, words: "exitcode: -9"},
	{remark: SaysKilled, words: "Killed"},
	{remark: SaysTimeLimit, code: Preempted, words: "DUE TO TIME LIMIT"}, // Slurm
	{remark: SaysTimeLimit, code: Preempted, words: "walltime"},          // PBS
	{remark: SaysTimeLimit, code: Preempted, words: "TERM_RUNLIMIT"},     // LSF
	// The kernel, as dmesg shows it; slurmstepd, srun, sacct; Kubernetes; LSF and PBS.
	{remark: SaysOOMKill, code: HostOOM, words: "oom-kill"},
	{remark: SaysOOMKill, code: HostOOM, words: "oom_kill"},
	{remark: SaysOOMKill, code: HostOOM, words: "ut of memory: Kill"},
	{remark: SaysOOMKill, code: HostOOM, words: "OOM Killed"},
	{remark: SaysOOMKill, code: HostOOM, words: "OOMKilled"},
	{remark: SaysOOMKill, code: HostOOM, words: "srun: error:"},
	{remark: SaysOOMKill, code: HostOOM, words: "xceeded step memory limit"},
	{remark: SaysOOMKill, code: HostOOM, words: "xceeded job memory limit"},
	{remark: SaysOOMKill, code: HostOOM, words: "being killed"},
	{remark: SaysOOMKill, code: HostOOM, words: "OUT_OF_MEMORY"},
	{remark: SaysOOMKill, code: HostOOM, words: "low on resource: memory"},
	{remark: SaysOOMKill, code: HostOOM, words: "TERM_MEMLIMIT"},
	{remark: SaysOOMKill, code: HostOOM, words: "job killed: mem"},
	{remark: SaysOOMKill, code: HostOOM, words: " killed due to "},
	{remark: SaysNotRun, code: UserError, words: ": error: "},
	{remark: SaysNotRun, code: UserError, words: "can't open file"},
	{remark: SaysNotRun, code: UserError, words: ": No module named "},
	{remark: SaysNotRun, code: UserError, words: "Error while finding module specification for"},
	{remark: SaysNotRun, code: UserError, words: ": command not found"},
	{remark: SaysNotRun, code: UserError, words: ": not found"},
	{remark: SaysNotRun, code: UserError, words: ": Permission denied"},
	{remark: SaysNotRun, code: UserError, words: ": No such file or directory"},
	{remark: SaysNotRun, code: UserError, words: "SyntaxError: "},
	{remark: SaysNotRun, code: UserError, words: "IndentationError: "},
	{remark: SaysNotRun, code: UserError, words: "TabError: "},
	{remark: SaysNotRun, code: Unknown, words: " Killed "},
	{remark: SaysNotRun, code: Segfault, words: "egmentation fault"},
	{remark: SaysNotRun, code: Segfault, words: "Bus error"},
	{remark: SaysNotRun, code: Unknown, words: "Aborted"},
	{remark: SaysExists, words: "FileExistsError:"},
	{remark: SaysThrown, words: "terminate called after throwing an instance of"},
	{remark: SaysThrown, words: "what():"},
	{remark: SaysThrown, words: " Check failed: "},
	// What transformers, accelerate, Lightning and PyTorch raise where no GPU is usable.
	{remark: SaysNoDevice, words: "Your setup doesn't support bf16/gpu"},
	{remark: SaysNoDevice, words: "requires a GPU"},
	{remark: SaysNoDevice, words: "require a GPU"},
	{remark: SaysNoDevice, words: "requires CUDA"},
	{remark: SaysNoDevice, words: "requires a CUDA"},
	{remark: SaysNoDevice, words: "requires at least one GPU"},
	{remark: SaysNoDevice, words: "No GPU found"},
	{remark: SaysNoDevice, words: "no GPU found"},
	{remark: SaysNoDevice, words: "o GPU available"},
	{remark: SaysNoDevice, words: "No supported gpu backend found"},
	{remark: SaysNoDevice, words: "CUDA is not available"},
	{remark: SaysNoDevice, words: "CUDA is unavailable"},
	{remark: SaysNoDevice, words: "CUDA not available"},
	{remark: SaysNoDevice, words: "cuda is not available"},
	{remark: SaysNoDevice, words: "cuda.is_available() is False"},
	{remark: SaysNoDevice, words: "cuda.is_available() should be True"},
	{remark: SaysNoDevice, words: "nvalid CUDA 'device="}, // Ultralytics
	{remark: SaysNoDevice, words: "bf16 is not supported"},
	{remark: SaysNoDevice, words: "only supported on GPU"},
	{remark: SaysNoDevice, words: "can only be used on CUDA"},
	{remark: SaysNoDevice, words: "ProcessGroupNCCL is only supported with GPUs"},
	{remark: SaysIndex, code: UserError, words: "IndexError: "},
	{remark: SaysMismatch, words: "Driver/library version mismatch"},
	{remark: SaysDevice, words: "CUDA error"},
	{remark: SaysDevice, words: "CUDNN_STATUS"},
	{remark: SaysDevice, words: "CUBLAS_STATUS"},
	{remark: SaysDevice, words: "HIP error"},
	{remark: SaysCancelled, code: Preempted, words: "CANCELLED AT"},
	{remark: SaysNode, code: GPUHardware, words: "DUE TO NODE FAIL"},
	{remark: SaysNode, code: GPUHardware, words: "Node failure on"},
	{remark: SaysWatchdog, words: "atchdog"},
	{remark: SaysWatchdog, words: "eartbeat monitor"},
	{remark: SaysWatchdog, words: "Some NCCL operations have failed or timed out"},
}

// Remarks lists what a finding's text tells beside its cause, in the order of the
// catalogue.
func Remarks(code Code, text string) []Remark {
	var found []Remark
	for _, r := range remarks {
		if (r.code == "" || r.code == code) && !slices.Contains(found, r.remark) &&
			strings.Contains(text, r.words) && (r.not == "" || !strings.Contains(text, r.not)) {
			found = append(found, r.remark)
		}
	}
	return found
}

// Says reports whether the finding's words tell something beside its cause.
func (f *Finding) Says(r Remark) bool { return slices.Contains(f.Remarks, r) }
