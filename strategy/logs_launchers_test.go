package strategy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

// rankErrors are errors with which a rank ends.
var rankErrors = map[string]string{
	"a mistake": raise("TypeError: forward() got an unexpected keyword argument 'mask'", "t.py 61 <module>", "t.py 48 main"),
	"an import": raise("ModuleNotFoundError: No module named 'apex'", "t.py 3 <module>", "/w/model.py 9 <module>"),
	"an error of a configuration that Hydra prints": "Error executing job with overrides: ['lr=1']\n" +
		raise("omegaconf.errors.ConfigAttributeError: Key 'lrr' is not in struct", "t.py 48 main"),
	"AMD memory":    raise("torch.OutOfMemoryError: HIP out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 63.98 GiB of which 1.10 GiB is free.", "t.py 61 <module>", "t.py 48 main"),
	"AMD memory, 1": raise("RuntimeError: HIP out of memory. Tried to allocate 2.00 GiB (GPU 0; 31.98 GiB total capacity; 29.10 GiB already allocated; 1.10 GiB free; 30.00 GiB reserved in total by PyTorch)", "t.py 61 <module>", "t.py 48 main"),
	"a disk":        raise("OSError: [Errno 28] No space left on device: '/out/a.pt'", "t.py 61 <module>", "t.py 48 save"),
	"divergence":    raise("FloatingPointError: Loss became infinite or NaN at iteration=7!", "t.py 61 <module>", "t.py 48 main"),
	"a chain":       raise("KeyError: 'a'", "t.py 61 <module>", "t.py 48 main") + "\nDuring handling of the above exception, another exception occurred:\n\n" + raise("ValueError: no column a", "t.py 61 <module>", "t.py 50 main"),
}

func torchrunReport(class string) string {
	return raise(class, "/v/bin/torchrun 8 <module>", "/v/lib/python3.10/site-packages/torch/distributed/run.py 794 main", "/v/lib/python3.10/site-packages/torch/distributed/launcher/api.py 250 launch_agent") +
		"============================================================\nt.py FAILED\n------------------------------------------------------------\nFailures:\n  <NO_OTHER_FAILURES>\n------------------------------------------------------------\n" +
		"Root Cause (first observed failure):\n[0]:\n  time      : 2026-11-28_10:00:03\n  host      : n1\n  rank      : 1 (local_rank: 1)\n  exitcode  : 1 (pid: 4417)\n  error_file: <N/A>\n" +
		"  traceback : To enable traceback see: https://pytorch.org/docs/stable/elastic/errors.html\n============================================================\n"
}

const (
	runpy     = "/usr/lib/python3.10/runpy.py 196 _run_module_as_main"
	runCode   = "/usr/lib/python3.10/runpy.py 86 _run_code"
	deepspeed = "/v/lib/python3.10/site-packages/deepspeed/launcher/"
)

// launcherReports are what launchers write after a rank has ended with 1.
var launcherReports = map[string]string{
	"torchrun to 1.12": "ERROR:torch.distributed.elastic.multiprocessing.api:failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: /v/bin/python\n" + torchrunReport("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
	"torchrun 2.0":     "[2026-01-02 10:00:00,000] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: /v/bin/python\n" + torchrunReport("torch.distributed.elastic.multiprocessing.errors.ChildFailedError:"),
	"torchrun 2.6, others were stopped": "W0302 10:00:00.000000 9 torch/distributed/elastic/multiprocessing/api.py:897] Sending process 12 closing signal SIGTERM\n" +
		"E0302 10:00:00.000000 9 torch/distributed/elastic/multiprocessing/api.py:869] failed (exitcode: 1) local_rank: 0 (pid: 9) of binary: /v/bin/python\n" + torchrunReport("torch.distributed.elastic.multiprocessing.errors.ChildFailedError: "),
	"torchrun, interrupted then": "W0302 10:00:00.000000 9 torch/distributed/elastic/agent/server/api.py:719] Received 2 death signal, shutting down workers\n" + torchrunReport("torch.distributed.elastic.multiprocessing.api.SignalException: Process 9 got signal: 2"),
	"torch.distributed.launch": raise("subprocess.CalledProcessError: Command '['/v/bin/python', '-u', 't.py', '--local_rank=0']' returned non-zero exit status 1.",
		runpy, runCode, "/v/lib/python3.7/site-packages/torch/distributed/launch.py 263 <module>", "/v/lib/python3.7/site-packages/torch/distributed/launch.py 259 main"),
	"accelerate": raise("subprocess.CalledProcessError: Command '['/v/bin/python', 't.py']' returned non-zero exit status 1.",
		"/v/bin/accelerate 8 <module>", "/v/lib/python3.10/site-packages/accelerate/commands/accelerate_cli.py 48 main", "/v/lib/python3.10/site-packages/accelerate/commands/launch.py 703 simple_launcher"),
	"deepspeed": "[2026-01-02 10:00:00,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 9\n[2026-01-02 10:00:00,001] [ERROR] [launch.py:325:sigkill_handler] ['/v/bin/python', '-u', 't.py', '--local_rank=0'] exits with return code = 1\n",
	"deepspeed, old": "Killing subprocess 9\nKilling subprocess 10\n" + raise("subprocess.CalledProcessError: Command '['/v/bin/python', '-u', 't.py', '--local_rank=0']' returned non-zero exit status 1.",
		runpy, runCode, deepspeed+"launch.py 180 <module>", deepspeed+"launch.py 170 main", deepspeed+"launch.py 147 sigkill_handler"),
	"deepspeed's runner, interrupted": raise("KeyboardInterrupt", "/v/bin/deepspeed 6 <module>", deepspeed+"runner.py 623 main", "/usr/lib/python3.10/subprocess.py 1209 wait", "/usr/lib/python3.10/subprocess.py 1959 _wait"),
	"deepspeed's launcher, interrupted": "[2026-01-02 10:00:00,000] [INFO] [launch.py:315:sigkill_handler] Main process received SIGINT, exiting\n" +
		raise("KeyboardInterrupt", runpy, runCode, deepspeed+"launch.py 356 <module>", deepspeed+"launch.py 348 main"),
	"deepspeed's launcher, stopped":      "[2026-01-02 10:00:00,000] [INFO] [launch.py:319:sigkill_handler] Killing subprocess 9\n[2026-01-02 10:00:00,000] [INFO] [launch.py:328:sigkill_handler] Main process received SIGTERM, exiting\n",
	"deepspeed's launcher, in an import": raise("KeyboardInterrupt", "/v/bin/deepspeed 3 <module>", deepspeed+"runner.py 22 <module>", "/v/lib/python3.10/site-packages/deepspeed/__init__.py 10 <module>"),
	"pdsh":                               "pdsh@n1: n2: ssh exited with exit code 1\n",
	"srun":                               "srun: error: n1: task 0: Exited with exit code 1\nsrun: Terminating StepId=7.0\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-01-02T10:00:00 ***\n",
	"Open MPI":                           "--------------------------------------------------------------------------\nPrimary job  terminated normally, but 1 process returned\na non-zero exit code. Per user-direction, the job has been aborted.\n--------------------------------------------------------------------------\nmpirun detected that one or more processes exited with non-zero status, thus causing\nthe job to be terminated. The first process to do so was:\n\n  Process name: [[1,1],0]\n  Exit code:    1\n",
	"make":                               "make: *** [Makefile:12: train] Error 1\n",
	"LSF above":                          "\n------------------------------------------------------------\nSender: LSF System <lsfadmin@n1>\nSubject: Job 7: <t> in cluster <c> Exited\n\nYour job looked like:\n\n------------------------------------------------------------\n# LSBATCH: User input\npython t.py\n------------------------------------------------------------\n\nExited with exit code 1.\n\nResource usage summary:\n\n    CPU time :                                   10.00 sec.\n    Max Memory :                                 2 GB\n\nThe output (if any) is above this job summary.\n\n",
	"bash -e":                            "/var/spool/slurmd/job7/slurm_script: line 12:  4417 Terminated              python t.py\n",
	"Condor":                             "ERROR: job exited with exit code 1\n",
}

// TestLauncherReportsTakeNoAnswerAway: whatever a launcher writes after a rank's error, the answer is
// that of the error, and there is one start. Ranks may run into each other, and have prefixes.
func TestLauncherReportsTakeNoAnswerAway(t *testing.T) {
	forms := map[string]func(string) string{
		"one rank":       func(s string) string { return s },
		"after steps":    func(s string) string { return "loading\n" + steps(6) + s },
		"two ranks":      func(s string) string { return s + s },
		"ranks mixed":    interleaved,
		"ranks, tagged":  func(s string) string { return tagged(s, "[rank1]: ") + tagged(s, "[rank0]: ") },
		"srun's numbers": func(s string) string { return tagged(s, "1: ") },
	}
	for what, text := range rankErrors {
		for how, form := range forms {
			alone := diagnoseText(form(text), nil)
			for name, report := range launcherReports {
				log := form(text) + report
				ev := EvidenceFromLog(cause.Scan("log", log), nil)
				d := Diagnose(ev)
				at := fmt.Sprintf("%s, %s, %s", what, how, name)
				if !d.Fatal || d.Cause != alone.Cause || d.Sentence() != alone.Sentence() {
					t.Errorf("%s: %s, %q; without the report %s, %q", at, d.Cause, d.Sentence(), alone.Cause, alone.Sentence())
				}
				if n := len(Starts(ev)); n > 1 {
					t.Errorf("%s: %d starts", at, n)
				}
			}
		}
	}
}

// interleaved returns each line twice, as two ranks write it at once.
func interleaved(log string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		b.WriteString(line + line)
	}
	return b.String()
}

// tagged puts a prefix before each line.
func tagged(log, prefix string) string {
	var b strings.Builder
	for line := range strings.Lines(log) {
		b.WriteString(prefix + line)
	}
	return b.String()
}
