package notify

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"slices"
	"syscall"
	"time"
)

// errOver is why a delivery was cancelled when the run was over.
var errOver = errors.New("there was not enough time at the end")

// survive keeps a bug in here from ending the run.
func (n *Notifier) survive() {
	if bug := recover(); bug != nil {
		n.sender = nil
		n.say(fmt.Sprintf("no more notifications are sent; this is a bug in gpurun: %v", bug))
	}
}

// collectBound bounds the search for events of other runs. The next start finds the rest.
const collectBound = 2 * time.Second

// collect adds the events that other runs have left, the oldest first; none from an outbox that
// another user can write to.
func (n *Notifier) collect(ctx context.Context) {
	if n.box.check() != nil {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, collectBound)
	defer cancel()
	left, dropped := n.box.left(ctx, time.Now())
	n.mu.Lock()
	defer n.mu.Unlock()
	if dropped > 0 {
		n.warn(fmt.Sprintf("notifications older than %.0f hours were dropped unsent: %d", keepFor.Hours(), dropped))
	}
	for _, id := range slices.Backward(left) {
		if !slices.ContainsFunc(n.waiting, func(l pendingEvent) bool { return l.id == id }) {
			n.waiting = slices.Insert(n.waiting, 0, pendingEvent{id: id})
		}
	}
}

// deliverAll tries to send all events in order, up to the first that fails: that and the rest
// are tried again when the next event comes. An event that has failed goes last, so that one
// that a server cannot process does not block the others.
func (n *Notifier) deliverAll(ctx context.Context) {
	n.mu.Lock()
	todo := n.waiting
	n.waiting = nil
	n.mu.Unlock()
	slices.SortStableFunc(todo, func(a, b pendingEvent) int { return cmp.Compare(a.failures, b.failures) })
	for n.sender != nil && len(todo) > 0 {
		if !n.deliver(ctx, todo[0]) {
			todo[0].failures++
			break
		}
		todo = todo[1:]
	}
	n.mu.Lock()
	n.waiting = slices.Concat(todo, n.waiting)
	n.mu.Unlock()
}

// deliver sends one event, and reports whether it is done: sent, by this gpurun or another
// one, or refused.
func (n *Notifier) deliver(ctx context.Context, l pendingEvent) (done bool) {
	body := l.body
	if body == nil {
		held, err := n.box.hold(l.id)
		switch {
		case err == nil:
			defer held.Close()
		case errors.Is(err, syscall.ENOSPC), errors.Is(err, syscall.EDQUOT): // sent twice is better than not sent
		default:
			return true // another gpurun sends it; or it stays for the next one
		}
		if body, err = n.box.read(l.id); err != nil {
			return true // another one has sent it
		}
	}
	m, err := decode(body)
	if err == nil {
		err = n.sender.send(ctx, m, body)
	}
	var refused *refusal
	what := fmt.Sprintf("the notification that the run %s has %s", m.Run, happened(m.Event))
	switch {
	case err == nil:
	case errors.As(err, &refused):
		n.say(fmt.Sprintf("%s was refused: %v", what, err))
	default:
		if errors.Is(err, context.Canceled) {
			err = errOver
		}
		n.say(fmt.Sprintf("%s was not sent: %v; the next start tries again", what, err))
		return false
	}
	if l.body == nil {
		if err := n.box.sent(l.id); err != nil {
			n.say(fmt.Sprintf("a notification was sent, but the outbox cannot be written (%v): "+
				"the next start sends it again", err))
		}
	}
	return true
}
