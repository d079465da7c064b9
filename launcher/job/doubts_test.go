package job

import (
	"slices"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// TestPrecisionIsDoubted: a precision is assumed only where nothing in the job's code may
// have made it another.
func TestPrecisionIsDoubted(t *testing.T) {
	const loop = "import torch\nloader = torch.utils.data.DataLoader(data, batch_size=8)\n"
	const trainer = "from transformers import HfArgumentParser, TrainingArguments, Trainer\nHfArgumentParser(TrainingArguments)\n"
	for name, test := range map[string]struct {
		script, version string
		argv            []string
		doubtful        bool
	}{
		"a loop of one's own":          {loop, "", nil, false},
		"a model that is cast":         {loop + "model = Net().to(device, torch.bfloat16)\n", "", nil, true},
		"halves":                       {loop + "model = Net().half()\n", "", nil, true},
		"autocast":                     {loop + "with torch.autocast('cuda', torch.bfloat16):\n    model(x)\n", "", nil, true},
		"the Trainer":                  {trainer, "4.57.0", []string{"--output_dir", "out"}, false},
		"a Trainer's model":            {trainer + "m = AutoModel.from_pretrained('x')\n", "4.57.0", []string{"--output_dir", "out"}, false},
		"one of transformers 5":        {trainer + "m = AutoModel.from_pretrained('x')\n", "5.1.0", []string{"--output_dir", "out"}, true},
		"one that is loaded as bf16":   {trainer + "m = AutoModel.from_pretrained('x', torch_dtype=torch.bfloat16)\n", "4.57.0", []string{"--output_dir", "out"}, true},
		"autocast that a recipe knows": {trainer + "with torch.autocast('cuda'):\n    pass\n", "4.57.0", []string{"--output_dir", "out"}, false},
	} {
		t.Run(name, func(t *testing.T) {
			dir, _ := folder(t, map[string]string{"train.py": test.script})
			if test.version != "" {
				put(t, dir+"/python3", parses+"echo '{\"version\": \"3.12.0\", \"packages\": {\"transformers\": \""+test.version+"\"}}'\n")
			}
			p, err := prepared(t, dir, machine(dir), append([]string{"train.py"}, test.argv...)...)
			if err != nil {
				t.Fatal(err)
			}
			knob := p.StrategyJob().Knobs[strategy.Precision]
			if knob.Absent != "" || knob.Doubtful != test.doubtful || test.doubtful && p.Plan()[strategy.Precision] != "" {
				t.Errorf("precision %q, %+v", p.Plan()[strategy.Precision], knob)
			}
		})
	}
}

// TestDefaultsOfAProgramThatWasNotRead: a shell script may start a fork of the framework, whose defaults are others; what
// the command and its file say holds.
func TestDefaultsOfAProgramThatWasNotRead(t *testing.T) {
	dir, _ := folder(t, map[string]string{"run.sh": "python3 -m fork.train $*\n", "a.toml": "[training]\nseq_len = 4096\n"})
	p, err := prepared(t, dir, machine(dir), "sh", "run.sh", "--job.config_file", "a.toml", "--training.batch_size", "1")
	if err != nil {
		t.Fatal(err)
	}
	if p.RecipeName() != "torchtitan-toml" {
		t.Fatalf("recipe %s", p.RecipeName())
	}
	for k, want := range map[strategy.Knob]strategy.Value{strategy.MicroBatchSize: "1", strategy.SequenceLength: "4096", strategy.EvalBatchSize: "", strategy.DataloaderWorkers: "", strategy.Precision: ""} {
		if got := p.Plan()[k]; got != want {
			t.Errorf("%s is %q, want %q", k, got, want)
		}
	}
	if why := p.StrategyJob().Knobs[strategy.GradientAccumulationSteps].Absent; why != "torchtitan with training.batch_size has no training.global_batch_size" {
		t.Errorf("accumulation: %q", why)
	}
}

// TestSettingsOfAScriptThatUsesALibrary: the recipe changes arguments that the script spells in another way.
func TestSettingsOfAScriptThatUsesALibrary(t *testing.T) {
	const script = "import argparse\nfrom accelerate import Accelerator\nfrom torch.utils.data import DataLoader\nimport torch.nn.functional as F\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=8)\np.add_argument('--grad-accum-steps', type=int, default=1)\np.add_argument('--n-workers', type=int, default=6)\nargs = p.parse_args()\n" +
		"accelerator = Accelerator(gradient_accumulation_steps=args.grad_accum_steps)\ntrain_loader = accelerator.prepare(DataLoader(data, batch_size=args.batch_size, shuffle=True, num_workers=args.n_workers))\nfor x, y in train_loader:\n    with accelerator.accumulate(model):\n        loss = F.cross_entropy(model(x), y)\n        accelerator.backward(loss)\n        optimizer.step()\n        optimizer.zero_grad()\n"
	dir, _ := folder(t, map[string]string{"train.py": script})
	p, err := prepared(t, dir, machine(dir), "train.py", "--batch-size", "32", "--mixed_precision", "no")
	if err != nil {
		t.Fatal(err)
	}
	_, evidence := p.Recipe()
	if !slices.Contains(evidence, "the command has --batch-size") {
		t.Error(evidence)
	}
	change, err := p.Apply(p.Plan().With(strategy.Plan{strategy.MicroBatchSize: "16", strategy.GradientAccumulationSteps: "2", strategy.DataloaderWorkers: "3"}), "", dir)
	if err != nil {
		t.Fatal(err)
	}
	if got := strings.Join(change.Argv, " "); p.Plan()[strategy.DataloaderWorkers] != "6" || !strings.HasSuffix(got, "--batch-size 16 --mixed_precision no --grad-accum-steps 2 --n-workers 3") {
		t.Errorf("%v becomes %s", p.Plan(), got)
	}
}

// withTrainer prepares a script that reads the arguments of the Trainer, and then runs a code.
func withTrainer(t *testing.T, code string) *Prepared {
	t.Helper()
	const reads = "from transformers import HfArgumentParser, TrainingArguments, Trainer\nargs, = HfArgumentParser(TrainingArguments).parse_args_into_dataclasses()\n"
	dir, _ := folder(t, map[string]string{"train.py": reads + code})
	p, err := prepared(t, dir, machine(dir), "train.py", "--output_dir", "out", "--per_device_train_batch_size", "2")
	if err != nil {
		t.Fatal(err)
	}
	return p
}

// TestReplacedArgumentIsNotKnown: an argument that the code sets again may have no effect.
func TestReplacedArgumentIsNotKnown(t *testing.T) {
	for line, want := range map[string]string{
		"args.per_device_train_batch_size = 64 # 32":                                                                                                 "the code may replace it: train.py:3 sets args.per_device_train_batch_size",
		"args.per_device_train_batch_size=other.batch_size":                                                                                          "the code may replace it: train.py:3 sets args.per_device_train_batch_size",
		"args.per_device_train_batch_size = given.per_device_train_batch_size":                                                                       "",
		"print(args.per_device_train_batch_size == 64)":                                                                                              "",
		"if args.per_device_train_batch_size is None:\n    args.per_device_train_batch_size = 64":                                                    "",
		"if big:\n    args.per_device_train_batch_size = 64":                                                                                         "the code may replace it: train.py:4 sets args.per_device_train_batch_size",
		"class Own:\n    def __init__(self):\n        self.per_device_train_batch_size = 8":                                                          "",
		"class Own(TrainingArguments):\n    def __init__(self):\n        self.per_device_train_batch_size = 8":                                       "",
		"class Own(TrainingArguments):\n    def __post_init__(self):\n        super().__post_init__()\n        self.per_device_train_batch_size = 8": "the code may replace it: train.py:6 sets self.per_device_train_batch_size",
	} {
		p := withTrainer(t, line+"\n")
		value := p.Plan()[strategy.MicroBatchSize]
		if knob := p.StrategyJob().Knobs[strategy.MicroBatchSize]; knob.Absent != want || knob.Told != (want != "") || (value == "2") != (want == "") {
			t.Errorf("%s: %q, %+v", line, value, knob)
		}
	}
}

// TestCheckpointsOfAMovedFolder: a script that sets the folder again has its checkpoints where gpurun does not look.
func TestCheckpointsOfAMovedFolder(t *testing.T) {
	for line, want := range map[string]string{
		"Trainer(model, args).train(resume_from_checkpoint=args.resume_from_checkpoint)":                                                     "out/checkpoint-*",
		"args.output_dir = args.output_dir + '/models'\nTrainer(model, args).train(resume_from_checkpoint=args.resume_from_checkpoint)":      "",
		"if not args.output_dir:\n    args.output_dir = 'a'\nTrainer(model, args).train(resume_from_checkpoint=args.resume_from_checkpoint)": "out/checkpoint-*",
	} {
		p := withTrainer(t, line+"\n")
		if got := p.Checkpoints().Glob; got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// TestNumbersComputedFromTheBatchSize: a warmup that the code computes from the micro batch alone would be another one.
func TestNumbersComputedFromTheBatchSize(t *testing.T) {
	for line, want := range map[string]string{
		"args.warmup_steps = len(data) // args.per_device_train_batch_size":                                      "the code divides a number by it (train.py:3), which would be another one",
		"args.warmup_steps = len(data) // (args.per_device_train_batch_size * args.gradient_accumulation_steps)": "",
		"args.warmup_steps = round(args.warmup_steps * (32 / args.train_batch_size))":                            "the code divides a number by it (train.py:3), which would be another one",
		"print(args.per_device_train_batch_size * 2)":                                                            "",
	} {
		p := withTrainer(t, line+"\n")
		if got := p.StrategyJob().Knobs[strategy.MicroBatchSize].Absent; got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// TestSmallestMicroBatch: a micro batch of one is not smaller for any minimum.
func TestSmallestMicroBatch(t *testing.T) {
	for size, want := range map[string]string{"1": "the micro batch is 1 already", "2": "the code has BatchNorm (train.py:6)"} {
		dir, _ := folder(t, map[string]string{"train.py": "import argparse, torch\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=" + size + ")\na = p.parse_args()\n" +
			"model = torch.nn.Sequential(torch.nn.BatchNorm1d(4))\nfor x in DataLoader(data, batch_size=a.batch_size):\n    model(x).mean().backward()\n    opt.step()\n"})
		p, err := prepared(t, dir, machine(dir), "train.py")
		if err != nil {
			t.Fatal(err)
		}
		if own := p.StrategyJob().Knobs[strategy.MicroBatchSize]; !strings.HasPrefix(own.Absent, want) || own.Floor != (size == "2") {
			t.Errorf("%s: %+v", size, own)
		}
	}
}

// TestEvaluationOfTheJobsOwn: the argument is not the batch size of an evaluation that the code does itself.
func TestEvaluationOfTheJobsOwn(t *testing.T) {
	for class, want := range map[string]strategy.Value{
		"class Own(Trainer):\n    def evaluate(self, data):\n        return score(self.model)\n":          "",
		"class Own(Trainer):\n    def compute_loss(self, model, inputs):\n        return model(inputs)\n": "8",
	} {
		p := withTrainer(t, class)
		if got := p.Plan()[strategy.EvalBatchSize]; got != want {
			t.Errorf("%s: %q", class, got)
		}
	}
}

// TestCheckpointingThatTheCodeTurnsOn: the argument's default is not its value where the code turns it on.
func TestCheckpointingThatTheCodeTurnsOn(t *testing.T) {
	for line, want := range map[string]strategy.Value{
		"model.gradient_checkpointing_enable()":                                      "",
		"if args.gradient_checkpointing:\n    model.gradient_checkpointing_enable()": "none",
		"pass": "none",
	} {
		p := withTrainer(t, line+"\n")
		if got := p.Plan()[strategy.ActivationCheckpointing]; got != want {
			t.Errorf("%s: %q", line, got)
		}
	}
}

// TestWorkersThatDivideTheData: a dataset that gives each worker a part has other batches with another number of them.
func TestWorkersThatDivideTheData(t *testing.T) {
	const loop = "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--workers', type=int, default=4)\np.add_argument('--batch-size', type=int, default=4)\na = p.parse_args()\n" +
		"loader = torch.utils.data.DataLoader(data, batch_size=a.batch_size, num_workers=a.workers)\nfor x in loader:\n    model(x).mean().backward()\n    optimizer.step()\n"
	for dataset, want := range map[string]string{"part = torch.utils.data.get_worker_info().id": "the dataset divides its samples among the workers (train.py:10)", "": "",
		"def naive_collate(batch):\n    if torch.utils.data.get_worker_info() is not None:\n        pass": ""} {
		dir, _ := folder(t, map[string]string{"train.py": loop + dataset + "\n"})
		p, err := prepared(t, dir, machine(dir), "train.py")
		if err != nil {
			t.Fatal(err)
		}
		if got := p.StrategyJob().Knobs[strategy.DataloaderWorkers].Absent; !strings.HasPrefix(got, want) || want == "" && got != "" {
			t.Errorf("%s: %q", dataset, got)
		}
	}
}

// TestTypedLineKeepsAKnob: what the user has typed against a change is not turned in the
// process either.
func TestTypedLineKeepsAKnob(t *testing.T) {
	const loop = "import torch\nloader = torch.utils.data.DataLoader(data, batch_size=8)\n"
	for _, test := range []struct {
		argv []string
		k    strategy.Knob
		want string
	}{
		{[]string{"--no-gradient-checkpointing"}, strategy.ActivationCheckpointing, "the command has --no-gradient-checkpointing"},
		{[]string{"--use_grad_ckpt", "off"}, strategy.ActivationCheckpointing, "the command has --use_grad_ckpt off"},
		{[]string{"--no-amp"}, strategy.Precision, "the command has --no-amp"},
		{[]string{"--dtype=float32"}, strategy.Precision, "the command has --dtype=float32"},
		{[]string{"--attn_implementation", "eager"}, strategy.Attention, "the command has --attn_implementation eager"},
		{[]string{"--checkpoint", "none", "--dtype", "auto"}, strategy.ActivationCheckpointing, ""},
		{[]string{"--gradient-checkpointing"}, strategy.Precision, ""},
	} {
		dir, _ := folder(t, map[string]string{"train.py": loop})
		p, err := prepared(t, dir, machine(dir), append([]string{"train.py"}, test.argv...)...)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.StrategyJob().Knobs[test.k].Absent; got != test.want {
			t.Errorf("%q: %s is absent %q, want %q", test.argv, test.k, got, test.want)
		}
	}
}

// TestMinimumAlone: an entry with only a minimum is for the setting that gpurun found, and needs one.
func TestMinimumAlone(t *testing.T) {
	const loop = "import argparse, torch\np = argparse.ArgumentParser()\np.add_argument('--batch-size', type=int, default=8)\np.add_argument('--accum', type=int, default=1)\na = p.parse_args()\nmodel = torch.nn.Sequential(torch.nn.BatchNorm1d(4))\n" +
		"for i, x in enumerate(torch.utils.data.DataLoader(data, batch_size=a.batch_size)):\n    (model(x).mean() / a.accum).backward()\n    if (i + 1) % a.accum == 0:\n        opt.step()\n        opt.zero_grad()\n"
	for name, test := range map[string]struct {
		script string
		least  int
		want   string
	}{
		"found":     {loop, 4, ""},
		"not found": {"import torch\n", 0, "[knobs] micro_batch_size has only a minimum, and gpurun found no place for it in the job"},
	} {
		dir, _ := folder(t, map[string]string{"train.py": test.script, "train.toml": "[job]\nscript = \"train.py\"\n[knobs]\nmicro_batch_size = { min = 4 }\n"})
		p, err := prepared(t, dir, machine(dir), "train.toml")
		switch {
		case test.want != "":
			if err == nil || err.Error() != test.want {
				t.Errorf("%s: %v", name, err)
			}
		case err != nil:
			t.Errorf("%s: %v", name, err)
		default:
			if micro := p.StrategyJob().Knobs[strategy.MicroBatchSize]; micro.Min != test.least || micro.Absent != "" || p.Plan()[strategy.MicroBatchSize] != "8" {
				t.Errorf("%s: %+v, %s", name, micro, p.Plan())
			}
		}
	}
}

// TestModelsThatRefuseCheckpointing: transformers ends a job that asks for it of a model that does not allow it.
func TestModelsThatRefuseCheckpointing(t *testing.T) {
	for code, want := range map[string]string{
		"":                                      "",
		"class Own(PreTrainedModel):\n    pass": "transformers refuses it for a model that does not say supports_gradient_checkpointing, as the job's own (train.py:3)",
		"class Own(PreTrainedModel):\n    supports_gradient_checkpointing = True": "",
	} {
		if got := withTrainer(t, code+"\n").StrategyJob().Knobs[strategy.ActivationCheckpointing].Absent; got != want {
			t.Errorf("%s: %q", code, got)
		}
	}
}

// TestScriptsThatRefuseToStartAgain: where the first attempt's outputs would end the second, plan says so.
func TestScriptsThatRefuseToStartAgain(t *testing.T) {
	const says = "; the script may not start again where its outputs are there already (train.py:3)"
	for code, want := range map[string]bool{
		"if os.path.exists(out_dir):\n    raise FileExistsError(out_dir)":                                          true,
		"if out_dir.is_dir():\n    if not overwrite:\n        raise FileExistsError(out_dir)":                      true,
		"if os.path.isdir(log_dir):\n    answer = input('delete it?')":                                             true,
		"if not os.path.exists(out_dir):\n    raise FileNotFoundError(out_dir)":                                    false,
		"if os.path.exists(out_dir):\n    print('continues')":                                                      false,
		"if os.path.exists(data):\n    raise ValueError('both')":                                                   false,
		"if os.path.exists(args.output_dir) and not args.overwrite_output_dir:\n    raise ValueError()":            true,
		"if os.path.exists(out_dir):\n    sys.exit(1)":                                                             true,
		"if os.path.exists(out_dir):\n    if found(out_dir):\n        go()\n    else:\n        raise ValueError()": false,
	} {
		if got := withTrainer(t, code+"\n").Resumption(); strings.HasSuffix(got, says) != want {
			t.Errorf("%s: %q", code, got)
		}
	}
	const unused = "def start():\n    if os.path.exists(out_dir):\n        raise FileExistsError(out_dir)\n"
	for code, want := range map[string]bool{unused: false, unused + "timer.start()\n": false, unused + "start()\n": true, unused + "run(start)\n": true} {
		if got := withTrainer(t, code).Resumption(); strings.Contains(got, "may not start again where its outputs are there already (train.py:4)") != want {
			t.Errorf("%s: %q", code, got)
		}
	}
}

// TestScriptsThatMayOverwrite: the word of the command lets the script start again.
func TestScriptsThatMayOverwrite(t *testing.T) {
	const code = "import sys, os\nif os.path.exists('out') and '--overwrite' not in sys.argv:\n    raise ValueError()\n"
	for word, want := range map[string]bool{"--fast": true, "--overwrite": false} {
		dir, _ := folder(t, map[string]string{"train.py": code + "import torch\n"})
		p, err := prepared(t, dir, machine(dir), "train.py", word)
		if err != nil {
			t.Fatal(err)
		}
		if got := p.Resumption(); strings.Contains(got, "may not start again") != want {
			t.Errorf("%s: %s", word, got)
		}
	}
}
