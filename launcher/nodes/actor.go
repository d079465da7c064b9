package nodes

import (
	"context"
	"sync"
	"time"
)

// An actor is the goroutine that owns a state machine and its data. It runs the functions that it receives
// from todo, until done.
type actor struct {
	began time.Time
	todo  chan func()
	done  context.Context
	end   context.CancelFunc
	owner sync.WaitGroup // waits for the other goroutines
}

func newActor(ctx context.Context) *actor {
	a := &actor{began: time.Now(), todo: make(chan func())}
	a.done, a.end = context.WithCancel(ctx)
	return a
}

func (a *actor) now() time.Duration { return time.Since(a.began) }

// own runs a function in the actor's goroutine, and waits for it. It does nothing once the actor
// is done.
func (a *actor) own(do func()) {
	over := make(chan struct{})
	select {
	case a.todo <- func() { do(); close(over) }:
		<-over
	case <-a.done.Done():
	}
}
