package format

import (
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
	"github.com/pelletier/go-toml/v2"

	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/test/testenv"
)

// TestKinds: each kind of place reads the expected value, and reads what it writes, wherever the
// command has its arguments.
func TestKinds(t *testing.T) {
	const files = "c.yaml"
	for _, test := range []struct {
		name, recipe  string
		knob          strategy.Knob
		argv          string
		now, next     strategy.Value
		want          string // the command; empty: the previous one
		files         []string
		isUnwritable  bool
		describedWith string
	}{
		{"argument", `micro_batch_size = { arg = ["--bs", "-b"] }`, strategy.MicroBatchSize, "x.py -b 8", "8", "4", "x.py -b 4", nil, false, "argument --bs"},
		{"flag", `pin_memory = { arg = "--pin", no = "--no-pin" }`, strategy.PinMemory, "x.py --no-pin", "false", "true", "x.py --pin", nil, false, "argument --pin"},
		{"variable", `micro_batch_size = { env = "BS" }`, strategy.MicroBatchSize, "x.py", "8", "4", "", nil, false, "variable BS"},
		{"override", `micro_batch_size = { override = "a.b", under = "--opts" }`, strategy.MicroBatchSize, "x.py --opts a.b=8", "8", "4", "x.py --opts a.b=4", nil, false, "override a.b"},
		{"beginning", `activation_checkpointing = { word = "ac:" }`, strategy.ActivationCheckpointing, "x.py ac:none", "none", "full", "x.py ac:full", nil, false, "word ac:"},
		{"assigned", `micro_batch_size = { assigned = "bs" }`, strategy.MicroBatchSize, "x.py conf.py", "8", "4", "", []string{"conf.py"}, true, "assignment to bs"},
		{"key", `micro_batch_size = { path = "bs", via = { arg = "--config" } }`, strategy.MicroBatchSize, "x.py --config c.yaml", "8", "4", "", []string{files}, false, "key bs"},
		{"key of a file in a file", `micro_batch_size = { path = "bs", via = { path = "inner", via = { word = 1 } } }`, strategy.MicroBatchSize, "x.py outer.json", "8", "4", "", []string{files, "outer.json"}, false, "key bs"},
		{"choice", `precision = { choose = { fp32 = [], bf16 = ["--amp", "--dtype", "b"] } }`, strategy.Precision, "x.py --amp --dtype b", "bf16", "fp32", "x.py", nil, false, "arguments --amp, --dtype"},
		{"choice of keys", `precision = { choose = { fp32 = { on = false }, bf16 = { on = true } }, via = { arg = "--config" } }`, strategy.Precision, "x.py --config c.yaml", "bf16", "fp32", "", []string{files}, false, "keys on"},
	} {
		t.Run(test.name, func(t *testing.T) {
			r, err := Parse("x.toml", []byte("name = \"x\"\n[knobs]\n"+test.recipe), nil)
			testenv.Check(t, err)
			p := r.Knobs[test.knob].Places[0]
			d := NewDraft(r, Command{Argv: strings.Fields(test.argv), Env: map[string]string{"BS": "8"}, Files: map[string][]byte{
				files: []byte("bs: 8\non: true\n"), "outer.json": []byte(`{"inner": "c.yaml"}`), "conf.py": []byte("bs = 8\n"),
			}})
			needed := p.Files(d)
			slices.Sort(needed)
			if diff := cmp.Diff(test.files, slices.Compact(needed)); diff != "" || p.String() != test.describedWith || !p.Present(d) {
				t.Errorf("%s, there %v, files (-want +got):\n%s", p, p.Present(d), diff)
			}
			if now, found, err := p.Get(d, test.knob); now != test.now || !found || err != nil {
				t.Errorf("read %s, %v, %v; want %s", now, found, err, test.now)
			}
			if (p.Unwritable(d) != "") != test.isUnwritable {
				t.Errorf("unwritable: %q", p.Unwritable(d))
			}
			err = p.Set(d, test.knob, test.next, "")
			if (err != nil) != test.isUnwritable {
				t.Errorf("write: %v", err)
			}
			if err != nil {
				return
			}
			if next, _, err := p.Get(d, test.knob); next != test.next || err != nil {
				t.Errorf("after %s was written: %s, %v", test.next, next, err)
			}
			if test.want != "" && strings.Join(d.Argv, " ") != test.want {
				t.Errorf("command %q, want %s", d.Argv, test.want)
			}
		})
	}
}

// TestChoiceOfKeysWithoutTheFile: keys of a file that the command does not name have no value, as one of several
// alternatives; alone they are an error.
func TestChoiceOfKeysWithoutTheFile(t *testing.T) {
	const keys = `{ choose = { fp32 = { on = false }, bf16 = { on = true } }, via = { arg = "--config" } }`
	for recipe, fails := range map[string]bool{"[" + keys + "]": true, `{ alternatives = [` + keys + `, { arg = "--dtype" }] }`: false} {
		r, err := Parse("x.toml", []byte("name = \"x\"\n[knobs]\nprecision = "+recipe), nil)
		testenv.Check(t, err)
		d := NewDraft(r, Command{Argv: []string{"x.py", "--dtype", "bf16"}})
		if value, found, err := r.Knobs[strategy.Precision].Places[0].Get(d, strategy.Precision); found || (err != nil) != fails {
			t.Errorf("%s: %q, %v, %v", recipe, value, found, err)
		}
	}
}

// TestArgumentsInOneFile: a file that has all arguments is read and changed in place of the
// command line.
func TestArgumentsInOneFile(t *testing.T) {
	r, err := Parse("x.toml", []byte("name = \"x\"\nparser = \"LLaMAFactory\"\n[knobs]\nmicro_batch_size = { arg = \"--batch-size\" }\n"+
		"precision = { choose = { fp32 = [], bf16 = [\"--bf16\"] } }\npin_memory = { arg = \"--pin\" }\n"), nil)
	testenv.Check(t, err)
	for argv, want := range map[string][2]string{
		"x.py a.json":              {"x.py a.json", `{"batch_size": 4, "bf16": false, "pin": true}`},
		"x.py a.json batch_size=2": {"x.py a.json batch_size=4", `{"batch_size": 8, "bf16": false, "pin": true}`},
	} {
		d := NewDraft(r, Command{Argv: strings.Fields(argv), Files: map[string][]byte{"a.json": []byte(`{"batch_size": 8, "bf16": true, "pin": false}`)}})
		for k, value := range map[strategy.Knob]strategy.Value{strategy.MicroBatchSize: "4", strategy.Precision: "fp32", strategy.PinMemory: "true"} {
			if err := r.Knobs[k].Places[0].Set(d, k, value, ""); err != nil {
				t.Errorf("%s: %v", k, err)
			}
		}
		text, err := d.text("a.json")
		if got := [2]string{strings.Join(d.Argv, " "), string(text)}; err != nil || got != want {
			t.Errorf("%s: %q, %v; want %q", argv, got, err, want)
		}
	}
}

// TestOnlyAKindAssertsItsType: a kind is named only in its own file, in the table of kinds, and
// where one is made.
func TestOnlyAKindAssertsItsType(t *testing.T) {
	asks := regexp.MustCompile(`(?:\.\(|case )\*?(?:argument|variable|override|beginning|assigned|key|choice)\b[,):]`)
	seen := 0
	for _, pattern := range []string{"*.go", "../*.go", "../*/*.go"} {
		files, err := filepath.Glob(pattern)
		testenv.Check(t, err)
		for _, file := range files {
			text, err := os.ReadFile(file)
			testenv.Check(t, err)
			seen++
			if found := asks.Find(text); found != nil && !strings.HasSuffix(file, "_test.go") {
				t.Errorf("%s asks for a kind: %s", file, found)
			}
		}
	}
	if seen < 40 {
		t.Errorf("only %d files were looked at", seen)
	}
}

// TestFormsOfKnobs: every form in which a train.toml may describe a knob.
func TestFormsOfKnobs(t *testing.T) {
	for _, form := range []string{
		`micro_batch_size = { arg = "--batch-size", min = 2 }`,
		`gradient_accumulation_steps = { arg = "--accum", default = 1 }`,
		`gradient_accumulation_steps = "derived"`,
		`gradient_accumulation_steps = { arg = "--accum", scope = "global" }`,
		`activation_checkpointing = { arg = "--checkpoint", values = { none = "off", full = "on" }, default = "none" }`,
		`precision = { choose = { fp32 = [], bf16 = ["--amp", "--amp-dtype", "bfloat16"] }, default = "fp32" }`,
		`micro_batch_size = { env = "NAME" }`,
		`micro_batch_size = { override = "train.batch" }`,
		`micro_batch_size = { file = "conf.yaml", path = "train.batch" }`,
		`micro_batch_size = [ { arg = "--bs" }, { file = "ds.json", path = "train_micro_batch_size_per_gpu" } ]`,
		`micro_batch_size = { file = "conf.yaml", path = "train.batch", via = { arg = "--config" } }`,
		"[[micro_batch_size]]\narg = \"--bs\"\n[[micro_batch_size]]\nfile = \"ds.json\"\npath = \"bs\"",
	} {
		table := map[string]any{}
		testenv.Check(t, toml.Unmarshal([]byte(form), &table))
		if r, problems := FromKnobs(table); problems != nil || len(r.Knobs) != 1 {
			t.Errorf("%s: %v", form, problems)
		}
	}
}
