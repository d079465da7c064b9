package nodes

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"strings"
	"syscall"
	"testing"
	"time"
)

func TestPortsOfALaunch(t *testing.T) {
	ports := candidates("slurm 7|abc", 0)
	if len(ports) != portCount {
		t.Errorf("%d ports", len(ports))
	}
	for _, p := range ports {
		if p < firstPort || p >= firstPort+portRange {
			t.Errorf("port %d", p)
		}
	}
	for what, other := range map[string][]int{"run": candidates("slurm 8|abc", 0), "restart": candidates("slurm 7|abc", 1)} {
		if other[0] == ports[0] && other[1] == ports[1] {
			t.Errorf("another %s has the same ports", what)
		}
	}
	if got := candidates("slurm 7|abc", 0); fmt.Sprint(got) != fmt.Sprint(ports) {
		t.Error("two nodes name other ports")
	}
}

// A head is found at its next port if its first ports are taken, by a process that answers and by one that
// does not.
func TestPortsThatAreTaken(t *testing.T) {
	run := "run " + t.Name() + strconv.FormatInt(time.Now().UnixNano(), 36)
	head, node := credentialsOf(t, testSecret, run, 0, 2), credentialsOf(t, testSecret, run, 1, 2)
	for _, port := range head.ports[:2] {
		squatter, err := net.Listen("tcp", ":"+strconv.Itoa(port))
		if err != nil {
			t.Skip(err)
		}
		defer squatter.Close()
	}
	links, err := Listen(t.Context(), head, 0)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	began := time.Now()
	follower, err := NewDialer(node, "localhost", 0).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	defer follower.Close()
	if took := time.Since(began); took > handshake {
		t.Errorf("it took %v", took)
	}
}

// Silent places do not block each other.
func TestSilentPorts(t *testing.T) {
	l := newLaunch(t, 2)
	var ports []int
	for range 3 {
		ports = append(ports, portOf(listenHere(t)))
	}
	d := &Dialer{credentialsOf(t, testSecret, "run", 1, 2), "127.0.0.1", append(ports, l.port)}
	began := time.Now()
	follower, err := d.Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	follower.Close()
	if took := time.Since(began); took > 8*stagger {
		t.Errorf("it took %v", took)
	}
}

func listenHere(t *testing.T) net.Listener {
	t.Helper()
	listener, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		t.Fatal(err)
	}
	t.Cleanup(func() { listener.Close() })
	return listener
}

func portOf(l net.Listener) int { return l.Addr().(*net.TCPAddr).Port }

func TestAPortThatIsTaken(t *testing.T) {
	squatter, err := net.Listen("tcp", ":0")
	if err != nil {
		t.Fatal(err)
	}
	defer squatter.Close()
	if _, err := Listen(t.Context(), credentialsOf(t, testSecret, "run", 0, 2), squatter.Addr().(*net.TCPAddr).Port); !errors.Is(err, syscall.EADDRINUSE) {
		t.Errorf("%v", err)
	}
}

// Both families of addresses, where the machine has them.
func TestFamiliesOfAddresses(t *testing.T) {
	l := newLaunch(t, 2)
	for _, host := range []string{"127.0.0.1", "::1"} {
		if c, err := net.Dial("tcp", net.JoinHostPort(host, strconv.Itoa(l.port))); err != nil {
			t.Logf("%s cannot be reached here: %v", host, err)
			continue
		} else {
			c.Close()
		}
		follower, err := NewDialer(credentialsOf(t, testSecret, "run", 1, 2), host, l.port).Dial(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		head, err := l.links.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		if head.Addr() != host || follower.Addr() != host {
			t.Errorf("by %s the head is at %s, the node at %s", host, head.Addr(), follower.Addr())
		}
		follower.Close()
		head.Close()
	}
}

func TestNoListener(t *testing.T) {
	c := credentialsOf(t, testSecret, "run "+t.Name(), 1, 2)
	for what, d := range map[string]*Dialer{"a port": NewDialer(c, "127.0.0.1", freePort(t)), "all ports": NewDialer(c, "127.0.0.1", 0)} {
		if _, err := d.Dial(t.Context()); !errors.Is(err, ErrRefused) {
			t.Errorf("%s: %v", what, err)
		}
	}
	if _, err := NewDialer(c, "nowhere.invalid", 0).Dial(t.Context()); err == nil || errors.Is(err, ErrRefused) || !strings.Contains(err.Error(), "nowhere.invalid") {
		t.Errorf("a name that nobody has: %v", err)
	}
	why := errors.New("enough")
	ctx, stop := context.WithCancelCause(t.Context())
	stop(why)
	if _, err := NewDialer(c, "127.0.0.1", 0).Dial(ctx); !errors.Is(err, why) {
		t.Errorf("a call that is over: %v", err)
	}
}

// Slurm reports addresses of the head's machine, which help if its name does not resolve.
func TestAddressesInAdditionToTheName(t *testing.T) {
	l := newLaunch(t, 2)
	c := credentialsOf(t, testSecret, "run", 1, 2)
	c.hosts = []string{"127.0.0.1"}
	follower, err := NewDialer(c, "nowhere.invalid", l.port).Dial(t.Context())
	if err != nil {
		t.Fatal(err)
	}
	follower.Close()
}

// Who says what of a machine's places. Only one that answers and has no head is without one.
func TestReasonForAnUnreachableHead(t *testing.T) {
	refused := fmt.Errorf("dial: %w", syscall.ECONNREFUSED)
	stranger := fmt.Errorf("port 1: %w: eof", errNotHead)
	unreachable := fmt.Errorf("dial: %w", syscall.ENETUNREACH)
	silent := fmt.Errorf("dial: %w", context.DeadlineExceeded)
	for what, test := range map[string]struct {
		errs    []error
		refused bool
		is      error
	}{
		"refused":              {[]error{refused, refused}, true, ErrRefused},
		"a stranger":           {[]error{stranger, refused}, true, errNotHead},
		"one family is not up": {[]error{unreachable, refused}, true, ErrRefused},
		"none is up":           {[]error{unreachable, unreachable}, false, syscall.ENETUNREACH},
		"a port is silent":     {[]error{refused, silent, stranger}, false, context.DeadlineExceeded},
	} {
		if err := judge(test.errs); errors.Is(err, ErrRefused) != test.refused || !errors.Is(err, test.is) {
			t.Errorf("%s: %v", what, err)
		}
	}
}

// A process that accepts a connection and stays silent may be a stopped head, or behind a cut link: it does
// not count as gone.
func TestSilentNodeIsNotGone(t *testing.T) {
	mute := listenHere(t)
	ctx, stop := context.WithTimeout(t.Context(), 100*time.Millisecond)
	defer stop()
	d := &Dialer{c: credentialsOf(t, testSecret, "run", 1, 2)}
	if conn, err := d.try(ctx, mute.Addr().String()); err == nil {
		conn.Close()
		t.Error("it got through")
	} else if err := judge([]error{err}); errors.Is(err, ErrRefused) || !errors.Is(err, context.DeadlineExceeded) {
		t.Errorf("%v", err)
	}
}

// A node with another secret learns that the head is there, and the head that the node is. For the node of another
// launch neither is so.
func TestAWrongSecretIsNamed(t *testing.T) {
	head := credentialsOf(t, testSecret, "run", 0, 3)
	port := freePort(t)
	links, err := Listen(t.Context(), head, port)
	if err != nil {
		t.Fatal(err)
	}
	defer links.Close()
	other := strings.Repeat("ab", 32)
	for _, test := range []struct {
		run   string
		named bool
	}{{"another run", false}, {"run", true}} {
		_, err := NewDialer(credentialsOf(t, other, test.run, 2, 3), "127.0.0.1", port).Dial(t.Context())
		if err == nil || errors.Is(err, ErrMistrusted) != test.named || errors.Is(err, ErrRefused) == test.named {
			t.Errorf("%s: %v", test.run, err)
		}
	}
	var got *Mistrusted
	if _, err := links.Accept(t.Context()); !errors.As(err, &got) || *got != (Mistrusted{Node: 2, Addr: "127.0.0.1"}) ||
		len(links.mistrusted) > 0 {
		t.Errorf("%v, and %d more", err, len(links.mistrusted))
	}
}
