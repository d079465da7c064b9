package diagnose

import (
	"bytes"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"
)

func said(t *testing.T, name string) (string, FileDiagnosis) {
	t.Helper()
	a, err := Collector{Attempt: -1}.Collect(name)
	if err != nil {
		t.Fatalf("%s: %v", name, err)
	}
	var out bytes.Buffer
	d := Diagnose(a)
	if _, err := d.WriteTo(&out); err != nil {
		t.Fatal(err)
	}
	return out.String(), d
}

// A run that continues is not described as if it had ended, whether its ranks have
// written something or not.
func TestResumedRun(t *testing.T) {
	const started = `{"v":2,"kind":"started","event":{"n":0}}` + "\n"
	dir := tree(t, map[string]string{
		"quiet/journal.jsonl": started, "quiet/attempt-0/plan.json": "{}", "quiet/lock": "",
		"steps/journal.jsonl": started, "steps/attempt-0/rank0/stdout.log": "step 1\n", "steps/lock": "",
		"oom/journal.jsonl": started, "oom/attempt-0/rank0/stderr.log": oom, "oom/lock": "",
	})
	for name, want := range map[string]string{
		"quiet": "the run has not ended, and its output shows nothing fatal so far (none)",
		"steps": "the run has not ended, and its output shows nothing fatal so far (none)",
		"oom":   "the run has not ended; so far its output shows CUDA out of memory in backward on rank 0",
	} {
		run := filepath.Join(dir, name)
		lock, err := os.Open(filepath.Join(run, "lock"))
		if err != nil {
			t.Fatal(err)
		}
		defer lock.Close()
		if err := unix.Flock(int(lock.Fd()), unix.LOCK_EX); err != nil {
			t.Fatal(err)
		}
		if text, d := said(t, run); !strings.Contains(text, want) || !d.Running {
			t.Errorf("%s: %s", name, text)
		}
		if err := lock.Close(); err != nil { // as its end would
			t.Fatal(err)
		}
		if name == "quiet" {
			continue // nothing is there to read
		}
		if text, d := said(t, run); strings.Contains(text, "has not ended") || d.Running {
			t.Errorf("%s, cut off: %s", name, text)
		}
	}
}

// The folder in which jobs were started is named as well as a run in it.
func TestAFolderAboveTheRuns(t *testing.T) {
	dir := tree(t, map[string]string{
		"work/.gpurun/job/r1/journal.jsonl":              `{"v":2,"kind":"started","event":{"n":0}}` + "\n",
		"work/.gpurun/job/r1/attempt-0/rank3/stderr.log": oom,
		"work/train.py": "",
		"work/out/checkpoint-1/attempt-0/rank0/stdout.log": "",
	})
	for _, name := range []string{"work", "work/.gpurun", "work/.gpurun/job", "work/.gpurun/job/r1", "work/.gpurun/job/r1/journal.jsonl"} {
		if _, d := said(t, filepath.Join(dir, name)); d.Cause != "cuda-oom" || d.Rank == nil || *d.Rank != 3 {
			t.Errorf("%s: %+v", name, d)
		}
	}
}

// The advice names what can be changed: a time limit, or the user's own ceiling, and
// not the number of loader workers.
func TestAdvice(t *testing.T) {
	const cpuOOM = "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    loss.backward()\n" +
		"RuntimeError: [enforce fail at alloc_cpu.cpp:75] err == 0. DefaultCPUAllocator: can't allocate memory: you tried to allocate 402653184 bytes. Error code 12 (Cannot allocate memory)\n"
	began := func(ceiling string) string {
		return `{"v":2,"kind":"began","event":{"name":"j","job":{` + ceiling + `}}}` + "\n" +
			`{"v":2,"kind":"started","event":{"n":0}}` + "\n" +
			`{"v":2,"kind":"ended","event":{"evidence":{"attempt":0,"accelerator":"cpu","facts":[{"rank":0,"source":"stderr","finding":{"code":"host-oom","phase":"backward","device":"cpu","raised":true,"text":"RuntimeError: DefaultCPUAllocator: can't allocate memory","figures":{"requested_bytes":402653184}}},{"rank":0,"source":"exit","exit":{"code":1}}]}}}` + "\n"
	}
	dir := tree(t, map[string]string{
		"slurm.out":           "step 10\nslurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-01-02T03:04:05 DUE TO TIME LIMIT ***\n",
		"pbs.out":             "step 10\n=>> PBS: job killed: walltime 3612 exceeded limit 3600\n",
		"cancelled.out":       "step 10\nslurmstepd: error: *** JOB 77 ON n1 CANCELLED AT 2026-01-02T03:04:05 ***\n",
		"cpu.out":             cpuOOM,
		"fine.out":            "step 10\n",
		"disk.out":            "Traceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    f.write(x)\nOSError: [Errno 28] No space left on device: '/ckpt/step_10.pt'\n",
		"complaint.out":       "step 10\nconfig.yaml: unknown key lr_min\n",
		"nothing.out":         "",
		"warned.out":          "step 10\n[W1123 socket.cpp:601] [c10d] NCCL WARN Call to ibv_create_qp failed\n",
		"interrupted.out":     "step 10\nTraceback (most recent call last):\n  File \"train.py\", line 9, in <module>\n    step()\nKeyboardInterrupt\n",
		"child.out":           "[2025-08-21 01:34:23,146] torch.distributed.elastic.multiprocessing.api: [ERROR] failed (exitcode: 1) local_rank: 0 (pid: 1278528) of binary: /usr/bin/python3.10\nTraceback (most recent call last):\n  File \"/usr/bin/torchrun\", line 8, in <module>\n    sys.exit(main())\ntorch.distributed.elastic.multiprocessing.errors.ChildFailedError: \n",
		"held/journal.jsonl":  began(`"ceiling_bytes":1824522240`),
		"small/journal.jsonl": began(`"ceiling_bytes":268435456`),
		"free/journal.jsonl":  began(``),
		"saved.out":           "gpurun: job train: 2 ranks, recipe [knobs], host, CPU, at most 600 MiB in each rank\nstep 1\n" + cpuOOM,
		"cpu-job.out":         "gpurun: job train: 2 ranks, recipe [knobs], host, CPU\nstep 1\n" + cpuOOM,
		"gpu.out":             "gpurun: job train: 2 ranks, recipe [knobs], host, 2 × H100, at most 6.0 GiB in each rank\nstep 1\n" + cpuOOM,

		"held/attempt-0/rank0/stderr.log": cpuOOM,
	})
	for name, want := range map[string]string{
		"slurm.out":       "the scheduler's time limit ended the job: ask for more time, or let the job save checkpoints",
		"pbs.out":         "the scheduler's time limit ended the job",
		"cancelled.out":   "the output does not show who stopped it: the scheduler's record does",
		"fine.out":        "if the job failed, its error is not in this output: name the file of its stderr, too, or add --exit-code N",
		"disk.out":        "free space or quota on the file system of /ckpt/step_10.pt",
		"complaint.out":   `its last line may be an error, "config.yaml: unknown key lr_min": add --exit-code N if the job failed`,
		"nothing.out":     "the output is empty and does not show how the job ended: read the file of its stderr",
		"warned.out":      "add --exit-code N if the job failed: run with NCCL_DEBUG=INFO",
		"interrupted.out": "SIGINT ended it: Ctrl-C in its terminal",
		"child.out":       "this is the report of a process about another one, whose own error is not here: look at the failed rank's stderr",
		"cpu.out":         "the backward pass ran out of host memory: use a smaller micro batch",
		"held":            "limits.device_memory holds each rank to 1.7 GiB: raise it",
		"small":           "a single request of 384 MiB is more than limits.device_memory = 256 MiB: raise it",
		"saved.out":       "limits.device_memory holds each rank to 600 MiB: raise it",
		"cpu-job.out":     "the job trains on the CPU: use a smaller micro batch",
		"gpu.out":         "use fewer loader workers",
		"free":            "the job trains on the CPU: use a smaller micro batch",

		"held/attempt-0/rank0/stderr.log": "limits.device_memory holds each rank to 1.7 GiB: raise it",
	} {
		_, d := said(t, filepath.Join(dir, name))
		if want == "" && d.Advice != "" || !strings.HasPrefix(d.Advice, want) {
			t.Errorf("%s: %q, want %q", name, d.Advice, want)
		}
	}
}

// What never ends is not read: a device is refused, and a pipe in the place of a
// rank's file is passed over. A pipe that the user names is read, as what a shell's
// <(…) makes.
func TestOutputThatNeverEnds(t *testing.T) {
	dir := tree(t, map[string]string{"run/rdzv/attempt_0/0/stdout.log": "step 1\n", "other/rdzv/attempt_0/0/stdout.log": "step 1\n"})
	for _, name := range []string{"run/rdzv/attempt_0/0/error.json", "other/rdzv/attempt_0/0/stderr.log"} {
		if err := unix.Mkfifo(filepath.Join(dir, name), 0o600); err != nil {
			t.Fatal(err)
		}
	}
	for name, want := range map[string]string{
		"/dev/zero":                 "/dev/zero is not the output of a job: it is a device",
		filepath.Join(dir, "run"):   "",
		filepath.Join(dir, "other"): "",
	} {
		done := make(chan error, 1)
		go func() {
			_, err := Collector{Attempt: -1}.Collect(name)
			done <- err
		}()
		select {
		case err := <-done:
			if want == "" != (err == nil) || err != nil && !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", name, err, want)
			}
		case <-time.After(2 * time.Minute):
			t.Fatalf("%s: no end", name)
		}
	}
}
