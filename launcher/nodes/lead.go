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
	"github.com/gpurun/gpurun/launcher/nodes/wire"
	"github.com/gpurun/gpurun/model"
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

// LeadOptions are the options of a Lead.
type LeadOptions struct {
	RunInfo
	Terms Terms
	// Links accepts followers; nil on one node.
	Links links
	// Mistrusted delivers gpuruns with another secret; nil: none. Way describes the nodes' credentials for the
	// user.
	Mistrusted <-chan wire.Mistrusted
	Way        string
	// Local starts the ranks of the head's own node.
	Local launcher.Starter
	// Join is the time that nodes have to join. Hosts are their names by number, if known beforehand. Check
	// is advice for the user if a node does not join.
	Join  time.Duration
	Hosts []string
	Check string
	// Seen collects samples of the other nodes' ranks; nil: it collects none.
	Seen *seen
}

// links accepts followers: wire.Links.
type links interface {
	Accept(context.Context) (*wire.Link, error)
	Close() error
}

// A Lead is the head of a launch on one or more nodes, and a launcher.Starter. Its actor owns a Head.
type Lead struct {
	opts LeadOptions
	*actor

	// The actor owns the fields below.
	head     *Head
	links    map[int]*wire.Link
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

// NewLead makes a Lead, which accepts followers until Close.
func NewLead(o LeadOptions) *Lead {
	if o.Note == nil {
		o.Note = func(string) {}
	}
	if o.Seen == nil {
		o.Seen = &seen{}
	}
	l := &Lead{
		opts: o, actor: newActor(context.Background()),
		links: map[int]*wire.Link{}, peers: make([]peer, max(o.Terms.Nodes, 1)),
	}
	l.head = NewHead(l, o.Terms, Welcome{Gen: rand.Text(), Dir: o.Dir, Tracked: o.Tracked, Began: o.Began})
	l.owner.Go(l.loop)
	if o.Links != nil {
		l.owner.Go(l.accept)
	}
	if o.Mistrusted != nil {
		l.owner.Go(l.takeMistrusted)
	}
	return l
}

// Close ends all connections.
func (l *Lead) Close() error {
	l.end()
	var err error
	if l.opts.Links != nil {
		err = l.opts.Links.Close()
	}
	l.owner.Wait()
	return err
}

func (l *Lead) several() bool { return l.opts.Terms.Nodes > 1 }

// loop is the actor.
func (l *Lead) loop() {
	tick := time.NewTicker(time.Second)
	defer tick.Stop()
	for {
		select {
		case f := <-l.todo:
			f()
		case <-tick.C:
			l.head.Tick(l.now())
		case <-l.done.Done():
			return
		}
	}
}

func (l *Lead) accept() {
	for {
		link, err := l.opts.Links.Accept(l.done)
		if err != nil {
			return
		}
		l.owner.Go(func() { l.serve(link) })
	}
}

// takeMistrusted warns about gpuruns that claim to be nodes of this launch, and have another secret.
func (l *Lead) takeMistrusted() {
	for {
		select {
		case m := <-l.opts.Mistrusted:
			l.own(func() { l.mistrust(m) })
		case <-l.done.Done():
			return
		}
	}
}

func (l *Lead) mistrust(m wire.Mistrusted) {
	if m.Node >= l.opts.Terms.Nodes || l.peers[m.Node].mistrust != "" {
		return
	}
	text := fmt.Sprintf("a gpurun at %s claims to be node %d, and does not know %s: it is refused", m.Addr, m.Node, l.opts.Way)
	l.peers[m.Node].mistrust = text
	l.opts.Note("warning: " + text)
}

// serve receives from a link until it ends.
func (l *Lead) serve(link *wire.Link) {
	n := 0
	l.own(func() {
		l.lastLink++
		n = l.lastLink
		l.links[n] = link
	})
	for {
		m, err := receive(l.done, link)
		if err != nil {
			break
		}
		l.own(func() {
			l.peers[link.Peer()].addr = link.Addr()
			l.head.Receive(l.now(), n, link.Peer(), m)
		})
	}
	l.own(func() {
		delete(l.links, n)
		l.head.Gone(l.now(), n)
	})
	_ = link.Close()
}

func (l *Lead) send(n int, m Message) {
	if link := l.links[n]; link != nil && send(link, m) != nil {
		l.drop(n)
	}
}

// drop closes a link, after the messages sent on it. serve ends with it.
func (l *Lead) drop(n int) {
	if link := l.links[n]; link != nil {
		l.owner.Go(func() { _ = link.Close() })
	}
}

func (l *Lead) silent(node int, d time.Duration) {
	l.opts.Note(fmt.Sprintf("warning: nothing was received from %s for %s", l.name(node), d.Round(time.Second)))
}

func (l *Lead) name(node int) string {
	host := l.head.Host(node)
	if host == "" && len(l.opts.Hosts) == l.opts.Terms.Nodes {
		host = l.opts.Hosts[node]
	}
	return strategy.NodeName(node, host)
}

func (l *Lead) received(node int, m Message) {
	p := &l.peers[node]
	switch m := m.(type) {
	case Ready:
		if l.waits != nil {
			l.waits.facts = append(l.waits.facts, m.Facts...)
		}
	case NotReady:
		l.unable(node, m)
	case Event:
		p.clock.observe(m.At, time.Now())
		if l.running != nil {
			l.running.add(onHost(p.clock.fact(m.Fact), l.head.Host(node)))
		}
	case Alive:
		p.clock.observe(m.At, time.Now())
		if l.running != nil {
			l.running.alive(node, &p.clock, m)
			l.opts.Seen.add(node, l.head.Host(node), &p.clock, m)
		}
	case Stopped:
		p.inventory = &m.Inventory
	case Note:
		l.opts.Note(l.name(node) + ": " + m.Text)
	}
}

// onHost adds the host to a GPU's alarm.
func onHost(f strategy.Fact, host string) strategy.Fact {
	if f.DriverEvent != nil {
		e := *f.DriverEvent
		e.Node = host
		f.DriverEvent = &e
	}
	return f
}

// unable ends an attempt that a node cannot start.
func (l *Lead) unable(node int, m NotReady) {
	if l.running != nil { // on other nodes
		l.running.lose(strategy.Lost{Node: node, Host: l.head.Host(node), Why: "it could not start its ranks: " + m.Why, Code: m.Code})
		return
	}
	l.fail(errext.WithCode(errext.WithHint(errors.New(l.name(node)+": "+m.Why), m.Hint), m.Code))
}

func (l *Lead) lost(node int, why string, left bool) {
	if l.running != nil {
		l.running.lose(strategy.Lost{Node: node, Host: l.head.Host(node), Why: why, Left: left})
		return
	}
	l.fail(errext.WithCode(fmt.Errorf("%s was lost: %s", l.name(node), why), strategy.CodeRetry))
}

func (l *Lead) superseded(by Hello) {
	why := fmt.Sprintf("the job was started again (start %d)", by.Restart)
	if l.running != nil {
		l.running.lose(strategy.Lost{Node: by.Node, Host: l.head.Host(by.Node), Why: why, Left: true})
	}
	l.newer = errext.WithCode(errors.New(why), strategy.CodeRetry)
	l.fail(l.newer)
}

func (l *Lead) refused(h Hello, r Reject) {
	l.endGather(errext.WithCode(errext.Errorf("start gpurun with the same command and files on each node",
		"%s cannot take part: %s", strategy.NodeName(h.Node, h.Host), r.Why), r.Code))
}

// endGather ends the wait for all nodes, now or when it begins.
func (l *Lead) endGather(why error) {
	l.refusal = why
	if l.waits != nil && l.waits.point == AllThere {
		l.fail(why)
	}
}

func (l *Lead) reached(p Point) {
	if p == AllOver && l.running != nil {
		close(l.running.over)
		l.running = nil
	}
	if l.waits != nil && l.waits.point == p {
		l.waits.over <- nil
		l.waits = nil
	}
}

// fail ends the current wait.
func (l *Lead) fail(err error) {
	l.failed = err
	if l.waits != nil {
		l.waits.over <- err
		l.waits = nil
	}
}

// await gives an order, and waits for all nodes to come to a point, or for the first that does not.
func (l *Lead) await(ctx context.Context, p Point, order func()) ([]strategy.Fact, error) {
	w := &wait{point: p, over: make(chan error, 1)}
	l.own(func() {
		l.waits, l.failed = w, nil
		if l.newer != nil && p != AllLeft { // whenever that was found
			l.fail(l.newer)
			return
		}
		order()
	})
	select {
	case err := <-w.over:
		return w.facts, err
	case <-ctx.Done():
		l.own(func() { l.waits = nil })
		return nil, context.Cause(ctx)
	case <-l.done.Done():
		return nil, context.Canceled
	}
}

// noteAfter is the delay of messages about missing nodes.
const noteAfter = 3 * time.Second

// errJoin is the cause of a wait for nodes that took too long.
var errJoin = errors.New("nodes are missing")

// addresses returns the address at which each node reaches the head. It replaces a loopback address by one
// that another node uses, if there is a better one.
func (l *Lead) addresses() func(node int) string {
	better := ""
	for _, p := range l.peers {
		if better == "" && !loopback(p.addr) {
			better = p.addr
		}
	}
	return func(node int) string {
		if addr := l.peers[node].addr; addr != "" && !loopback(addr) {
			return addr
		}
		return cmp.Or(better, l.peers[node].addr, "127.0.0.1")
	}
}

func loopback(addr string) bool {
	ip, err := netip.ParseAddr(addr)
	return err == nil && ip.IsLoopback()
}

// gather waits for all nodes.
func (l *Lead) gather(ctx context.Context) error {
	bounded, cancel := context.WithTimeoutCause(ctx, l.opts.Join, errJoin)
	defer cancel()
	note := time.AfterFunc(noteAfter, func() {
		missing, _ := l.missing()
		l.opts.Note(fmt.Sprintf("waiting for %s of %d, for %s at most: %s", missing, l.opts.Terms.Nodes, l.opts.Join, l.opts.Check))
	})
	defer note.Stop()
	_, err := l.await(bounded, AllThere, func() {
		if l.refusal != nil {
			l.fail(l.refusal)
			return
		}
		l.head.Gather()
	})
	if !errors.Is(err, errJoin) {
		return err
	}
	missing, why := l.missing()
	if why != "" {
		return errext.WithCode(errext.Errorf("give all nodes the same secret, or a folder that all of them see",
			"%s of %d did not come within %s: %s", missing, l.opts.Terms.Nodes, l.opts.Join, why), strategy.CodeUsage)
	}
	return errext.WithCode(errext.Errorf("each node starts gpurun with the same command; the output of the missing ones shows why they did not come",
		"%s of %d did not come within %s", missing, l.opts.Terms.Nodes, l.opts.Join), strategy.CodeRetry)
}

// missing names the nodes that have not joined, and why one of them may not have.
func (l *Lead) missing() (list, why string) {
	var names []string
	l.own(func() {
		for _, k := range l.head.Missing() {
			names, why = append(names, l.name(k)), cmp.Or(why, l.peers[k].mistrust)
		}
	})
	return strings.Join(names, ", "), why
}

// Start starts the ranks of all nodes, or none.
func (l *Lead) Start(ctx context.Context, launch launcher.Launch) (launcher.Attempt, error) {
	if err := l.gather(ctx); err != nil {
		return nil, stopped(ctx, err)
	}
	port, err := l.opts.Port(ctx, launch.N)
	if err != nil {
		return nil, err
	}
	launch.Meeting = launcher.Meeting{Nodes: l.opts.Terms.Nodes, World: l.opts.Terms.Nodes * l.opts.Terms.Ranks, Port: port}
	l.own(func() { launch.Meeting.Addr = l.addresses()(0) })
	facts, err := l.prepare(ctx, launch)
	if err != nil {
		l.clear()
		return nil, stopped(ctx, err)
	}
	local, err := l.opts.Local.Start(ctx, launch)
	if err != nil {
		l.clear()
		return nil, err
	}
	if l.several() {
		facts = append(facts, l.hosts())
	}
	a := newAttempt(l, local, facts)
	l.own(func() {
		if err = l.failed; err != nil { // meanwhile
			return
		}
		l.running = a
		l.head.Start(l.now())
	})
	if err != nil {
		l.owner.Go(func() { drain(local.Facts()) })
		local.Stop(sigterm, l.opts.Grace)
		l.clear()
		return nil, err
	}
	l.owner.Go(a.merge)
	return a, nil
}

// prepare has all nodes do everything that precedes their ranks' start.
func (l *Lead) prepare(ctx context.Context, launch launcher.Launch) ([]strategy.Fact, error) {
	order := Prepare{Launch: launch, Digest: launcher.Digest(launch.Command, launch.Dir)}
	order.Launch.Dir, order.Launch.Command = "", model.Command{} // commands are never sent
	if l.opts.Reach && l.several() {
		t := listenToTest(ctx, launch.Meeting.Port)
		defer t.close()
		order.Reach = t != nil
	}
	return l.await(ctx, AllReady, func() { l.head.Prepare(l.now(), order, l.addresses()) })
}

func drain(facts <-chan strategy.Fact) {
	for range facts {
	}
}

// hosts returns the fact with the names of all nodes.
func (l *Lead) hosts() strategy.Fact {
	own, _ := os.Hostname()
	hosts := []string{own}
	l.own(func() {
		for k := 1; k < l.opts.Terms.Nodes; k++ {
			hosts = append(hosts, l.head.Host(k))
		}
	})
	return strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Nodes: hosts}
}

// clear cancels the attempt that all nodes have prepared.
func (l *Lead) clear() {
	l.own(func() { l.head.Stop(l.now(), Stop{}) })
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
func (l *Lead) Notice(signal syscall.Signal) {
	switch signal {
	case syscall.SIGTSTP:
		l.pause()
	case syscall.SIGCONT:
		l.resume()
	case syscall.SIGKILL:
		l.own(func() {
			if l.running != nil {
				l.head.Stop(l.now(), Stop{Signal: int(signal)})
			}
		})
	default:
		l.own(func() { l.head.Broadcast(Notice{Signal: int(signal)}) })
	}
}

// pause orders all nodes to pause their ranks, and waits until that is sent: afterwards this process is stopped
// and can send nothing. A node without a connection pauses when it is back.
func (l *Lead) pause() {
	l.own(l.head.Pause)
	if !l.several() {
		return
	}
	select {
	case <-time.After(pauseWait):
	case <-l.done.Done():
	}
}

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

// Finish reports the end of the run to all nodes, and waits until they have it or are gone.
func (l *Lead) Finish(code int, reason string) {
	_, _ = l.await(context.Background(), AllLeft, func() {
		l.head.Finish(l.now(), Final{Code: code, Reason: reason})
	})
}
