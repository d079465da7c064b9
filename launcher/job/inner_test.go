package job

import (
	"errors"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/commandline"
)

// TestInnerCommand: a launcher that the hook knows is taken off; what the user
// says in the job or before the command is stronger than what it would set.
func TestInnerCommand(t *testing.T) {
	dir := t.TempDir()
	for name, text := range map[string]string{
		"train.py":   "",
		"train.toml": "[job]\ncommand = \"A=1 wrap --ranks 2 train.py --x\"\nenv = { B = \"2\" }\n",
	} {
		if err := os.WriteFile(filepath.Join(dir, name), []byte(text), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	hook := func(w words) (commandline.Inner, bool, error) {
		words := w.seen.Inner
		if words[0] != "wrap" || w.env["A"] != "1" || w.env["B"] != "2" || w.dir != dir {
			t.Errorf("asked about %q in %s with %v", words, w.dir, w.env)
		}
		return commandline.Inner{Kind: Script, Argv: words[3:], Env: map[string]string{"A": "x", "B": "x", "C": "x"}, Ranks: words[2]}, true, nil
	}
	j, err := Load(filepath.Join(dir, "train.toml"), hook)
	if err != nil {
		t.Fatal(err)
	}
	if diff := cmp.Diff(map[string]string{"A": "1", "B": "2", "C": "x"}, j.Env); diff != "" {
		t.Errorf("environment (-want +got):\n%s", diff)
	}
	if j.Kind != Script || strings.Join(j.Argv, " ") != "train.py --x" || j.Launch.NprocPerNode != "2" {
		t.Errorf("%v %q with %s ranks", j.Kind, j.Argv, j.Launch.NprocPerNode)
	}
	failing := func(words) (commandline.Inner, bool, error) {
		return commandline.Inner{}, true, errors.New("wrap cannot do that")
	}
	if _, err := Load(filepath.Join(dir, "train.toml"), failing); err == nil || !strings.Contains(err.Error(), "wrap cannot do that") {
		t.Errorf("a launcher that cannot be taken off: %v", err)
	}
}
