package gpu

import (
	"errors"
	"sync"
	"time"
)

// CloseBound is how long Close waits for a driver that does not come up; a healthy one
// takes part of a second, or a few seconds where it has to wake the GPUs.
const CloseBound = 5 * time.Second

// A Connection is NVML that comes up while the caller does something else: loading the
// driver's library takes longer than all other work before ranks run. A nil Connection has no
// NVML. Its methods may be called from several goroutines.
type Connection struct {
	up      chan struct{} // closed when nvml and err are set
	nvml    *NVML
	err     error
	reading sync.WaitGroup // baselines
}

// Connect begins to open NVML. The caller closes the result.
func Connect() *Connection { return connect(Open) }

func connect(open func() (*NVML, error)) *Connection {
	c := &Connection{up: make(chan struct{})}
	c.reading.Go(func() {
		defer close(c.up)
		c.nvml, c.err = open()
	})
	return c
}

// NVML waits until it is up. The result is nil where there is none; the error then says
// why, and is nil where that is no fault of the machine (ErrAbsent).
func (c *Connection) NVML() (*NVML, error) {
	if c == nil {
		return nil, nil
	}
	<-c.up
	if errors.Is(c.err, ErrAbsent) {
		return nil, nil
	}
	return c.nvml, c.err
}

// Close ends the connection once it is up, and what reads through it. Watches must have
// been stopped before.
func (c *Connection) Close() error {
	if c == nil {
		return nil
	}
	done := make(chan struct{})
	go func() {
		defer close(done)
		c.reading.Wait()
	}()
	select {
	case <-done:
	case <-time.After(CloseBound):
		return errors.New("close NVML: the driver does not answer")
	}
	if c.nvml == nil {
		return nil
	}
	return c.nvml.Close()
}
