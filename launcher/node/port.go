package node

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// portBound is how long the port that the user fixed may stay busy: the last
// attempt's rank 0 has just been ended.
const portBound = 3 * time.Second

// portTries is how many ports are looked at for one that no attempt has had. Each
// is held meanwhile, so that the kernel gives another one every time: there are more
// of them than a run has attempts, unless something is wrong.
const portTries = 100

// Port is the one that rank 0 of attempt n serves the rendezvous on: a free one that
// no attempt before has had, or the one that the user fixed; 0 where nobody meets. An error
// is as Start's.
func (n *Node) Port(ctx context.Context, attempt int) (int, error) {
	if n.opts.Plain {
		return 0, nil // it meets nobody, or in its own way
	}
	port, err := n.port(ctx, attempt)
	return port, cannotStart(err)
}

func (n *Node) port(ctx context.Context, attempt int) (int, error) {
	fixed := n.opts.MasterPort
	if fixed == 0 {
		return n.newPort()
	}
	ctx, cancel := context.WithTimeout(ctx, portBound)
	defer cancel()
	for {
		err := listenOn(":" + strconv.Itoa(fixed))
		if err == nil {
			return fixed, nil
		}
		if !errors.Is(err, unix.EADDRINUSE) {
			return 0, fmt.Errorf("use launch.master_port = %d: %w", fixed, err)
		}
		select {
		case <-time.After(portBound / 30):
			continue
		case <-ctx.Done():
		}
		if !errors.Is(ctx.Err(), context.DeadlineExceeded) {
			return 0, context.Cause(ctx)
		}
		return 0, portBusy(fixed, attempt)
	}
}

// portBusy: at the start the user can leave the port out; later, whoever has it may
// give it back.
func portBusy(port, attempt int) error {
	err := errext.Errorf("leave master_port out: then each attempt gets a port that is free",
		"the port that launch.master_port fixes, %d, is in use by another process", port)
	if attempt > 0 {
		return errext.WithCode(err, strategy.CodeRetry)
	}
	return errext.WithCode(err, strategy.CodeUsage)
}

// newPort finds a free port that no attempt has had: what one has had may hold
// connections that its end has left behind.
func (n *Node) newPort() (int, error) {
	for range portTries {
		l, err := net.Listen("tcp", "127.0.0.1:0")
		if err != nil {
			return 0, fmt.Errorf("find a free port: %w", err)
		}
		defer l.Close()
		port := l.Addr().(*net.TCPAddr).Port
		if !n.ports[port] {
			n.ports[port] = true
			return port, nil
		}
	}
	return 0, errext.WithCode(errext.Errorf("net.ipv4.ip_local_port_range says which ports there are",
		"find a free port: attempts of this run have had each of %d", portTries), strategy.CodeRetry)
}

func listenOn(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}
