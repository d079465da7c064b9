// Package notify reports a run to others: to a web server or a program, as described here; to Prometheus (metrics.go);
// and to the system that runs gpurun as a step of a pipeline (pipeline.go).
//
//	events.go    the events that are sent
//	outbox.go    events on the disk until they are sent
//	deliver.go   the goroutine that sends
//	webhook.go   delivery to a URL, by go-retryablehttp
//	program.go   delivery to a program
//	notify.go    one run: events in, deliveries out
//
// The run does not wait for deliveries: an event enters the outbox once the journal has it,
// and a goroutine sends it. The end of a run waits for that goroutine, for a bounded time;
// the rest stays in the outbox for the next gpurun that starts in the same folder.
package notify

import (
	"context"
	"fmt"
	"path/filepath"
	"slices"
	"sync"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/mask"
	"github.com/gpurun/gpurun/launcher/show"
	"github.com/gpurun/gpurun/launcher/system"
	"github.com/gpurun/gpurun/strategy"
)

const (
	// endBound is how long the end of a run waits in all, and cancelBound the part of it in
	// which a delivery that is cancelled then, or by a signal, may end.
	endBound    = 5 * time.Second
	cancelBound = 500 * time.Millisecond
)

// A NotifiedRun is the run whose events are sent.
type NotifiedRun struct {
	Dir     string       // the run directory
	Workdir string       // the job's, with the outbox below its .gpurun
	Version string       // of gpurun
	Mask    *mask.Masker // takes the job's secrets out
	Page    *show.Page   // gets the warnings after the verdict
}

// A Notifier sends the events of one run. A nil one sends none.
type Notifier struct {
	run    NotifiedRun
	on     []string
	sender sender
	box    outbox
	note   func(text string) // prints a warning before the verdict
	worker *system.Worker    // sends; woken if something waits to be sent

	mu       sync.Mutex // guards what follows
	source   eventSource
	waiting  []pendingEvent
	finished bool // the verdict has been shown
	warned   map[string]bool
	gone     bool // the goroutine was left behind: warnings have no reader
}

// A pendingEvent is one event that waits to be sent: in the outbox, or here where the outbox cannot
// be written.
type pendingEvent struct {
	id       string
	body     []byte // nil: it is in the outbox
	failures int
}

// A sender delivers one event. A refusal as error means that later tries would fail, too.
type sender interface {
	send(ctx context.Context, m Notification, body []byte) error
}

// New returns the notifier of a run, and show with the notifier behind it: an event is
// journaled and shown before it is sent.
func New(s strategy.Notify, r NotifiedRun, show func(launcher.Event)) (*Notifier, func(launcher.Event)) {
	if len(s.On) == 0 || s.URL == "" && s.Command == nil && s.Missing == "" {
		return nil, show
	}
	n := &Notifier{
		run: r, on: s.On, sender: senderOf(s, r), source: newEventSource(r.Dir, hostname()),
		box:    outbox{filepath.Join(r.Workdir, ".gpurun", journal.OutboxName)},
		worker: system.NewWorker(), warned: map[string]bool{},
	}
	return n, func(e launcher.Event) {
		n.last(e)
		show(e)
		n.see(e)
	}
}

// senderOf returns the sender, nil where a part of its configuration is missing.
func senderOf(s strategy.Notify, r NotifiedRun) sender {
	switch {
	case s.Missing != "":
		return nil
	case s.Command != nil:
		return &eventCommand{argv: s.Command, dir: r.Workdir, timeout: s.Timeout}
	}
	return newWebhook(s, r.Version)
}

// Begin recalls what an earlier gpurun did in the run directory, and begins to send, the rest
// of the outbox first. note prints warnings before the verdict. The caller calls end when the
// run is over; end waits for deliveries for endBound at most, and cancels them once ctx is
// done. A disk that does not answer, or a program that cannot be killed, is left behind.
func (n *Notifier) Begin(ctx context.Context, note func(text string)) (end func()) {
	if n == nil {
		return func() {}
	}
	n.note = note
	n.recall()
	sending, stop := context.WithCancel(context.WithoutCancel(ctx))
	collect := sync.OnceFunc(func() { n.collect(sending) })
	n.worker.Wake()
	n.worker.Start(0, func() {
		defer n.survive()
		collect()
		n.deliverAll(sending)
	})
	return func() {
		n.worker.Close()
		n.worker.Wait(ctx, endBound-cancelBound)
		stop()
		if !n.worker.Wait(context.WithoutCancel(ctx), cancelBound) {
			n.abandon()
		}
	}
}

// abandon leaves the goroutine behind.
func (n *Notifier) abandon() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.warn("a notification cannot be cancelled and may not have been sent; the next start tries again")
	n.gone = true
}

// recall reads the journal so far: what an earlier gpurun reported.
func (n *Notifier) recall() {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.source.read(n.run.Dir)
}

// last records the verdict: later warnings go to the page.
func (n *Notifier) last(e launcher.Event) {
	if _, last := e.(launcher.Finished); last {
		n.mu.Lock()
		n.finished = true
		n.mu.Unlock()
	}
}

// see puts an event into the outbox, if it is to be sent.
func (n *Notifier) see(e launcher.Event) {
	n.mu.Lock()
	defer n.mu.Unlock()
	m, sent := n.source.take(e, time.Now().UTC())
	if sent && n.wanted(m) {
		n.put(m)
	}
}

func (n *Notifier) wanted(m Notification) bool { return slices.Contains(n.on, m.Event) }

// put has an event sent. The caller holds mu.
func (n *Notifier) put(m Notification) {
	body, err := m.encode(n.run.Mask)
	if err != nil {
		n.warn(fmt.Sprintf("a notification could not be encoded: %v", err))
		return
	}
	l := pendingEvent{id: m.ID}
	if fresh, err := n.box.put(m.ID, body); err != nil {
		n.warn(fmt.Sprintf("the outbox for notifications cannot be written (%v): "+
			"a notification that cannot be sent at once is lost", err))
		l.body = body
	} else if !fresh {
		return
	}
	n.waiting = append(n.waiting, l)
	n.worker.Wake()
}

func (n *Notifier) say(text string) {
	n.mu.Lock()
	defer n.mu.Unlock()
	n.warn(text)
}

// warn prints a warning once. The caller holds mu.
func (n *Notifier) warn(text string) {
	if n.gone || n.warned[text] {
		return
	}
	n.warned[text] = true
	if n.finished {
		n.run.Page.Printf("gpurun: warning: %s\n", text)
		return
	}
	n.note("warning: " + text)
}
