package job

import (
	"os"
	"path/filepath"
	"strings"
	"testing"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/test/testenv"
)

// soon fails a test whose function does not return: what it reads never ends.
func soon(t *testing.T, what string, f func() error) error {
	t.Helper()
	done := make(chan error, 1)
	go func() { done <- f() }()
	select {
	case err := <-done:
		return err
	case <-time.After(2 * time.Minute):
		t.Fatalf("%s: no end", what)
		return nil
	}
}

// A file that never ends is refused with a message, wherever it is named.
func TestInputThatNeverEnds(t *testing.T) {
	dir := t.TempDir()
	write := func(name, text string) string {
		path := filepath.Join(dir, name)
		testenv.Check(t, os.WriteFile(path, []byte(text), 0o644))
		return path
	}
	write("train.py", "import torch\n")
	for _, name := range []string{"pipe.toml", "pipe.py", "pipe.json"} {
		testenv.Check(t, unix.Mkfifo(filepath.Join(dir, name), 0o600))
	}
	for _, name := range []string{"zero.toml", "zero.py", "zero.json"} {
		testenv.Check(t, os.Symlink("/dev/zero", filepath.Join(dir, name)))
	}
	hole := write("hole.toml", "")
	testenv.Check(t, os.Truncate(hole, 1<<40))
	config := func(name string) string {
		return write("config-"+name+".toml", "[job]\nscript = \"train.py\"\nargs = [\"--deepspeed\", \""+name+"\"]\nrecipe = \"deepspeed\"\n[launch]\nnproc_per_node = 1\n")
	}
	recipe := func(name string) string {
		return write("recipe-"+name, "[job]\nscript = \"train.py\"\nrecipe = \""+name+"\"\n[launch]\nnproc_per_node = 1\n")
	}
	for _, c := range []struct{ path, want string }{
		{filepath.Join(dir, "pipe.toml"), "it is a pipe, not a regular file"},
		{filepath.Join(dir, "zero.toml"), "it is a device, not a regular file"},
		{hole, "it is too large: more than 256 KiB"},
		{filepath.Join(dir, "pipe.py"), "it is a pipe"},
		{filepath.Join(dir, "zero.py"), "it is a device"},
		{recipe("pipe.toml"), "read the recipe: read " + dir + "/pipe.toml: it is a pipe"},
		{recipe("zero.toml"), "it is a device"},
		{recipe("hole.toml"), "it is too large: more than 1 MiB"},
		{config("pipe.json"), "it is a pipe"},
		{config("zero.json"), "it is a device"},
	} {
		err := soon(t, c.path, func() error {
			j, _, err := Open(t.Context(), []string{c.path}, os.Environ(), dir)
			if err == nil {
				_, err = Prepare(t.Context(), j, Surroundings{Environ: os.Environ()})
			}
			return err
		})
		if err == nil || !strings.Contains(err.Error(), c.want) {
			t.Errorf("%s: %v, want %q", c.path, err, c.want)
		}
	}
}

// Numbers of ranks that no node has are refused before anything is made for them.
func TestTooManyRanks(t *testing.T) {
	dir := t.TempDir()
	testenv.Check(t, os.WriteFile(filepath.Join(dir, "train.py"), nil, 0o644))
	toml := filepath.Join(dir, "train.toml")
	for _, c := range []struct{ count, inFile, onLine string }{
		{"4097", "4097 is more than 4096", "4096 ranks"},
		{"9223372036854775807", "is more than 4096", "4096 ranks"},
		{"9223372036854775808", "2:1", "out of range"},
		{"99999999999999999999999999", "2:1", "out of range"},
	} {
		if err := os.WriteFile(toml, []byte("[launch]\nnproc_per_node = "+c.count+"\n[job]\nscript = \"train.py\"\n"), 0o644); err != nil {
			t.Fatal(err)
		}
		for want, args := range map[string][]string{
			c.inFile: {toml},
			c.onLine: {"--nproc-per-node", c.count, "train.py"},
		} {
			err := soon(t, c.count, func() error {
				j, _, err := Open(t.Context(), args, os.Environ(), dir)
				if err == nil {
					_, err = Prepare(t.Context(), j, Surroundings{Environ: os.Environ()})
				}
				return err
			})
			if err == nil || !strings.Contains(err.Error(), want) {
				t.Errorf("%s: %v, want %q", args, err, want)
			}
		}
	}
}

// A name that is mistyped is answered with the one that was meant.
func TestMistypedFileName(t *testing.T) {
	dir := t.TempDir()
	for _, name := range []string{"train.toml", "train.py", "other.yaml"} {
		testenv.Check(t, os.WriteFile(filepath.Join(dir, name), []byte("[job]\nscript = \"trian.py\"\n"), 0o644))
	}
	t.Chdir(dir)
	for typed, want := range map[string]string{
		"trian.toml":                        "did you mean train.toml?",
		"./trian.py":                        "did you mean train.py?",
		filepath.Join(dir, "trian.toml"):    "did you mean " + filepath.Join(dir, "train.toml") + "?",
		"something-else.toml":               "name an existing train.toml, or a script with torchrun's flags",
		filepath.Join(dir, "no/train.toml"): "name an existing train.toml, or a script with torchrun's flags",
	} {
		_, _, err := Open(t.Context(), []string{typed}, os.Environ(), dir)
		if got := errext.Hint(err); got != want {
			t.Errorf("%s: %v: %q, want %q", typed, err, got, want)
		}
	}
	_, _, err := Open(t.Context(), []string{"train.toml"}, os.Environ(), dir)
	if err == nil || !strings.Contains(err.Error(), `trian.py does not exist (did you mean "train.py"?)`) {
		t.Errorf("job.script: %v", err)
	}
}
