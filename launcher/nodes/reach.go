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

// reachBound is how long a node may take to reach the address of the rendezvous.
const reachBound = 2 * time.Second

// A door stands where rank 0 will serve the rendezvous, until its ranks start: a firewall
// between the nodes is found out before, not by ranks that wait for each other in silence.
type door struct {
	listener net.Listener
	owner    sync.WaitGroup
}

// openDoor opens it. Where that is not possible nothing is found out.
func openDoor(ctx context.Context, port int) *door {
	listener, err := (&net.ListenConfig{}).Listen(ctx, "tcp", ":"+strconv.Itoa(port))
	if err != nil {
		return nil
	}
	d := &door{listener: listener}
	d.owner.Go(func() {
		for {
			conn, err := listener.Accept()
			if err != nil {
				return
			}
			d.owner.Go(func() {
				defer conn.Close()
				_ = conn.SetReadDeadline(time.Now().Add(reachBound))
				_, _ = conn.Read(make([]byte, 1)) // who called hangs up first: the port stays free
			})
		}
	})
	return d
}

// shut closes the door, and waits until nobody stands in it.
func (d *door) shut() {
	if d != nil {
		_ = d.listener.Close()
		d.owner.Wait()
	}
}

// reach tries the door from another node.
func reach(ctx context.Context, addr string, port int) error {
	conn, err := (&net.Dialer{Timeout: reachBound}).DialContext(ctx, "tcp", net.JoinHostPort(addr, strconv.Itoa(port)))
	if err != nil {
		return errext.WithCode(errext.Errorf("open the ports between the nodes to each other, or set launch.master_port to one that is open; launch.preflight = false does without this look",
			"the address where rank 0 will serve the rendezvous cannot be reached from here: %w", err), strategy.CodeUsage)
	}
	if err := conn.Close(); err != nil {
		return fmt.Errorf("close the connection to the rendezvous: %w", err)
	}
	return nil
}
