package commandline

import (
	"encoding/json"
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// TestFlagsAgreeWithTorchrun runs command lines of which torchrun's own parser
// (torch 2.15, torch.distributed.run.get_args_parser) showed how it reads them.
func TestFlagsAgreeWithTorchrun(t *testing.T) {
	text, err := os.ReadFile(filepath.Join("testdata", "argparse.json"))
	if err != nil {
		t.Fatal(err)
	}
	var cases []struct {
		Args  []string
		Flags map[string]string // those that are not at their default
		Rest  []string
		Error string
	}
	if err := json.Unmarshal(text, &cases); err != nil {
		t.Fatal(err)
	}
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
