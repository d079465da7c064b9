package cause

import (
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"pgregory.net/rapid"

	_ "github.com/gpurun/gpurun/test/testenv"
)

// pieces are parts of training logs, in an order that no job would choose: the scanner's states
// must not depend on the cuts.
var pieces = func() []string {
	p := []string{
		"\n", "\r", "\r\n", "", " ", "\x00", "\x1b[31m", "\x1b[0m", "\x1b]0;title\x07", "GPU \x01 has a total capacity of 8.00 GiB\n",
		"[rank0]: ", "[1,3]<stderr>:", "[1,4]<stdout>:", "(Worker pid=7) ", "2: ", "E       ",
		"step 12 loss 1.5\n", "step 13 loss 1.4\n", "step 14 loss nan\n", "\r 5%| | 7/20 [00:01<00:02, 2.0it/s]", "{'loss': nan, 'step': 3}\n",
		"Skipping batch\n", "Exception ignored in: <f>\n", "KeyboardInterrupt\n", "Killed\n",
		"CUDA out of memory. Tried to allocate 1.00 GiB. ", "CUDA out of memory. Tried to allocate 1.00 GiB\n",
		strings.Repeat("x", 5000), strings.Repeat("y", unitLimit-10), strings.Repeat("z", unitLimit+9), strings.Repeat("plain line\n", 500),
	}
	for _, c := range scannerCases {
		p = append(p, c.log)
		p = append(p, strings.SplitAfter(c.log, "\n")...)
	}
	return p
}()

func TestFindingsDoNotDependOnTheCuts(t *testing.T) {
	rapid.Check(t, func(t *rapid.T) {
		log := []byte(strings.Join(rapid.SliceOfN(rapid.SampledFrom(pieces), 1, 30).Draw(t, "log"), ""))
		sizes := rapid.SliceOfN(rapid.OneOf(rapid.IntRange(1, 80), rapid.IntRange(1, 70000)), 1, 5).Draw(t, "sizes")
		if diff := cmp.Diff(read(log), read(log, sizes...)); diff != "" {
			t.Fatalf("in writes of %v bytes (-whole +cut):\n%s", sizes, diff)
		}
	})
}
