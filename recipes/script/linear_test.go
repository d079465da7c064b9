package script

import (
	"fmt"
	"strconv"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/test/testenv"
)

// effort is the number of lines of Python that run to read a script.
func effort(t *testing.T, script string) float64 {
	t.Helper()
	source := format.Source{Path: "train.py", Text: []byte(script)}
	if r := reading(t, true, source); r.Code[0].Failed != "" { // and the regular expressions are compiled, once
		t.Fatal(r.Code[0].Failed)
	}
	input, err := SourceRequest{Sources: []format.Source{source}, Deep: true, Seconds: 600}.Input()
	if err != nil {
		t.Fatal(err)
	}
	printed := testenv.Answer(t, SourceRequest{Deep: true}.Program(), append([]byte(`{"count": true, `), input[1:]...))
	n, err := strconv.ParseFloat(strings.TrimSpace(string(printed)), 64)
	if err != nil {
		t.Fatal(err)
	}
	return n
}

// each repeats a part of a script; #1 is its number, #2 to #4 are those of parts before it.
func each(n int, part string) string {
	var b strings.Builder
	for i := range n {
		b.WriteString(strings.NewReplacer("#1", strconv.Itoa(i), "#2", strconv.Itoa(max(0, i-1)), "#3", strconv.Itoa(max(0, i-3)), "#4", strconv.Itoa(i/2)).Replace(part))
	}
	return b.String()
}

// The effort of reading a script grows at most linearly with its length, for any content.
func TestReadingIsLinear(t *testing.T) {
	const head = "import argparse, torch, os\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int)\np.add_argument('--accum', type=int)\nargs = p.parse_args()\n"
	least := effort(t, head) // the effort for every script
	for name, script := range map[string]func(n int) string{
		"functions that call each other": func(n int) string {
			return each(n, `def f#1(x, opt_size, cfg):
    size = opt_size * 2 if cfg else args.batch_size
    for i, y in enumerate(x):
        if i % args.accum == 0:
            f#2(x, size, cfg); f#3(y, size, cfg); f#4(y, cfg, size)
        lr = size * args.accum
    return f#2(x, size, cfg)
`) + fmt.Sprintf("f%d(data, args.batch_size, args)\n", n-1)
		},
		"methods of one name": func(n int) string {
			return each(n, `class C#1:
    def __init__(self, batch_size):
        self.batch_size = batch_size
    def run(self, other):
        for batch in DataLoader(self.data, batch_size=self.batch_size):
            other.run(batch); C#2(self.batch_size).run(self)
        optimizer.step()
C#1(args.batch_size).run(args)
`)
		},
		"returns": func(n int) string {
			return "def f(x):\n" + each(n, "    if x.n#1 == args.n: return x\n    optimizer.step()\n") + "f(1)\n"
		},
		"choices": func(n int) string {
			return "if args.a == 0:\n    pass\n" + each(n/4, "elif args.a == #1:\n    optimizer.step()\n")
		},
		"one setting":  func(n int) string { return each(n, "cfg.size = args.batch_size * #1\nlr = cfg.size * 2\n") },
		"one variable": func(n int) string { return each(n, "size = size * #1 + args.batch_size\nlr = size * 2\n") },
		"models": func(n int) string {
			return each(n, "class M#1(Module):\n    def forward(self, x, mask):\n        return blocks(x=x, mask=mask)\nM#1()\n")
		},
		"subclasses": func(n int) string {
			return each(n, "class S#1(Base):\n    def __init__(self, b):\n        super().__init__(b)\nS#1(args.batch_size)\n")
		},
		"training loops": func(n int) string {
			return "def step(loss):\n    loss.backward(); optimizer.step()\n" + each(n, "for i, x in enumerate(loader):\n    step(x / args.accum)\n    if i % args.accum == 0:\n        scheduler.step()\n")
		},
		"losses": func(n int) string {
			return each(n, `class M#1(nn.Module):
    def forward(self, x, y):
        self.queue = torch.cat([self.queue, x])
        loss = F.cross_entropy(self.a(x), y) + torch.randn(1)
        return loss
def train#1(model):
    for x, y in loader:
        loss = model(x, y) / args.accum
        loss.backward()
        ema.update(model)
        optimizer.step()
train#1(M#1())
`)
		},
		"a long loop": func(n int) string {
			return "for x, y in loader:\n" + each(n, "    a#1 = a#2 @ b#3.t() + x * 2\n") + "    loss = F.mse_loss(a5, y)\n    loss.backward()\n    optimizer.step()\n"
		},
		"nested calls": func(n int) string { return each(n, "g(g(g(g(g(a % #1, b / 2)))))\n") },
		"folders": func(n int) string {
			return "def f():\n" + each(n, "    if not os.path.exists(d):\n        os.makedirs(args.out)\n") + "f()\n"
		},
		"helper of steps": func(n int) string {
			return "def h():\n" + each(n, "    a.b(#1)\n") + each(n, "for x in y:\n    h()\n")
		},
	} {
		t.Run(name, func(t *testing.T) {
			once, twice := effort(t, head+script(50))-least, effort(t, head+script(100))-least
			t.Logf("%.0f, %.0f: %.2f", once, twice, twice/once)
			if twice > 2.4*once {
				t.Errorf("twice the script takes %.1f times the effort (%.0f lines of Python, then %.0f)", twice/once, once, twice)
			}
		})
	}
}
