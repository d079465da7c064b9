package diagnose

import (
	"bytes"
	"context"
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy/cause"
)

const keyError = "Traceback (most recent call last):\n  File \"t.py\", line 3, in <module>\n    x = cfg['a']\nKeyError: 'a'\n"

// TestUnreadableRankIsReported: what other ranks left is diagnosed, and the error names the file that could not be read.
func TestUnreadableRankIsReported(t *testing.T) {
	binary := strings.Repeat("\x01\x02\x03\x04", 4096)
	dir := tree(t, map[string]string{
		"torchrun/rdzv/attempt_0/0/stderr.log": keyError, "torchrun/rdzv/attempt_0/1/stderr.log": binary,
		"flat/attempt_0/0/stderr.log": keyError, "flat/attempt_0/1/stderr.log": keyError, "flat/attempt_0/1/stdout.log": binary,
		"named/rank0.log": keyError, "named/rank1.log": keyError,
	})
	secret := filepath.Join(dir, "named", "rank1.log")
	if err := os.Chmod(secret, 0); err != nil {
		t.Fatal(err)
	}
	for name, want := range map[string]string{"torchrun": "rank 1", "flat": "rank 1", "named": secret} {
		if name == "named" && os.Getuid() == 0 {
			continue // root reads every file
		}
		var shown []FileDiagnosis
		err := Request{Names: []string{filepath.Join(dir, name)}, Attempt: -1, Stdin: os.Stdin, Show: func(d FileDiagnosis) error {
			shown = append(shown, d)
			return nil
		}}.Run()
		if len(shown) != 1 || shown[0].Cause != cause.UserError || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %d diagnoses, %v", name, len(shown), err)
		}
	}
}

// TestAnswerSoFar: a pipe that never ends is diagnosed as far as it was read, once the user asks for the end.
func TestAnswerSoFar(t *testing.T) {
	for what, text := range map[string]string{"an error": "step 1 loss 2\n" + keyError, "a line that has not ended": keyError + "step 2", "nothing": ""} {
		t.Run(what, func(t *testing.T) {
			pipe := filepath.Join(t.TempDir(), "pipe")
			if err := unix.Mkfifo(pipe, 0o600); err != nil {
				t.Fatal(err)
			}
			ctx, stop := context.WithCancel(context.Background())
			defer stop()
			var out bytes.Buffer
			done := make(chan error, 1)
			go func() {
				done <- Request{Context: ctx, Names: []string{pipe}, Attempt: -1, Stdin: os.Stdin, Show: func(d FileDiagnosis) error {
					_, err := d.WriteTo(&out)
					return err
				}}.Run()
			}()
			if text != "" {
				writer, err := os.OpenFile(pipe, os.O_WRONLY, 0) // waits for the reader
				if err != nil {
					t.Fatal(err)
				}
				defer writer.Close() // it never ends
				if _, err := writer.WriteString(text); err != nil {
					t.Fatal(err)
				}
				for unread := 1; unread > 0; { // the reader has it all
					if unread, err = unix.IoctlGetInt(int(writer.Fd()), unix.TIOCINQ); err != nil {
						t.Fatal(err)
					}
					time.Sleep(time.Millisecond)
				}
			}
			stop()
			select {
			case err := <-done:
				if said := out.String(); err != nil || !strings.Contains(said, "the run has not ended") || strings.Contains(said, "KeyError") != strings.Contains(text, "KeyError") {
					t.Errorf("%v: %q", err, said)
				}
			case <-time.After(2 * time.Minute):
				t.Fatal("it has not ended")
			}
		})
	}
}
