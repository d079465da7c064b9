package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/launcher/errext"
)

func TestTrainFile(t *testing.T) {
	for line, want := range map[string]Own{
		"--json a.toml":                          {JSON: true},
		"a.toml --json --run-dir x":              {JSON: true, RunDir: "x"},
		"--quiet a.toml --propagate-exit-code":   {Quiet: true, Propagate: true},
		"--run-dir x a.toml --run-dir=y --quiet": {RunDir: "y", Quiet: true},
	} {
		file, own, err := TrainFile(strings.Fields(line), nil)
		if err != nil || file != "a.toml" || own != want {
			t.Errorf("%s: %q, %+v, %v", line, file, own, err)
		}
	}
	for line, want := range map[string]string{
		"a.toml b":                     `unexpected argument "b" after a.toml`,
		"a.toml --json b":              `unexpected argument "b" after a.toml`,
		"a.toml --lr 3":                `unexpected argument "--lr" after a.toml`,
		"a.toml --nproc-per-node 2":    "--nproc-per-node goes with a script",
		"--nproc-per-node 2 a.toml":    "--nproc-per-node goes with a script",
		"a.toml --run-dir":             `unexpected argument "--run-dir" after a.toml`,
		"--json a.toml --quiet -- one": `unexpected argument "one" after a.toml`,
	} {
		if file, _, err := TrainFile(strings.Fields(line), nil); err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %q, %v, want an error with %q", line, file, err, want)
		}
	}
	if file, _, err := TrainFile([]string{"A.TOML"}, nil); file != "A.TOML" || err != nil {
		t.Errorf("A.TOML: %q, %v", file, err)
	}
	// After a script, everything is the script's.
	if file, own, err := TrainFile([]string{"a.py", "--json"}, nil); file != "" || own.JSON || err != nil {
		t.Errorf("a script's own --json: %q, %+v, %v", file, own, err)
	}
}

// A flag of torchrun's beside a train.toml gets the key that the file has for it.
func TestFlagBesideFileNamesItsKey(t *testing.T) {
	for line, want := range map[string]string{
		"--python /usr/bin/python3 a.toml": "set job.python in a.toml",
		"--nproc-per-node 2 a.toml":        "set launch.nproc_per_node in a.toml",
		"--rdzv-backend c10d a.toml":       `write job.command = "torchrun --rdzv-backend …" in a.toml`,
	} {
		_, _, err := TrainFile(strings.Fields(line), nil)
		if hint := errext.Hint(err); hint != want {
			t.Errorf("%s: %v, hint %q, want %q", line, err, hint, want)
		}
	}
}

func TestStartable(t *testing.T) {
	dir := t.TempDir()
	for name, mode := range map[string]os.FileMode{"run": 0o755, "plain": 0o644} {
		if err := os.WriteFile(filepath.Join(dir, name), nil, mode); err != nil {
			t.Fatal(err)
		}
	}
	if err := os.Mkdir(filepath.Join(dir, "folder"), 0o755); err != nil {
		t.Fatal(err)
	}
	for program, want := range map[string]string{
		"./run": "", "run": "", "./plain": "not executable", "./none": "does not exist", "none": "in no folder of PATH", "./folder": "not a program",
	} {
		err := Startable(&Job{Kind: Program, Argv: []string{program}, Workdir: dir}, []string{"PATH=/none:" + dir})
		if want == "" && err != nil || want != "" && (err == nil || !strings.Contains(err.Error(), want)) {
			t.Errorf("%s: %v, want %q", program, err, want)
		}
	}
	if err := Startable(&Job{Kind: Script, Argv: []string{"none.py"}, Workdir: dir}, nil); err != nil {
		t.Errorf("a script: %v", err)
	}
}
