package main

import (
	"context"
	"errors"
	"fmt"
	"net"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/strategy"
)

// portBound is how long the port that the user fixed may stay busy: the last
// attempt's rank 0 has just been ended.
const portBound = 3 * time.Second

// portTries is how many ports are looked at for one that no attempt has had. The
// kernel draws from some ten thousand.
const portTries = 100

// port is the one that rank 0 of attempt n serves the rendezvous on: a free one that
// no attempt before has had, or the one that the user fixed.
func (n *node) port(ctx context.Context, attempt int) (int, error) {
	fixed := n.p.Job().Launch.MasterPort
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
		busy := &coded{
			err:  fmt.Errorf("the port that launch.master_port fixes, %d, is in use by another process", fixed),
			hint: "leave master_port out: then each attempt gets a port that is free", code: strategy.CodeUsage,
		}
		if attempt > 0 {
			busy.code = strategy.CodeRetry
		}
		return 0, busy
	}
}

// newPort finds a free port. One that an attempt has had is not free for long, it
// seems, or holds connections that its end has left behind.
func (n *node) newPort() (port int, err error) {
	for range portTries {
		if port, err = freePort(); err != nil || !n.ports[port] {
			break
		}
	}
	if n.ports == nil {
		n.ports = map[int]bool{}
	}
	n.ports[port] = true
	return port, err
}

func listenOn(address string) error {
	l, err := net.Listen("tcp", address)
	if err != nil {
		return err
	}
	return l.Close()
}

// freePort asks the kernel for a port that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}
