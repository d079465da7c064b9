package nodes

import (
	"context"
	"fmt"
	"net"
	"strconv"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// reachBound bounds a node's test connection to the address of the rendezvous.
const reachBound = 2 * time.Second

// A testListener listens at the address of the rendezvous until the ranks start. It reveals a firewall
// between the nodes, which would make the ranks wait for each other in silence.
type testListener struct {
	listener net.Listener
	owner    sync.WaitGroup
}

// listenToTest returns nil if the port cannot be opened: then nothing is tested.
func listenToTest(ctx context.Context, port int) *testListener {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil
	}
	l := &testListener{listener: listener}
	l.owner.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			l.owner.Go(func() {
				defer conn.Close()
				_ = conn.SetReadDeadline(time.Now().Add(reachBound))
				_, _ = conn.Read(make([]byte, 1)) // wait until the caller closes first, or the port would stay in use
			})
		}
	})
	return l
}

// close waits until the port is free.
func (l *testListener) close() {
	if l != nil {
		_ = l.listener.Close()
		l.owner.Wait()
	}
}

// reach connects to another node's testListener.
func reach(ctx context.Context, addr string, port int) error {
	conn, err := (&net.Dialer{Timeout: reachBound}).DialContext(ctx, "tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
	if err != nil {
		return errext.WithCode(errext.Errorf("open the ports between the nodes to each other, or set launch.master_port "+
			"to one that is open; launch.preflight = false skips this check",
			"the address where rank 0 will serve the rendezvous cannot be reached from here: %w", err), strategy.CodeUsage)
	}
	if err := conn.Close(); err != nil {
		return fmt.Errorf("close the connection to the rendezvous: %w", err)
	}
	return nil
}
