package strategy

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy/cause"
)

const (
	leftByOOM   = "Traceback (most recent call last):\n  File \"t.py\", line 9, in <module>\n    main()\n  File \"t.py\", line 5, in main\n    loss.backward()\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
	leftByValue = "Traceback (most recent call last):\n  File \"t.py\", line 9, in <module>\n    main()\n  File \"t.py\", line 7, in main\n    read(row)\nValueError: bad row 17\n"
)

func stepLines(from, to int) string {
	return repeated(to-from+1, func(i int) string { return fmt.Sprintf("step %d loss %.4f\n", from+i-1, 1.0/float64(i)) })
}

// ranked is the text as rank 0 of a process group writes it.
func ranked(text string) string {
	return "[rank0]: " + strings.ReplaceAll(strings.TrimSuffix(text, "\n"), "\n", "\n[rank0]: ") + "\n"
}

// firstLines are what a job writes as it begins, at a time.
func firstLines(at string) string {
	return at + " | reading the configuration\n" + at + " | building the vocabulary of 32000 words\n" + at + " | opening 12 shards\n"
}

// TestStarts: a log is cut where the job began again, and each start has its own answer.
func TestStarts(t *testing.T) {
	for _, c := range []struct {
		name, log string
		signs     []cause.Sign
		causes    []cause.Code // of each start
	}{
		{"one failure", stepLines(1, 20) + leftByOOM, nil, nil},
		{"a launcher's line", leftByOOM + "nohup: ignoring input\n" + leftByValue, []cause.Sign{cause.SignLauncher}, []cause.Code{cause.CUDAOOM, cause.UserError}},
		{"a prompt with a command", leftByOOM + "$ python train.py\n" + leftByValue, []cause.Sign{cause.SignLauncher}, []cause.Code{cause.CUDAOOM, cause.UserError}},
		{"a prompt without one", leftByOOM + "anna@gpu7:~/work$ \n", nil, nil},
		{"a prompt with a command that runs nothing", leftByOOM + "anna@gpu7:~/work$ ls -l\n", nil, nil},
		{"a framework's banner", leftByValue + "GPU available: True (cuda), used: True\n" + leftByOOM, []cause.Sign{cause.SignBanner}, []cause.Code{cause.UserError, cause.CUDAOOM}},
		{"the same cause again", leftByOOM + "nohup: ignoring input\n" + leftByOOM, []cause.Sign{cause.SignLauncher}, []cause.Code{cause.CUDAOOM, cause.CUDAOOM}},
		{"steps from the first", stepLines(1, 30) + leftByOOM + stepLines(1, 300) + leftByValue, []cause.Sign{cause.SignSteps}, []cause.Code{cause.CUDAOOM, cause.UserError}},
		{"steps from a checkpoint", stepLines(1, 730) + leftByOOM + stepLines(501, 1000), []cause.Sign{cause.SignSteps}, []cause.Code{cause.CUDAOOM, cause.None}},
		{"steps after a program that lacked a module", raise("ModuleNotFoundError: No module named 'httpx'", "t.py 7 <module>") + stepLines(5, 9), []cause.Sign{cause.SignSteps}, []cause.Code{cause.UserError, cause.None}},
		{"the buffer of a program that lacked a module late", raise("ModuleNotFoundError: No module named 'httpx'", "t.py 90 <module>", "t.py 7 train") + stepLines(5, 9), nil, nil},
		{"the buffer of the process that failed", leftByOOM + stepLines(1, 30), nil, nil},
		{"more than a buffer holds", leftByOOM + stepLines(1, 900), []cause.Sign{cause.SignSteps}, []cause.Code{cause.CUDAOOM, cause.None}},
		{"a report of a good end", leftByOOM + stepLines(1, 30) + "Training complete\n", []cause.Sign{cause.SignSteps}, []cause.Code{cause.CUDAOOM, cause.None}},
		{"a time that jumps", "2026-03-02 10:11:12 INFO begin\n" + leftByOOM + strings.Repeat("2026-03-02 18:00:00 INFO reading the data\n", 3) + leftByValue, []cause.Sign{cause.SignTime}, []cause.Code{cause.CUDAOOM, cause.UserError}},
		{"a timeout of half an hour", "2026-03-02 10:11:12 INFO begin\n" + leftByOOM + strings.Repeat("2026-03-02 10:41:15 INFO waiting for rank 1\n", 3), nil, nil},
		{"a process that had ended", leftByOOM + leftByValue, []cause.Sign{cause.SignEnd}, []cause.Code{cause.CUDAOOM, cause.UserError}},
		{"an exception that was raised from the error", leftByOOM + "\nThe above exception was the direct cause of the following exception:\n\n" + leftByValue, nil, nil},
		{"an exception while the error was handled", leftByOOM + "\nDuring handling of the above exception, another exception occurred:\n\n" + leftByValue, nil, nil},
		{"a message that quotes the error", strings.Replace(leftByValue, "bad row 17", "bad row:\nrow 17:\ntorch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.", 1), nil, nil},
		{"an exception as the process ends", leftByOOM + "Traceback (most recent call last):\n  File \"t.py\", line 1, in <module>\n  File \"/v/site-packages/wandb/sdk/wandb_run.py\", line 9, in _atexit_cleanup\nValueError: I/O operation on closed file.\n", nil, nil},
		{"another rank", ranked(leftByOOM) + strings.ReplaceAll(ranked(leftByValue), "rank0", "rank1"), nil, nil},
		{"a rank of a group that did not exist", leftByOOM + ranked(strings.Replace(leftByValue, "ValueError: bad row 17", "RuntimeError: Timed out waiting 3000ms for recv operation to complete", 1)), []cause.Sign{cause.SignEnd}, []cause.Code{cause.CUDAOOM, cause.NCCLTimeout}},
		{"the parent of the process", leftByOOM + strings.Replace(leftByValue, "ValueError: bad row 17", "RuntimeError: the training subprocess failed", 1), nil, nil},
		{"a peer of the process", leftByOOM + strings.Replace(leftByValue, "ValueError: bad row 17", "EOFError: the other end closed the pipe", 1), nil, nil},
		{"ranks whose lines have no prefix", leftByOOM + leftByOOM + leftByValue, nil, nil},
		{"a report of the same end", leftByOOM + "srun: error: n1: task 0: Exited with exit code 1\nslurmstepd: error: *** STEP 7.0 ON n1 CANCELLED AT 2026-03-02T10:11:12 ***\n", nil, nil},
		{"a message below the name of the exception", raise("AssertionError: ", "t.py 3 <module>") + "The NVIDIA driver on your system is too old (found version 10010).\n", nil, nil},
		{"an error that the job handled before", "RuntimeError: CUDA out of memory. Tried to allocate 2.00 GiB.\nskipping batch\n" + stepLines(1, 3) + leftByValue, nil, nil},
		{"its first lines again", firstLines("08:00:01") + stepLines(1, 20) + leftByOOM + firstLines("09:17:22") + stepLines(1, 9), []cause.Sign{cause.SignHead}, []cause.Code{cause.CUDAOOM, cause.None}},
		{"first lines that ranks share", firstLines("08:00:01") + firstLines("08:00:01") + leftByOOM + firstLines("08:00:02"), nil, nil},
		{"an interruption while it imports", "usage: t.py [-h]\nt.py: error: argument --lr: expected one argument\n" + raise("KeyboardInterrupt", "t.py 3 <module>", "/v/timm/__init__.py 7 <module>", "/v/timm/a.py 9 f"), []cause.Sign{cause.SignEnd}, []cause.Code{cause.UserError, cause.Preempted}},
		{"an interruption of what hangs", leftByOOM + raise("KeyboardInterrupt", "t.py 3 <module>", "t.py 9 wait"), nil, nil},
		{"a launcher that restarts", leftByOOM + "Try again, restart the training\n" + stepLines(700, 709), []cause.Sign{cause.SignLauncher}, []cause.Code{cause.CUDAOOM, cause.None}},
		{"only its beginning", leftByOOM + "nohup: ignoring input\nloading\n", nil, nil},
		{"three starts", leftByOOM + "nohup: ignoring input\n" + leftByValue + "nohup: ignoring input\n" + stepLines(1, 50), []cause.Sign{cause.SignLauncher, cause.SignLauncher}, []cause.Code{cause.CUDAOOM, cause.UserError, cause.None}},
	} {
		t.Run(c.name, func(t *testing.T) {
			ev := EvidenceFromLog(cause.Scan("log", c.log), nil)
			starts := Starts(ev)
			if len(starts) != len(c.causes) {
				t.Fatalf("%d starts, want %d: %+v", len(starts), len(c.causes), starts)
			}
			for i, s := range starts {
				if s.Diagnosis.Cause != c.causes[i] || i > 0 && s.Sign != c.signs[i-1] {
					t.Errorf("start %d: %s by %q at line %d, want %s", i, s.Diagnosis.Cause, s.Sign, s.Line, c.causes[i])
				}
			}
			if n := len(starts); n > 0 && Diagnose(ev).Cause != c.causes[n-1] {
				t.Errorf("the answer is %s, want that of the last start", Diagnose(ev).Cause)
			}
		})
	}
}

// TestManyStarts: the last of very many starts is diagnosed, and the evidence is bounded.
func TestManyStarts(t *testing.T) {
	log := repeated(1000, func(int) string { return "nohup: ignoring input\n" + leftByOOM }) + "nohup: ignoring input\n" + leftByValue
	findings := cause.Scan("log", log)
	if d := Diagnose(EvidenceFromLog(findings, nil)); d.Cause != cause.UserError || len(findings) > 200 {
		t.Errorf("%s of %d findings, want %s of at most 200", d.Cause, len(findings), cause.UserError)
	}
}

// TestExitCodeOfTheLastStart: the exit code of a job is that of its last start.
func TestExitCodeOfTheLastStart(t *testing.T) {
	well, killed := 0, 137
	log := leftByOOM + "nohup: ignoring input\nloading\n"
	if d := Diagnose(EvidenceFromLog(cause.Scan("log", log), &killed)); d.Cause != cause.Unknown {
		t.Errorf("%s, want the kill of the last start", d.Cause)
	}
	starts := Starts(EvidenceFromLog(cause.Scan("log", leftByOOM+"nohup: ignoring input\n"+stepLines(1, 9)), &well))
	if len(starts) != 2 || starts[0].Diagnosis.Cause != cause.CUDAOOM || starts[0].Diagnosis.ExitCode != 0 || starts[1].Diagnosis.Fatal {
		t.Errorf("%+v", starts)
	}
}

// TestProgressAfterAnError: a job that makes many steps after a printed error was not ended by it,
// in whatever words it counts.
func TestProgressAfterAnError(t *testing.T) {
	printed := "error in batch 4: CUDA out of memory. Tried to allocate 2.00 GiB.\n"
	for name, line := range map[string]string{
		"step": "step %d loss 0.5\n", "counter": "[%d/300] acc=0.51\n", "epoch": "Epoch %d | train 0.42 | valid 0.51\n", "bar": "\r%d/300 [==>...] - ETA: 3s - mae: 0.42",
	} {
		log := printed + repeated(197, func(i int) string { return fmt.Sprintf(line, i) }) + "\n" + leftByValue
		if d := Diagnose(EvidenceFromLog(cause.Scan("log", log), nil)); d.Cause != cause.UserError {
			t.Errorf("%s: %s, want %s", name, d.Cause, cause.UserError)
		}
	}
}
