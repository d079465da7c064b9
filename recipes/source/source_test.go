package source

import (
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestOptions: what a parser's source says of its arguments and their defaults.
func TestOptions(t *testing.T) {
	p := Parse([]byte(`
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
`), []byte(`
parser.add_argument("--lr", default=1)
def add(parser):
    """
    parser.add_argument("--in-docstring", default=1)
    """
`))
	if !p.Complete() {
		t.Fatal("a parser of literal names is not complete")
	}
	for name, want := range map[string]Value{
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

// TestIncompleteParsers: where a name is computed nobody knows which there are.
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
		if got := Parse([]byte(text)).Complete(); got != complete {
			t.Errorf("%q: %v", text, got)
		}
	}
	var none *Parser
	if _, there := none.Default("--x"); there || none.Complete() || !none.Abbreviates("--x") {
		t.Error("no parser knows something")
	}
}

// TestTrainerDefaults: fields of classes that extend training arguments, and of no other.
func TestTrainerDefaults(t *testing.T) {
	p := Parse([]byte(`
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
`))
	want := map[string]Value{
		"per_device_train_batch_size": {Text: "4", Known: true}, "gradient_accumulation_steps": {Text: "2", Known: true}, "output_dir": {}, "seed": {},
		"gradient_checkpointing": {Text: "True", Known: true}, "bf16": {Known: true, None: true},
	}
	if diff := cmp.Diff(want, p.trainer); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// TestAbbreviations: argparse takes a whole name before one that is cut short.
func TestAbbreviations(t *testing.T) {
	p := Parse([]byte("p.add_argument('--batch')\nclass A:\n    batch_si: int = 1\n"))
	for word, want := range map[string]bool{"--batch": false, "--batch-si": false, "--batch-s": true, "--batch-siz": true} {
		if got := p.Abbreviates(word); got != want {
			t.Errorf("%s: %v", word, got)
		}
	}
	if Parse([]byte("ArgumentParser(allow_abbrev=False)")).Abbreviates("--batch-s") {
		t.Error("allow_abbrev=False is not seen")
	}
}

func TestCalls(t *testing.T) {
	calls := Calls([]byte("def initialize(x): pass\nengine, *_ = deepspeed.initialize(args, model,  # all\n    training_data=data[0, 1], config={'a': f(1, 2)})\nother.initialize(1)\n"),
		"deepspeed.initialize", "initialize")
	want := []Call{{Positional: []string{"args", "model"}, Keyword: map[string]string{"training_data": "data[0, 1]", "config": "{'a': f(1, 2)}"}}}
	if diff := cmp.Diff(want, calls); diff != "" {
		t.Errorf("(-want +got):\n%s", diff)
	}
}

// FuzzParse: whatever a source is, reading it ends without a panic.
func FuzzParse(f *testing.F) {
	for _, seed := range []string{"add_argument('--x", "class A(B:\n x: int = (", "'''", `"\`, "f(", "\\\n#", "class A:\n\t", "add_argument(\"--", "x.add_argument()"} {
		f.Add(seed)
	}
	f.Fuzz(func(_ *testing.T, text string) {
		Parse([]byte(text)).Has("--x", true)
		Calls([]byte(text), "x")
		ClassesOf([]byte(text)).Roots("A")
	})
}
