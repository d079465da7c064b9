package nodes

import (
	"sync"
	"time"
)

// pauseBound is how long node 0 waits for the others to pause, before it is stopped itself.
const pauseBound = 2 * time.Second

// pause has all nodes pause their ranks, and waits until they have: who is stopped next can
// send nothing any more.
func (l *Lead) pause() {
	all := make(chan struct{})
	l.own(func() {
		l.paused = sync.OnceFunc(func() { close(all) })
		l.head.Pause()
	})
	bound := time.NewTimer(pauseBound)
	defer bound.Stop()
	select {
	case <-all:
	case <-bound.C: // a node that is cut off learns of it once it is back
	case <-l.done.Done():
	}
}

// resume lets them go on.
func (l *Lead) resume() {
	l.own(func() {
		l.head.Resume(l.now())
		if a := l.running; a != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.awake = time.Now()
		}
	})
}
