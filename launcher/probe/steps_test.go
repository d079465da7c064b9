package probe

import (
	"math"
	"path/filepath"
	"strings"
	"testing"
	"time"
)

func TestParseStep(t *testing.T) {
	const good = "  412  2000  2.5  1700000000.250000  0  100  200  300  4  eval   412\n"
	want := Step{N: 412, Total: 2000, Loss: 2.5, At: time.Unix(1700000000, 250e6).UTC(), Held: Held{Device: 0, Allocated: 100, Reserved: 200, Peak: 300, Retries: 4}, Phase: "eval"}
	if got, ok := parseStep(good); !ok || got != want {
		t.Errorf("%+v (%v), want %+v", got, ok, want)
	}
	cpu, ok := parseStep("1 0 nan 1700000000 -1 100 0 300 0 train 1\nrest of a longer record")
	if !ok || cpu.Held.Device != -1 || !math.IsNaN(cpu.Loss) {
		t.Errorf("on the CPU: %+v (%v)", cpu, ok)
	}
	for name, record := range map[string]string{
		"torn":              strings.TrimSuffix(good, "\n"),
		"two halves":        strings.Replace(good, " 412\n", " 413\n", 1),
		"of an older probe": "412 2000 2.5 1700000000 412\n",
		"a number too many": strings.Replace(good, "100", "100 100", 1),
		"no step":           "0 0 nan 1700000000 -1 0 0 0 0 train 0\n",
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

// phased says what is told of it while it evaluates, saves and trains.
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

// What a process does between two steps is told at once, and is over with the next one.
func TestPhasesAreTold(t *testing.T) {
	path := needs(t)
	r := newTrial(t)
	r.orders.Script = r.module(t, "phases", phased)
	out := r.train(t, path, r.orders.Script, filepath.Join(r.dir, "rank0", "steps"))
	if want := "trained: train\nevaluated: eval\nsaving: save\nsaved: eval\ntrains: train\n"; out != want {
		t.Errorf("%s\nwant\n%s", out, want)
	}
	if s := r.steps(t); s.N != 3 || s.Phase != "train" {
		t.Errorf("%+v", s)
	}
}
