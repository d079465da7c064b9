package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/strategy"
)

func TestInstalledPackagesAreNotRead(t *testing.T) {
	const loop = "from lib import helper\n" + "import argparse, torch\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\np.add_argument(\"--batch-size\", type=int, default=8)\nargs = p.parse_args()\nfor x in DataLoader(data, batch_size=args.batch_size):\n    net(x).backward()\n    optimizer.step()\n"
	dir, p := ownJob(t, map[string]string{
		"train.py": loop, "venv/lib/python3.11/site-packages/lib.py": "import torch\n", "venv/lib/python3.11/site-packages/tool/__main__.py": loop,
		"train.toml": "[job]\nscript = \"train.py\"\nenv = { PYTHONPATH = \"venv/lib/python3.11/site-packages\" }\n",
		"tool.toml":  "[job]\nmodule = \"tool\"\nenv = { PYTHONPATH = \"venv/lib/python3.11/site-packages\" }\n",
	}, "train.toml")
	if n := len(p.sources()); n != 1 || p.StrategyJob().Knobs[strategy.MicroBatchSize].Likely == nil {
		t.Errorf("%d sources, %v", n, p.Plan())
	}
	tool, err := prepared(t, dir, machine(dir, "PYTHON_EXEC="+p.Python()), filepath.Join(dir, "tool.toml"))
	if err != nil {
		t.Fatal(err)
	}
	if tool.source == nil || tool.RecipeName() != "none" {
		t.Errorf("recipe %s", tool.RecipeName())
	}
}

// A source that takes long to read keeps no job from starting: what it says is unknown.
func TestReadingHasABudget(t *testing.T) {
	defer func(budget time.Duration) { readingBudget = budget }(readingBudget)
	readingBudget = time.Millisecond
	long := ownLoop + strings.Repeat("x = [len(y) * 2 for y in range(args.accum)]\n", 20000)
	_, p := ownJob(t, map[string]string{"train.py": long, "net.py": ownNet}, "train.py")
	if w := strings.Join(p.Warnings, "\n"); !strings.Contains(w, "what the code of the job calls is not known") || !strings.Contains(w, "take longer than 0.001 s to read") {
		t.Errorf("%q", w)
	}
	if len(p.Plan()) > 1 || p.RecipeName() != "none" {
		t.Errorf("%s, %v", p.RecipeName(), p.Plan())
	}
}

// The program that reads a source is no word of a command line, which every user of the
// machine sees.
func TestNotificationReaderIsNoArgument(t *testing.T) {
	dir := t.TempDir()
	seen := filepath.Join(dir, "seen")
	put(t, filepath.Join(dir, "python3"), "#!/bin/sh\nprintf '%s\\n' \"$*\" >>"+seen+"\nexec python3 \"$@\"\n")
	if err := os.Chmod(filepath.Join(dir, "python3"), 0o755); err != nil {
		t.Fatal(err)
	}
	put(t, filepath.Join(dir, "train.py"), ownLoop)
	put(t, filepath.Join(dir, "net.py"), ownNet)
	p, err := prepared(t, dir, machine(dir), "train.py")
	if err != nil {
		t.Fatal(err)
	}
	words, err := os.ReadFile(seen)
	if err != nil || p.RecipeName() == "none" {
		t.Fatalf("%v, recipe %s", err, p.RecipeName())
	}
	for line := range strings.Lines(string(words)) {
		if strings.Contains(line, "-S") && len(line) > 200 {
			t.Errorf("the command is %.300q", line)
		}
	}
	if strings.Contains(string(words), "class Surface") {
		t.Error("the reader's source is a word of a command")
	}
}
