package hook

import (
	"encoding/json"
	"os"
	"os/exec"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// A setting of the job's own decides; its other settings stay.
func TestSettingsOfTheAllocatorAreKept(t *testing.T) {
	for name, test := range map[string]struct {
		env  []string
		want string // in JSON
	}{
		"none":             {nil, `""`},
		"others":           {[]string{"PYTORCH_CUDA_ALLOC_CONF=max_split_size_mb:128, "}, `"max_split_size_mb:128"`},
		"the newer name":   {[]string{"PYTORCH_CUDA_ALLOC_CONF=a:1", "PYTORCH_ALLOC_CONF=b:[2,3]"}, `"b:[2,3]"`},
		"the job's choice": {[]string{"PYTORCH_CUDA_ALLOC_CONF=expandable_segments:False"}, "null"},
	} {
		t.Run(name, func(t *testing.T) {
			cmd := exec.Command(testenv.Python(t), "-B", "-c", "import json\nfrom inside.remedies import expandable\nprint(json.dumps(expandable.settings()))")
			cmd.Env = append(os.Environ(), test.env...)
			out, err := cmd.CombinedOutput()
			if got := strings.TrimSpace(string(out)); err != nil || got != test.want {
				t.Errorf("%v: %s, want %s", err, got, test.want)
			}
		})
	}
}

// Once memory has run out on a GPU, the allocator uses expandable segments, and trains as before. It does not where
// gpurun does not permit that.
func TestExpandableSegmentsOnAGPU(t *testing.T) {
	python := needs(t)
	if exec.Command(python, "-c", "import sys, torch; sys.exit(not torch.cuda.is_available())").Run() != nil {
		t.Skip("needs a GPU")
	}
	const script = `
import json
import sys
import torch
from torch import nn
torch.manual_seed(0)
torch.use_deterministic_algorithms(True)
net = nn.Sequential(*[nn.Sequential(nn.Linear(1024, 4096), nn.GELU(), nn.Linear(4096, 1024)) for _ in range(8)]).cuda()
optimizer = torch.optim.AdamW(net.parameters())
batches = [torch.randn(16384, 1024, device="cuda") for _ in range(4)]
if not BARE:
    held = torch.cuda.memory_allocated() + 2 * sum(p.numel() * 4 for p in net.parameters())
    torch.cuda.set_per_process_memory_fraction((held + (3000 << 20)) / torch.cuda.mem_get_info()[1])
losses = []
for x in batches:
    loss = net(x).square().mean()
    loss.backward()
    optimizer.step()
    optimizer.zero_grad()
    losses.append(loss.item().hex())
print(json.dumps({"losses": losses, "grows": any(segment["is_expandable"] for segment in torch.cuda.memory_snapshot())}))
`
	type left struct {
		Losses []string
		Grows  bool
	}
	run := func(bare string, orders *Orders) (l left, r *trial) {
		r = newTrial(t)
		if r.bare = orders == nil; !r.bare {
			r.orders = *orders
		}
		r.env = []string{"CUBLAS_WORKSPACE_CONFIG=:4096:8", "LD_LIBRARY_PATH=" + os.Getenv("LD_LIBRARY_PATH")}
		out, errs, code := r.run(t, strings.ReplaceAll(script, "BARE", bare))
		if err := json.Unmarshal([]byte(lastLine(out)), &l); err != nil || code != 0 {
			t.Fatalf("%v, exit code %d: %s%s", err, code, out, errs)
		}
		return l, r
	}
	want, _ := run("True", nil)
	for _, permitted := range []bool{true, false} {
		orders := inPlaceOrders()
		orders.InPlace.Allocator = permitted
		got, r := run("False", orders)
		told, _ := r.told(t)
		if got.Grows != permitted || strings.Join(got.Losses, " ") != strings.Join(want.Losses, " ") {
			t.Errorf("permitted %t: left %+v, alone %+v", permitted, got, want)
		}
		if len(told.InPlace) == 0 || (told.InPlace[0].Allocator == strategy.Value("expandable")) != permitted {
			t.Errorf("permitted %t: reported %+v", permitted, told.InPlace)
		}
	}
}
