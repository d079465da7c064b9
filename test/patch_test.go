package test

import (
	"os"
	osexec "os/exec"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/environ"
	runner "github.com/gpurun/gpurun/launcher/python"
	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/recipes/script"
	"github.com/gpurun/gpurun/test/testenv"
)

// A patchTrial is a script of testdata/patch, whose first lines label what a patch adds, what it refuses and why,
// and what it notes:
//
//	# batch accumulation
//	# resume: it writes no checkpoint
//	# note: BatchNorm
type patchTrial struct {
	*equalTrial
	added   []script.PatchPart
	refused map[script.PatchPart]string
	note    string
	source  []byte
	patch   script.Patch
	dir     string // has the patched script
}

// allParts are the parts that a patch may add.
var allParts = []script.PatchPart{script.PatchBatch, script.PatchAccumulation, script.PatchResume}

// A patch for a script adds what its label names. git takes its diff. With the defaults of its arguments the patched
// script prints the same losses, to the last digit. gpurun reads the arguments in it, and the gradients of a step
// in two halves are those of the whole.
func TestPatchedScriptsTrainTheSame(t *testing.T) {
	python := testenv.Torch(t)
	t.Parallel()
	files, err := filepath.Glob(filepath.Join("testdata", "patch", "*.py"))
	if err != nil || len(files) < 20 {
		t.Fatalf("%d scripts, %v", len(files), err)
	}
	for _, file := range files {
		t.Run(filepath.Base(file), func(t *testing.T) {
			t.Parallel()
			patchedScript(t, python, file).check(t, python)
		})
	}
}

// A loop that runs a function of a module with another backward pass is refused, and a loop in a module is named.
func TestPatchReadsModules(t *testing.T) {
	python := testenv.Python(t)
	const attack = "def perturb(model, x):\n    loss = model(x).sum()\n    loss.backward()\n    return x + x.grad.sign()\n"
	const loop = `import torch
from torch.utils.data import DataLoader, TensorDataset
from other import perturb
loader = DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=8)
model = torch.nn.Linear(4, 2)
optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
for x, in loader:
    x = perturb(model, x.requires_grad_())
    optimizer.zero_grad()
    loss = model(x).mean()
    loss.backward()
    optimizer.step()
`
	for name, test := range map[string]struct{ script, module, want string }{
		"an attack": {loop, attack, "train.py:8: accumulation: perturb() has a backward pass, too"},
		"a loop":    {"from other import train\ntrain()\n", "def train():\n    for x in loader:\n        model(x).backward()\n", "train.py: accumulation: the loop with the backward pass is in other.py, and a patch changes only the script"},
		"a batch of a module": {"from torch.utils.data import DataLoader\n" + strings.Replace(loop, "from other import perturb\nloader = DataLoader(TensorDataset(torch.randn(48, 4)), batch_size=8)", "from other import made\nloader = made()", 1),
			"import os\nfrom torch.utils.data import DataLoader\ndef made():\n    return DataLoader([1], batch_size=int(os.environ['B']) // 2)\n", "other.py:4: batch: the batch size is computed: int(os.environ['B']) // 2"},
		"a parser of a module": {strings.Replace(strings.Replace(loop, "import perturb", "import parse", 1), "    x = perturb(model, x.requires_grad_())\n", "", 1) + "args = parse()\n", "import argparse\ndef parse():\n    return argparse.ArgumentParser().parse_args()\n", "train.py: accumulation: other.py reads the command line: a second parser would refuse its arguments"},
		"an older Python":      {"import torch\nprint 'x'\n", "", "train.py:2: accumulation: it is not valid Python (SyntaxError)"},
		"a sum":                {strings.Replace(loop, "model(x).mean()", "(model(x) - perturb(x)).pow(2).sum()", 1), "", "train.py: accumulation: whether the loss is a mean over the samples is not certain: (model(x) - perturb(x)).pow(2).sum()"},
		"another function":     {loop, strings.Replace(attack, "loss.backward()", "x.grad = torch.autograd.grad(loss, x)[0]", 1), ""},
	} {
		sources := []format.Source{{Path: "train.py", Text: []byte(test.script)}, {Path: "other.py", Text: []byte(test.module)}}
		parts := []script.PatchPart{script.PatchAccumulation}
		if strings.Contains(test.want, ": batch: ") {
			parts = []script.PatchPart{script.PatchBatch}
		}
		p, err := script.MakePatch(sources, parts, func(program string, input []byte) ([]byte, error) {
			return runner.At(python, t.TempDir(), environ.Parse(os.Environ())).Output(t.Context(), program, input)
		})
		got := ""
		for _, gap := range p.Missing {
			got += gap.String()
		}
		if err != nil || got != test.want || len(p.Added) == 0 != (test.want != "") {
			t.Errorf("%s: %q, %v, %q, want %q", name, p.Added, err, got, test.want)
		}
	}
}

// patchedScript reads a script with its label, patches it, and reads the patched one as plan does.
func patchedScript(t *testing.T, python, file string) *patchTrial {
	t.Helper()
	p := &patchTrial{equalTrial: &equalTrial{name: strings.TrimSuffix(filepath.Base(file), ".py")}, refused: map[script.PatchPart]string{}, dir: t.TempDir()}
	var err error
	if p.source, err = os.ReadFile(file); err != nil {
		t.Fatal(err)
	}
	for line := range strings.Lines(string(p.source)) {
		label, is := strings.CutPrefix(strings.TrimSpace(line), "# ")
		if !is {
			break
		}
		part, reason, refused := strings.Cut(label, ": ")
		switch {
		case part == "note":
			p.note = reason
		case refused:
			p.refused[script.PatchPart(part)] = reason
		default:
			for name := range strings.FieldsSeq(label) {
				p.added = append(p.added, script.PatchPart(name))
			}
		}
	}
	wants := slices.DeleteFunc(slices.Clone(allParts), func(part script.PatchPart) bool {
		return part == script.PatchBatch && !slices.Contains(p.added, part) && p.refused[part] == "" // it is an argument already
	})
	p.patch, err = script.MakePatch([]format.Source{{Path: p.name + ".py", Text: p.source}}, wants, func(program string, input []byte) ([]byte, error) {
		return runner.At(python, p.dir, environ.Parse(os.Environ())).Output(t.Context(), program, input)
	})
	if err != nil {
		t.Fatalf("%s: %v", p.name, err)
	}
	if err := os.WriteFile(filepath.Join(p.dir, p.name+".py"), p.source, 0o600); err != nil {
		t.Fatal(err)
	}
	return p
}

func (p *patchTrial) check(t *testing.T, python string) {
	if !slices.Equal(p.patch.Added, p.added) {
		t.Errorf("added %q, want %q", p.patch.Added, p.added)
	}
	for part, want := range p.refused {
		if !slices.ContainsFunc(p.patch.Missing, func(g script.Gap) bool { return g.Part == part && strings.Contains(g.Reason, want) }) {
			t.Errorf("missing %v, want %s: %s", p.patch.Missing, part, want)
		}
	}
	if got := strings.Join(p.patch.Notes, "; "); !strings.Contains(got, p.note) {
		t.Errorf("notes %q, want %q", got, p.note)
	}
	if len(p.patch.Added) == 0 {
		return
	}
	before := p.trained(t, python)
	git := osexec.Command("git", "apply", "-")
	git.Dir, git.Stdin = p.dir, strings.NewReader(p.patch.Diff)
	if out, err := git.CombinedOutput(); err != nil {
		t.Fatalf("git apply: %v: %s\n%s", err, out, p.patch.Diff)
	}
	if after := p.trained(t, python); after != before || before == "" {
		t.Errorf("the patched script prints %q, want %q\n%s", after, before, p.patch.Diff)
	}
	p.survey(t, p.dir, python, p.name+".py")
	if !slices.Contains(p.patch.Added, script.PatchAccumulation) || p.note != "" {
		return
	}
	if !p.offer.Available {
		t.Fatalf("no smaller micro batch is offered: %s\n%s", p.offer.Reason, p.patch.Diff)
	}
	pair := gradientPair{filepath.Join(p.dir, p.name+".py"), [][]string{{}, p.line}}
	runBothWays(t, python, []gradientPair{pair}, []*equalTrial{p.equalTrial})
	if len(p.Differences) == 0 || p.Differences[0] > 1e-5 || slices.Max(p.Differences) > 1e-3 {
		t.Errorf("%v: the gradients differ by %.2g: %s\n%s", p.line, p.Differences, p.Error, p.patch.Diff)
	}
	t.Logf("%v, %s: the gradients differ by %.1e", p.line, p.offer.Training, p.Differences)
}

// trained returns what the script prints.
func (p *patchTrial) trained(t *testing.T, python string) string {
	t.Helper()
	cmd := osexec.Command(python, p.name+".py")
	cmd.Dir, cmd.Env = p.dir, append(os.Environ(), "CUDA_VISIBLE_DEVICES=", "OMP_NUM_THREADS=1")
	out, errs, code := testenv.Warmed(t, cmd)
	if code != 0 {
		t.Fatalf("exit code %d: %s", code, errs)
	}
	return out
}
