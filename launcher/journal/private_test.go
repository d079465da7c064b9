package journal

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

// What a run directory holds is for its user alone; a copy is for those who could
// read its original.
func TestModes(t *testing.T) {
	before := syscall.Umask(0)
	defer syscall.Umask(before)
	work, original := t.TempDir(), t.TempDir()
	for name, mode := range map[string]fs.FileMode{"open.json": 0o664, "closed.json": 0o600, "script.sh": 0o755} {
		if err := os.WriteFile(filepath.Join(original, name), []byte("old"), mode); err != nil {
			t.Fatal(err)
		}
	}
	run := filepath.Join(work, ".gpurun", "job", "run")
	j, _ := open(t, run)
	dir, err := j.Prepare(0)
	if err != nil {
		t.Fatal(err)
	}
	copies := filepath.Join(dir, "files", "conf")
	c := strategy.Command{Argv: []string{"train.py"}, Diff: "+x\n", Siblings: map[string]string{copies: original}, Files: map[string][]byte{filepath.Join(dir, "files", "new.json"): nil}}
	for _, name := range []string{"open.json", "closed.json", "script.sh"} {
		c.Files[filepath.Join(copies, name)] = []byte("new")
	}
	if err := j.Write(dir, strategy.Plan{}, c); err != nil {
		t.Fatal(err)
	}
	if err := j.Finish(launcher.Verdict{}); err != nil {
		t.Fatal(err)
	}
	if err := j.Close(); err != nil {
		t.Fatal(err)
	}
	want := map[string]fs.FileMode{"open.json": 0o664, "closed.json": 0o600, "script.sh": 0o755}
	seen := 0
	err = filepath.WalkDir(filepath.Join(work, ".gpurun"), func(path string, e fs.DirEntry, err error) error {
		if err != nil || e.Type()&fs.ModeSymlink != 0 {
			return err
		}
		info, err := e.Info()
		if err != nil {
			return err
		}
		mode, copied := want[e.Name()]
		switch {
		case e.IsDir():
			mode = 0o700
		case !copied:
			mode = 0o600
		}
		if seen++; info.Mode().Perm() != mode {
			t.Errorf("%s has mode %o, want %o", path, info.Mode().Perm(), mode)
		}
		return nil
	})
	if err != nil || seen < 16 {
		t.Errorf("%d files: %v", seen, err)
	}
}

// gpurun does not write through what a job or another user put in the place of a file.
func TestLinksInARunDirectory(t *testing.T) {
	precious := filepath.Join(t.TempDir(), "precious")
	if err := os.WriteFile(precious, []byte("keep\n"), 0o644); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{File, lockFile} {
		dir := t.TempDir()
		if err := os.Symlink(precious, filepath.Join(dir, name)); err != nil {
			t.Fatal(err)
		}
		_, _, err := (RunSearch{}).OpenRun(t.Context(), dir, nil, LockWait{})
		if err == nil || !strings.Contains(err.Error(), "symbolic link") || errext.Code(err, 0) != strategy.CodeRunDir {
			t.Errorf("%s: %v, code %d", name, err, errext.Code(err, 0))
		}
	}
	dir := t.TempDir()
	j, _ := open(t, dir)
	defer j.Close()
	for link, target := range map[string]string{"attempt-1": filepath.Dir(precious), verdictFile: precious} {
		if err := os.Symlink(target, filepath.Join(dir, link)); err != nil {
			t.Fatal(err)
		}
	}
	if _, err := j.Prepare(1); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("an attempt's folder that is a link: %v", err)
	}
	at, err := j.Prepare(2)
	if err != nil {
		t.Fatal(err)
	}
	if err := os.Symlink(filepath.Dir(precious), filepath.Join(at, "files")); err != nil {
		t.Fatal(err)
	}
	if err := j.Write(at, strategy.Plan{}, strategy.Command{Files: map[string][]byte{filepath.Join(at, "files", "precious"): []byte("x")}}); err == nil {
		t.Error("a changed file was written through a link")
	}
	if err := j.Finish(launcher.Verdict{}); err != nil {
		t.Error(err)
	}
	if text, err := os.ReadFile(precious); err != nil || string(text) != "keep\n" {
		t.Errorf("the file behind the links: %q, %v", text, err)
	}
}

// A folder that others could change is refused before anything is made in it.
func TestOwnerOfTheRunDirectory(t *testing.T) {
	for mode, refused := range map[fs.FileMode]bool{0o700: false, 0o775 | fs.ModeSetgid: false, 0o777 | fs.ModeSticky: false, 0o777: true} {
		for _, level := range []string{".gpurun", ".gpurun/job", ".gpurun/job/run"} {
			work := t.TempDir()
			dir := filepath.Join(work, ".gpurun", "job", "run")
			if err := os.MkdirAll(dir, 0o755); err != nil {
				t.Fatal(err)
			}
			if err := os.Chmod(filepath.Join(work, level), mode); err != nil {
				t.Fatal(err)
			}
			j, _, err := (RunSearch{}).OpenRun(t.Context(), dir, nil, LockWait{})
			var untrusted *system.Untrusted
			if errors.As(err, &untrusted) != refused || refused && (errext.Code(err, 0) != strategy.CodeUsage || errext.Hint(err) == "") {
				t.Errorf("%s with mode %v: %v, code %d", level, mode, err, errext.Code(err, 0))
			}
			if err == nil {
				j.Close()
			} else if left, _ := os.ReadDir(dir); len(left) > 0 {
				t.Errorf("%s with mode %v: left %v", level, mode, left)
			}
		}
	}
}

func TestAnotherUsersRunDirectory(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's folder")
	}
	work := t.TempDir()
	home := filepath.Join(work, ".gpurun")
	if err := os.Mkdir(home, 0o755); err != nil {
		t.Fatal(err)
	}
	if err := os.Chown(home, 4242, 4242); err != nil {
		t.Fatal(err)
	}
	_, _, err := (RunSearch{}).OpenRun(t.Context(), filepath.Join(home, "job", "run"), nil, LockWait{})
	if err == nil || !strings.Contains(err.Error(), "another user") || errext.Code(err, 0) != strategy.CodeUsage {
		t.Errorf("%v, code %d", err, errext.Code(err, 0))
	}
}

// Runs are nothing to commit; what a user wrote into the file stays.
func TestRunsAreIgnoredByGit(t *testing.T) {
	work := t.TempDir()
	path := filepath.Join(work, ".gpurun", ".gitignore")
	for _, text := range []string{"*\n", "mine\n"} {
		j, _ := open(t, filepath.Join(work, ".gpurun", "job", "run"))
		j.Close()
		got, err := os.ReadFile(path)
		if err != nil || string(got) != text {
			t.Errorf("%q, %v, want %q", got, err, text)
		}
		if err := os.WriteFile(path, []byte("mine\n"), 0o644); err != nil {
			t.Fatal(err)
		}
	}
	named := t.TempDir()
	j, _ := open(t, filepath.Join(named, "run"))
	j.Close()
	for _, dir := range []string{named, filepath.Join(named, "run")} {
		if _, err := os.Stat(filepath.Join(dir, ".gitignore")); err == nil {
			t.Errorf("%s, which is the user's, has got a .gitignore", dir)
		}
	}
}

// The job's secrets are in command.json and in the changed files, and nowhere else.
func TestSecretsInARunDirectory(t *testing.T) {
	const token, word = "k4nn1tverst4n", "rosebud77"
	dir := t.TempDir()
	command := strategy.Command{
		Argv: []string{"train.py", "--api-key", token, "--bs", "4"}, Env: map[string]string{"DB_PASSWORD": word},
		Diff: "-train.py\n---api-key " + token + "\n+password: " + word + "\n",
	}
	j, _ := open(t, dir)
	j.Mask(mask.New(command.Argv, command.Env))
	at, err := j.Prepare(0)
	if err != nil {
		t.Fatal(err)
	}
	command.Files = map[string][]byte{filepath.Join(at, "files", "c.yaml"): []byte("password: " + word)}
	evidence := strategy.Evidence{Unstarted: &strategy.Unstarted{Reason: "cannot log in with " + token}}
	verdict := launcher.Verdict{Reason: word + " is wrong", Attempts: []launcher.AttemptSummary{{Error: "AuthError: " + token, Traceback: []string{"  login('" + word + "')"}}}}
	started := launcher.Started{Command: command, Dir: at, Checkpoint: "/runs/" + token}
	for _, e := range []launcher.Event{started, launcher.Noticed{Text: "warning: the job gets --key=" + token}, launcher.Ended{Evidence: evidence}} {
		if err := j.Append(e); err != nil {
			t.Fatal(err)
		}
	}
	if err := errors.Join(j.Write(at, strategy.Plan{}, command), j.Finish(verdict), j.Close()); err != nil {
		t.Fatal(err)
	}
	for _, name := range []string{File, verdictFile, "attempt-0/plan.json", "attempt-0/diff.patch"} {
		text, err := os.ReadFile(filepath.Join(dir, name))
		if err != nil {
			t.Fatal(err)
		}
		rest := strings.ReplaceAll(string(text), "/runs/"+token, "") // a path that is gone on from
		if strings.Contains(rest, token) || strings.Contains(rest, word) {
			t.Errorf("%s has a secret: %s", name, text)
		}
	}
	for name, secrets := range map[string][]string{"attempt-0/command.json": {token, word}, "attempt-0/files/c.yaml": {word}} {
		for _, secret := range secrets {
			if text, err := os.ReadFile(filepath.Join(dir, name)); err != nil || !strings.Contains(string(text), secret) {
				t.Errorf("%s lacks %s: %s, %v", name, secret, text, err)
			}
		}
	}
	events, err := Read(dir)
	if err != nil || len(events) != 4 || events[0].(launcher.Started).Checkpoint != started.Checkpoint {
		t.Errorf("%+v, %v", events, err)
	}
}
