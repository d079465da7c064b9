package diagnose

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

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
