package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"net/netip"
	"os"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"

	"github.com/gpurun/gpurun/strategy"
)

// RunInfo has the facts and functions of the run that the nodes need.
type RunInfo struct {
	Dir, Tracked string
	Began        time.Time
	// Port finds the port on which rank 0 serves the rendezvous of an attempt.
	Port func(ctx context.Context, attempt int) (int, error)
	// Note shows the user a text; nil: texts are dropped.
	Note func(string)
	// Grace is the grace of the head's own ranks if an attempt cannot be started.
	Grace time.Duration
	// Reach: all nodes try the address of the rendezvous before ranks are started.
	Reach bool
}

// HeadOptions are the options of a Head.
type HeadOptions struct {
	RunInfo
	Agreement
	// Links accepts followers; nil on one node.
	Links links
	// Way describes the nodes' credentials for the user.
	Way string
	// Local starts the ranks of the head's own node.
	Local launcher.Starter
	// Join is the time that nodes have to join. Hosts are their names by number, if known beforehand. Check
	// is advice for the user if a node does not join.
	Join  time.Duration
	Hosts []string
	Check string
	// Samples collects samples of the other nodes' ranks; nil: it collects none.
	Samples *sampleStore
}

// links accepts followers: wire.Links.
type links interface {
	Accept(context.Context) (*Link, error)
	Close() error
}

// A Head is the head of a launch on one or more nodes, and a launcher.Starter. Its actor owns a headMachine.
type Head struct {
	opts HeadOptions
	*actor

	// The actor owns the fields below.
	machine  *headMachine
	links    map[int]*Link
	lastLink int    // number of the latest link
	peers    []peer // by number of the node
	waits    *wait
	running  *jointAttempt // nil between attempts
	failed   error         // why the attempt cannot be started
	refusal  error         // why a missing node will never join
	newer    error         // why this start of the job is over: a newer one exists
}

// A peer is another node.
type peer struct {
	clock     clockOffset
	addr      string // of the head, as the node reaches it
	inventory *strategy.Inventory
	mistrust  string // why it may not have joined
}

// A wait lasts until all nodes are at a point.
type wait struct {
	point Point
	facts []strategy.Fact // facts that arrived meanwhile
	over  chan error
}

// NewHead makes a Head, which accepts followers until Close.
func NewHead(o HeadOptions) *Head {
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.Samples == nil {
		o.Samples = &sampleStore{}
	}
	h := &Head{
		opts: o, actor: newActor(context.Background()),
		links: map[int]*Link{}, peers: make([]peer, max(o.Agreement.Nodes, 1)),
	}
	welcome := Welcome{Generation: rand.Text(), Dir: o.Dir, Tracked: o.Tracked, Began: o.Began}
	h.machine = newHeadMachine(h, o.Agreement, welcome)
	h.owner.Go(h.loop)
	if o.Links != nil {
		h.owner.Go(h.accept)
	}
	return h
}

// Close ends all connections.
func (h *Head) Close() error {
	h.end()
	var err error
	if h.opts.Links != nil {
		err = h.opts.Links.Close()
	}
	h.owner.Wait()
	return err
}

func (h *Head) several() bool { return h.opts.Nodes > 1 }

// loop is the actor.
func (h *Head) loop() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case f := <-h.todo:
			f()
		case <-tick.C:
			h.machine.Tick(h.now())
		case <-h.done.Done():
			return
		}
	}
}

func (h *Head) accept() {
	for {
		link, err := h.opts.Links.Accept(h.done)
		var stranger *Mistrusted
		switch {
		case errors.As(err, &stranger):
			h.own(func() { h.mistrust(*stranger) })
		case err != nil:
			return
		default:
			h.owner.Go(func() { h.serve(link) })
		}
	}
}

// mistrust warns about a gpurun that claims to be a node of this launch, and has another secret.
func (h *Head) mistrust(m Mistrusted) {
	if m.Node >= h.opts.Nodes || h.peers[m.Node].mistrust != "" {
		return
	}
	text := fmt.Sprintf("a gpurun at %s claims to be node %d, and does not know %s: it is refused",
		m.Addr, m.Node, h.opts.Way)
	h.peers[m.Node].mistrust = text
	h.opts.Note("warning: " + text)
}

// serve receives from a link until it ends.
func (h *Head) serve(link *Link) {
	n := 0
	h.own(func() {
		h.lastLink++
		n = h.lastLink
		h.links[n] = link
	})
	for {
		m, err := receive(h.done, link)
		if err != nil {
			break
		}
		h.own(func() {
			h.peers[link.Peer()].addr = link.Addr()
			h.machine.Receive(h.now(), n, link.Peer(), m)
		})
	}
	h.own(func() {
		delete(h.links, n)
		h.machine.Gone(h.now(), n)
	})
	_ = link.Close()
}

func (h *Head) send(n int, m Message) {
	if link := h.links[n]; link != nil && send(link, m) != nil {
		h.drop(n)
	}
}

// drop closes a link, after the messages sent on it. serve ends with it.
func (h *Head) drop(n int) {
	if link := h.links[n]; link != nil {
		h.owner.Go(func() { _ = link.Close() })
	}
}

func (h *Head) silent(node int, d time.Duration) {
	h.opts.Note(fmt.Sprintf("warning: nothing was received from %s for %s", h.name(node), d.Round(time.Second)))
}

func (h *Head) name(node int) string {
	host := h.machine.Host(node)
	if host == "" && len(h.opts.Hosts) == h.opts.Nodes {
		host = h.opts.Hosts[node]
	}
	return strategy.NodeName(node, host)
}

func (h *Head) received(node int, m Message) {
	p := &h.peers[node]
	switch m := m.(type) {
	case Ready:
		if h.waits != nil {
			h.waits.facts = append(h.waits.facts, m.Facts...)
		}
	case NotReady:
		h.notReady(node, m)
	case Event:
		p.clock.observe(m.At, time.Now())
		if h.running != nil {
			h.running.add(onHost(p.clock.fact(m.Fact), h.machine.Host(node)))
		}
	case Alive:
		p.clock.observe(m.At, time.Now())
		if h.running != nil {
			h.running.alive(node, &p.clock, m)
			h.opts.Samples.add(node, h.machine.Host(node), &p.clock, m)
		}
	case Stopped:
		p.inventory = &m.Inventory
	case Note:
		h.opts.Note(h.name(node) + ": " + m.Text)
	}
}

// onHost adds the host to a GPU's alarm.
func onHost(f strategy.Fact, host string) strategy.Fact {
	if f.DriverEvent() != nil {
		e := *f.DriverEvent()
		e.Node = host
		f.Content = (*strategy.DriverEvent)(&e)
	}
	return f
}

// notReady ends an attempt that a node cannot start.
func (h *Head) notReady(node int, m NotReady) {
	if h.running != nil { // on other nodes
		why := "it could not start its ranks: " + m.Why
		h.running.lose(strategy.Lost{Node: node, Host: h.machine.Host(node), Why: why, Code: m.Code})
		return
	}
	h.fail(errext.WithCode(errext.WithHint(errors.New(h.name(node)+": "+m.Why), m.Hint), m.Code))
}

func (h *Head) lost(node int, why string, left bool) {
	if h.running != nil {
		h.running.lose(strategy.Lost{Node: node, Host: h.machine.Host(node), Why: why, Left: left})
		return
	}
	h.fail(errext.WithCode(fmt.Errorf("%s was lost: %s", h.name(node), why), strategy.CodeRetry))
}

func (h *Head) superseded(by Hello) {
	why := fmt.Sprintf("the job was started again (start %d)", by.Restart)
	if h.running != nil {
		h.running.lose(strategy.Lost{Node: by.Node, Host: h.machine.Host(by.Node), Why: why, Left: true})
	}
	h.newer = errext.WithCode(errors.New(why), strategy.CodeRetry)
	h.fail(h.newer)
}

func (h *Head) refused(hello Hello, r Reject) {
	h.endGather(errext.WithCode(errext.Errorf("start gpurun with the same command and files on each node",
		"%s cannot take part: %s", strategy.NodeName(hello.Node, hello.Host), r.Why), r.Code))
}

// endGather ends the wait for all nodes, now or when it begins.
func (h *Head) endGather(why error) {
	h.refusal = why
	if h.waits != nil && h.waits.point == AllThere {
		h.fail(why)
	}
}

func (h *Head) reached(p Point) {
	if p == AllOver && h.running != nil {
		close(h.running.over)
		h.running = nil
	}
	if h.waits != nil && h.waits.point == p {
		h.waits.over <- nil
		h.waits = nil
	}
}

// fail ends the current wait.
func (h *Head) fail(err error) {
	h.failed = err
	if h.waits != nil {
		h.waits.over <- err
		h.waits = nil
	}
}

// await gives an order, and waits for all nodes to come to a point, or for the first that does not.
func (h *Head) await(ctx context.Context, p Point, order func()) ([]strategy.Fact, error) {
	w := &wait{point: p, over: make(chan error, 1)}
	h.own(func() {
		h.waits, h.failed = w, nil
		if h.newer != nil && p != AllLeft { // whenever that was found
			h.fail(h.newer)
			return
		}
		order()
	})
	select {
	case err := <-w.over:
		return w.facts, err
	case <-ctx.Done():
		h.own(func() { h.waits = nil })
		return nil, context.Cause(ctx)
	case <-h.done.Done():
		return nil, context.Canceled
	}
}

// noteAfter is the delay of messages about missing nodes.
const noteAfter = 3 * time.Second

// errJoin is the cause of a wait for nodes that took too long.
var errJoin = errors.New("nodes are missing")

// addresses returns the address at which each node reaches the head. It replaces a loopback address by one
// that another node uses, if there is a better one.
func (h *Head) addresses() func(node int) string {
	better := ""
	for _, p := range h.peers {
		if better == "" && !loopback(p.addr) {
			better = p.addr
		}
	}
	return func(node int) string {
		if addr := h.peers[node].addr; addr != "" && !loopback(addr) {
			return addr
		}
		return cmp.Or(better, h.peers[node].addr, "127.0.0.1")
	}
}

func loopback(addr string) bool {
	ip, err := netip.ParseAddr(addr)
	return err == nil && ip.IsLoopback()
}

// gather waits for all nodes.
func (h *Head) gather(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, h.opts.Join, errJoin)
	defer cancel()
	note := time.AfterFunc(noteAfter, func() {
		missing, _ := h.missing()
		h.opts.Note(fmt.Sprintf("waiting for %s of %d, for %s at most: %s",
			missing, h.opts.Nodes, h.opts.Join, h.opts.Check))
	})
	defer note.Stop()
	_, err := h.await(bounded, AllThere, func() {
		if h.refusal != nil {
			h.fail(h.refusal)
			return
		}
		h.machine.Gather()
	})
	if !errors.Is(err, errJoin) {
		return err
	}
	missing, why := h.missing()
	if why != "" {
		return errext.WithCode(errext.Errorf("give all nodes the same secret, or a folder that all of them see",
			"%s of %d did not come within %s: %s", missing, h.opts.Nodes, h.opts.Join, why), strategy.CodeUsage)
	}
	err = errext.Errorf("each node starts gpurun with the same command; the output of the missing ones shows why",
		"%s of %d did not come within %s", missing, h.opts.Nodes, h.opts.Join)
	return errext.WithCode(err, strategy.CodeRetry)
}

// missing names the nodes that have not joined, and why one of them may not have.
func (h *Head) missing() (list, why string) {
	var names []string
	h.own(func() {
		for _, k := range h.machine.Missing() {
			names, why = append(names, h.name(k)), cmp.Or(why, h.peers[k].mistrust)
		}
	})
	return strings.Join(names, ", "), why
}

// Start starts the ranks of all nodes, or none.
func (h *Head) Start(ctx context.Context, launch launcher.Launch) (launcher.Attempt, error) {
	if err := h.gather(ctx); err != nil {
		return nil, stopped(ctx, err)
	}
	port, err := h.opts.Port(ctx, launch.N)
	if err != nil {
		return nil, err
	}
	launch.Meeting = launcher.Meeting{Nodes: h.opts.Nodes, World: h.opts.Nodes * h.opts.Ranks, Port: port}
	h.own(func() { launch.Meeting.Addr = h.addresses()(0) })
	facts, err := h.prepare(ctx, launch)
	if err != nil {
		h.clear()
		return nil, stopped(ctx, err)
	}
	local, err := h.opts.Local.Start(ctx, launch)
	if err != nil {
		h.clear()
		return nil, err
	}
	if h.several() {
		facts = append(facts, h.hosts())
	}
	a := newAttempt(h, local, facts)
	h.own(func() {
		if err = h.failed; err != nil { // meanwhile
			return
		}
		h.running = a
		h.machine.Start(h.now())
	})
	if err != nil {
		h.owner.Go(func() { drain(local.Facts()) })
		local.Stop(sigterm, h.opts.Grace)
		h.clear()
		return nil, err
	}
	h.owner.Go(a.merge)
	return a, nil
}

// prepare has all nodes do everything that precedes their ranks' start.
func (h *Head) prepare(ctx context.Context, launch launcher.Launch) ([]strategy.Fact, error) {
	order := Prepare{Launch: launch, Digest: launcher.Digest(launch.Command, launch.Dir)}
	order.Launch.Dir, order.Launch.Command = "", strategy.Command{} // commands are never sent
	if h.opts.Reach && h.several() {
		t := listenToTest(ctx, launch.Meeting.Port)
		defer t.close()
		order.Reach = t != nil
	}
	return h.await(ctx, AllReady, func() { h.machine.Prepare(h.now(), order, h.addresses()) })
}

func drain(facts <-chan strategy.Fact) {
	for range facts {
	}
}

// hosts returns the fact with the names of all nodes.
func (h *Head) hosts() strategy.Fact {
	own, _ := os.Hostname()
	hosts := []string{own}
	h.own(func() {
		for k := 1; k < h.opts.Nodes; k++ {
			hosts = append(hosts, h.machine.Host(k))
		}
	})
	return strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: strategy.Nodes(hosts)}
}

// clear cancels the attempt that all nodes have prepared.
func (h *Head) clear() {
	h.own(func() { h.machine.Stop(h.now(), Stop{}) })
}

// stopped returns the error of a start that a signal ended.
func stopped(ctx context.Context, err error) error {
	var stop *launcher.Signal
	if cause := context.Cause(ctx); errors.As(cause, &stop) {
		return stop
	}
	return err
}

// Notice passes a notice on to the ranks of all other nodes that have a handler for it. TSTP pauses the ranks
// until CONT, and KILL ends them without a grace.
func (h *Head) Notice(signal syscall.Signal) {
	switch signal {
	case syscall.SIGTSTP:
		h.pause()
	case syscall.SIGCONT:
		h.resume()
	case syscall.SIGKILL:
		h.own(func() {
			if h.running != nil {
				h.machine.Stop(h.now(), Stop{Signal: int(signal)})
			}
		})
	default:
		h.own(func() { h.machine.Broadcast(Notice{Signal: int(signal)}) })
	}
}

// pause orders all nodes to pause their ranks, and waits until that is sent: afterwards this process is stopped
// and can send nothing. A node without a connection pauses when it is back.
func (h *Head) pause() {
	h.own(h.machine.Pause)
	if !h.several() {
		return
	}
	select {
	case <-time.After(pauseWait):
	case <-h.done.Done():
	}
}

func (h *Head) resume() {
	h.own(func() {
		h.machine.Resume(h.now())
		if a := h.running; a != nil {
			a.mu.Lock()
			defer a.mu.Unlock()
			a.awake = time.Now()
		}
	})
}

// Finish reports the end of the run to all nodes, and waits until they have it or are gone.
func (h *Head) Finish(code int, reason string) {
	_, _ = h.await(context.Background(), AllLeft, func() {
		h.machine.Finish(h.now(), Final{Code: code, Reason: reason})
	})
}
