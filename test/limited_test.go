package test

import (
	"errors"
	"os"
	osexec "os/exec"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/ranks"
)

// Missing resources of a machine are named in the message, with the right exit code. Go itself would end with
// a stack trace and 2, and with a foreign /proc gpurun would wait forever.
func TestALimitedMachineIsNamed(t *testing.T) {
	t.Parallel()
	sh, err := osexec.LookPath("unshare")
	root := os.Geteuid() == 0 && err == nil
	for name, test := range map[string]struct {
		before string // shell words before gpurun
		root   bool
		cgo    bool
		nobody bool // run as a user to whom limits apply
		code   int
		says   string
	}{
		"no address space":     {before: "ulimit -v 700000; exec", cgo: true, code: 2, says: "error: the address space is limited (ulimit -v, RLIMIT_AS)"},
		"little address space": {before: "ulimit -v 2000000; exec", code: 2, says: "error: the address space is limited (ulimit -v, RLIMIT_AS) to 1953 MiB"},
		"few processes":        {before: "exec prlimit --nproc=6", cgo: true, root: true, nobody: true, code: 2, says: "error: the number of processes is limited (ulimit -u, RLIMIT_NPROC)"},
		"a read-only /proc":    {before: "mount -o remount,bind,ro /proc 2>/dev/null || { mount --bind /proc /proc && mount -o remount,bind,ro /proc; }; exec", root: true, code: 3, says: "ended with exit code 3"},
		"a foreign /proc":      {before: "exec", root: true, code: 2, says: "error: /proc does not show this process: it is of another namespace"},
	} {
		t.Run(name, func(t *testing.T) {
			if test.cgo && !ranks.HasNVML() {
				t.Skip("built without cgo: nothing can be said before Go starts")
			}
			if test.root && !root {
				t.Skip("namespaces and other users need root, and unshare")
			}
			dir := home(t, map[string]string{"train.sh": "#!/bin/sh\nexit 3\n"})
			cmd := osexec.Command("sh", "-c", test.before+` "$0" --propagate-exit-code --run-dir run --no-python ./train.sh`, build(t))
			if strings.Contains(name, "/proc") {
				cmd.SysProcAttr = &syscall.SysProcAttr{Unshareflags: unix.CLONE_NEWNS}
			}
			if name == "a foreign /proc" {
				cmd = osexec.Command(sh, append([]string{"--pid", "--fork"}, cmd.Args...)...)
			}
			if test.nobody {
				cmd.SysProcAttr = &syscall.SysProcAttr{Credential: &syscall.Credential{Uid: 65534, Gid: 65534}}
				visible(t, dir, cmd.Args[len(cmd.Args)-1])
			}
			cmd.Dir = dir
			out, err := cmd.CombinedOutput()
			var exit *osexec.ExitError
			if !errors.As(err, &exit) || exit.ExitCode() != test.code || !strings.Contains(string(out), test.says) {
				t.Errorf("%v, want %d and %q\n%s", err, test.code, test.says, out)
			}
		})
	}
}

// visible makes paths accessible to other users. It skips the test if they are in a private folder.
func visible(t *testing.T, paths ...string) {
	t.Helper()
	for _, path := range paths {
		for ; path != "/"; path = filepath.Dir(path) {
			info, err := os.Stat(path)
			if err != nil {
				t.Fatal(err)
			}
			if strings.HasPrefix(path, os.TempDir()+"/") {
				err = os.Chmod(path, info.Mode().Perm()|0o055)
			} else if info.Mode().Perm()&0o005 != 0o005 {
				t.Skipf("other users cannot reach %s", path)
			}
			if err != nil {
				t.Fatal(err)
			}
		}
	}
}
