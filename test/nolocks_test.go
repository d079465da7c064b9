package test

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/show"
)

const noLocksTrainer = `case "$*" in *"--bs 8"*)
	echo 'torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.' >&2
	exit 1
esac
echo "step 1"
touch trains
until [ -e go ]; do sleep 0.1; done
`

// TestFileSystemWithoutLocks: where flock fails, as on NFS without locks, a job is rescued, a second gpurun is refused,
// the list shows the run, and what fitted is remembered.
func TestFileSystemWithoutLocks(t *testing.T) {
	python, err := osexec.LookPath("python3")
	if err != nil {
		t.Skip(err)
	}
	t.Parallel()
	dir := home(t, map[string]string{"train.sh": noLocksTrainer, "nolocks.py": withoutLocks, "train.toml": `[job]
program = ["sh", "train.sh", "--bs", "8"]
[launch]
nproc_per_node = 2
[knobs]
micro_batch_size = { arg = "--bs" }
gradient_accumulation_steps = { arg = "--accumulate", default = 1 }
`})
	gpurun := func(args ...string) (*osexec.Cmd, *strings.Builder) {
		cmd := osexec.Command(python, append([]string{"nolocks.py", binary(t)}, args...)...)
		said := &strings.Builder{}
		cmd.Dir, cmd.Stderr = dir, said
		cmd.Env = append(os.Environ(), "XDG_STATE_HOME="+filepath.Join(dir, "state"))
		return cmd, said
	}
	first, said := gpurun("--run-dir", "run", "train.toml")
	if err := first.Start(); err != nil {
		t.Fatal(err)
	}
	await(t, "the rescued attempt", func() bool { _, err := os.Stat(filepath.Join(dir, "trains")); return err == nil })
	second, refused := gpurun("--run-dir", "run", "train.toml")
	_ = second.Run() // its code is checked
	if second.ProcessState.ExitCode() != 2 || !strings.Contains(refused.String(), "is in use: another gpurun runs in it") {
		t.Errorf("a second gpurun: %d\n%s", second.ProcessState.ExitCode(), refused.String())
	}
	list, _ := gpurun("runs", "--json", "run")
	var all []show.Entry
	if text, err := list.Output(); err != nil || json.Unmarshal(text, &all) != nil || len(all) != 1 || !all[0].Locked || all[0].Attempts != 2 {
		t.Errorf("the list: %v %s", err, text)
	}
	if err := os.WriteFile(filepath.Join(dir, "go"), nil, 0o600); err != nil {
		t.Fatal(err)
	}
	if err := first.Wait(); err != nil {
		t.Fatalf("%v\n%s", err, said.String())
	}
	again, said := gpurun("train.toml")
	if err := again.Run(); err != nil || !strings.Contains(said.String(), "micro batch 8→4") || strings.Contains(said.String(), "out of memory on rank") {
		t.Errorf("the next run does not begin with the plan that fitted: %v\n%s", err, said.String())
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "run", "lock.holder*")); len(left) > 0 {
		t.Errorf("left over: %v", left)
	}
}
