package job

import "testing"

// FuzzCommand holds that no line makes job.command panic, and that a line which
// is refused is refused with a word.
func FuzzCommand(f *testing.F) {
	for _, line := range []string{`A=1 torchrun --nproc-per-node 2 train.py "a b" 'c'\ d`, "a \\\n b", `x && y`, `"\`, "env A=1", "exec exec", "python -m", "nohup uv run $A ${B:-c d} \"$UNSET\""} {
		f.Add(line)
	}
	f.Fuzz(func(t *testing.T, line string) {
		if _, err := commandFrom(line, words{}, func(name string) (string, bool) { return name, name != "UNSET" }); err != nil && err.Error() == "" {
			t.Errorf("%q is refused without a word", line)
		}
	})
}
