package hook

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseStep(t *testing.T) {
	const good = "  412  2000  2.5  1700000000.250000  0  100  200  300  4  eval  0.25 1.5  412\n"
	want := OptimizerStep{N: 412, Total: 2000, Loss: 2.5, At: time.Unix(1700000000, 250e6).UTC(), Held: HeldMemory{Device: 0, Allocated: 100, Reserved: 200, Peak: 300, Retries: 4}, Phase: "eval", Data: 250 * time.Millisecond, Forward: 1500 * time.Millisecond}
	if got, ok := parseStep(good); !ok || got != want {
		t.Errorf("%+v (%v), want %+v", got, ok, want)
	}
	cpu, ok := parseStep("1 0 nan 1700000000 -1 100 0 300 0 train 0 0 1\nrest of a longer record")
	if !ok || cpu.Held.Device != -1 || !math.IsNaN(cpu.Loss) {
		t.Errorf("on the CPU: %+v (%v)", cpu, ok)
	}
	for _, own := range []string{"inf", "-0.25", "nan", "86400", "x"} {
		if got, ok := parseStep(strings.Replace(good, " 0.25 ", " "+own+" ", 1)); !ok || got.Data != 0 || got.N != 412 {
			t.Errorf("%s seconds for data: %+v (%v)", own, got, ok)
		}
	}
	for name, record := range map[string]string{
		"torn":              strings.TrimSuffix(good, "\n"),
		"two halves":        strings.Replace(good, " 412\n", " 413\n", 1),
		"of an older probe": "412 2000 2.5 1700000000 0 100 200 300 4 eval 412\n",
		"a number too many": strings.Replace(good, "100", "100 100", 1),
		"no step":           "0 0 nan 1700000000 -1 0 0 0 0 train 0 0 0\n",
		"less than nothing": strings.Replace(good, "100", "-100", 1),
		"more than there is": strings.Replace(good, "300",
			"1125899906842624", 1),
		"no number":     strings.Replace(good, "200", "0x10", 1),
		"no device":     strings.Replace(good, "  0  ", "  -2  ", 1),
		"devices":       strings.Replace(good, "  0  ", "  1024  ", 1),
		"before it all": strings.Replace(good, "1700000000.250000", "-1", 1),
		"no phase":      strings.Replace(good, "eval", "\x1b[2J", 1),
		"nothing":       "",
	} {
		if got, ok := parseStep(record); ok {
			t.Errorf("%s: %+v", name, got)
		}
	}
}

// phased is a job whose reports are read while it evaluates, saves and trains.
const phased = `import io, sys, torch
model = torch.nn.Linear(4, 4)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
said = lambda: open(sys.argv[1]).read().split()[9]
def step():
    model(torch.ones(2, 4)).sum().backward()
    optimizer.step()
class Part:
    def __reduce__(self):
        print("saving:", said())
        return int, ()
step()
step()
print("trained:", said())
model.eval()
with torch.no_grad():
    model(torch.ones(2, 4))
print("evaluated:", said())
torch.save({"part": Part()}, io.BytesIO())
print("saved:", said())
model.train()
step()
print("trains:", said())
`

// apart is one of two ranks that wait for each other, and for its data. In each step it draws
// four samples and calls the model for a short time and a long one; another thread draws without
// end. It ends once both parts are reported, or after some seconds.
const apart = `import os, sys, threading, time, torch
import torch.distributed as dist
steps, world, way = sys.argv[1:]
os.environ["WORLD_SIZE"] = world
dist.init_process_group("gloo", init_method="file://" + os.path.abspath("store"), rank=0, world_size=1)
class Slow(torch.utils.data.Dataset):
    def __len__(self):
        return 40
    def __getitem__(self, i):
        time.sleep(.01)
        return torch.ones(4)
class Net(torch.nn.Linear):
    long = False
    def __init__(self, *sizes):
        super().__init__(*sizes)
        self.register_buffer("scale", torch.ones(1))  # which its wrapper has all ranks share
    def forward(self, x):
        time.sleep(.1 if self.long else .01)
        self.long = not self.long
        if way == "together":
            dist.all_reduce(torch.ones(1))
        return super().forward(x)
model = torch.nn.parallel.DistributedDataParallel(Net(4, 4))
model = model.module if way == "no wrapper" else model
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
def prefetch():
    while True:
        list(torch.utils.data.DataLoader(Slow(), batch_size=40))
threading.Thread(target=prefetch, daemon=True).start()
end = time.monotonic() + 6
def told():
    own = [float(word) for word in open(steps).read().split()[10:12]] if os.path.exists(steps) else [0]
    return min(own) > 0 and max(own) < 9 or time.monotonic() > end
while not told():
    for i, x in enumerate(torch.utils.data.DataLoader(Slow(), batch_size=2)):
        model(x).sum().backward()
        if i % 2:
            optimizer.step()
            optimizer.zero_grad()
    for x in torch.utils.data.DataLoader(Slow(), batch_size=40):
        with torch.no_grad():
            model.eval()(x)
    model.train()
`

// A rank of several reports its own part of a step, as far as there is one.
func TestRanksReportTheirShareOfAStep(t *testing.T) {
	needs(t)
	for name, test := range map[string]struct {
		world         string
		data, forward bool // is told
	}{
		"apart": {"2", true, true}, "together": {"2", true, false}, "no wrapper": {"2", true, false}, "alone": {"1", false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			r := newTrial(t)
			r.orders.Script = r.module(t, "apart", apart)
			r.warmed(t, r.orders.Script, filepath.Join(r.dir, "rank0", "steps"), test.world, name)
			s := r.steps(t)
			if told := s.Data > 0; told != test.data || told && (s.Data < 40*time.Millisecond || s.Data > 300*time.Millisecond) {
				t.Errorf("%v for data", s.Data)
			}
			if told := s.Forward > 0; told != test.forward || told && (s.Forward < 110*time.Millisecond || s.Forward > time.Second) {
				t.Errorf("forward %v", s.Forward)
			}
		})
	}
}

// What a process does between two steps is reported at once, and ends with the next one.
func TestPhasesAreReported(t *testing.T) {
	needs(t)
	r := newTrial(t)
	r.orders.Script = r.module(t, "phases", phased)
	out := r.warmed(t, r.orders.Script, filepath.Join(r.dir, "rank0", "steps"))
	if want := "trained: train\nevaluated: eval\nsaving: save\nsaved: eval\ntrains: train\n"; out != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	if s := r.steps(t); s.N != 3 || s.Phase != "train" {
		t.Errorf("%+v", s)
	}
}
