// Package notify tells others how a run goes: a web server, a chat, or a program.
//
//	story.go     the events of a run that others are told of
//	outbox.go    what is to be sent, on the disk, until it has been; what killed runs left untold
//	deliver.go   the goroutine that sends
//	webhook.go   delivery to a URL, by go-retryablehttp
//	program.go   delivery to a program
//	style.go     the bodies that chats want
//	notify.go    one run: events in, deliveries out
//
// A run waits for none of it: an event is put into the outbox once the journal has it, and
// sent by a goroutine. The end of a run waits for that one, for a bounded time; what is not
// sent by then stays in the outbox, and the next gpurun that starts in the same folder sends
// it.
package notify

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/model"
)

const (
	// endPatience is how long the end of a run waits in all, and cutPatience how much of that
	// is for what is cut off then, or by a signal.
	endPatience = 5 * time.Second
	cutPatience = 500 * time.Millisecond
)

// A Run is what is told of.
type Run struct {
	Dir     string // the run directory
	Workdir string // the job's, with the outbox below its .gpurun
	Version string // of gpurun
	// Mask takes the job's secrets out of what is told.
	Mask *mask.Masker
	// Page gets what people should know after the verdict.
	Page *console.Page
}

// A Notifier tells of one run. Nil tells nobody.
type Notifier struct {
	run    Run
	on     []string
	sender sender
	box    outbox
	note   func(text string) // tells people, as long as there is no verdict
	wake   chan struct{}     // something waits to be sent
	over   chan struct{}     // nothing more comes
	owner  sync.WaitGroup    // of the goroutine that sends

	mu       sync.Mutex // guards what follows
	story    story
	waiting  []letter
	finished bool // the verdict has been shown
	said     map[string]bool
	gone     bool // nobody waits for the goroutine any more, and nobody listens
}

// A letter is one event that waits to be sent: in the outbox, or here where that cannot be
// written.
type letter struct {
	id       string
	body     []byte // nil: it is in the outbox
	failures int
}

// A sender delivers one event. An error that is a refusal says that no later try would do.
type sender interface {
	send(ctx context.Context, m Message, body []byte) error
}

// Tell gives the notifier of a run, and show with the notifier behind it: what is told has
// been journaled, and shown, before.
func Tell(s model.Notify, r Run, show func(launcher.Event)) (*Notifier, func(launcher.Event)) {
	if len(s.On) == 0 || s.URL == "" && s.Command == nil && s.Missing == "" {
		return nil, show
	}
	n := &Notifier{
		run: r, on: s.On, sender: senderOf(s, r), box: outbox{filepath.Join(r.Workdir, ".gpurun", journal.OutboxName)}, story: story{dir: r.Dir, host: hostname()},
		wake: make(chan struct{}, 1), over: make(chan struct{}), said: map[string]bool{},
	}
	return n, func(e launcher.Event) {
		n.last(e)
		show(e)
		n.see(e)
	}
}

// senderOf is who delivers, nil where nobody can at present.
func senderOf(s model.Notify, r Run) sender {
	switch {
	case s.Missing != "":
		return nil
	case s.Command != nil:
		return &program{argv: s.Command, dir: r.Workdir, timeout: s.Timeout}
	}
	return newWebhook(s, r.Version)
}

// Begin takes in what an earlier gpurun did in the run directory, and begins to send: what
// is left in the outbox first. note tells people, until the verdict. The caller calls end
// when the run is over, which waits for what is being sent, for endPatience at most, and no
// longer than it takes to cut that off once ctx is done. A disk that does not answer, or a
// program that cannot be killed, is left behind.
func (n *Notifier) Begin(ctx context.Context, note func(text string)) (end func()) {
	if n == nil {
		return func() {}
	}
	n.note = note
	n.recall()
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	n.owner.Go(func() {
		defer n.survive()
		n.serve(sending)
	})
	return func() {
		close(n.over)
		ended := make(chan struct{})
		go func() {
			n.owner.Wait()
			close(ended)
		}()
		within(ctx, endPatience-cutPatience, ended)
		stop()
		if !within(context.WithoutCancel(ctx), cutPatience, ended) {
			n.abandon()
		}
	}
}

// within waits until something has ended, and reports whether it has before the time is up
// or ctx is done.
func within(ctx context.Context, patience time.Duration, ended <-chan struct{}) bool {
	up := time.NewTimer(patience)
	defer up.Stop()
	select {
	case <-ended:
		return true
	case <-up.C:
	case <-ctx.Done():
	}
	return false
}

// abandon gives up waiting for the goroutine.
func (n *Notifier) abandon() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.warn("what was to be sent cannot be cut off, and is left behind: somebody may not have been told; the next start tries again")
	n.gone = true
}

// recall takes in what the journal says of the run so far, and puts into the outbox what a
// gpurun that was killed has not.
func (n *Notifier) recall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	told := n.box.check() == nil && n.box.watched(n.run.Dir)
	for _, m := range n.story.read(context.Background(), n.run.Dir) { // which has been opened, and so is in order
		if told && n.wanted(m) && time.Since(m.Time) < keepFor {
			n.put(m)
		}
	}
	if err := n.box.watch(n.run.Dir, n.on); err != nil {
		n.warn(fmt.Sprintf("the outbox for notifications cannot be written (%v): one that cannot be sent at once is lost", err))
	}
}

// last notes that the verdict is the last event: people are told by other means then.
func (n *Notifier) last(e launcher.Event) {
	if _, last := e.(launcher.Finished); last {
		n.mu.Lock()
		n.finished = true
		n.mu.Unlock()
	}
}

// see puts an event into the outbox, where others are to be told of it.
func (n *Notifier) see(e launcher.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, told := n.story.take(e, time.Now().UTC())
	if told && n.wanted(m) {
		n.put(m)
	}
	if n.story.over() {
		n.box.unwatch(n.run.Dir)
	}
}

func (n *Notifier) wanted(m Message) bool { return slices.Contains(n.on, m.Event) }

// put has an event sent. The caller holds mu.
func (n *Notifier) put(m Message) {
	body, err := m.encode(n.run.Mask)
	if err != nil {
		n.warn(fmt.Sprintf("a notification was not made: %v", err))
		return
	}
	l := letter{id: m.ID}
	if fresh, err := n.box.put(m.ID, body); err != nil {
		l.body = body
	} else if !fresh {
		return
	}
	n.waiting = append(n.waiting, l)
	select {
	case n.wake <- struct{}{}:
	default:
	}
}

func (n *Notifier) say(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.warn(text)
}

// warn tells people something once. The caller holds mu.
func (n *Notifier) warn(text string) {
	if n.gone || n.said[text] {
		return
	}
	n.said[text] = true
	if n.finished {
		n.run.Page.Printf("gpurun: warning: %s\n", text)
		return
	}
	n.note("warning: " + text)
}
