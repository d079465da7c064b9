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

// portBound is how long the port that the user chose may stay busy, since the last attempt's rank 0 has just
// ended.
const portBound = 3 * time.Second

// portTries bounds the search for a port that no earlier attempt used. Each try keeps its port open, so that
// the kernel gives another one every time.
const portTries = 100

// Port returns the rendezvous port of an attempt: the one that the user chose, or a free one that no earlier
// attempt used; 0 if there is no rendezvous. Errors are like those of Start.
func (n *Node) Port(ctx context.Context, attempt int) (int, error) {
	if n.opts.Plain {
		return 0, nil // one process needs none
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

// portBusy is the error of a busy port. In the first attempt its hint is to omit the port; later, waiting may
// help.
func portBusy(port, attempt int) error {
	err := errext.Errorf("leave master_port out: then each attempt gets a port that is free",
		"the port that launch.master_port fixes, %d, is in use by another process", port)
	if attempt > 0 {
		return errext.WithCode(err, strategy.CodeRetry)
	}
	return errext.WithCode(err, strategy.CodeUsage)
}

// newPort finds a free port that no earlier attempt used: a used one may still have connections.
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
	return 0, errext.WithCode(errext.Errorf("net.ipv4.ip_local_port_range has the range of ports",
		"find a free port: attempts of this run have had each of %d", portTries), strategy.CodeRetry)
}

func listenOn(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}
