package doctor

import (
	"net"
	"os"
	"path/filepath"
	"strings"
	"testing"
)

// What a job's pipeline relies on is looked at, no notification is sent, and nothing is left.
func TestNotificationsAndMetrics(t *testing.T) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	folder := t.TempDir()
	if err := os.WriteFile(filepath.Join(folder, "url"), []byte("https://example.org/x\n"), 0o600); err != nil {
		t.Fatal(err)
	}
	t.Setenv("GPURUN_NOWHERE", "")
	for _, c := range []struct {
		table      string
		check      string
		state      CheckStatus
		found, fix string
	}{
		{"", "notify", Skipped, "names no receiver", ""},
		{"[notify]\nurl_env = \"GPURUN_NOWHERE\"\n", "notify", Warning, "the variable GPURUN_NOWHERE, which url_env names, is not set", "set the variable"},
		{"[notify]\nurl_file = \"$DIR/none\"\n", "notify", Warning, "the file that url_file names cannot be read", "write the file"},
		{"[notify]\nurl_file = \"$DIR/url\"\n", "notify", OK, "posted nothing", ""},
		{"[notify]\ncommand = [\"sh\", \"x\"]\n", "notify", OK, "/sh", ""},
		{"", "metrics", Skipped, "name no place", ""},
		{"[metrics]\ntextfile = \"$DIR/gpurun-{job}.prom\"\nlisten = \"127.0.0.1:0\"\n", "metrics", OK, "can be written", ""},
		{"[metrics]\ntextfile = \"$DIR/none/gpurun.prom\"\n", "metrics", Warning, "$DIR/none is not a folder", "make the folder"},
		{"[metrics]\nlisten = \"" + l.Addr().String() + "\"\n", "metrics", Warning, "in use", "another port"},
	} {
		here := strings.NewReplacer("$DIR", folder).Replace
		p, err := jobOf(t, "[job]\nscript = \"train.py\"\n"+here(c.table), anyPython(t))
		if err != nil {
			t.Errorf("%s: %v", c.table, err)
			continue
		}
		wants(t, resultOf(t, p, c.check), c.state, here(c.found), c.fix)
	}
	if left, err := os.ReadDir(folder); err != nil || len(left) != 1 {
		t.Errorf("left behind: %v, %v", left, err)
	}
}

// A job whose PyTorch is for the CPU, or that hides the GPUs itself, lacks none.
func TestAJobForTheCPU(t *testing.T) {
	p, err := jobOf(t, "[job]\nscript = \"train.py\"\nenv = { CUDA_VISIBLE_DEVICES = \"\" }\n", anyPython(t))
	if err != nil {
		t.Fatal(err)
	}
	wants(t, devices(t.Context(), p), OK, "trains on the CPU", "")
	wants(t, devices(t.Context(), onPaper(t, nil)), Warning, "none", "--gpus")
	if p, err = jobOf(t, "[job]\nscript = \"train.py\"\n", anyPython(t)); err != nil {
		t.Fatal(err)
	}
	for cuda, want := range map[string]CheckStatus{"": OK, "12.4": Warning} {
		p.torch = func() (torchFacts, error) { return torchFacts{Torch: "2.9.0", CUDA: cuda}, nil }
		if r := devices(t.Context(), p); r.State != want {
			t.Errorf("torch for CUDA %q: %+v", cuda, r)
		}
	}
}

// Checkpoints need room by what the newest one takes.
func TestRoomForCheckpoints(t *testing.T) {
	p, err := jobOf(t, "[job]\nscript = \"train.py\"\n[resume]\nlatest = \"out/ckpt-*\"\nargs = [\"--resume\", \"{latest}\"]\n", anyPython(t))
	if err != nil {
		t.Fatal(err)
	}
	path := filepath.Join(p.dir, "out", "ckpt-1")
	if err := os.MkdirAll(path, 0o700); err != nil {
		t.Fatal(err)
	}
	f, err := os.Create(filepath.Join(path, "model.bin"))
	if err != nil {
		t.Fatal(err)
	}
	defer f.Close()
	for bytes, want := range map[int64]CheckStatus{1 << 10: OK, 1 << 42: Warning} { // a file with a hole
		if err := f.Truncate(bytes); err != nil {
			t.Fatal(err)
		}
		if r := checkpoints(t.Context(), p); r.State != want {
			t.Errorf("of %d bytes: %+v", bytes, r)
		}
	}
}
