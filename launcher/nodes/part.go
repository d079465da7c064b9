package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/nodes/wire"
	"github.com/gpurun/gpurun/strategy"
)

// PartOptions are what this node's part of a launch depends on.
type PartOptions struct {
	At cluster.Placement
	// Name and Digest are the job's, Version gpurun's.
	Name, Digest, Version string
	// Ranks are those of this node.
	Ranks   int
	Environ environ.Vars
	// Folder is where the job's runs are, which all nodes may see; empty where none is known.
	Folder string
	// Note tells people of this node something, nil: nobody.
	Note func(text string)
}

// A Part is this node's part of a launch. Where there is one node it is all of it, and has no
// connections.
type Part struct {
	opts   PartOptions
	launch Launch
	secret string      // a file that the head leaves for the others, empty for none
	links  *wire.Links // of the head
	trust  *wire.Credentials
	dialer *wire.Dialer
	lead   *Lead
	seen   seen
}

// Take opens this node's part: what the nodes know each other by, the head's port, or the
// way to it. It waits for other nodes where that is how they come to know each other.
func Take(ctx context.Context, o PartOptions) (*Part, error) {
	p := &Part{opts: o, launch: Launch{
		Run: cmp.Or(o.At.GangID, o.Name+" in "+o.Folder), Restart: o.At.RestartCount, Version: o.Version, Digest: o.Digest, Nodes: max(o.At.Nodes, 1), Ranks: o.Ranks,
		Once: o.At.Kind == cluster.SlurmStep,
	}}
	if p.launch.Nodes == 1 {
		return p, nil
	}
	if o.Folder != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %d", p.launch.Run, p.launch.Restart))
		p.secret = filepath.Join(o.Folder, ".nodes", hex.EncodeToString(sum[:8])+".secret")
	}
	note := time.AfterFunc(noteAfter, p.noteWait)
	defer note.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, o.At.JoinTimeout(), errJoin)
	defer cancel()
	trust, err := wire.Trust(ctx, wire.Options{
		Run: p.launch.Run, Restart: p.launch.Restart, Node: o.At.NodeRank, Nodes: o.At.Nodes, Environ: o.Environ, Shared: p.secret, Head: o.At.Head, HeadPort: o.At.HeadPort,
	})
	if err != nil {
		return nil, fmt.Errorf("meet the other nodes: %w", err)
	}
	p.trust = trust
	if p.Follows() {
		p.dialer = wire.NewDialer(trust, o.At.Head, o.At.HeadPort)
		return p, nil
	}
	if p.links, err = wire.Listen(ctx, trust, o.At.HeadPort); err != nil {
		return nil, fmt.Errorf("meet the other nodes: %w", err)
	}
	if at := p.rival(ctx); at != "" { // before the run directory, which the other one holds
		return nil, errors.Join(rivalError(at), p.links.Close())
	}
	return p, nil
}

// noteWait tells people for whom this node waits before the nodes know each other.
func (p *Part) noteWait() {
	others := fmt.Sprintf("the other %d nodes", p.launch.Nodes-1)
	if p.Follows() {
		others = "node 0 on " + p.opts.At.Head
	}
	if p.opts.Note != nil {
		p.opts.Note(fmt.Sprintf("waiting for %s, for %s at most: %s", others, p.opts.At.JoinTimeout(), p.opts.At.WhyMissing()))
	}
}

// Decline tells the other nodes of a launch why this one cannot take part, so that they do not
// wait for it. It does so in a step of Slurm only, which starts all nodes at once.
func Decline(ctx context.Context, o PartOptions, why error) {
	if o.At.Kind != cluster.SlurmStep || o.At.Nodes == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, declineBound)
	defer cancel()
	p, err := Take(ctx, o)
	switch {
	case err != nil: // they do not hear of it
	case p.Follows():
		unable := NotReady{Why: why.Error(), Code: errext.Code(why, strategy.CodeUsage)}
		p.follow(ctx, FollowOptions{Hello: Hello{Unable: &unable}})
	default:
		p.End(launcher.Verdict{}, why)
	}
}

// declineBound is how long a node that cannot take part looks for the others.
const declineBound = 10 * time.Second

// Follows reports whether another node's gpurun decides.
func (p *Part) Follows() bool { return p.launch.Nodes > 1 && p.opts.At.NodeRank > 0 }

// Follow does as the head says until the launch is over. An error says why this node left
// before; the run's own end is none, but its code.
func (p *Part) Follow(ctx context.Context, grace time.Duration, begin func(w Welcome, note func(string)) (Here, error)) (code int, err error) {
	end := p.follow(ctx, FollowOptions{Begin: begin, Grace: grace, Seen: &p.seen, Waits: func(why string) {
		if p.opts.Note != nil {
			p.opts.Note(fmt.Sprintf("waiting for node 0 on %s, for %s at most: %s", p.opts.At.Head, p.opts.At.JoinTimeout(), why))
		}
	}})
	if end.Told {
		return end.Code, nil
	}
	return end.Code, errext.WithCode(errext.Errorf("gpurun verdict RUNDIR says how the run ended, and so does what node 0 printed", "%s: %s", strategy.NodeName(p.opts.At.NodeRank, p.host()), end.Reason), end.Code)
}

// follow is Follow with what this node knows of the launch.
func (p *Part) follow(ctx context.Context, o FollowOptions) End {
	o.Hello = Hello{
		Launch: p.launch, Node: p.opts.At.NodeRank, Inc: rand.Text(), Host: p.host(), Unable: o.Hello.Unable,
	}
	o.Patience = Patience{Join: p.opts.At.JoinTimeout(), Replaces: p.opts.At.Replaces()}
	o.Dial = p.dialer.Dial
	return Follow(ctx, o)
}

// host is this node's name.
func (p *Part) host() string {
	host, _ := os.Hostname()
	return cmp.Or(p.opts.At.Node, host)
}

// Lead makes the launcher of one node that of all.
func (p *Part) Lead(l *launcher.Launcher, run Run) {
	o := LeadOptions{
		Run: run, Launch: p.launch, Local: l.Starter, Seen: &p.seen,
		Join: p.opts.At.JoinTimeout(), Hosts: p.opts.At.Hosts, Check: p.opts.At.WhyMissing(),
	}
	if p.links != nil {
		o.Links, o.Mistakes, o.Way, o.Rival = p.links, p.trust.Mistakes(), p.trust.Way, p.rival
	}
	p.lead = NewLead(o)
	l.Starter, l.World = p.lead, p.lead.World(l.World)
}

// rival is where another gpurun says that it is node 0 of this launch; empty for none. Where
// the engine replaces nodes, the old one may be there for a while.
func (p *Part) rival(ctx context.Context) string {
	if p.opts.At.Replaces() {
		return ""
	}
	return wire.Rival(ctx, p.trust, cmp.Or(p.opts.At.Head, "127.0.0.1"), p.opts.At.HeadPort)
}

// Notice passes a notice on to the ranks of all other nodes that listen for it.
func (p *Part) Notice(signal syscall.Signal) { p.lead.Notice(signal) }

// End tells all nodes how the run ended, whether it was led or never came to that, and
// closes the connections.
func (p *Part) End(v launcher.Verdict, err error) {
	if p.lead == nil && p.links == nil { // one node, which started nothing
		return
	}
	code, reason := v.Code, v.Reason
	if err != nil {
		code, reason = errext.Code(err, strategy.CodeUsage), err.Error()
	}
	if p.lead == nil {
		p.Lead(&launcher.Launcher{}, Run{})
	}
	p.lead.Finish(code, reason)
	_ = p.lead.Close()
	_ = os.Remove(p.secret) // where there is one
}
