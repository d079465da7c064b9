package cause

// stopPatterns match reports of jobs that were ended from outside.
var stopPatterns = []pattern{
	// Slurm, 14 to 24. A cancelled step follows the failure of one of its tasks;
	// a cancelled job is a person's decision.
	{code: GPUHardware, words: words("CANCELLED AT", "DUE TO NODE FAIL")},
	{code: Preempted, words: words("*** JOB", "CANCELLED AT")},
	{code: Preempted, words: words("CANCELLED AT", "DUE TO")},
	{code: Preempted, words: words("DUE TO PREEMPTION")},
	{code: Preempted, words: words("DUE TO TIME LIMIT")},
	{code: Preempted, weight: WeightSymptom, words: words("*** STEP", "CANCELLED AT")},
	{code: Preempted, words: words("Received SIGTERM", "preempt")},
	{code: Preempted, words: words("job killed: walltime")}, // PBS
	{code: Preempted, words: words("job killed: cput")},
	{code: Preempted, words: words("PBS: job killed by ")},
	{code: Preempted, words: words("timeout: sending signal ", " to command")}, // coreutils' timeout -v
	// LSF, lsf.conf's reasons of termination.
	{code: Preempted, words: words("TERM_RUNLIMIT")},
	{code: Preempted, words: words("TERM_CPULIMIT")},
	{code: Preempted, words: words("TERM_DEADLINE: ")},
	{code: Preempted, words: words("TERM_WINDOW: ")},
	{code: Preempted, words: words("TERM_OWNER")},
	{code: Preempted, words: words("TERM_ADMIN: ")},
	{code: Preempted, words: words("TERM_FORCE_")},
	{code: Preempted, words: words("TERM_REQUEUE_")},
	{code: Preempted, words: words("TERM_PREEMPT: ")},
	{code: Preempted, words: words("TERM_LOAD: ")},
	{code: Preempted, words: words("TERM_BUCKET_KILL: ")},
	{code: Preempted, words: words("TERM_EXTERNAL_SIGNAL: ")},
	{code: Preempted, weight: WeightSymptom, words: words("pod was preempted")}, // Kubernetes
	// Shells, Python and Lightning.
	{code: Preempted, weight: WeightSymptom, words: words("Terminated"), whole: true},
	{code: Preempted, weight: WeightSymptom, words: words("KeyboardInterrupt"), whole: true},
	{code: Preempted, weight: WeightSymptom, words: words("Detected KeyboardInterrupt")},
	{code: Preempted, weight: WeightSymptom, words: words("nterrupted by user")}, // programs that catch it
	{code: Preempted, weight: WeightSymptom, words: words("nterrupted by the user")},
	{code: Preempted, weight: WeightSymptom, words: words("Received SIGTERM")},
	// deepspeed/launcher/launch.py
	{code: Preempted, weight: WeightSymptom, words: words("Main process received SIG", ", exiting")},
	// The signal handlers of Abseil, which Ray uses, and of glog.
	{code: Preempted, weight: WeightSymptom, words: words("*** SIGTERM received at time=")},
	{code: Preempted, weight: WeightSymptom, words: words("*** SIGTERM (@0x")},
	// torch.distributed.elastic: the agent received a signal.
	{code: Preempted, weight: WeightSymptom, words: words("SignalException: Process", "got signal:")},
	{code: Preempted, weight: WeightSymptom, words: words("death signal, shutting down workers")},
	// it passes on the signal that it received
	{code: Preempted, weight: WeightSymptom, words: words("closing signal SIGHUP")},
	{code: Preempted, weight: WeightSymptom, words: words("closing signal SIGINT")},
	// submitit.
	{code: Preempted, words: words("Caught signal", "this job is preempted")},
	{code: Preempted, words: words("Cluster is preempted")}, // SkyPilot
}

// otherPatterns match crashes, divergence and reports of exits.
var otherPatterns = []pattern{
	// Python's faulthandler, shells, glibc.
	{code: Segfault, words: words("Fatal Python error: Segmentation fault")},
	{code: Segfault, words: words("Fatal Python error: Bus error")},
	{code: Segfault, words: words("Segmentation fault")},
	{code: Segfault, words: words("*** SIGSEGV received at time=")}, // Abseil's handler, and glog's
	{code: Segfault, words: words("*** SIGSEGV (@0x")},
	{code: Segfault, words: words("*** SIGBUS received at time=")},
	{code: Segfault, words: words("*** SIGBUS (@0x")},
	{code: Unknown, weight: WeightSymptom, words: words("*** SIGABRT received at time=")},
	{code: Segfault, words: words("Segmentation Fault")},                  // pygame's handler
	{code: Segfault, words: words("Signal 11 (SIGSEGV) received by PID")}, // elastic
	{code: Segfault, words: words("Signal 7 (SIGBUS) received by PID")},
	{code: Segfault, words: words("DataLoader worker", "is killed by signal: Segmentation fault")},
	{code: Segfault, words: words("Unexpected segmentation fault encountered in worker")}, // torch/csrc/DataLoader.cpp
	{code: Segfault, words: words("Unexpected floating-point exception encountered in worker")},
	{code: Segfault, words: words("terminated with signal SIGSEGV")}, // torch.multiprocessing.spawn
	{code: Segfault, words: words("died with <Signals.SIGSEGV")},     // subprocess: accelerate's launcher
	{code: Segfault, words: words("exits with return code = -11")},   // DeepSpeed's launcher
	{code: Segfault, words: words("Bus error (core dumped)")},
	{code: Segfault, words: words("srun: error:", ": Bus error")},
	{code: Segfault, words: words("srun: error:", ": Illegal instruction")},
	{code: Segfault, words: words("srun: error:", ": Floating point exception")},
	{code: Segfault, words: words("Bus error"), whole: true},
	{code: Segfault, words: words(": line ", " Bus error ")},
	{code: Segfault, words: words("double free or corruption")},
	{code: Segfault, words: words("malloc(): corrupted")},
	{code: Unknown, weight: WeightSymptom, words: words("DataLoader worker", "exited unexpectedly")},
	// Terminated, Aborted: the sender is not named
	{code: Unknown, weight: WeightSymptom, words: words("DataLoader worker", "is killed by signal: ")},
	// Frameworks that stop at non-finite numbers.
	{code: Diverged, words: words("Current loss scale already at minimum")}, // DeepSpeed, apex
	{code: Diverged, words: words("Minimum loss scale reached")},            // fairseq
	{code: Diverged, words: words("FloatingPointError", "loss")},            // detectron2, fairseq
	{code: Diverged, words: words("Loss became infinite or NaN")},           // detectron2
	{code: Diverged, words: words("Loss is nan", "stopping training")},      // DETR and its descendants
	{code: Diverged, words: words("Loss is inf", "stopping training")},
	{code: Diverged, words: words("found NaN in local grad norm")},                       // Megatron-LM
	{code: Diverged, words: words("Rank", "found NaN in", "loss")},                       // Megatron-LM
	{code: Diverged, words: words("Function", "returned nan values in its")},             // torch.autograd anomaly mode
	{code: Diverged, words: words("The loss returned in `training_step` is nan or inf")}, // Lightning
	{code: Diverged, words: words("Error: ", "oss is nan")},
	{code: Diverged, words: words("Error: ", "oss is NaN")},
	{code: Diverged, words: words("Error: ", "NaN loss")},
	{code: Diverged, words: words("Error: ", "nan loss")},
	{code: Diverged, words: words("probability tensor contains either `inf`, `nan`")}, // torch.multinomial
	// torch.distributions: only NaN is no real number
	{code: Diverged, words: words("constraint ", "Real()", "found invalid values")},
	{code: Diverged, words: words("found invalid values", "nan")},                         // torch.distributions
	{code: Diverged, weight: WeightWarning, words: words("educing loss scale to ", "e-")}, // apex halves it without end
	{code: Diverged, weight: WeightWarning, words: words("loss=nan")},
	{code: Diverged, weight: WeightWarning, words: words("loss: nan")},
	{code: Diverged, weight: WeightWarning, words: words("loss': nan")},
	{code: Diverged, weight: WeightWarning, words: words("loss\": NaN")},
	{code: Diverged, weight: WeightWarning, words: words("loss\": \"nan\"")},
	{code: Diverged, weight: WeightWarning, words: words("NaN or Inf found in input tensor")}, // tensorboardX
	{code: Diverged, weight: WeightWarning, words: words("grad_norm': nan")},
	{code: Diverged, weight: WeightWarning, words: words("grad_norm\": NaN")},
	{code: Unknown, weight: WeightSymptom, words: words("Error in sys.excepthook:")}, // an exception ended the program
	// A remedy in the process failed in the middle of a pass.
	{code: Unknown, words: words("gpurun's hook failed in a pass")},
	// Pipes of Python's multiprocessing run out of descriptors without reporting it.
	{code: Unknown, words: words("received 0 items of ancdata")},
	{code: Unknown, words: words("Too many open files")},
	{code: Unknown, words: words("DataLoader timed out after")},
	// Files that are incomplete: PyTorch, safetensors, pickle, zip, HDF5.
	{code: UserError, words: words("Error: PytorchStreamReader")},
	{code: UserError, words: words("unexpected EOF, expected ", "The file might be corrupted")},
	{code: UserError, words: words("nvalid magic number; corrupt file")},
	{code: UserError, words: words("Error while deserializing header: ")},
	{code: UserError, words: words("UnpicklingError: ")},
	{code: UserError, words: words("BadZipFile: ")},
	{code: UserError, words: words("nable to open file (truncated file: ")},
	{code: UserError, words: words("nable to open file (file signature not found)")},
	// torch.distributed.elastic's report of a worker that ended; 1.9 on.
	{code: Unknown, weight: WeightSymptom, words: words("Signal 9 (SIGKILL) received by PID")},
	{code: Unknown, weight: WeightSymptom, words: words("(exitcode: -9)")},
	{code: Unknown, weight: WeightSymptom, words: words("(exitcode: -6)")},
	{code: Segfault, words: words("(exitcode: -11)")},
	{code: Segfault, words: words("(exitcode: -7)")},
	{code: Segfault, words: words(" exit code 139")}, // kubectl, IDEs
	{code: Segfault, words: words("exited with code 139")},
	{code: Segfault, words: words("exit code -11")}, // Composer
	{code: Segfault, words: words("exited with code -11")},
	{code: Segfault, words: words("returned non-zero exit status 3221225477")}, // Windows' access violation
	{code: Segfault, words: words("exit code -1073741819")},
	{code: Unknown, weight: WeightSymptom, words: words("Signal 15 (SIGTERM) received by PID")},
	{code: Unknown, weight: WeightSymptom, words: words("Signal 6 (SIGABRT) received by PID")},
	{code: Segfault, words: words("Signal 4 (SIGILL) received by PID")},
	{code: Segfault, words: words("Signal 8 (SIGFPE) received by PID")},
	{code: Unknown, weight: WeightSymptom, words: words("died with <Signals.")},
	{code: Unknown, weight: WeightSymptom, words: words("terminated with signal SIG")},
	{code: Unknown, weight: WeightSymptom, words: words("process_executor.TerminatedWorkerError")}, // joblib
	{code: Unknown, weight: WeightSymptom, words: words(" exit code 137")},                         // kubectl, IDEs
	{code: Unknown, weight: WeightSymptom, words: words("exit code -9")},                           // Composer
	{code: Unknown, weight: WeightSymptom, words: words("exited with code -9")},
	{code: Unknown, weight: WeightSymptom, words: words("exit code -6")},
	{code: Unknown, weight: WeightSymptom, words: words("exited with code -6")},
	{code: Unknown, weight: WeightSymptom, words: words("exited with code 137")}, // docker compose
	{code: Unknown, weight: WeightSymptom, words: words("exit status 137")},
	// concurrent.futures
	{code: Unknown, weight: WeightSymptom, words: words("A process in the process pool was terminated abruptly")},
	// datasets
	{code: Unknown, weight: WeightSymptom, words: words("One of the subprocesses has abruptly died during")},
	{code: Unknown, weight: WeightSymptom,
		words: words("A worker died or was killed while executing a task by an unexpected system error")},
	{code: Unknown, weight: WeightSymptom, words: words("ray.exceptions.ActorDiedError")},
	{code: Unknown, weight: WeightSymptom, words: words("ray.exceptions.ActorUnavailableError")},
	{code: Unknown, weight: WeightSymptom, words: words("ray.exceptions.NodeDiedError")},
	{code: Unknown, weight: WeightSymptom, words: words("ray.exceptions.LocalRayletDiedError")},
	{code: Unknown, weight: WeightSymptom, words: words("ray.exceptions.OwnerDiedError")},
	{code: Unknown, weight: WeightSymptom, words: words("ray.exceptions.RayActorError")},
	{code: Unknown, weight: WeightSymptom, words: words("ray.exceptions.WorkerCrashedError")},
	// Shells and srun report that SIGKILL ended a process, not who sent it.
	{code: Unknown, weight: WeightSymptom, words: words(": line ", " Killed ")},
	{code: Unknown, weight: WeightSymptom, words: words(": line ", " Aborted ")},
	{code: Preempted, weight: WeightSymptom, words: words(": line ", " Terminated ")},
	{code: Unknown, weight: WeightSymptom, words: words("Killed"), whole: true},
	{code: Unknown, weight: WeightSymptom, words: words("srun: error:", "Killed")},
	{code: Unknown, weight: WeightSymptom, words: words("srun: error:", ": Aborted")},
	// The job is called with wrong arguments: argparse, Python, shells.
	// not a module's or an object's name in the output,
	{code: Unknown, words: words(hookPackage), without: words("<", "/")},
	{code: UserError, words: words(": error: unrecognized arguments")},
	{code: UserError, words: words(": error: the following arguments are required")},
	{code: UserError, words: words(": error: argument ")},
	{code: UserError, words: words(": error: ambiguous option: ")},
	{code: UserError, words: words(": error: one of the arguments ")},
	{code: UserError, words: words(": error: too few arguments")},
	{code: UserError, words: words(".py: error: ")}, // argparse's parser.error
	// Click and Typer, absl, Fire, GNU's getopt, Python itself.
	{code: UserError, words: words("Error: No such option: ")},
	{code: UserError, words: words("Error: No such option '")},
	{code: UserError, words: words("Error: Missing option '")},
	{code: UserError, words: words("Error: Missing argument '")},
	{code: UserError, words: words("Error: Invalid value for '")},
	{code: UserError, words: words("Error: Got unexpected extra argument")},
	{code: UserError, words: words("Unknown command line flag '")},
	{code: UserError, words: words("ERROR: Could not consume arg: ")},
	{code: UserError, words: words(": unrecognized option '--")},
	{code: UserError, words: words("unknown option --")},
	{code: UserError, words: words("can't open file", "[Errno 2] No such file or directory")},
	{code: UserError, words: words("python", ": No module named ")},
	{code: UserError, words: words("Error while finding module specification for")},
	// A shell does not run a script, or what is left of it, in which it finds a mistake.
	{code: UserError, weight: WeightSymptom, words: words(": syntax error near unexpected token")},
	{code: UserError, weight: WeightSymptom, words: words(": syntax error: unexpected end of file")},
	{code: UserError, weight: WeightSymptom, words: words(": unexpected EOF while looking for matching")},
	{code: UserError, weight: WeightSymptom, words: words("sh: ", ": Syntax error: ")},
	{code: UserError, weight: WeightWarning, words: words(": command not found")},
	{code: UserError, weight: WeightWarning, words: words("sh: ", ": not found")},
	{code: UserError, weight: WeightWarning, words: words("sh: line ", ": Permission denied")},
	{code: UserError, weight: WeightWarning, words: words("sh: line ", ": No such file or directory")},
	// A Python process ends with 1 by an exception or by sys.exit with a message.
	{code: UserError, weight: WeightWarning, words: words("returned non-zero exit status 1.")}, // accelerate's launcher
	{code: Segfault, words: words("returned non-zero exit status 139")},
	{code: Unknown, weight: WeightSymptom, words: words("returned non-zero exit status 137")},
	{code: Unknown, weight: WeightSymptom, words: words("returned non-zero exit status 134")},
	{code: Preempted, weight: WeightSymptom, words: words("returned non-zero exit status 143")},
	{code: UserError, weight: WeightWarning, words: words("CalledProcessError: Command", "returned non-zero exit status")},
	{code: UserError, weight: WeightSymptom, words: words("failed (exitcode: 1)")},
	{code: UserError, weight: WeightSymptom, words: words("exitcode  : 1 (pid: ")}, // elastic's table of failures
	{code: Unknown, weight: WeightSymptom, words: words("multiprocessing.errors.ChildFailedError")},
	// Shells, Slurm, MPI and make report only the kind of the end.
	{code: Segfault, words: words("segmentation fault (core dumped)")},
	{code: Segfault, words: words("zsh: segmentation fault")},
	{code: Segfault, words: words("Illegal instruction (core dumped)")},
	{code: Segfault, words: words("Floating point exception (core dumped)")},
	{code: GPUHardware, words: words("srun: error: Node failure on")},
	{code: Unknown, weight: WeightSymptom, words: words("Aborted (core dumped)")},
	{code: Unknown, weight: WeightSymptom, words: words("zsh: abort")},
	{code: Unknown, weight: WeightSymptom, words: words("zsh: killed")},
	{code: Unknown, weight: WeightSymptom, words: words("Killed: 9")},
	{code: Unknown, weight: WeightSymptom, words: words("terminate called after throwing an instance of")},
	{code: Unknown, weight: WeightSymptom, words: words("srun: error:", "Exited with exit code")},
	// LSF's report.
	{code: Preempted, weight: WeightSymptom, words: words("Exited with exit code 130.")},
	// SIGUSR2, by which LSF ends a job whose time is up
	{code: Preempted, weight: WeightSymptom, words: words("Exited with exit code 140.")},
	{code: Preempted, weight: WeightSymptom, words: words("Exited with exit code 143.")},
	{code: Segfault, words: words("Exited with signal termination: 11")},
	{code: Segfault, words: words("Exited with signal termination: 7")},
	{code: Unknown, weight: WeightSymptom, words: words("Exited with signal termination")},
	{code: Unknown, weight: WeightSymptom, words: words("Exited with exit code ")},
	{code: Unknown, weight: WeightSymptom, words: words("exited on signal 9 (Killed)")},
	{code: Unknown, weight: WeightSymptom, words: words("exited on signal 6 (Aborted)")},
	{code: Unknown, weight: WeightSymptom,
		words: words("detected that one or more processes exited with non-zero status")},
	{code: Unknown, weight: WeightSymptom, words: words("BAD TERMINATION OF ONE OF YOUR APPLICATION PROCESSES")},
	{code: Unknown, weight: WeightSymptom, words: words("make: *** [", "] Error")},
	{code: Unknown, weight: WeightSymptom, words: words("make: *** [", "] Killed")},
	{code: Unknown, weight: WeightSymptom, words: words("exited with code 1")},        // docker compose
	{code: Unknown, weight: WeightSymptom, words: words("finished with exit code 1")}, // IDEs
	{code: Unknown, weight: WeightSymptom, words: words("terminated with exit code 1")},
	// glog and Ray abort.
	{code: Unknown, weight: WeightSymptom, words: words(" Check failed: ")},
	{code: Unknown, weight: WeightSymptom, words: words("*** Check failure stack trace: ***")},
	// Parents that name no reason: vLLM's and SGLang's, torch.multiprocessing's.
	{code: Unknown, weight: WeightSymptom, words: words("See root cause above")},
	{code: Unknown, weight: WeightSymptom, words: words("See stack trace for the root cause")},
	{code: Unknown, weight: WeightSymptom, words: words("See stack trace for root cause")},
	{code: Unknown, weight: WeightSymptom, words: words("See stack trace (above) for the root cause")},
	{code: Unknown, weight: WeightSymptom, words: words("It usually means the child failed")},
	{code: Unknown, weight: WeightSymptom, words: words("torch.multiprocessing.spawn.ProcessExitedException")},
	// DeepSpeed's launcher.
	{code: Unknown, weight: WeightSymptom, words: words("exits with return code = ")},
}
