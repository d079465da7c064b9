package nodes

import (
	"context"
	"sync"
	"time"
)

// An actor is a goroutine that owns a state machine, and what else nobody else may touch: it
// receives from todo until it is done.
type actor struct {
	began time.Time
	todo  chan func()
	done  context.Context
	end   context.CancelFunc
	owner sync.WaitGroup // of the other goroutines
}

func newActor(ctx context.Context) *actor {
	a := &actor{began: time.Now(), todo: make(chan func())}
	a.done, a.end = context.WithCancel(ctx)
	return a
}

func (a *actor) now() time.Duration { return time.Since(a.began) }

// own has the actor do something, and waits until that is done. Nothing is where the actor is
// done itself.
func (a *actor) own(what func()) {
	over := make(chan struct{})
	select {
	case a.todo <- func() { what(); close(over) }:
		<-over
	case <-a.done.Done():
	}
}
