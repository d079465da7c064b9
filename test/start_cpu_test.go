package test

import (
	"encoding/json"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// plan --start runs the job until its first batch has reached the model, ends it as Ctrl-C does, leaves no run directory,
// and shows what the process said. plan alone runs no code of the job.
func TestPlanStartsTheJobOnRequest(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	dir := t.TempDir()
	const script = `
import argparse, pathlib, time
import torch
pathlib.Path("imported").write_text("")
parser = argparse.ArgumentParser()
parser.add_argument("--epochs", type=int, default=8)
parser.add_argument("--batch-size", type=int, default=4)
parser.add_argument("--test-batch-size", type=int, default=8)
parser.add_argument("--accum", type=int, default=1)
args = parser.parse_args()
net = torch.nn.Linear(4, 1)
optimizer = torch.optim.SGD(net.parameters(), lr=.1)
data = torch.utils.data.TensorDataset(torch.randn(4000000, 4))
try:
    for x, in torch.utils.data.DataLoader(data, batch_size=args.batch_size * 2):
        net(x).mean().backward()
        optimizer.step()
        pathlib.Path("stepped").write_text("")
    pathlib.Path("trained").write_text("")
except KeyboardInterrupt:
    pathlib.Path("interrupted").write_text("")
    raise
`
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(script), 0o600); err != nil {
		t.Fatal(err)
	}
	plan := func(words ...string) (text string, shown struct {
		Reported  strategy.Plan
		Confirmed strategy.Arguments
		Likely    map[strategy.Knob][]strategy.Likely
	}) {
		cmd := osexec.CommandContext(t.Context(), binary(t), append(append([]string{"plan", "--json"}, words...), python, "train.py", "--batch-size", "16")...)
		cmd.Dir, cmd.Env = dir, append(insideEnv(), append(onCPU, "XDG_STATE_HOME="+filepath.Join(dir, "state"), "TMPDIR="+dir)...)
		var errs strings.Builder
		cmd.Stderr = &errs
		out, err := cmd.Output()
		if err == nil {
			err = json.Unmarshal(out, &shown)
		}
		if err != nil {
			t.Fatalf("plan %q: %v\n%s%s", words, err, out, errs.String())
		}
		return errs.String(), shown
	}
	is := func(name string) bool { _, err := os.Stat(filepath.Join(dir, name)); return err == nil }
	_, before := plan()
	if is("imported") || len(before.Confirmed) > 0 || len(before.Reported) > 0 || before.Likely[strategy.MicroBatchSize] == nil {
		t.Errorf("without --start: imported %t, %+v", is("imported"), before)
	}
	said, after := plan("--start")
	if !is("imported") || is("trained") || !is("interrupted") || is(".gpurun") {
		t.Errorf("imported %t, trained %t, interrupted %t, run directory %t", is("imported"), is("trained"), is("interrupted"), is(".gpurun"))
	}
	if left, _ := filepath.Glob(filepath.Join(dir, "gpurun-start-*")); len(left) > 0 {
		t.Errorf("left: %q", left)
	}
	// How many steps the job makes before its end differs, and so does what else is confirmed.
	if _, confirmed := after.Confirmed[strategy.MicroBatchSize]; after.Reported[strategy.MicroBatchSize] != "32" || confirmed || !strings.Contains(said, "the job starts") {
		t.Errorf("the loader has 32 samples, and --batch-size is 16: %+v\n%s", after, said)
	}
	text := strings.ReplaceAll(script, "args.batch_size * 2", "args.batch_size")
	if err := os.WriteFile(filepath.Join(dir, "train.py"), []byte(text), 0o600); err != nil {
		t.Fatal(err)
	}
	if _, after := plan("--start"); after.Reported[strategy.MicroBatchSize] != "16" || after.Confirmed[strategy.MicroBatchSize].Name != "--batch-size" {
		t.Errorf("the loader has as many samples as --batch-size: %+v", after)
	}
}
