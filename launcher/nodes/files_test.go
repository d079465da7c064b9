package nodes

import (
	"errors"
	"os"
	"os/exec"
	"strconv"
	"strings"
	"syscall"
	"testing"

	"github.com/gpurun/gpurun/launcher/errext"
)

// limited says that a process is one whose limit of open files was low when it started.
const limited = "GPURUN_TEST_LIMITED"

// A head of many nodes may have more files open than it was started with, and its ranks may
// not: programs that close all files that they could have take long with a high limit.
func TestOpenFiles(t *testing.T) {
	if os.Getenv(limited) == "" {
		cmd := exec.Command("sh", "-c", `ulimit -Sn 300; exec "$0" -test.run='^TestOpenFiles$' -test.v`, os.Args[0])
		cmd.Env = append(os.Environ(), limited+"=1")
		if out, err := cmd.CombinedOutput(); err != nil {
			t.Errorf("%v\n%s", err, out)
		}
		return
	}
	var limit syscall.Rlimit
	if err := syscall.Getrlimit(syscall.RLIMIT_NOFILE, &limit); err != nil || limit.Cur <= 300 && limit.Max > 300 {
		t.Errorf("the limit is %d of %d, %v", limit.Cur, limit.Max, err)
	}
	child, err := exec.Command("sh", "-c", "ulimit -Sn").Output()
	if err != nil || strings.TrimSpace(string(child)) != "300" {
		t.Errorf("a child's limit is %s, %v", child, err)
	}
	if err := errors.Join(enoughFiles(1), enoughFiles(int(limit.Cur)-filesBeside)); err != nil {
		t.Error(err)
	}
	if err := enoughFiles(int(limit.Cur)); err == nil || !strings.Contains(errext.Hint(err), "ulimit -n "+strconv.Itoa(int(limit.Cur)+filesBeside)) {
		t.Errorf("%v", err)
	}
}
