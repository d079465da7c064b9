package hook

import (
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// Of what a parser returns, the process reports whole numbers and truth values, by name, and nothing else. It has them
// before the job uses or changes them.
func TestParsedArgumentsAreReported(t *testing.T) {
	t.Parallel()
	type values = map[string]strategy.Value
	for _, test := range []struct {
		name, modules, script, line string
		want                        values
	}{
		{"argparse", "", `
import argparse
p = argparse.ArgumentParser()
p.add_argument("--batch-size", "-b", type=int, default=32)
p.add_argument("--amp", action="store_true")
p.add_argument("--lr", type=float, default=.1)
p.add_argument("--worst", type=float, default=float("nan"))
p.add_argument("--token", default="hf_secret")
p.add_argument("--password", type=int, default=1234)
p.add_argument("--huge", type=int, default=10 ** 5000)
args = p.parse_args()
args.batch_size //= 4
`, "-b 16 --amp", values{"batch_size": "16", "amp": "true"}},
		{"argparse, in two passes", "", `
import argparse
first = argparse.ArgumentParser(add_help=False)
first.add_argument("--config", default="")
first.add_argument("--batch", type=int, default=1)
given, rest = first.parse_known_args()
second = argparse.ArgumentParser(parents=[first])
second.set_defaults(batch=8)
second.parse_args(rest)
`, "--config x", values{"batch": "8"}},
		{"argparse, of a command below and an object of the job's", "", `
import argparse
class Options:
    __slots__ = ("mode", "bs", "__weakref__")
p = argparse.ArgumentParser()
p.add_subparsers(dest="mode").add_parser("train").add_argument("--bs", type=int, default=4)
p.parse_args(namespace=Options())
class Kept: kept = 3
p.parse_args(namespace=Kept())
`, "train --bs 2", values{"bs": "2"}},
		{"a type that fails", "", `
import argparse
p = argparse.ArgumentParser()
p.add_argument("--bs", type=int)
try:
    p.parse_args(["--bs", "x"])
except SystemExit as e:
    assert e.code == 2 and "gpurun" not in str(e)
`, "", nil},
		{"no parser", "", "import sys\nbatch = int(sys.argv[1])\n", "4", nil},
		{"click", "click", `
import click
@click.group()
def main(): pass
@main.command()
@click.option("--batch-size", default=32)
@click.option("--amp/--no-amp", default=True)
@click.option("--name", default="hf_secret")
def train(**kwargs): pass
main()
`, "train --batch-size 8 --no-amp", values{"batch_size": "8", "amp": "false"}},
		{"typer", "typer", `
import typer
def main(batch_size: int = 32, accum: int = 2, name: str = "x"): pass
typer.run(main)
`, "--batch-size 8", values{"batch_size": "8", "accum": "2"}},
		{"absl", "absl", `
from absl import app, flags
flags.DEFINE_integer("my_batch", 32, "")
flags.DEFINE_bool("my_amp", False, "")
app.run(lambda argv: None)
`, "--my_batch=8", values{"my_batch": "8", "my_amp": "false"}},
		{"fire", "fire", `
import fire
def train(batch, accum=2, *, seed=3, name="x"): raise SystemExit(0)
fire.Fire(train)
`, "16 --accum 4", values{"batch": "16", "accum": "4", "seed": "3"}},
		{"tyro", "tyro", `
import dataclasses, tyro
@dataclasses.dataclass
class Data:
    batch: int = 4
@dataclasses.dataclass
class Config:
    data: Data
    accum: int = 2
tyro.cli(Config)
`, "--data.batch 8", values{"data.batch": "8", "accum": "2"}},
		{"hydra", "hydra", `
import hydra
from omegaconf import OmegaConf
OmegaConf.register_new_resolver("of_the_job", lambda: 1 / 0)
@hydra.main(config_path=".", config_name="conf", version_base=None)
def main(cfg): pass
main()
`, "train.batch=8", values{"train.batch": "8", "train.accum": "2", "amp": "true"}},
		{"OmegaConf", "omegaconf", `
from omegaconf import OmegaConf
base = OmegaConf.load("conf.yaml")
OmegaConf.merge(base, OmegaConf.from_cli())
`, "train.batch=8", values{"train.batch": "8", "train.accum": "2", "amp": "true"}},
		{"transformers", "transformers", `
import dataclasses
from transformers import HfArgumentParser
@dataclasses.dataclass
class A:
    batch: int = 4
@dataclasses.dataclass
class B:
    accum: int = 2
HfArgumentParser([A, B]).parse_dict({"batch": 8})
`, "", values{"batch": "8", "accum": "2"}},
	} {
		t.Run(test.name, func(t *testing.T) {
			t.Parallel()
			path := testenv.Python(t)
			if modules := strings.Fields(test.modules); !has(path, modules...) {
				t.Skipf("%s has no %s", path, test.modules)
			}
			r := newTrial(t)
			script := filepath.Join(r.home, "job.py")
			conf := "train: {batch: 4, accum: 2}\nother: ${of_the_job:}\nname: hf_secret\namp: true\n"
			if err := os.WriteFile(script, []byte(test.script), 0o600); err != nil {
				t.Fatal(err)
			}
			if err := os.WriteFile(filepath.Join(r.home, "conf.yaml"), []byte(conf), 0o600); err != nil {
				t.Fatal(err)
			}
			r.orders.Script = script
			r.train(t, append([]string{path, script}, strings.Fields(test.line)...)...)
			said, _ := r.told(t)
			var got values
			if said != nil {
				got = said.Arguments
			}
			for name := range got {
				if _, asked := test.want[name]; !asked && slices.Contains([]string{"absl", "fire", "hydra"}, test.modules) {
					delete(got, name) // the library's own
				}
			}
			if diff := cmp.Diff(test.want, got); diff != "" {
				t.Errorf("(-want +got):\n%s", diff)
			}
			text, _ := os.ReadFile(filepath.Join(r.dir, "rank0", processFile))
			if strings.Contains(string(text), "secret") || strings.Contains(string(text), "1234") {
				t.Errorf("a secret is in %s", text)
			}
		})
	}
}
