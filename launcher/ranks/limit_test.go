package ranks

import (
	"context"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"strings"
	"syscall"
	"testing"

	"golang.org/x/sys/unix"
)

func TestLimitIsPutOnEachRank(t *testing.T) {
	h := newHarness(t)
	g := h.start(StartOptions{DataLimit: 64 << 30}, h.rank(0, "sleep"), h.rank(1, "sleep"))
	for rank, pid := range g.PIDs() {
		var got unix.Rlimit
		if err := unix.Prlimit(pid, unix.RLIMIT_DATA, nil, &got); err != nil {
			t.Fatal(err)
		}
		if want := (unix.Rlimit{Cur: 64 << 30, Max: 64 << 30}); got != want {
			t.Errorf("rank %d: limit %v, want %v", rank, got, want)
		}
	}
}

// A shell starts its first command before the limit is on itself: the command has it, too.
func TestLimitIsPutOnTheFirstCommandOfAShell(t *testing.T) {
	out := filepath.Join(t.TempDir(), "limits")
	script := `(i=0; until [ "$(ulimit -d)" != unlimited ] || [ $i = 30 ]; do sleep 0.1; i=$((i+1)); done; ulimit -d >>"$0") & wait`
	const starts = 20
	for n := range starts {
		t.Run(fmt.Sprint(n), func(t *testing.T) {
			exits(newHarness(t).start(StartOptions{DataLimit: 64 << 30}, Rank{Argv: []string{"/bin/sh", "-c", script, out}, Env: os.Environ()}))
		})
	}
	text, err := os.ReadFile(out)
	if want := strings.Repeat(fmt.Sprintln(64<<20), starts); err != nil || string(text) != want {
		t.Errorf("limits in KiB: %q, %v, want %q", text, err, want)
	}
}

// withoutLimits asks, as an ordinary user, for more than the hard limit.
func withoutLimits([]string) {
	hard := &unix.Rlimit{Cur: 1 << 45, Max: 1 << 45}
	if err := unix.Setrlimit(unix.RLIMIT_DATA, hard); err != nil {
		panic(err)
	}
	rank := Rank{Rank: 6, Argv: []string{"/bin/sleep", "1000"}, Dir: "/"} // this user may not be allowed into the tests' folder
	_, err := Start(context.Background(), []Rank{rank}, StartOptions{DataLimit: 1 << 46})
	fmt.Print(err)
	if !errors.Is(err, unix.EPERM) {
		syscall.Exit(1)
	}
	t, err := snapshot()
	if err != nil {
		panic(err)
	}
	if left := t.children[os.Getpid()]; len(left) != 0 {
		fmt.Print(" left: ", left)
		syscall.Exit(1)
	}
}

func TestLimitThatIsRefused(t *testing.T) {
	cmd := helperCommand(os.Environ(), false, "unlimited")
	if os.Geteuid() == 0 {
		cmd.Path = "/proc/self/exe" // another user may not be allowed to walk to the binary
		cmd.SysProcAttr.Credential = &syscall.Credential{Uid: 65534, Gid: 65534}
	}
	out, err := cmd.Output()
	if want := "start rank 6: prlimit RLIMIT_DATA: operation not permitted"; err != nil || !strings.HasPrefix(string(out), want) {
		t.Errorf("said %q, want %q: %v", out, want, err)
	}
}
