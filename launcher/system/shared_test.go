package system

import (
	"errors"
	"io/fs"
	"os"
	"path/filepath"
	"strings"
	"testing"

	"github.com/gpurun/gpurun/test/testenv"
)

// Files that gpurun makes in a pod's volume are for the volume's group, whatever the umask is, and for no other
// user. Everywhere else they are private.
func TestVolumeOfAGroup(t *testing.T) {
	group := os.Getegid()
	if group == 0 {
		group = int(member(t))
	}
	const fsGroup = 0o775 | fs.ModeSetgid
	for name, test := range map[string]struct {
		mode     fs.FileMode
		pod, own bool // whether the test is a pod, and a member of the volume's group
		shared   bool
	}{
		"a pod's volume":           {fsGroup, true, true, true},
		"a volume closed to users": {0o770 | fs.ModeSetgid, true, true, true},
		"a project's folder":       {fsGroup, false, true, false},
		"no setgid bit":            {0o775, true, true, false},
		"read by the group":        {0o755 | fs.ModeSetgid, true, true, false},
		"files for their owners":   {fsGroup | fs.ModeSticky, true, true, false},
		"root's group":             {fsGroup, true, false, false},
	} {
		t.Run(name, func(t *testing.T) {
			t.Setenv("KUBERNETES_SERVICE_HOST", map[bool]string{true: "10.96.0.1"}[test.pod])
			volume, gid := t.TempDir(), group
			if !test.own {
				gid = 0
				if os.Geteuid() != 0 {
					t.Skip("only root can give a folder to root's group")
				}
			}
			if err := errors.Join(os.Chown(volume, -1, gid), os.Chmod(volume, test.mode)); err != nil {
				t.Skip(err)
			}
			at := func(name string) string { return filepath.Join(volume, name) }
			f, err := OpenFile(at("opened"), os.O_CREATE|os.O_RDWR)
			err = errors.Join(err, MkdirAll(at("run/attempt")), Mkdir(at("run/rank")), WriteFile(at("run/written"), nil, PrivateMode), WriteCopy(at("run/copy"), nil, 0o644))
			made, failed := MkdirTemp(at("run"), "probe-*")
			if err = errors.Join(err, failed, f.Close(), os.Rename(made, at("run/temporary"))); err != nil {
				t.Fatal(err)
			}
			folder, file := fs.FileMode(0o700), PrivateMode
			if test.shared {
				folder, file = 0o770, 0o660
			}
			for name, want := range map[string]fs.FileMode{
				"opened": file, "run": folder, "run/attempt": folder, "run/rank": folder, "run/temporary": folder, "run/written": file, "run/copy": 0o644,
			} {
				if got := modeOf(t, at(name)); got != want {
					t.Errorf("%s has mode %o, want %o", name, got, want)
				}
			}
		})
	}
}

// What a user of the volume's group made is accepted, and what another user made is not.
func TestOwnersOnAVolume(t *testing.T) {
	volume := testenv.Volume(t)
	for name, test := range map[string]struct {
		mode    fs.FileMode
		gid     int
		refused string
	}{
		"of the group":            {0o660, testenv.VolumeGroup, ""},
		"of the group, read only": {0o640, testenv.VolumeGroup, ""},
		"written by all":          {0o662, testenv.VolumeGroup, "another user (uid 4242)"},
		"of another group":        {0o660, 4243, "another user (uid 4242)"},
	} {
		path := filepath.Join(volume, name)
		if err := errors.Join(os.WriteFile(path, nil, 0o600), os.Chown(path, 4242, test.gid), os.Chmod(path, test.mode)); err != nil {
			t.Fatal(err)
		}
		if err := CheckShared(path); (err == nil) != (test.refused == "") || err != nil && !strings.Contains(err.Error(), test.refused) {
			t.Errorf("%s: %v", name, err)
		}
		if err := CheckOwn(path); err == nil {
			t.Errorf("%s is the caller's own", name)
		}
	}
	link := filepath.Join(volume, "link")
	testenv.Check(t, errors.Join(os.Symlink("of the group", link), os.Lchown(link, 4242, testenv.VolumeGroup)))
	if err := CheckShared(link); err == nil {
		t.Error("a link was accepted")
	}
}
