package ranks

import (
	"path/filepath"
	"strconv"
	"strings"
	"testing"
	"time"

	"pgregory.net/rapid"

	"github.com/gpurun/gpurun/launcher/mask"
	_ "github.com/gpurun/gpurun/test/testenv"
)

const (
	frames = "  File \"train.py\", line 9, in <module>\n    loss.backward()\n"
	outOf  = "torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch memory, this process has 77.90 GiB memory in use.\n"
	traced = "Traceback (most recent call last):\n" + frames + outOf
)

// ofRankK is a traceback as torch.distributed prints it.
func ofRankK(k int, text string) string {
	var b strings.Builder
	for line := range strings.Lines(text) {
		b.WriteString("[rank" + strconv.Itoa(k) + "]: " + line)
	}
	return b.String()
}

// Ranks that run out of memory together take a line each on a terminal. What else
// they print, other exceptions among it, is as it was, and the files have it all.
func TestTracebacksOfMemoryAreOneLine(t *testing.T) {
	screen := newScreen()
	o := open(t, 3, OutputOptions{Stdout: screen, Stderr: screen, Fold: true})
	other := "Traceback (most recent call last):\n" + frames + "\nDuring handling of the above exception, another exception occurred:\n\nTraceback (most recent call last):\n" + frames + "ValueError: x\n"
	texts := []string{"before\n" + traced + "after\n", ofRankK(1, traced), other}
	for k, text := range texts {
		_, stderr := o.Files(k)
		writeOutput(t, stderr, text)
	}
	wait(t, o)
	got := screen.String()
	for k := range 2 {
		line := "gpurun: rank " + strconv.Itoa(k) + ": torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB. GPU 1 has a total capacity of 79.15 GiB of which 1.20 GiB is free. Including non-PyTorch… (traceback in " +
			filepath.Join(o.opts.Dir, "rank"+strconv.Itoa(k), "stderr.log") + ")\n"
		if strings.Count(got, line) != 1 {
			t.Errorf("no %q in:\n%s", line, got)
		}
	}
	if !strings.Contains(got, "before\n") || !strings.Contains(got, "after\n") || !strings.Contains(got, other) || strings.Count(got, "Traceback (") != 2 {
		t.Errorf("shown:\n%s", got)
	}
	for k, text := range texts {
		if log := logOf(t, o, k, "stderr"); log != text {
			t.Errorf("the log of rank %d has %q", k, log)
		}
	}
}

// A rank that is alone, and a console that is no terminal, get every byte.
func TestOnlyTerminalsFold(t *testing.T) {
	for ranks, asked := range map[int]bool{1: true, 2: false} {
		screen := newScreen()
		o := open(t, ranks, OutputOptions{Stdout: screen, Stderr: screen, Fold: asked})
		_, stderr := o.Files(0)
		writeOutput(t, stderr, traced)
		wait(t, o)
		if screen.String() != traced {
			t.Errorf("%d ranks: %q", ranks, screen)
		}
	}
}

// A rank that hangs in the midst of a traceback has it shown soon.
func TestUnfinishedTracebackIsShown(t *testing.T) {
	screen := newScreen()
	o := open(t, 2, OutputOptions{Stdout: screen, Stderr: screen, Fold: true})
	_, stderr := o.Files(0)
	half := "Traceback (most recent call last):\n" + frames
	writeOutput(t, stderr, half)
	screen.await(t, half)
	writeOutput(t, stderr, "KeyError: 1\n")
	wait(t, o)
	if got := screen.String(); got != half+"KeyError: 1\n" {
		t.Errorf("shown: %q", got)
	}
}

// What replaces a traceback is gpurun's own line; the traceback often begins behind
// a progress bar.
func TestTheLineOfATraceback(t *testing.T) {
	f := &tracebackFold{path: "log", mask: mask.New([]string{"--token", "s3cr3t-one"}, nil)}
	got := string(f.add([]byte("Traceback (most recent call last):\n"+frames+"torch.OutOfMemoryError: CUDA out of memory. s3cr3t-one\x1b\u202e\n"), time.Now()))
	if want := "gpurun: rank 0: torch.OutOfMemoryError: CUDA out of memory. ***\\x1b\\u202e (traceback in log)\n"; got != want {
		t.Errorf("shown: %q, want %q", got, want)
	}
	got = string(f.add([]byte(" 10%|█ | 1/10 [00:01<00:09]"+traced+"next\n"), time.Now()))
	if lines := strings.Split(got, "\n"); len(lines) != 4 || !strings.HasPrefix(lines[1], "gpurun: rank 0: torch.OutOfMemoryError") || lines[2] != "next" {
		t.Errorf("shown: %q", got)
	}
}

// Whatever is printed, in whatever pieces: nothing is lost, moved or made up, unless
// a traceback of a memory error is in it.
func TestFoldLosesNothing(t *testing.T) {
	line := rapid.SampledFrom([]string{
		"Traceback (most recent call last):\n", "[rank0]: Traceback (most recent call last):\n", "  File \"x\", line 1\n", "\n", "[rank0]: \n", "ValueError: x\n", "10%\r", "text", "text\n", "\r\n",
		"During handling of the above exception, another exception occurred:\n", "CUDA out of memory\n", "bar Traceback (most recent call last):\n", "\x1b[0m\xff\n",
	})
	rapid.Check(t, func(t *rapid.T) {
		f := &tracebackFold{path: "log"}
		var want, got strings.Builder
		for _, piece := range rapid.SliceOf(rapid.SliceOfN(line, 0, 5)).Draw(t, "pieces") {
			text := strings.Join(piece, "")
			want.WriteString(text)
			got.Write(f.add([]byte(text), time.Time{}))
			if rapid.IntRange(0, 5).Draw(t, "late") == 0 {
				got.Write(f.release())
			}
		}
		got.Write(f.release())
		if got.String() != want.String() {
			t.Fatalf("%q is shown as %q", want.String(), got.String())
		}
	})
}
