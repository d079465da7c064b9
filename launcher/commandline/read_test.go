package commandline

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/test/testenv"
)

// TestFlagsAgreeWithTorchrun runs command lines of which torchrun's own parser
// (torch 2.15, torch.distributed.run.get_args_parser) showed how it reads them.
func TestFlagsAgreeWithTorchrun(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "argparse.json"))
	testenv.Check(t, err)
	var cases []struct {
		Args  []string
		Flags map[string]string // those that are not at their default
		Rest  []string
		Error string
	}
	testenv.Check(t, json.Unmarshal(text, &cases))
	if len(cases) < 100 {
		t.Fatalf("only %d cases", len(cases))
	}
	defaults := map[string]string{"nnodes": "1:1", "nproc-per-node": "1", "role": "default"}
	for _, c := range cases {
		read, err := torchrun.Grammar.Read(c.Args)
		if c.Error != "" {
			if err == nil && len(read.Rest) > 0 {
				t.Errorf("%q is taken, torchrun says: %s", c.Args, c.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.Args, err)
			continue
		}
		got := map[string]string{}
		for _, g := range read.Given {
			got[g.Name] = g.Value
		}
		for name, value := range defaults {
			if got[name] == value {
				delete(got, name)
			}
		}
		if diff := cmp.Diff(c.Flags, got); diff != "" {
			t.Errorf("%q: flags (-torchrun +gpurun):\n%s", c.Args, diff)
		}
		if diff := cmp.Diff(c.Rest, read.Rest); diff != "" {
			t.Errorf("%q: script (-torchrun +gpurun):\n%s", c.Args, diff)
		}
	}
}

// TestPrefixes takes every prefix of every option, in both spellings: it is read
// as the option, or refused as ambiguous.
func TestPrefixes(t *testing.T) {
	options := gpurun.Options
	for i := range options {
		o := &options[i]
		for end := 1; end <= len(o.Name); end++ {
			prefix := o.Name[:end]
			fits := 0
			exact := false
			for _, other := range options {
				if strings.HasPrefix(other.Name, prefix) && !other.Whole {
					fits++
				}
				exact = exact || other.Name == prefix
			}
			for _, spelled := range []string{prefix, strings.ReplaceAll(prefix, "-", "_")} {
				arg := "--" + spelled
				if !o.Bare {
					arg += "=x"
				}
				read, err := gpurun.Read([]string{arg, "train.py"})
				var p *OptionProblem
				switch {
				case o.Whole && !exact && fits == 0:
					if !errors.As(err, &p) || p.Fault != Unknown {
						t.Errorf("%s is cut short, and read as %v, %v", arg, read.Given, err)
					}
				case fits > 1 && !exact:
					if !errors.As(err, &p) || p.Fault != Ambiguous || len(p.Options) != fits {
						t.Errorf("%s: %v, want ambiguous", arg, err)
					}
				case o.Whole && !exact: // another one of which it is the beginning
				case err != nil || len(read.Given) != 1 || !exact && read.Given[0].Option != o:
					t.Errorf("%s is read as %v, %v", arg, read.Given, err)
				}
			}
		}
	}
}

// TestEveryOptionHasARule: each option that torchrun and gpurun take does
// something, or says that it does not.
func TestEveryOptionHasARule(t *testing.T) {
	for i := range legacyGpurun.Options {
		o := &legacyGpurun.Options[i]
		value := map[string]string{"redirects": "3", "tee": "0:1"}[o.Name]
		if value == "" {
			value = "1"
		}
		if err := newLaunch().take(Given{Option: o, Source: "x", Value: value}); err != nil && strings.Contains(err.Error(), "no meaning") {
			t.Errorf("%s: %v", o, err)
		}
	}
}

func TestLastValueOfANameCounts(t *testing.T) {
	got := ParseEnviron([]string{"A=1", "B=x=y", "nothing", "A=2", "EMPTY="})
	if diff := cmp.Diff(Environ{"A": "2", "B": "x=y", "EMPTY": ""}, got); diff != "" {
		t.Error(diff)
	}
	if diff := cmp.Diff([]string{"A=2", "B=x=y", "EMPTY="}, got.Words()); diff != "" {
		t.Error(diff)
	}
}

func TestWithLeavesTheOriginalAlone(t *testing.T) {
	base := ParseEnviron([]string{"A=1"})
	over := base.With(map[string]string{"A": "2", "B": "3"}, map[string]string{"B": "4"})
	if diff := cmp.Diff([]string{"A=2", "B=4"}, over.Words()); diff != "" {
		t.Error(diff)
	}
	if base["A"] != "1" || len(base) != 1 {
		t.Errorf("the original became %v", base)
	}
	var none Environ
	if _, set := none.With(map[string]string{"A": ""}).Lookup("A"); !set {
		t.Error("a variable that is empty is not told from one that is not set")
	}
}

// What gpurun estimate makes of a command line: a size with flags on both sides, a
// train.toml with them, and a command whose own arguments are its own.
func TestReadEstimate(t *testing.T) {
	for line, want := range map[string]struct {
		size, job, others, given string
		json                     bool
	}{
		"7B --precision bf16 --zero 3 --json":         {size: "7B", given: "precision=bf16 zero=3", json: true},
		"--micro-batch-size=4 1.3e9 --fsdp":           {size: "1.3e9", given: "fsdp=1 micro-batch=4"},
		"7B --offload-param=nvme --offload-optimizer": {size: "7B", given: "offload-optimizer=1 offload-param=nvme"},
		"7B 8B":                 {size: "7B", others: "8B"},
		"--nproc-per-node 8 7B": {size: "7B", others: "--nproc-per-node 8"},
		"--json train.toml --gpus 8 --sequence 128":                  {job: "--json train.toml", given: "gpus=8 sequence=128", json: true},
		"train.toml --mode off":                                      {job: "train.toml --mode off"},
		"train.toml extra":                                           {job: "train.toml extra"},
		"--sequence 9 --nproc-per-node 2 train.py --precision x":     {job: "--nproc-per-node 2 train.py --precision x", given: "sequence=9"},
		"--gpus 4 torchrun --nproc-per-node 2 train.py --sequence 1": {job: "torchrun --nproc-per-node 2 train.py --sequence 1", given: "gpus=4"},
		"--layers 2 --hidden 64 --vocab 100":                         {given: "hidden=64 layers=2 vocab=100"},
		"3d.py --json":                                               {job: "3d.py --json"},
		"7Z":                                                         {size: "7Z"},
		"there":                                                      {job: "there"},
		"350m":                                                       {job: "350m"}, // a file of that name
	} {
		got, err := ReadEstimate(strings.Fields(line), func(word string) bool { return word == "350m" })
		var given []string
		for _, name := range []string{"fsdp", "gpus", "hidden", "layers", "micro-batch", "offload-optimizer", "offload-param", "precision", "sequence", "vocab", "zero"} {
			if g, is := got.Given[name]; is {
				given = append(given, name+"="+g.Value)
			}
		}
		is := []any{got.Size, strings.Join(got.Job, " "), strings.Join(got.Others, " "), strings.Join(given, " "), got.JSON}
		if diff := cmp.Diff([]any{want.size, want.job, want.others, want.given, want.json}, is); err != nil || diff != "" {
			t.Errorf("%s: %v\n%s", line, err, diff)
		}
	}
	if _, err := ReadEstimate([]string{"7B", "--help"}, func(string) bool { return false }); !errors.Is(err, ErrHelp) {
		t.Errorf("--help: %v", err)
	}
	var wrong *OptionProblem
	if _, err := ReadEstimate([]string{"7B", "--precison", "bf16"}, func(string) bool { return false }); !errors.As(err, &wrong) || wrong.Fault != Unknown {
		t.Errorf("an unknown flag: %v", err)
	}
}

// Every option of gpurun estimate is in its help, and asks for JSON where it says so.
func TestEstimateHelp(t *testing.T) {
	for _, o := range estimateOptions {
		if !strings.Contains(HelpText("estimate"), "--"+o.Name) {
			t.Errorf("the help has no --%s", o.Name)
		}
	}
	for line, want := range map[string]bool{"7B --json": true, "--precision bf16 7B --json": true, "--gpus 2 train.py --json": false, "train.toml --json": true, "7B --wrong --json": true} {
		if AsksJSON("estimate", strings.Fields(line)) != want {
			t.Errorf("%s: not %v", line, want)
		}
	}
}

func TestHelpTextHasColumns(t *testing.T) {
	for verb, lines := range map[string][]string{
		"run": {
			"gpurun's own:\n  --json                  print events as JSON lines",
			"  --help, -h              show this\n\nthe policy, over",
			"  -r, --redirects STD     streams that go only to files",
			"with code 75, and starts\n                          no attempt",
		},
		"plan":     {"--json              print one JSON document on stdout\n", "\n-m, --module        the script is a module"},
		"estimate": {"\n--weights WHICH     what the bytes follow", "(16-bit\n                    weights and"},
	} {
		for _, want := range lines {
			if text := HelpText(verb); !strings.Contains(text, want) {
				t.Errorf("the help of %s has no %q:\n%s", verb, want, text)
			}
		}
	}
}
