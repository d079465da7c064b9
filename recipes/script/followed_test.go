package script

import (
	"strings"
	"testing"

	"github.com/gpurun/gpurun/strategy"
)

// A following is a script whose values must be followed correctly, or said to be unknown.
type following struct {
	files map[string]string
	argv  string
	knob  strategy.Knob
	want  string // of the summary: all of it if it has no space, otherwise its beginning
}

func follow(t *testing.T, tests map[string]following) {
	t.Helper()
	for name, test := range tests {
		t.Run(name, func(t *testing.T) {
			t.Parallel()
			s := decided(t, test.files, strings.Fields(test.argv)...)
			if got := s.summary(test.knob); !strings.HasPrefix(got, test.want) || !strings.Contains(test.want, " ") && got != test.want {
				t.Errorf("%s is %s, want %s", test.knob, got, test.want)
			}
		})
	}
}

// one is a script alone.
func one(text string) map[string]string { return map[string]string{"train.py": text} }

// opens and learns are the ends of a script, and noSize begins what is said of one without a batch size.
const (
	opens  = "import argparse, torch\nfrom torch.utils.data import DataLoader\np = argparse.ArgumentParser()\n"
	learns = "\nfor batch in train_loader:\n    model(batch).mean().backward()\n    optimizer.step()\n"
	noSize = "none: batch size not recognised in train.py"
)

// TestFactorsAreNotOmitted: only a count of the process's own GPUs, which is 1 for a rank, is no factor of its batch.
func TestFactorsAreNotOmitted(t *testing.T) {
	const micro = strategy.MicroBatchSize
	arguments := opens + "p.add_argument('--batch_size', type=int, default=32)\np.add_argument('--ngpu', type=int, default=4)\np.add_argument('--cfg')\nargs = p.parse_args()\n"
	loader := func(size string) string { return "train_loader = DataLoader(data, batch_size=" + size + ")" + learns }
	follow(t, map[string]following{
		"GPUs that are counted":     {one(arguments + loader("args.batch_size * torch.cuda.device_count()")), "", micro, "--batch_size"},
		"GPUs that are listed":      {one(arguments + "cards = list(config.GPUS)\n" + loader("args.batch_size * len(cards)")), "", micro, "--batch_size ? the batch size of DataLoader (train.py:9): it is computed from --batch_size: --batch_size * len(list(config.GPUS))"},
		"GPUs that an argument has": {one(arguments + loader("args.batch_size * args.ngpu")), "", micro, "--batch_size ? the batch size of DataLoader (train.py:8): it is computed from --batch_size: --batch_size * --ngpu"},
	})
}

// TestTextsOverFiles: a text of the command, or a default, that sets a key may be merged over the file that has it.
func TestTextsOverFiles(t *testing.T) {
	const micro = strategy.MicroBatchSize
	script := func(more string) map[string]string {
		return map[string]string{"train.py": opens + "import json\np.add_argument('--preset')\np.add_argument('--hparams'" + more + ")\nargs = p.parse_args()\nhparams = Values()\nhparams.fill(json.load(open(args.preset)))\nhparams.parse(args.hparams)\n" +
			"train_loader = DataLoader(data, batch_size=hparams.batch_size)" + learns, "a.json": `{"batch_size": 4}`}
	}
	const replaced = "none: the batch size of DataLoader (train.py:11): batch_size in the file of --preset may be replaced by "
	follow(t, map[string]following{
		"no text":        {script(""), "--preset=a.json", micro, "batch_size in the file of --preset"},
		"another key":    {script(""), "--preset a.json --hparams test_batch_size=2", micro, "batch_size in the file of --preset"},
		"a text":         {script(""), "--preset=a.json --hparams=batch_size=2", micro, replaced + "--hparams=batch_size=2"},
		"one of several": {script(""), "--preset a.json --hparams lr=1,batch_size=2", micro, replaced + "lr=1,batch_size=2"},
		"JSON":           {script(""), `--preset a.json --hparams {"batch_size":2}`, micro, replaced + `{"batch_size":2}`},
		"a default":      {script(", default='batch_size=2'"), "--preset a.json", micro, replaced + "the default of --hparams, batch_size=2"},
	})
}

// TestLoadersOfOtherBranches: a loader under a condition that does not hold with the command makes no batches.
func TestLoadersOfOtherBranches(t *testing.T) {
	const micro = strategy.MicroBatchSize
	script := func(test, otherwise string) map[string]string {
		return map[string]string{"train.py": opens + "import json\np.add_argument('--task', default='sort')\np.add_argument('--depth', type=int, default=2)\np.add_argument('--cfg', default='a.json')\np.add_argument('--batch_size', type=int, default=32)\nargs = p.parse_args()\ncfg = json.load(open(args.cfg))\n" +
			"def load():\n    if " + test + ":\n        return DataLoader(data, batch_size=args.batch_size, shuffle=True)\n    else:\n        return " + otherwise + "\ntrain_loader = load()" + learns, "a.json": `{"kind": "small"}`}
	}
	const constant = "DataLoader(data, batch_size=8, shuffle=True)"
	const draft = "--batch_size ? "
	const omitted = draft + "DataLoader (train.py:13) makes no batches with this command: "
	follow(t, map[string]following{
		"the default":              {script("args.task == 'sort'", constant), "", micro, "--batch_size"},
		"another word":             {script("args.task == 'sort'", "[]"), "--task=copy", micro, omitted + "args.task == 'sort' is false"},
		"an abbreviation":          {script("args.task == 'sort'", constant), "--tas copy", micro, draft + "the batch size of DataLoader (train.py:15): it is the constant 8 unless args.task == 'sort'"},
		"a number, and not":        {script("args.depth != 2 and args.task == 'copy'", "[]"), "--task copy", micro, omitted + "args.depth != 2 and args.task == 'copy' is false"},
		"one of a list":            {script("args.task in ['copy', 'sort']", constant), "--task copy", micro, "--batch_size"},
		"none of a list":           {script("args.task not in ('copy', 'sort')", "[]"), "--task copy", micro, omitted},
		"a key of a file":          {script("cfg['kind'] == 'small'", constant), "", micro, "--batch_size"},
		"a key that it lacks":      {script("cfg['size'] == 'small'", constant), "", micro, draft + "the batch size of DataLoader (train.py:15): it is the constant 8 unless cfg['size'] == 'small'"},
		"a literal":                {script("True", constant), "", micro, "--batch_size"},
		"a test that is not known": {script("small(args.task)", constant), "", micro, draft + "the batch size of DataLoader (train.py:15): it is the constant 8 unless small(args.task)"},
	})
}

// TestDefaultsThatAreReplaced: the attribute of a class, or of a configuration that a file is merged into, is a default.
func TestDefaultsThatAreReplaced(t *testing.T) {
	const micro = strategy.MicroBatchSize
	class := func(init, call string) map[string]string {
		return one(opens + "p.add_argument('--batch_size', type=int, default=32)\nargs = p.parse_args()\nclass Plan:\n    batch_size = 64\n    def __init__(self, **kwargs):\n        " + init + "\n    def change(self, key, value):\n        self.changed = value\nplan = " + call + "\ntrain_loader = DataLoader(data, batch_size=plan.batch_size)" + learns)
	}
	const each = "for k, v in kwargs.items():\n            setattr(self, k, v)"
	const constant = "--batch_size ? the batch size of DataLoader (train.py:13): it is the constant 64"
	merged := map[string]string{"train.py": opens + "from yacs.config import CfgNode as CN\np.add_argument('--opts', nargs='*')\nargs = p.parse_args()\nclass Config:\n    def __init__(self, path):\n        self.tree = CN()\n        self.tree.DATA = CN()\n        self.tree.DATA.BATCH = 1\n        self.tree.merge_from_file(path)\n        self.tree.merge_from_list(args.opts)\n    def __getattr__(self, name):\n        return getattr(self.tree, name)\n" +
		"cfg = Config('a.yaml')\ntrain_loader = DataLoader(data, batch_size=cfg.DATA.BATCH)" + learns, "a.yaml": "DATA:\n  BATCH: 16\n"}
	follow(t, map[string]following{
		"a keyword that a loop sets": {class(each, "Plan(batch_size=args.batch_size)"), "", micro, "--batch_size"},
		"a keyword of a dictionary":  {class("self.__dict__.update(kwargs)", "Plan(batch_size=args.batch_size)"), "", micro, "--batch_size"},
		"another keyword":            {class(each, "Plan(lr=1)"), "", micro, strings.Replace(constant, ":13", ":14", 1)},
		"unpacked keywords":          {class(each, "Plan(**read())"), "", micro, "--batch_size ? the batch size of DataLoader (train.py:14): the value of plan.batch_size is not known"},
		"a keyword that is not set":  {class("pass", "Plan(batch_size=args.batch_size)"), "", micro, constant},
		"a method that sets any":     {one(strings.Replace(class("pass", "Plan()")["train.py"], "self.changed = value", "setattr(self, key, value)", 1)), "", micro, "--batch_size ? the batch size of DataLoader (train.py:13): the value of plan.batch_size is not known"},
		"a file that is merged":      {merged, "", micro, "DATA.BATCH in a.yaml:2"},
		"words that are merged":      {merged, "--opts DATA.BATCH 4", micro, "none: the batch size of DataLoader (train.py:17): DATA.BATCH in a.yaml:2 may be replaced by DATA.BATCH"},
	})
}

// TestMethodsOfOneName: a call is one of a method that makes batches only if its object is of the class.
func TestMethodsOfOneName(t *testing.T) {
	const micro = strategy.MicroBatchSize
	script := func(more string) map[string]string {
		return one(opens + "p.add_argument('--batch_size', type=int, default=32)\nargs = p.parse_args()\nclass Memory:\n    def get(self, size):\n        for i in range(0, 100, size):\n            yield self.kept[i:i + size]\nclass Larger(Memory):\n    pass\n" + more)
	}
	const learns = ":\n    model(batch).mean().backward()\n    optimizer.step()\n"
	follow(t, map[string]following{
		"its own class":   {script("kept = Memory()\nfor batch in kept.get(args.batch_size)" + learns), "", micro, "--batch_size"},
		"a subclass":      {script("kept = Larger()\nfor batch in kept.get(args.batch_size)" + learns), "", micro, "--batch_size"},
		"a dictionary":    {script("kept = Memory()\nnotes = {}\nlast = notes.get('last', False)\nfor batch in kept.get(args.batch_size)" + learns), "", micro, "--batch_size"},
		"another object":  {script("for batch in read().get(args.batch_size)" + learns), "", micro, "--batch_size ? no DataLoader was found that takes it"},
		"no whole number": {one(opens + "train_loader = DataLoader(data, batch_size=0.5)\nfor batch in train_loader" + learns), "", micro, "none: the batch size of DataLoader (train.py:4): 0.5 is not a whole number"},
	})
}

// TestSubclassesOfTheLoader: the arguments of a subclass are followed into the DataLoader, by name and by place.
func TestSubclassesOfTheLoader(t *testing.T) {
	const micro, workers = strategy.MicroBatchSize, strategy.DataloaderWorkers
	script := func(class, call string) map[string]string {
		return one(opens + "p.add_argument('--batch_size', type=int, default=32)\np.add_argument('--num_workers', type=int, default=4)\nargs = p.parse_args()\nclass Endless(DataLoader):\n    def __init__(self, " + class + "\ntrain_loader = Endless(data, " + call + ")" + learns)
	}
	const by = "batch_size=args.batch_size, num_workers=args.num_workers"
	follow(t, map[string]following{
		"passed on":          {script("*args, **words):\n        super().__init__(*args, **words)", by), "", workers, "--num_workers"},
		"by place":           {script("data, size=1, shuffle=True, **words):\n        super().__init__(data, size, shuffle, **words)", "args.batch_size, num_workers=args.num_workers"), "", micro, "--batch_size"},
		"by the class":       {script("data, batch_size=1, **words):\n        DataLoader.__init__(self, data, batch_size, **words)", by), "", micro, "--batch_size"},
		"workers by keyword": {script("data, batch_size=1, **words):\n        super(Endless, self).__init__(data, batch_size, **words)", by), "", workers, "--num_workers"},
		"a constant":         {script("data, batch_size, num_workers):\n        super().__init__(data, batch_size, num_workers=1)", by), "", workers, "--num_workers ? the workers of Endless (train.py:10): it is the constant 1"},
		"the default":        {script("data, batch_size, n=3):\n        super().__init__(data, batch_size, num_workers=n)", "args.batch_size"), "", workers, "--num_workers ? the workers of Endless (train.py:10): it is the constant 3"},
	})
}

// TestArgumentsThatAreThere: an argument of the script or of the command is named, although its value was not followed.
func TestArgumentsThatAreThere(t *testing.T) {
	const micro, workers = strategy.MicroBatchSize, strategy.DataloaderWorkers
	const unfollowed = " it is not certain: where its value goes was not followed"
	follow(t, map[string]following{
		"of the script":      {one(opens + "p.add_argument('--workers', type=int, default=4)\nargs = p.parse_args()\ntrain_loader = make(args)" + learns), "", workers, "--workers ? where its value goes was not followed"},
		"of the command":     {one(opens + "for flag in flags:\n    p.add_argument(flag)\ntrain_loader = make(p.parse_args())" + learns), "--bs=8", micro, "none: --bs may be the batch size, but" + unfollowed},
		"two of the script":  {one(opens + "p.add_argument('--batch')\np.add_argument('--batch-gpu')\ntrain_loader = make(p.parse_args())" + learns), "", micro, "none: --batch or --batch-gpu may be the batch size, but it is not certain: "},
		"none":               {one(opens + "train_loader = make(p.parse_args())" + learns), "--batch-norm 8", micro, noSize},
		"processes, no load": {one(opens + "p.add_argument('--num-processes', type=int)\ntrain_loader = make(p.parse_args())" + learns), "", workers, "none: number of loader workers not recognised in train.py"},
	})
}

// TestReasonsHaveNoGaps: a reason says what a value is computed from, and no more than is known.
func TestReasonsHaveNoGaps(t *testing.T) {
	const micro = strategy.MicroBatchSize
	script := func(size string) map[string]string {
		return one(opens + "import yaml\np.add_argument('--size', type=int, default=32)\np.add_argument('--most', type=int)\nargs = p.parse_args()\ncfg = yaml.safe_load(open(find()))\ndef run(number=None, **more):\n    train_loader = DataLoader(data, batch_size=" + size + ")\n    for batch in train_loader:\n        model(batch).mean().backward()\n        optimizer.step()\nwords = read()\nrun(**words)\n")
	}
	const why = "none: the batch size of DataLoader (train.py:10): it is "
	follow(t, map[string]following{
		"all that a function gets": {script("min(args.size, args.most, len(data))"), "", micro, why + "computed from --size: min(--size, --most, len(data))"},
		"all alternatives":         {script("int(args.size if big else args.most)"), "", micro, why + "computed: int(--size or --most)"},
		"unpacked keywords":        {script("number // ranks()"), "", micro, why + "computed: a value of words // ranks()"},
		"a file that is not known": {script("cfg['train']['size']"), "", micro, why + "train.size of a configuration that was not followed"},
	})
}

// TestParsersAreKeptApart: an argument is one of the parser that reads the command, however many parsers have its name.
func TestParsersAreKeptApart(t *testing.T) {
	const micro = strategy.MicroBatchSize
	script := func(other string) map[string]string {
		return map[string]string{"train.py": "import argparse, shared\ndef run(size):\n    other = shared.read({'lr': 1})\n    train_loader = DataLoader(data, batch_size=size, shuffle=other.shuffle)\n    for batch in train_loader:\n        model(batch).mean().backward()\n        optimizer.step()\np = argparse.ArgumentParser()\ng = p.add_argument_group()\ng.add_argument('--batch_size', type=int, default=32)\nargs = p.parse_args()\nrun(args.batch_size)\n",
			"shared.py": "import argparse\ndef add(parser):\n    parser.add_argument('--batch-size', type=int, default=8)\n    return parser\n" + other}
	}
	const made = "def read(values):\n    parser = argparse.ArgumentParser()\n    parser = add(parser)\n    args = parser.parse_args([])\n"
	const set = "    for k, v in values.items():\n        setattr(args, k, v)\n    return args\n"
	const either = "none: --batch_size or --batch-size may be the batch size, but it is not certain: the batch size of DataLoader (train.py:4): it may come from "
	follow(t, map[string]following{
		"another parser":          {script(made + "    return args\n"), "", micro, "--batch_size"},
		"another namespace":       {script(made + set), "", micro, "--batch_size"},
		"parents":                 {script(strings.Replace(made, "ArgumentParser()", "ArgumentParser(parents=[add(argparse.ArgumentParser())])", 1) + set), "", micro, "--batch_size"},
		"a parser from elsewhere": {map[string]string{"train.py": strings.Replace(script("")["train.py"], "p = argparse.ArgumentParser()", "p = make()", 1), "shared.py": script(made + set)["shared.py"]}, "", micro, either},
	})
}

// TestConstantsBesideAnArgument: it is said what the code gives, not what the batch may be.
func TestConstantsBesideAnArgument(t *testing.T) {
	const micro = strategy.MicroBatchSize
	script := func(more string) map[string]string {
		return one(opens + "p.add_argument('--batch_size', type=int, default=32)\nargs = p.parse_args()\nclass Fit:\n    def __init__(self, size=16):\n        for batch in DataLoader(data, batch_size=size):\n            model(batch).mean().backward()\n            optimizer.step()\n" + more)
	}
	follow(t, map[string]following{
		"a call that is not seen": {script("wrapped(Fit, size=args.batch_size)\n"), "", micro, "--batch_size ? the batch size of DataLoader (train.py:8): no call was found that passes one, and the default is 16"},
		"two values":              {script("conf = settings()\nconf.batch = 100\nconf.batch = args.batch_size\nFit(conf.batch)\n"), "", micro, "--batch_size ? the batch size of DataLoader (train.py:8): besides --batch_size the code gives it the constant 100"},
	})
}

// TestLoadersOfOtherNames: a function, or a class of a module that was not read, is not PyTorch's DataLoader because of
// its name: without a batch size it has none of one sample.
func TestLoadersOfOtherNames(t *testing.T) {
	const micro = strategy.MicroBatchSize
	arguments := opens + "p.add_argument('--batch_size', type=int, default=32)\nargs = p.parse_args()\n"
	follow(t, map[string]following{
		"a function":        {one(arguments + "def CreateDataLoader(a):\n    return DataLoader(data, batch_size=a.batch_size)\ntrain_loader = CreateDataLoader(args)" + learns), "", micro, "--batch_size"},
		"an unknown module": {one(strings.Replace(arguments, "torch.utils.data", "ours.loader", 1) + "rows = DataLoader(path='a')\ntrain_loader = torch.utils.data.DataLoader(rows, batch_size=args.batch_size)" + learns), "", micro, "--batch_size"},
		"PyTorch's":         {one(arguments + "train_loader = DataLoader(rows)" + learns), "", micro, "--batch_size ? the batch size of DataLoader (train.py:6): it is the constant 1"},
	})
}

// TestNewNamesReplaceNone: a configuration whose names are added to the arguments only where they have none replaces
// no argument.
func TestNewNamesReplaceNone(t *testing.T) {
	script := func(test string) map[string]string {
		return map[string]string{"a.json": `{"batch_size": 4}`, "train.py": opens + "import json\np.add_argument('--batch_size', type=int, default=32)\np.add_argument('--cfg')\nargs = p.parse_args()\nfor k, v in json.load(open(args.cfg)).items():\n    if " + test + ":\n        setattr(args, k, v)\n" +
			"train_loader = DataLoader(data, batch_size=args.batch_size)" + learns}
	}
	follow(t, map[string]following{
		"not in":   {script("k not in vars(args)"), "--cfg a.json", strategy.MicroBatchSize, "--batch_size"},
		"hasattr":  {script("not hasattr(args, k)"), "--cfg a.json", strategy.MicroBatchSize, "--batch_size"},
		"any name": {script("v is not None"), "--cfg a.json", strategy.MicroBatchSize, "batch_size in the file of --cfg"},
	})
}
