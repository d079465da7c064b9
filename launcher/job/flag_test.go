package job

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
// (torch 2.15, torch.distributed.run.get_args_parser) said how it reads them.
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
		found, rest, err := parseFlags(torchrunFlags(), c.Args)
		if c.Error != "" {
			if err == nil && len(rest) > 0 {
				t.Errorf("%q is taken, torchrun says: %s", c.Args, c.Error)
			}
			continue
		}
		if err != nil {
			t.Errorf("%q: %v", c.Args, err)
			continue
		}
		got := map[string]string{}
		for _, g := range found {
			got[g.name] = g.value
		}
		for name, value := range defaults {
			if got[name] == value {
				delete(got, name)
			}
		}
		if diff := cmp.Diff(c.Flags, got); diff != "" {
			t.Errorf("%q: flags (-torchrun +gpurun):\n%s", c.Args, diff)
		}
		if diff := cmp.Diff(c.Rest, rest); diff != "" {
			t.Errorf("%q: script (-torchrun +gpurun):\n%s", c.Args, diff)
		}
	}
}

// TestPrefixes takes every prefix of every flag, in both spellings: it is read
// as the flag, or refused as ambiguous.
func TestPrefixes(t *testing.T) {
	flags := torchrunFlags()
	for _, f := range flags {
		for end := 1; end <= len(f.name); end++ {
			prefix := f.name[:end]
			fits := 0
			exact := false
			for _, other := range flags {
				if strings.HasPrefix(other.name, prefix) {
					fits++
				}
				exact = exact || other.name == prefix
			}
			for _, spelled := range []string{prefix, strings.ReplaceAll(prefix, "-", "_")} {
				arg := "--" + spelled
				if !f.truth {
					arg += "=x"
				}
				found, _, err := parseFlags(flags, []string{arg, "train.py"})
				var u *UsageError
				switch {
				case fits > 1 && !exact:
					if !errors.As(err, &u) || !strings.Contains(u.Message, "ambiguous") {
						t.Errorf("%s: %v, want ambiguous", arg, err)
					}
				case err != nil || len(found) != 1 || !exact && found[0].flag != f:
					t.Errorf("%s is read as %v, %v", arg, found, err)
				}
			}
		}
	}
}
