package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// An error in any function of the hook leaves a healthy job its results, and one that runs out of memory those of the
// rescued step or its own error. make stress has all functions.
func TestErrorOfTheHookIsNotTheJobs(t *testing.T) {
	every := "160"
	if text := os.Getenv("GPURUN_WALL"); text != "" {
		every = text
	}
	cmd := exec.Command(testenv.Torch(t), "-B", testdata(t, "wall.py"), ".", every, strconv.FormatUint(testenv.Of(t), 10))
	cmd.Env = append(os.Environ(), "GPURUN_TEST_RULES="+string(rulesText()))
	var stderr strings.Builder
	cmd.Stderr = &stderr
	out, err := cmd.Output()
	if err != nil {
		t.Fatalf("%v; stderr:\n%s", err, stderr.String())
	}
	counts := map[string]int{}
	for line := range strings.Lines(string(out)) {
		var got struct {
			Job, Function, Wrong string
			Code                 int
			Problems             []string
			Counts               map[string]int
		}
		switch err := json.Unmarshal([]byte(line), &got); {
		case err != nil:
			t.Errorf("%v in %s", err, line)
		case got.Counts != nil:
			counts = got.Counts
		case got.Function != "":
			t.Errorf("an error in %s, in the job %q: %s: %s", got.Function, got.Job, got.Wrong, line)
		case len(got.Problems) > 0 || (got.Code != 0) != (got.Job == "ends"):
			t.Errorf("the job alone, with the hook: %s", line)
		}
	}
	if counts["runs"] < 10 || counts["noted"] < counts["runs"]/2 {
		t.Errorf("few errors were put in, or noted: %v", counts)
	}
	t.Logf("%v", counts)
}

// Memory that runs out in a pass that a remedy has changed is that, and no error of the hook.
func TestMemoryThatARemedyLacksIsNoErrorOfTheHook(t *testing.T) {
	python := needs(t)
	text, err := os.ReadFile("inside/remedies/losspart.py")
	if err != nil {
		t.Fatal(err)
	}
	const gets, lacks = "made, scales = torch.empty_like(logits, memory_format=torch.contiguous_format), self.scales(gradient, weight, divisor)", `raise RuntimeError("DefaultCPUAllocator: can't allocate memory: you tried to allocate 4096 bytes")`
	if !strings.Contains(string(text), gets) {
		t.Fatal("losspart.py has changed")
	}
	r := newTrial(t)
	r.parts = map[string]string{"losspart": strings.NewReplacer(gets, lacks, "256 << 20", "1 << 10").Replace(string(text))}
	script := r.module(t, "short", `import torch
net = torch.nn.Linear(8, 64)
optimizer = torch.optim.SGD(net.parameters(), lr=.1)
(torch.nn.functional.cross_entropy(net(torch.ones(64, 8)), torch.zeros(64, dtype=torch.long)) * 3).backward()
`)
	r.orders = Orders{Script: script, Hooks: true, Turn: strategy.Plan{strategy.LossParts: "on"}}
	out, err := r.job(t, python, script).CombinedOutput()
	if err == nil || !strings.HasPrefix(lastLine(string(out)), "RuntimeError: DefaultCPUAllocator") {
		t.Errorf("%v: %s", err, out)
	}
	if told, _ := r.told(t); len(told.Applied) == 0 {
		t.Errorf("the loss is not in parts: %+v", told)
	}
}
