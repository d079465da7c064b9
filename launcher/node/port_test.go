package node

import (
	"net"
	"strings"
	"testing"
	"testing/synctest"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// An attempt never gets a port that an earlier one had.
func TestEachAttemptHasAPortOfItsOwn(t *testing.T) {
	n := New(Options{}, nil, nil)
	seen := map[int]bool{}
	for range 200 {
		port, err := n.newPort()
		if err != nil {
			t.Fatal(err)
		}
		if seen[port] {
			t.Fatalf("port %d again", port)
		}
		seen[port] = true
	}
}

// Where every port was used before, that is an error and no used port.
func TestNoUsedPortIsHandedOut(t *testing.T) {
	n := New(Options{}, nil, nil)
	for port := range 1 << 16 {
		n.ports[port] = true
	}
	port, err := n.newPort()
	if err == nil || errext.Code(err, 0) != strategy.CodeRetry || !strings.Contains(errext.Hint(err), "ip_local_port_range") {
		t.Errorf("port %d, error %v with code %d, hint %q", port, err, errext.Code(err, 0), errext.Hint(err))
	}
}

// A port that the user fixed and another process has is the user's matter at the
// start; later it may come back.
func TestAFixedPortThatIsBusy(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	synctest.Test(t, func(t *testing.T) {
		n := New(Options{MasterPort: l.Addr().(*net.TCPAddr).Port}, nil, nil)
		for attempt, want := range []int{strategy.CodeUsage, strategy.CodeRetry} {
			began := time.Now()
			_, err := n.Port(t.Context(), attempt)
			if errext.Code(err, 0) != want || !strings.Contains(errext.Hint(err), "leave master_port out") {
				t.Errorf("attempt %d: %v, code %d", attempt, err, errext.Code(err, 0))
			}
			if took := time.Since(began); took != portBound {
				t.Errorf("attempt %d: given up after %s", attempt, took)
			}
		}
	})
}

// A process without a rank uses no port: it does not matter which process has it.
func TestOneProcessNeedsNoPort(t *testing.T) {
	t.Parallel()
	l, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer l.Close()
	n := New(Options{Plain: true, MasterPort: l.Addr().(*net.TCPAddr).Port}, nil, nil)
	if port, err := n.Port(t.Context(), 0); port != 0 || err != nil {
		t.Errorf("port %d, %v", port, err)
	}
}

// A port that cannot be had at all is the user's matter; a machine that is short of
// descriptors may have them later.
func TestUnavailablePort(t *testing.T) {
	_, err := New(Options{MasterPort: 1 << 16}, nil, nil).Port(t.Context(), 0)
	if errext.Code(err, 0) != strategy.CodeUsage {
		t.Errorf("%v, code %d", err, errext.Code(err, 0))
	}
	var limit unix.Rlimit
	if err := unix.Getrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	n := New(Options{}, nil, nil)
	none := unix.Rlimit{Cur: 0, Max: limit.Max}
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &none); err != nil {
		t.Fatal(err)
	}
	_, err = n.Port(t.Context(), 0)
	if err := unix.Setrlimit(unix.RLIMIT_NOFILE, &limit); err != nil {
		t.Fatal(err)
	}
	if errext.Code(err, 0) != strategy.CodeRetry || !strings.Contains(errext.Hint(err), "ulimit") {
		t.Errorf("%v, code %d, hint %q", err, errext.Code(err, 0), errext.Hint(err))
	}
}
