package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"errors"
	"fmt"
	"maps"
	"net/netip"
	"os"
	"slices"
	"strings"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/nodes/wire"
	"github.com/gpurun/gpurun/model"
	"github.com/gpurun/gpurun/strategy"
)

// A Run is what nodes have to know of it.
type Run struct {
	Dir, Tracked string
	Began        time.Time
	// Port finds the port on which rank 0 serves the rendezvous of an attempt.
	Port func(ctx context.Context, attempt int) (int, error)
	// Note tells people something; nil: nobody.
	Note func(string)
	// Grace is what the head's own ranks get where an attempt cannot be started.
	Grace time.Duration
	// Reach has all nodes try the address of the rendezvous before ranks are started.
	Reach bool
}

// LeadOptions are what the head has to know.
type LeadOptions struct {
	Run
	Launch Launch
	// Links are where followers come in; nil on one node.
	Links links
	// Mistakes are gpuruns that say they are a node of this launch and cannot be one, and Way is
	// what nodes know each other by. Rival is where another gpurun says that it is node 0; empty
	// for nowhere. Each may be nil.
	Mistakes <-chan wire.Mistake
	Way      string
	Rival    func(context.Context) string
	// Local starts the ranks of the head's own node.
	Local launcher.Starter
	// Join is how long nodes may take to come. Hosts are their names by number, where they are
	// known before, and Check is for people: why a node may not come.
	Join  time.Duration
	Hosts []string
	Check string
	// Seen learns what the other nodes' ranks let see of themselves; nil: nobody looks on.
	Seen *seen
}

// links are where followers come in: wire.Links.
type links interface {
	Accept(context.Context) (*wire.Link, error)
	Close() error
}

// A Lead is the head of a launch on one node or many: a launcher.Starter. One goroutine owns
// its state machine.
type Lead struct {
	opts LeadOptions
	*actor

	// What follows belongs to the actor.
	head        *Head
	links       map[int]*wire.Link
	next        int // number of a link
	clocks      map[int]*clock
	inventories map[int]strategy.Inventory
	addrs       map[int]string // of the head, as each follower reaches it
	waits       *wait
	running     *attempt       // nil between attempts
	failed      error          // why the attempt that is being started cannot be
	refusal     error          // why a node that is waited for will not come
	paused      func()         // called when the ranks of all nodes are paused
	gathered    bool           // all nodes were there once
	mistaken    map[int]string // why a node may not have come, by its number
	newer       error          // why this start of the job is over: there is a newer one
}

// A wait is for all nodes to come to a point.
type wait struct {
	point Point
	facts []strategy.Fact // that came with it
	over  chan error
}

// NewLead begins to take followers in. Close ends that.
func NewLead(o LeadOptions) *Lead {
	l := &Lead{
		opts: o, actor: newActor(context.Background()),
		links: map[int]*wire.Link{}, clocks: map[int]*clock{}, addrs: map[int]string{}, inventories: map[int]strategy.Inventory{},
		paused: func() {}, mistaken: map[int]string{},
	}
	if o.Note == nil {
		l.opts.Note = func(string) {}
	}
	l.head = NewHead(l, o.Launch, Welcome{Gen: rand.Text(), Dir: o.Dir, Tracked: o.Tracked, Began: o.Began})
	l.owner.Go(l.loop)
	if o.Links != nil {
		l.owner.Go(l.accept)
	}
	if o.Mistakes != nil {
		l.owner.Go(l.learn)
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

func (l *Lead) several() bool { return l.opts.Launch.Nodes > 1 }

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

// accept takes links in until the Lead is closed.
func (l *Lead) accept() {
	for {
		link, err := l.opts.Links.Accept(l.done)
		if err != nil {
			return
		}
		l.owner.Go(func() { l.serve(link) })
	}
}

// serve hears a link to its end.
func (l *Lead) serve(link *wire.Link) {
	n := 0
	l.own(func() {
		l.next++
		n = l.next
		l.links[n] = link
	})
	for {
		m, err := receive(l.done, link)
		if err != nil {
			break
		}
		l.own(func() {
			l.addrs[link.Peer()] = link.Addr()
			l.head.Hear(l.now(), n, link.Peer(), m)
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

func (l *Lead) silent(node int, d time.Duration) {
	l.opts.Note(fmt.Sprintf("warning: nothing was heard of %s for %s", l.name(node), d.Round(time.Second)))
}

func (l *Lead) allPaused() { l.paused() }

// drop ends a link: its goroutine sees it. What was sent last is given time on the way,
// which nobody here waits for.
func (l *Lead) drop(n int) {
	if link := l.links[n]; link != nil {
		l.owner.Go(func() { _ = link.Close() })
	}
}

func (l *Lead) name(node int) string {
	host := l.head.Host(node)
	if host == "" && len(l.opts.Hosts) == l.opts.Launch.Nodes {
		host = l.opts.Hosts[node]
	}
	return strategy.NodeName(node, host)
}

// heard takes a message that counts.
func (l *Lead) heard(node int, m Message) {
	switch said := m.(type) {
	case Ready:
		if l.waits != nil {
			l.waits.facts = append(l.waits.facts, said.Facts...)
		}
	case NotReady:
		l.unable(node, said)
	case Event:
		c := l.clock(node)
		c.heard(said.At, time.Now())
		if l.running != nil {
			l.running.facts.add(named(c.fact(said.Fact), l.head.Host(node)))
		}
	case Alive:
		c := l.clock(node)
		c.heard(said.At, time.Now())
		if l.running != nil {
			l.running.alive(node, c, said)
			l.opts.Seen.hear(node, l.opts.Launch.Ranks, l.head.Host(node), c, said)
		}
	case Stopped:
		l.inventories[node] = said.Inventory
	case Note:
		l.opts.Note(l.name(node) + ": " + said.Text)
	}
}

// named says of which node's GPU the driver told.
func named(f strategy.Fact, host string) strategy.Fact {
	if f.DriverEvent != nil {
		e := *f.DriverEvent
		e.Node = host
		f.DriverEvent = &e
	}
	return f
}

func (l *Lead) clock(node int) *clock {
	if l.clocks[node] == nil {
		l.clocks[node] = &clock{}
	}
	return l.clocks[node]
}

// unable ends an attempt that a node cannot start.
func (l *Lead) unable(node int, said NotReady) {
	err := errors.New(l.name(node) + ": " + said.Why)
	if l.running != nil { // others run already
		l.running.lose(strategy.Lost{Node: node, Host: l.head.Host(node), Why: "it could not start its ranks: " + said.Why, Code: said.Code})
		return
	}
	if said.Hint != "" {
		err = errext.WithHint(err, said.Hint)
	}
	l.fail(errext.WithCode(err, said.Code))
}

// lost takes that a node takes no part any more.
func (l *Lead) lost(node int, why string, left bool) {
	if l.running != nil {
		l.running.lose(strategy.Lost{Node: node, Host: l.head.Host(node), Why: why, Left: left})
		return
	}
	l.fail(errext.WithCode(fmt.Errorf("%s was lost: %s", l.name(node), why), strategy.CodeRetry))
}

// superseded ends what runs: the engine has started the job again.
func (l *Lead) superseded(by Hello) {
	why := fmt.Sprintf("the job was started again (start %d)", by.Restart)
	if l.running != nil {
		l.running.lose(strategy.Lost{Node: by.Node, Host: l.head.Host(by.Node), Why: why, Left: true})
	}
	l.newer = errext.WithCode(errors.New(why), strategy.CodeRetry)
	l.fail(l.newer)
}

// refused takes that a node which is waited for will not come.
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

// reached takes that all nodes are where they were waited for.
func (l *Lead) reached(p Point) {
	l.gathered = l.gathered || p == AllThere
	if p == AllOver && l.running != nil {
		l.running.facts.close()
		close(l.running.over)
		l.running = nil
	}
	if l.waits != nil && l.waits.point == p {
		l.waits.over <- nil
		l.waits = nil
	}
}

// fail ends what is waited for.
func (l *Lead) fail(err error) {
	l.failed = err
	if l.waits != nil {
		l.waits.over <- err
		l.waits = nil
	}
}

// await orders something and waits for all nodes to come to a point, or for the first that
// does not.
func (l *Lead) await(ctx context.Context, p Point, order func()) ([]strategy.Fact, error) {
	w := &wait{point: p, over: make(chan error, 1)}
	l.own(func() {
		l.waits, l.failed = w, nil
		if l.newer != nil && p != AllLeft { // whenever it was found
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

// noteAfter is after which time people are told that nodes are waited for.
const noteAfter = 3 * time.Second

// errJoin is the cause of a wait for nodes that took too long.
var errJoin = errors.New("nodes are missing")

// addresses are where each node reaches the head: as it came, but not by an address that
// means every machine itself, where another has come by a real one.
func (l *Lead) addresses() func(node int) string {
	var another string
	for _, k := range slices.Sorted(maps.Keys(l.addrs)) {
		if another == "" && !loopback(l.addrs[k]) {
			another = l.addrs[k]
		}
	}
	return func(node int) string {
		if addr := l.addrs[node]; addr != "" && !loopback(addr) {
			return addr
		}
		return cmp.Or(another, l.addrs[node], "127.0.0.1")
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
		l.opts.Note(fmt.Sprintf("waiting for %s of %d, for %s at most: %s", l.missing(), l.opts.Launch.Nodes, l.opts.Join, l.opts.Check))
	})
	defer note.Stop()
	if l.opts.Rival != nil && l.several() {
		l.owner.Go(func() { l.lookForRivals(bounded) })
	}
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
	if why := l.whyMissing(); why != "" {
		return errext.WithCode(errext.Errorf("give all nodes the same secret, or a folder that all of them see",
			"%s of %d did not come within %s: %s", l.missing(), l.opts.Launch.Nodes, l.opts.Join, why), strategy.CodeUsage)
	}
	return errext.WithCode(errext.Errorf("each node starts gpurun with the same command; what the missing ones print says why they did not come",
		"%s of %d did not come within %s", l.missing(), l.opts.Launch.Nodes, l.opts.Join), strategy.CodeRetry)
}

// missing names the nodes that have not come.
func (l *Lead) missing() string {
	var names []string
	l.own(func() {
		for _, k := range l.head.Missing() {
			names = append(names, l.name(k))
		}
	})
	return strings.Join(names, ", ")
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
	launch.Meeting = launcher.Meeting{Nodes: l.opts.Launch.Nodes, World: l.opts.Launch.Nodes * l.opts.Launch.Ranks, Port: port}
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

// prepare has all nodes do what comes before their ranks' start.
func (l *Lead) prepare(ctx context.Context, launch launcher.Launch) ([]strategy.Fact, error) {
	order := Prepare{Launch: launch, Digest: launcher.Digest(launch.Command, launch.Dir)}
	order.Launch.Dir, order.Launch.Command = "", model.Command{} // a command never travels
	if l.opts.Reach && l.several() {
		d := openDoor(ctx, launch.Meeting.Port)
		defer d.shut()
		order.Reach = d != nil
	}
	return l.await(ctx, AllReady, func() { l.head.Prepare(l.now(), order, l.addresses()) })
}

func drain(facts <-chan strategy.Fact) {
	for range facts {
	}
}

// hosts names all nodes.
func (l *Lead) hosts() strategy.Fact {
	own, _ := os.Hostname()
	hosts := []string{own}
	l.own(func() {
		for k := 1; k < l.opts.Launch.Nodes; k++ {
			hosts = append(hosts, l.head.Host(k))
		}
	})
	return strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Nodes: hosts}
}

// clear has all nodes give up what they have prepared.
func (l *Lead) clear() {
	l.own(func() { l.head.Stop(l.now(), Stop{}) })
}

// stopped is the error of a start that somebody's signal cut short.
func stopped(ctx context.Context, err error) error {
	var stop *launcher.Signal
	if cause := context.Cause(ctx); errors.As(cause, &stop) {
		return stop
	}
	return err
}

// Notice passes a notice on to the ranks of all other nodes that listen for it. At TSTP it
// pauses them, until CONT, and at KILL it ends them without any grace.
func (l *Lead) Notice(signal syscall.Signal) {
	switch signal {
	case syscall.SIGTSTP:
		l.pause()
		return
	case syscall.SIGCONT:
		l.resume()
		return
	case syscall.SIGKILL:
		l.own(func() {
			if l.running != nil {
				l.head.Stop(l.now(), Stop{Signal: int(signal)})
			}
		})
		return
	}
	l.own(func() { l.head.Pass(Notice{Signal: int(signal)}) })
}

// Finish tells all nodes how the run ended, and waits until they know, or are not there.
func (l *Lead) Finish(code int, reason string) {
	_, _ = l.await(context.Background(), AllLeft, func() {
		l.head.Finish(l.now(), Final{Code: code, Reason: reason})
	})
}
