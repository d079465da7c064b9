package detect

import (
	"fmt"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/recipes/format"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestOptions: the arguments and defaults in a parser's source.
func TestOptions(t *testing.T) {
	p := codeOf(t, `
import argparse
parser = argparse.ArgumentParser(description="""It has --docs, "--more" and # no comment""")
group = parser.add_argument_group('Data')
group.add_argument('-b', '--batch-size', default=1_28, type=int,
                   help='the batch, (per GPU): "--not-here", # 1')  # parser.add_argument("--commented")
parser.add_argument("--amp", action="store_true")
parser.add_argument("--lr", type=float, default=5e-4)
parser.add_argument("--no-default")
parser.add_argument("--workers", default=os.cpu_count())
parser.add_argument("--opt", default='sgd')
parser.add_argument("--fused", action=argparse.BooleanOptionalAction, default=True)
parser.add_argument("--seed", required=True)
parser.add_argument("dataset")
@click.option("--eager/--lazy", default=False)
def main(): pass
parser.set_defaults(opt="adamw", **more)
`, `
parser.add_argument("--lr", default=1)
def add(parser):
    """
    parser.add_argument("--in-docstring", default=1)
    """
`).Parser()
	if !p.Complete() {
		t.Fatal("a parser of literal names is not complete")
	}
	for name, want := range map[string]format.Expression{
		"--batch-size": {Text: "128", Known: true}, "-b": {Text: "128", Known: true}, "--amp": {Text: "False", Known: true}, "--lr": {},
		"--no-default": {Known: true, None: true}, "--workers": {}, "--opt": {Text: "adamw", Known: true}, "--fused": {Text: "True", Known: true},
		"--no-fused": {}, "--seed": {}, "--eager": {Text: "False", Known: true}, "--lazy": {Text: "False", Known: true},
	} {
		if got, there := p.Default(name); !there || got != want {
			t.Errorf("%s: %+v, %v, want %+v", name, got, there, want)
		}
	}
	for _, name := range []string{"--docs", "--more", "--not-here", "--commented", "--in-docstring", "--batch_size", "--seq"} {
		if p.Has(name, false) {
			t.Errorf("%s is there", name)
		}
	}
	if !p.Has("--batch_size", true) {
		t.Error("--batch_size is not --batch-size where dashes do not matter")
	}
}

// TestIncompleteParsers: with a computed name, the arguments are not known.
func TestIncompleteParsers(t *testing.T) {
	for text, complete := range map[string]bool{
		"p.add_argument('--x')": true,
		"":                      false,
		"p.add_argument('--x')\np.add_argument(f'--{name}')":            false,
		"p.add_argument('--x')\np.add_argument('--' + name, default=1)": false,
		"p.add_argument('--x')\nfor a in all: p.add_argument(*a)":       false,
		"p.add_argument('--x')\np.add_argument(name)":                   false,
		"p.add_argument('--x'\n":                                        false,
	} {
		if got := codeOf(t, text).Parser().Complete(); got != complete {
			t.Errorf("%q: %v", text, got)
		}
	}
	var none *format.Parser
	if _, there := none.Default("--x"); there || none.Complete() || !none.Abbreviates("--x") {
		t.Error("no parser knows something")
	}
}

// TestTrainerDefaults: only fields of classes that extend training arguments count.
func TestTrainerDefaults(t *testing.T) {
	p := codeOf(t, `
from dataclasses import dataclass, field
@dataclass
class ModelArguments:
    optim: str = "mine"

@dataclass
class Base(transformers.TrainingArguments):
    """Ours.

    bf16: whether
    """
    per_device_train_batch_size: int = field(
        default=4, metadata={"help": "per (GPU), a: b = c"}
    )
    gradient_accumulation_steps: int = 2
    output_dir: str = field(default_factory=lambda: "out")
    seed: int = 1

    def __post_init__(self):
        self.seed = 3
        x: int = 5

class Mine(Base, Mixin):
    gradient_checkpointing: bool = True
    bf16: Optional[bool] = None
optim: str = "no field"
`).Parser()
	want := map[string]format.Expression{
		"per_device_train_batch_size": {Text: "4", Known: true}, "gradient_accumulation_steps": {Text: "2", Known: true}, "output_dir": {}, "seed": {},
		"gradient_checkpointing": {Text: "True", Known: true}, "bf16": {Known: true, None: true},
	}
	got := map[string]format.Expression{}
	for _, name := range []string{"per_device_train_batch_size", "gradient_accumulation_steps", "output_dir", "seed", "gradient_checkpointing", "bf16", "optim", "x"} {
		if value, there := p.TrainerDefault("--" + name); there {
			got[name] = value
		}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAbbreviations: argparse prefers a whole name to an abbreviation.
func TestAbbreviations(t *testing.T) {
	p := codeOf(t, "p.add_argument('--batch')\nclass A:\n    batch_si: int = 1\n").Parser()
	for word, want := range map[string]bool{"--batch": false, "--batch-si": false, "--batch-s": true, "--batch-siz": true} {
		if got := p.Abbreviates(word); got != want {
			t.Errorf("%s: %v", word, got)
		}
	}
	if codeOf(t, "ArgumentParser(allow_abbrev=False)").Parser().Abbreviates("--batch-s") {
		t.Error("allow_abbrev=False is not seen")
	}
}

func TestCalls(t *testing.T) {
	calls := codeOf(t, "def initialize(x): pass\nengine, *_ = deepspeed.initialize(args, model,  # all\n    training_data=data[0, 1], config={'a': f(1, 2)}, n=-1_0)\nother.initialize(1)\n").
		Calls("deepspeed.initialize", "initialize")
	want := []format.CodeCall{{Name: "deepspeed.initialize", Whole: []string{}, Line: 2, Positional: []format.Expression{{Code: "args"}, {Code: "model"}},
		Keyword: map[string]format.Expression{"training_data": {Code: "data[0, 1]"}, "config": {Code: "{'a': f(1, 2)}"}, "n": {Text: "-10", Known: true, Code: "-1_0"}}}}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestCallsOf: a call is found under every name that the imports give it, and under no other.
func TestCallsOf(t *testing.T) {
	const name = "lightning.pytorch.Trainer"
	for text, want := range map[string]string{
		"from lightning.pytorch import Trainer\nTrainer(x=1)":                              "1",
		"from lightning.pytorch import (\n    Callback,\n    Trainer as T,\n)\nt = T(x=2)": "2",
		"from lightning.pytorch.trainer import Trainer\nTrainer(x=3)":                      "3",
		"import lightning.pytorch as pl\npl.Trainer(\n    a=0,\n    x=4,\n)":               "4",
		"import lightning as L\nL.pytorch.Trainer(x=5)":                                    "5",
		"import lightning.pytorch\nlightning.pytorch.Trainer(x=6)":                         "6",
		"from lightning import pytorch as pl\npl.Trainer(x=7)":                             "7",
		"from transformers import Trainer\nTrainer(x=8)":                                   "",
		"# from lightning.pytorch import Trainer\nTrainer(x=9)":                            "",
		"from lightning.pytorch import Trainer\nself.Trainer(x=1)":                         "",
		"from lightning.pytorch import Trainer\nclass Mine(Trainer): pass":                 "",
	} {
		got := ""
		for _, call := range codeOf(t, text).CallsOf(name) {
			v, _ := call.Given("x")
			got += v.Text
		}
		if got != want {
			t.Errorf("%q: found %q, want %q", text, got, want)
		}
	}
}

// TestGiven: an expression that is not a literal is known to be given, but its value is not
// known.
func TestGiven(t *testing.T) {
	call := codeOf(t, "from m import f\nf(a=16, b=size, c='bf16', d=True, **more)").CallsOf("m.f")[0]
	type given struct {
		Value format.Expression
		There bool
	}
	want := map[string]given{
		"a": {format.Expression{Text: "16", Known: true}, true}, "b": {format.Expression{}, true}, "c": {format.Expression{Text: "bf16", Known: true}, true},
		"d": {format.Expression{Text: "True", Known: true}, true}, "e": {format.Expression{}, true},
	}
	got := map[string]given{}
	for k := range want {
		v, there := call.Given(k)
		v.Code = ""
		got[k] = given{v, there}
	}
	if diff := cmp.Diff(want, got); diff != "" {
		t.Errorf("given (-want +got):\n%s", diff)
	}
	if _, there := (format.CodeCall{}).Given("a"); there {
		t.Error("a call without arguments gives one")
	}
}

// TestRoots: classes are followed to those of other packages.
func TestRoots(t *testing.T) {
	classes := codeOf(t, `
from trl import DPOConfig as Theirs, GRPOConfig
class Ours(Theirs):
    pass
class GRPOConfig(trl.GRPOConfig, Mixin):  # the same name
    pass
class Mixin(object):
    pass
class Plain:
    pass
class Loop(Around): pass
class Around(Loop): pass
`, "from x import Ours as Arguments\n# class Comment(TrainingArguments): pass\n")
	for name, want := range map[string][]string{
		"Ours": {"DPOConfig"}, "Arguments": {"DPOConfig"}, "GRPOConfig": {"GRPOConfig"}, "Plain": nil, "Unknown": {"Unknown"}, "Comment": {"Comment"},
		"Loop": {"Loop"}, "Around": {"Around"},
	} {
		if diff := cmp.Diff(want, classes.Roots(name)); diff != "" {
			t.Errorf("%s (-want +got):\n%s", name, diff)
		}
	}
}

// TestRootsWithManyPaths: two classes can be connected by very many paths.
func TestRootsWithManyPaths(t *testing.T) {
	var text strings.Builder
	for i := range 60 {
		fmt.Fprintf(&text, "class A%d(B%d, C%d): pass\nclass B%d(A%d): pass\nclass C%d(A%d): pass\n", i, i, i, i, i+1, i, i+1)
	}
	if got := codeOf(t, text.String()).Roots("A0"); !cmp.Equal(got, []string{"A60"}) {
		t.Errorf("roots %v", got)
	}
}

// Any text can be read: one that is not Python is marked as failed.
func TestAnyTextIsRead(t *testing.T) {
	for _, text := range []string{"add_argument('--x", "class A(B:\n x: int = (", "'''", `"\`, "f(", "\\\n#", "class A:\n\t", "add_argument(\"--", "x.add_argument()", "x = '\x00'", "\ufeffx = 1", "f('é', **{'ü': 1}).G(x)\r\ny = 2\r", "f()()[0](-x, *a)"} {
		code := codeOf(t, text)
		code.Parser().Has("--x", true)
		code.Roots("A")
	}
}

// reading is the interpreter's result for some sources, the script first.
func reading(t testing.TB, sources ...format.Source) SourceReading {
	t.Helper()
	input, err := SourceRequest{Sources: sources, Names: []string{"f"}, Seconds: 600}.Input()
	testenv.Check(t, err)
	r, err := Read(testenv.Answer(t, Program, input))
	if err != nil || r.Unknown != "" {
		t.Fatal(r.Unknown, err)
	}
	return r
}

// CodeOf is codeOf for the tests outside the package, which need recipes.
var CodeOf = codeOf

// codeOf is the content of single files.
func codeOf(t testing.TB, texts ...string) format.ScriptCode {
	t.Helper()
	var sources []format.Source
	for _, text := range texts {
		sources = append(sources, format.Source{Path: "train.py", Text: []byte(text)})
	}
	return reading(t, sources...).Code
}
