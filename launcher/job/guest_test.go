package job

import (
	"go/ast"
	"go/parser"
	"go/token"
	"os"
	"os/exec"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"testing"
	"time"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// inferences are all that guest.go declares.
func inferences(t *testing.T) []inference {
	t.Helper()
	file, err := parser.ParseFile(token.NewFileSet(), "guest.go", nil, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []inference
	ast.Inspect(file, func(n ast.Node) bool {
		spec, is := n.(*ast.ValueSpec)
		if is && len(spec.Values) == 1 {
			if literal, is := spec.Values[0].(*ast.BasicLit); is {
				text, _ := strconv.Unquote(literal.Value)
				all = append(all, inference(text))
			}
		}
		return true
	})
	return all
}

// use asks a prepared job everything that a run asks it.
func use(t *testing.T, p *Prepared) (warnings []string) {
	t.Helper()
	p = p.Pinned("r1").Tracked("r1")
	p.NewestCheckpoint(time.Time{})
	if c := p.Checkpoints(); c.Meant != nil {
		c.Meant("x")
	}
	m := p.Memory(func(name string) string { return map[string]string{"XDG_STATE_HOME": t.TempDir()}[name] }, false)
	inventory := func() strategy.Inventory { return strategy.Inventory{} }
	_, words := m.Recall(t.Context(), p.Policy(), p.StrategyJob(), inventory)
	if _, err := p.Apply(p.Plan(), nil, "", "/run/attempt-0"); err != nil {
		t.Error(err)
	}
	return slices.Concat(p.Warnings, words)
}

// A job starts whatever reader of its source or configuration has a fault: what that would
// have said is unknown, with one warning.
func TestAFaultInAReaderIsAWarning(t *testing.T) {
	python, err := exec.LookPath("python3")
	if err != nil {
		t.Skipf("this machine has no Python: %v", err)
	}
	dir := t.TempDir()
	for name, text := range map[string]string{
		"own/train.py": ownLoop, "own/net.py": ownNet, "own/conf.yaml": "",
		"hf/train.py":            "import torch, transformers\nfrom transformers import HfArgumentParser, TrainingArguments, Trainer\nHfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer()\n",
		"module/pkg/__init__.py": "", "module/pkg/train.py": ownLoop,
		"named/train.py": "import torch\n", "named/train.toml": "[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = { arg = \"--bs\", default = 4 }\n",
	} {
		path := filepath.Join(dir, name)
		if err := os.MkdirAll(filepath.Dir(path), 0o755); err != nil {
			t.Fatal(err)
		}
		put(t, path, text)
	}
	jobs := map[string][]string{"own": {"train.py"}, "hf": {"train.py", "--per_device_train_batch_size", "8", "--output_dir", "out"}, "module": {"-m", "pkg.train"}, "named": {"train.toml"}}
	defer func(before func(inference)) { beforeReading = before }(beforeReading)
	for _, faulty := range inferences(t) {
		reached := false
		beforeReading = func(what inference) {
			if what == faulty {
				reached = true
				var nothing *Prepared
				_ = nothing.plan
			}
		}
		var warned []string
		for name, words := range jobs {
			folder := filepath.Join(dir, name)
			p, err := prepared(t, folder, machine(folder, "PYTHON_EXEC="+python), words...)
			if err != nil {
				t.Errorf("%s: %s: %v", faulty, name, err)
				continue
			}
			warned = append(warned, use(t, p)...)
		}
		promised := Inspected{Where: cluster.Placement{Job: "7", Kind: "Slurm"}, GPUs: ranks.DeviceView{Count: 1}}
		warnings, err := promised.checkPromise(t.Context(), Surroundings{Environ: []string{"PBS_JOBID=9", "CUDA_VISIBLE_DEVICES=0"}})
		if err != nil {
			t.Errorf("%s: %v", faulty, err)
		}
		warned = append(warned, warnings...)
		said := strings.Contains(strings.Join(warned, "\n"), string(faulty)+" is not known: this is a bug in gpurun: runtime error")
		silent := faulty == writtenPlan // as a plan is changed
		if !reached || !said && !silent {
			t.Errorf("%s: reached %v, warned %v: %q", faulty, reached, said, warned)
		}
	}
}

// A configuration that gpurun cannot read, which the framework perhaps can, leaves the plan
// unknown. Where the user says which recipe it is, or has entries of [knobs], these count.
func TestAConfigurationThatCannotBeReadIsAWarning(t *testing.T) {
	const train = "import torch, transformers, deepspeed\nfrom transformers import HfArgumentParser, TrainingArguments, Trainer\nHfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\nTrainer()\n"
	for name, test := range map[string]struct{ table, warning, wrong string }{
		"inferred":    {"", "the job's plan is not known: read a configuration file of the job", ""},
		"own entries": {"[knobs]\nmicro_batch_size = { arg = \"--bs\", default = 4 }\n", "the job's plan is not known", ""},
		"wrong entry": {"[knobs]\nmicro_batch_size = { arg = \"--output_dir\" }\n", "", "read the job's plan"},
		"recipe":      {"recipe = \"hf-trainer\"\n", "", "ds.json"},
	} {
		dir, _ := folder(t, map[string]string{"train.py": train,
			"train.toml": "[job]\nscript = \"train.py\"\nargs = [\"--output_dir\", \"out\", \"--per_device_train_batch_size\", \"8\", \"--deepspeed\", \"ds.json\"]\n" + test.table})
		p, err := prepared(t, dir, machine(dir), "train.toml")
		switch {
		case test.wrong != "":
			if err == nil || !strings.Contains(err.Error(), test.wrong) {
				t.Errorf("%s: %v, want an error with %q", name, err, test.wrong)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		case !strings.Contains(strings.Join(p.Warnings, "\n"), test.warning):
			t.Errorf("%s: %q", name, p.Warnings)
		case test.table != "" && p.Plan()[strategy.MicroBatchSize] != "4":
			t.Errorf("%s: %v", name, p.Plan())
		}
	}
}

// A script that is mostly data starts at once: what is in it is unknown.
func TestALargeScriptStarts(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": "import torch\nx = '" + strings.Repeat("x", largestModule) + "'\n"})
	p, err := prepared(t, dir, machine(dir), "train.py")
	if err != nil || !strings.Contains(strings.Join(p.Warnings, "\n"), string(scriptSource)+" is not known: read "+dir+"/train.py: it is too large: more than 1 MiB") {
		t.Fatalf("%+v, %v", p, err)
	}
}
