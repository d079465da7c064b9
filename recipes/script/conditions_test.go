package script

import (
	"fmt"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/strategy"
)

// conditional is the head of a script with arguments for its conditions.
const conditionalScript = opens + "p.add_argument('--batch_size', type=int, default=32)\np.add_argument('--launcher', default='none')\np.add_argument('--eval', action='store_true')\np.add_argument('--size', type=int)\nargs = p.parse_args()\n"

// TestValuesOfOtherBranches: a value that the code gives under a condition that does not hold with the command is none.
func TestValuesOfOtherBranches(t *testing.T) {
	const micro = strategy.MicroBatchSize
	script := func(lines ...string) map[string]string {
		return one(conditionalScript + strings.Join(lines, "\n") + learns)
	}
	const loads = "train_loader = DataLoader(data, batch_size=size)"
	distributed := script("if args.launcher == 'none':\n    args.distributed = False\nelse:\n    args.distributed = True",
		"if args.distributed:\n    size = args.batch_size // world()\nelse:\n    size = args.batch_size", loads)
	function := func(call string) map[string]string {
		return script("def evaluate():\n    return DataLoader(data, batch_size=1)", "def load():\n    return DataLoader(data, batch_size=args.batch_size)", "train_loader = "+call)
	}
	follow(t, map[string]following{
		"a flag that is not given":     {script("size = args.batch_size", "if args.eval:\n    size = 1", loads), "", micro, "--batch_size"},
		"a flag that is given":         {script("size = args.batch_size", "if args.eval:\n    size = 1", loads), "--eval", micro, "--batch_size ? "},
		"a value of another condition": {distributed, "", micro, "--batch_size"},
		"which holds":                  {distributed, "--launcher slurm", micro, "--batch_size ? the batch size of DataLoader (train.py:17): it is computed from --batch_size: --batch_size // world()"},
		"after an early end":           {script("def load():\n    if not args.eval:\n        return DataLoader(data, batch_size=args.batch_size)\n    return DataLoader(data, batch_size=1)", "train_loader = load()"), "", micro, "--batch_size"},
		"a function of another branch": {function("load() if not args.eval else evaluate()"), "", micro, "--batch_size"},
		"a number that is not 0":       {script("size = args.batch_size", "if args.size:\n    size = args.batch_size * 2", loads), "", micro, "--batch_size"},
		"an argument that is asked for": {script("class Config:\n    workers = 2\nconfig = Config()", "if args.size:\n    config.size = args.size", "train_loader = DataLoader(data, batch_size=config.size)"), "",
			micro, "--size ? "},
		"a value that comes later": {script("size = args.batch_size", loads, "for x in data:\n    size = x.size(0)"), "", micro, "--batch_size"},
		"a later value of a loop":  {script("size = args.batch_size", "for x in data:\n    train_loader = DataLoader(data, batch_size=size)\n    size = x.size(0)"), "", micro, "--batch_size ? "},
		"a condition of itself":    {script("size = args.batch_size", "while size:\n    if size:\n        size = size * 2", loads), "", micro, "--batch_size ? "},
		"the parts of an evaluation": {map[string]string{"train.py": conditionalScript + "config = load()\nconfig.train.size = args.batch_size\nconfig.val.size = args.batch_size * 2\ndef make(part):\n    return DataLoader(data, batch_size=config.train.size)\ntrain_loader = make(config.train)" + learns},
			"", micro, "--batch_size"},
	})
}

// TestPhaseOfABranch: a comparison with one word shows which of two loaders is for training.
func TestPhaseOfABranch(t *testing.T) {
	script := one(conditionalScript + "def make(phase):\n    if phase == 'train':\n        return DataLoader(data, batch_size=args.batch_size)\n    elif phase == 'val':\n        return DataLoader(data, batch_size=1)\nfor phase in phases():\n    loaders[phase] = make(phase)\nfor batch in loaders['train']:\n    model(batch).mean().backward()\n    optimizer.step()\n")
	follow(t, map[string]following{"phases": {script, "", strategy.MicroBatchSize, "--batch_size"}})
}

// TestArgumentsOfOtherPrograms: the job's command has no argument of a parser that only another program reads.
func TestArgumentsOfOtherPrograms(t *testing.T) {
	const micro = strategy.MicroBatchSize
	const tool = "import argparse\nparser = argparse.ArgumentParser()\nparser.add_argument('--batch_size', type=int)\ndef enhance(model):\n    pass\ndef main():\n    return parser.parse_args()\n"
	const trains = "import torch\ntrain_loader = make()" + learns
	follow(t, map[string]following{
		"read in its main":         {map[string]string{"train.py": "from tool import enhance\nenhance(model)\n" + trains, "tool.py": tool + "if __name__ == '__main__':\n    main()\n"}, "", micro, noSize},
		"the same name":            {map[string]string{"train.py": "from tool import enhance\ndef main():\n    enhance(model)\nmain()\n" + trains, "tool.py": tool}, "", micro, noSize},
		"read at the end of it":    {map[string]string{"train.py": "from tool import enhance\nenhance(model)\n" + trains, "tool.py": strings.Replace(tool, "def main", "if __name__ == '__main__':\n    parser.parse_args()\ndef main", 1)}, "", micro, noSize},
		"read by the job":          {map[string]string{"train.py": "from tool import main\nmain()\n" + trains, "tool.py": tool}, "", micro, "--batch_size ? "},
		"a job of Hydra":           {map[string]string{"train.py": "import hydra\nfrom tool import parser\n@hydra.main(config_path='conf')\ndef run(cfg):\n    pass\nrun()\n" + trains, "tool.py": tool}, "", micro, noSize},
		"a file instead of a line": {map[string]string{"train.py": "from dataclasses import dataclass\nfrom transformers import HfArgumentParser\n@dataclass\nclass Args:\n    batch_size: int = 4\nargs, = HfArgumentParser(Args).parse_json_file(json_file='a.json')\n" + trains}, "", micro, noSize},
	})
}

// TestDefaultsThatOtherCodeMaySet: the code of a model that is chosen by name is not read, and may set defaults.
func TestDefaultsThatOtherCodeMaySet(t *testing.T) {
	const micro = strategy.MicroBatchSize
	script := func(line string) map[string]string {
		return one(opens + "import deepspeed\np.add_argument('--batch_size', type=int, default=1)\n" + strings.ReplaceAll(line, "p)", "parser)") + "\nargs = p.parse_args()\ntrain_loader = DataLoader(data, batch_size=args.batch_size)" + learns)
	}
	for line, given := range map[string]bool{
		"setter = find(name)\nsetter(p)":             true,
		"getattr(models, name).options(p)":           true,
		"deepspeed.add_config_arguments(p)":          false,
		"def options(parser):\n    pass\noptions(p)": false,
	} {
		s := decided(t, script(line))
		if got := s.Recipe(func(format.Recipe) string { return "" }).Knobs[micro]; got.Given != given || given != (got.Default == "") {
			t.Errorf("%s: %+v", line, got)
		}
	}
}

// TestNumbersThatAreNoBatchSize: a range's step of one, the random steps of a diffusion, and a constant that the command
// may replace say nothing of the batch size.
func TestNumbersThatAreNoBatchSize(t *testing.T) {
	const loop = "p.add_argument('--epochs', type=int, default=9)\nargs = p.parse_args()\n"
	const draws = "def get_batch():\n    ix = torch.randint(%s, (batch_size,))\n    return data[ix]\nfor it in range(1000):\n    loss = model(get_batch()).mean()\n    loss.backward()\n    optimizer.step()\n"
	const sets = "batch_size = 12\nfor arg in sys.argv[1:]:\n    key, val = arg.split('=')\n    globals()[key] = val\n"
	follow(t, map[string]following{
		"a step of one":      {one(opens + loop + "for epoch in range(1, args.epochs + 1, 1):\n    for batch in made():\n        loss = model(batch).mean()\n        loss.backward()\n        optimizer.step()\n"), "", strategy.MicroBatchSize, noSize},
		"samples":            {one(opens + "batch_size = 12\n" + fmt.Sprintf(draws, "len(data) - 8")), "", strategy.MicroBatchSize, "none: the batch size of the samples that randint draws (train.py:6): it is the constant 12"},
		"steps of diffusion": {one(opens + "batch_size = 12\n" + fmt.Sprintf(draws, "self.num_train_timesteps")), "", strategy.MicroBatchSize, noSize},
		"set by globals()":   {one(opens + sets + fmt.Sprintf(draws, "len(data) - 8")), "", strategy.MicroBatchSize, "none: the batch size of the samples that randint draws (train.py:9): the value of batch_size is not known"},
	})
}

// TestArgumentsThatUnpackThemselves: functions that hand their keywords to each other end no reading.
func TestArgumentsThatUnpackThemselves(t *testing.T) {
	const made = "def one(size, options=None):\n    options = options if options is not None else {}\n    two(**options)\n    return DataLoader(data, batch_size=options, shuffle=1)\n" +
		"def two(options=None):\n    one(1, options)\n"
	s := decided(t, one(opens+"p.add_argument('--batch_size', type=int, default=8)\nargs = p.parse_args()\n"+made+"train_loader = one(args.batch_size)"+learns))
	if s.facts.Unread != "" {
		t.Error(s.facts.Unread)
	}
}

// TestBatchesOfTokens: a batch whose size another function counts has not so many samples.
func TestBatchesOfTokens(t *testing.T) {
	const script = opens + "from torchtext.data import BucketIterator\np.add_argument('--batch_size', type=int, default=1500)\nargs = p.parse_args()\ntrain_loader = BucketIterator(data, batch_size=args.batch_size"
	follow(t, map[string]following{
		"tokens":  {one(script + ", batch_size_fn=count)" + learns), "", strategy.MicroBatchSize, "--batch_size ? "},
		"samples": {one(script + ")" + learns), "", strategy.MicroBatchSize, "--batch_size"},
	})
}

// TestAdviceForAnUncertainSetting: an entry of [knobs] is proposed only where it would mean the setting.
func TestAdviceForAnUncertainSetting(t *testing.T) {
	arguments := opens + "p.add_argument('--batch_size', type=int, default=32)\nargs = p.parse_args()\n"
	for loader, want := range map[string]string{
		"DataLoader(data, batch_size=64)":                         "it is the constant 64; gpurun init --patch makes it an argument, where it recognises the training loop",
		"DataLoader(data, batch_size=find())":                     `; if an argument is the batch size of one rank, name it in train.toml: [knobs] micro_batch_size = { arg = "--batch_size" }`,
		"DataLoader(data, batch_size=args.batch_size // world())": "it is computed from --batch_size: --batch_size // world()",
		"make(args)": `; if an argument is the batch size of one rank, name it in train.toml: [knobs] micro_batch_size = { arg = "--batch_size" }`,
	} {
		s := decided(t, one(arguments+"train_loader = "+loader+learns))
		if got := s.Recipe(func(format.Recipe) string { return "" }).Knobs[strategy.MicroBatchSize].Absent; !strings.HasSuffix(got, want) {
			t.Errorf("%s: %s", loader, got)
		}
	}
}

// TestCommandsWhoseWordsAreCounted: a script that asks for the number of words takes no more of them.
func TestCommandsWhoseWordsAreCounted(t *testing.T) {
	const script = opens + "import sys\np.add_argument('--workers', type=int, default=2)\nif len(sys.argv) == 2:\n    args = p.parse_args(['@' + sys.argv[1]])\nelse:\n    args = p.parse_args()\ntrain_loader = DataLoader(data, batch_size=8, num_workers=args.workers)" + learns
	for argv, want := range map[string]bool{"args.txt": true, "--workers 4": false} {
		s := decided(t, one(script), strings.Fields(argv)...)
		if got := s.Recipe(func(format.Recipe) string { return "" }).Knobs[strategy.DataloaderWorkers]; got.Given != want {
			t.Errorf("%s: %+v", argv, got)
		}
	}
}

// TestFieldsThatCodeMaySet: the default of a field is no constant where code sets fields by any name.
func TestFieldsThatCodeMaySet(t *testing.T) {
	const class = "import torch\nfrom dataclasses import dataclass\nfrom torch.utils.data import DataLoader\n@dataclass\nclass Config:\n    size: int = 4\ndef update(config, **kwargs):\n    for k, v in kwargs.items():\n        SET\n" +
		"def main(**kwargs):\n    config = Config()\n    update(config, **kwargs)\n    for x in DataLoader(data, batch_size=config.size, shuffle=True):\n        model(x).mean().backward()\n        optimizer.step()\nmain()\n"
	follow(t, map[string]following{
		"any name": {one(strings.Replace(class, "SET", "setattr(config, k, v)", 1)), "", strategy.MicroBatchSize, "none: the batch size of DataLoader (train.py:13): no call was found that passes one, and the default is 4"},
		"no name":  {one(strings.Replace(class, "SET", "print(k, v)", 1)), "", strategy.MicroBatchSize, "none: the batch size of DataLoader (train.py:13): it is the constant 4"},
	})
}

// TestConstantsOfModules: a name of a module that the script imports has the module's value, and decides over branches.
func TestConstantsOfModules(t *testing.T) {
	const branches = "import torch\nfrom torch.utils.data import DataLoader\nIMPORT\nif c.TPU:\n    train_loader = DataLoader(data, batch_size=2)\nelse:\n    train_loader = DataLoader(data, batch_size=c.SIZE // 2)" + learns
	script := func(imports, config string) map[string]string {
		return map[string]string{"train.py": strings.Replace(branches, "IMPORT", imports, 1), "c.py": config}
	}
	const constant = "none: the batch size of DataLoader (train.py:7): it is the constant 8"
	follow(t, map[string]following{
		"a module":             {script("import c", "SIZE = 16\nTPU = False\n"), "", strategy.MicroBatchSize, constant},
		"one of a package":     {script("from . import c", "SIZE = 16\nTPU = False\n"), "", strategy.MicroBatchSize, constant},
		"another name":         {script("import c as d, os as c", "SIZE = 16\nTPU = False\n"), "", strategy.MicroBatchSize, "none: the batch size of DataLoader (train.py:5): it is the constant 2 if c.TPU"},
		"one that is set here": {script("import c\nc.SIZE = size()", "SIZE = 16\nTPU = False\n"), "", strategy.MicroBatchSize, "none: the batch size of DataLoader (train.py:8): it is computed"},
	})
}

// TestParsersOfOtherPrograms: parser.parse_args() does not call the function of this name of another program's module.
func TestParsersOfOtherPrograms(t *testing.T) {
	const tool = "import argparse\ndef measure():\n    return 1\ndef parse_args():\n    parser = argparse.ArgumentParser()\n    parser.add_argument('--batch_size', type=int, default=1)\n    return parser.parse_args()\n"
	script := func(read string) map[string]string {
		return map[string]string{"train.py": opens + "import tool\ntool.measure()\nargs = " + read + "\ntrain_loader = made(args)" + learns, "tool.py": tool}
	}
	follow(t, map[string]following{
		"its own parser":      {script("p.parse_args()"), "", strategy.MicroBatchSize, noSize},
		"the module's parser": {script("tool.parse_args()"), "", strategy.MicroBatchSize, "--batch_size ? "},
	})
}
