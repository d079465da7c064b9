package job

import (
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"testing"

	"golang.org/x/sys/unix"
)

// Configuration files that arguments name are distinguished by their content, and nothing
// else is read.
func TestInputs(t *testing.T) {
	dir, _ := folder(t, map[string]string{
		"train.py": "", "c.yaml": "a", "d.JSON": "", "e.toml": "a", "model.py": "", "data.bin": "", "big.json": strings.Repeat("x", largestNamed+1),
		"train.toml": "[job]\nscript = \"train.py\"\nargs = [\"--config\", \"c.yaml\"]\n",
	})
	if err := unix.Mkfifo(filepath.Join(dir, "pipe.yaml"), 0o600); err != nil {
		t.Fatal(err)
	}
	if err := os.Mkdir(filepath.Join(dir, "folder.yaml"), 0o700); err != nil {
		t.Fatal(err)
	}
	words := []string{"train.py", "--config", "c.yaml", "--more=d.JSON", "x=e.toml", "model.py", "data.bin", "big.json", "pipe.yaml", "folder.yaml", "none.yaml", "c.yaml"}
	p, err := prepared(t, dir, machine(dir), words...)
	if err != nil {
		t.Fatal(err)
	}
	before := p.Inputs()
	if got := slices.Sorted(maps.Keys(before)); !slices.Equal(got, []string{"c.yaml", "d.JSON", "e.toml", "model.py"}) {
		t.Errorf("%q", got)
	}
	if before["c.yaml"] != before["e.toml"] || before["c.yaml"] == before["d.JSON"] {
		t.Errorf("%q", before)
	}
	put(t, filepath.Join(dir, "c.yaml"), "b")
	if after := p.Inputs(); after["c.yaml"] == before["c.yaml"] || after["e.toml"] != before["e.toml"] {
		t.Errorf("%q became %q", before, after)
	}
	if p, err = prepared(t, dir, machine(dir), "train.toml"); err != nil {
		t.Fatal(err)
	}
	if got := slices.Collect(maps.Keys(p.Inputs())); !slices.Equal(got, []string{"c.yaml"}) {
		t.Errorf("of a train.toml: %q", got)
	}
}

// A variable of a pipeline that is not set is no reason to train without what it says.
func TestFlagsOfPipelinesAreFilled(t *testing.T) {
	dir, _ := folder(t, map[string]string{"train.py": "", "train.toml": "[job]\nscript = \"train.py\"\n"})
	for _, words := range [][]string{
		{"--run-id", "", "train.py"}, {"--run-id=", "train.toml"}, {"train.toml", "--if-trained", ""}, {"--deadline", "", "train.py"}, {"--junit", "", "train.toml"},
	} {
		if _, _, err := Open(t.Context(), words, machine(dir).Environ, dir); err == nil || !strings.HasSuffix(err.Error(), " is empty") {
			t.Errorf("%q: %v", words, err)
		}
	}
}
