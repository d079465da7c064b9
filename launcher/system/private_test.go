package system

import (
	"errors"
	"fmt"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"
	"time"

	"github.com/gpurun/gpurun/test/testenv"
)

func modeOf(t *testing.T, path string) fs.FileMode {
	t.Helper()
	info, err := os.Lstat(path)
	testenv.Check(t, err)
	return info.Mode().Perm()
}

// openly lets files be made for everybody: what is not, is not by the code's doing.
func openly(t *testing.T) {
	before := syscall.Umask(0)
	t.Cleanup(func() { syscall.Umask(before) })
}

func TestCreatedFilesArePrivate(t *testing.T) {
	openly(t)
	root := t.TempDir()
	testenv.Check(t, MkdirBelow(root, filepath.Join(root, "a", "b")))
	f, err := OpenFile(filepath.Join(root, "a", "b", "f"), os.O_CREATE|os.O_WRONLY)
	testenv.Check(t, err)
	f.Close()
	for name, mode := range map[string]fs.FileMode{"0600": 0o600, "0644": 0o644, "0440": 0o440, "0": 0} {
		testenv.Check(t, WriteFile(filepath.Join(root, "a", name), []byte(name), mode))
	}
	for path, want := range map[string]fs.FileMode{"a": 0o700, "a/b": 0o700, "a/b/f": 0o600, "a/0600": 0o600, "a/0644": 0o644, "a/0440": 0o440, "a/0": 0o400} {
		if got := modeOf(t, filepath.Join(root, path)); got != want {
			t.Errorf("%s has mode %o, want %o", path, got, want)
		}
	}
	if err := MkdirBelow(root, filepath.Join(root, "..", "c")); err == nil {
		t.Error("a folder beside the root was made")
	}
}

// What a job planted is not followed, and does not make gpurun wait.
func TestLinksAndPipesAreNotOpened(t *testing.T) {
	root, elsewhere := t.TempDir(), t.TempDir()
	precious := filepath.Join(elsewhere, "precious")
	testenv.Check(t, os.WriteFile(precious, []byte("keep"), 0o644))
	at := func(name string) string { return filepath.Join(root, name) }
	for name, target := range map[string]string{"file": precious, "dir": elsewhere, "dangling": filepath.Join(elsewhere, "new")} {
		testenv.Check(t, os.Symlink(target, at(name)))
	}
	testenv.Check(t, syscall.Mkfifo(at("pipe"), 0o600))
	for _, name := range []string{"file", "dangling", "pipe"} {
		for _, flag := range []int{os.O_RDONLY, os.O_CREATE | os.O_RDWR | os.O_TRUNC} {
			if f, err := OpenFile(at(name), flag); err == nil {
				f.Close()
				t.Errorf("%s was opened", name)
			}
		}
		if _, err := ReadFile(at(name)); err == nil {
			t.Errorf("%s was read", name)
		}
	}
	if err := MkdirBelow(root, at("dir/inner")); !errors.Is(err, syscall.ENOTDIR) {
		t.Errorf("a folder behind a link: %v", err)
	}
	testenv.Check(t, WriteFile(at("file"), []byte("new"), PrivateMode))
	if text, err := os.ReadFile(precious); err != nil || string(text) != "keep" {
		t.Errorf("the file behind the link: %q, %v", text, err)
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "new")); err == nil {
		t.Error("a file was made behind a link")
	}
	if _, err := os.Stat(filepath.Join(elsewhere, "inner")); err == nil {
		t.Error("a folder was made behind a link")
	}
}

func TestTrustedFolders(t *testing.T) {
	dir := t.TempDir()
	for mode, why := range map[fs.FileMode]string{
		0o700: "", 0o755: "", 0o775: "", 0o775 | fs.ModeSetgid: "", 0o777 | fs.ModeSticky: "", 0o777: "every user", 0o702: "every user",
	} {
		testenv.Check(t, os.Chmod(dir, mode))
		err := CheckOwner(dir)
		if (err == nil) != (why == "") || err != nil && !strings.Contains(err.Error(), why) {
			t.Errorf("mode %v: %v", mode, err)
		}
	}
}

// shown is a folder as the system shows it.
type shown struct {
	mode fs.FileMode
	stat syscall.Stat_t
}

func (s shown) Name() string       { return "dir" }
func (s shown) Size() int64        { return 0 }
func (s shown) Mode() fs.FileMode  { return s.mode | fs.ModeDir }
func (s shown) ModTime() time.Time { return time.Time{} }
func (s shown) IsDir() bool        { return true }
func (s shown) Sys() any           { return &s.stat }

// Groups that share a folder may; so may users of a pod with an fsGroup.
func TestOwnersAndGroups(t *testing.T) {
	me, group, stranger := uint32(os.Geteuid()), uint32(os.Getegid()), uint32(os.Geteuid())+4242
	if group == 0 {
		group = member(t)
	}
	for name, test := range map[string]struct {
		mode     fs.FileMode
		uid, gid uint32
		trusted  bool
	}{
		"mine":                     {0o700, me, group, true},
		"root's":                   {0o755, 0, 0, true},
		"a stranger's":             {0o755, stranger, group, false},
		"a stranger's, his group":  {0o775, stranger, group + 4242, false},
		"a colleague's, shared":    {0o775 | fs.ModeSetgid, stranger, group, true},
		"a stranger's, for all":    {0o777, stranger, group, false},
		"a volume with an fsGroup": {0o777 | fs.ModeSetgid, 0, group, true},
		"root's, for all":          {0o777, 0, 0, false},
		"like /tmp":                {0o777 | fs.ModeSticky, 0, 0, true},
	} {
		why := distrust(shown{test.mode, syscall.Stat_t{Uid: test.uid, Gid: test.gid}}, false)
		if (why == "") != test.trusted {
			t.Errorf("%s: %q", name, why)
		}
	}
}

// member is a group that this process is in, other than root's.
func member(t *testing.T) uint32 {
	groups, err := os.Getgroups()
	testenv.Check(t, err)
	for _, g := range groups {
		if g != 0 {
			return uint32(g)
		}
	}
	if err := syscall.Setegid(4321); err != nil {
		t.Skip("this process has no group but root's")
	}
	t.Cleanup(func() {
		if err := syscall.Setegid(0); err != nil {
			t.Error(err)
		}
	})
	return 4321
}

// A folder of another user is refused, and a link of his to a folder of one's own.
func TestAnotherUsersFolder(t *testing.T) {
	if os.Geteuid() != 0 {
		t.Skip("only root can make another user's folder")
	}
	root := t.TempDir()
	theirs, link := filepath.Join(root, "theirs"), filepath.Join(root, "link")
	testenv.Check(t, os.Mkdir(theirs, 0o755))
	testenv.Check(t, os.Symlink(root, link))
	for _, path := range []string{theirs, link} {
		if err := CheckOwner(path); err != nil {
			t.Errorf("%s of one's own: %v", path, err)
		}
		testenv.Check(t, os.Lchown(path, 4242, 4242))
		var untrusted *Untrusted
		if err := CheckOwner(path); !errors.As(err, &untrusted) || !strings.Contains(err.Error(), "another user (uid 4242)") {
			t.Errorf("%s of another: %v", path, err)
		}
	}
	if err := Mkdir(theirs); err == nil {
		t.Error("another user's folder was taken for one's own")
	}
	if left, _ := filepath.Glob(filepath.Join(theirs, ".gpurun-*")); len(left) > 0 {
		t.Errorf("left behind: %v", left)
	}
}

// A file that is too large is not read, whatever made it.
func TestReadFileIsBounded(t *testing.T) {
	path := filepath.Join(t.TempDir(), "large")
	testenv.Check(t, errors.Join(os.WriteFile(path, []byte("x"), 0o600), os.Truncate(path, mostRead)))
	if text, err := ReadFile(path); err != nil || len(text) != mostRead {
		t.Errorf("%d bytes, %v", len(text), err)
	}
	testenv.Check(t, os.Truncate(path, 1<<40))
	if _, err := ReadFile(path); err == nil || !strings.Contains(err.Error(), "16 MiB") {
		t.Errorf("%v", err)
	}
}

// What killed writers have left goes, the rest stays: marks, files of others, what is behind
// a link, and what another process may be writing.
func TestSweepRemovesWhatWritersLeft(t *testing.T) {
	run, elsewhere := t.TempDir(), t.TempDir()
	files := map[string]bool{ // whether it stays
		".gpurun-123": false, "attempt-0/.gpurun-4567": false, "attempt-0/config/a/.gpurun-89": false,
		".gpurun-removed": true, "attempt-0/.gpurun-": true, "attempt-0/x.gpurun-1": true, "attempt-0/plan.json": true,
	}
	for name := range files {
		path := filepath.Join(run, name)
		testenv.Check(t, errors.Join(MkdirAll(filepath.Dir(path)), os.WriteFile(path, nil, PrivateMode)))
	}
	theirs := filepath.Join(elsewhere, ".gpurun-5")
	if err := errors.Join(os.WriteFile(theirs, nil, PrivateMode), os.Symlink(elsewhere, filepath.Join(run, "link")), os.Mkdir(filepath.Join(run, ".gpurun-6"), 0o700)); err != nil {
		t.Fatal(err)
	}
	SweepFiles(run, time.Hour)
	if _, err := os.Lstat(filepath.Join(run, ".gpurun-123")); err != nil {
		t.Errorf("what may still be written: %v", err)
	}
	SweepFiles(run, 0)
	files[".gpurun-6"] = true
	for name, stays := range files {
		if _, err := os.Lstat(filepath.Join(run, name)); (err == nil) != stays {
			t.Errorf("%s: %v", name, err)
		}
	}
	if _, err := os.Lstat(theirs); err != nil {
		t.Error(err)
	}
}

// A folder that a job has filled is not looked through to its end.
func TestSweepIsBounded(t *testing.T) {
	deep := t.TempDir()
	path := deep
	for range sweptDepth {
		path = filepath.Join(path, "d")
	}
	last := filepath.Join(path, ".gpurun-1")
	testenv.Check(t, errors.Join(MkdirAll(path), os.WriteFile(last, nil, PrivateMode)))
	SweepFiles(deep, 0)
	if _, err := os.Lstat(last); err != nil {
		t.Error(err)
	}
	many := t.TempDir()
	for i := range 20 {
		testenv.Check(t, os.WriteFile(filepath.Join(many, fmt.Sprintf(".gpurun-%d", i)), nil, PrivateMode))
	}
	left := 5
	sweepOne(many, 0, &left)
	if rest, err := fs.Glob(os.DirFS(many), ".gpurun-*"); err != nil || len(rest) != 15 {
		t.Errorf("%d are left, %v", len(rest), err)
	}
}
