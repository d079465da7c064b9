package commandline

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

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
