package nodes

import (
	"cmp"
	"context"
	"crypto/rand"
	"crypto/sha256"
	"encoding/hex"
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

// -
type PartOptions struct {
	At cluster.Placement
	// Name and Digest are the job's, Version gpurun's.
	Name, Digest, Version string
	// Ranks is the number of ranks on this node.
	Ranks   int
	Environ environ.Vars
	// Folder is the folder of the job's runs, which all nodes may share; empty if not known.
	Folder string
	// Note shows the user of this node a text; nil: texts are dropped.
	Note func(text string)
}

// A Part is this node's part of a launch. On a single node it is the whole launch, without connections.
type Part struct {
	opts   PartOptions
	terms  Terms
	secret string      // file with the secret that the head leaves for the others, empty for none
	links  *wire.Links // of the head
	trust  *wire.Credentials
	dialer *wire.Dialer
	lead   *Lead
	seen   seen
}

// Take opens this node's part: the credentials, and the head's port or the connection to it. It waits for
// other nodes if they exchange credentials.
func Take(ctx context.Context, o PartOptions) (*Part, error) {
	if o.Note == nil {
		o.Note = func(string) {}
	}
	p := &Part{opts: o, terms: Terms{
		Run: cmp.Or(o.At.GangID, o.Name+" in "+o.Folder), Restart: o.At.RestartCount, Version: o.Version, Digest: o.Digest, Nodes: max(o.At.Nodes, 1), Ranks: o.Ranks,
		Once: o.At.Kind == cluster.SlurmStep,
	}}
	if p.terms.Nodes == 1 {
		return p, nil
	}
	if o.Folder != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %d", p.terms.Run, p.terms.Restart))
		p.secret = filepath.Join(o.Folder, ".nodes", hex.EncodeToString(sum[:8])+".secret")
	}
	note := time.AfterFunc(noteAfter, func() {
		others := fmt.Sprintf("the other %d nodes", p.terms.Nodes-1)
		if p.Follows() {
			others = "node 0 on " + o.At.Head
		}
		p.noteWait(others, o.At.WhyMissing())
	})
	defer note.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, o.At.JoinTimeout(), errJoin)
	defer cancel()
	trust, err := wire.Trust(ctx, wire.TrustOptions{
		Run: p.terms.Run, Restart: p.terms.Restart, Node: o.At.NodeRank, Nodes: o.At.Nodes, Environ: o.Environ,
		Shared: p.secret,
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
	return p, nil
}

func (p *Part) noteWait(others, why string) {
	p.opts.Note(fmt.Sprintf("waiting for %s, for %s at most: %s", others, p.opts.At.JoinTimeout(), why))
}

// Decline reports to the other nodes of a launch why this one cannot take part, so that they do
// not wait for it. It does so only in a step of Slurm, which starts all nodes at once.
func Decline(ctx context.Context, o PartOptions, why error) {
	if o.At.Kind != cluster.SlurmStep || o.At.Nodes == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, declineBound)
	defer cancel()
	p, err := Take(ctx, o)
	switch {
	case err != nil: // the other nodes time out
	case p.Follows():
		unable := NotReady{Why: why.Error(), Code: errext.Code(why, strategy.CodeUsage)}
		p.follow(ctx, FollowOptions{Hello: Hello{Unable: &unable}})
	default:
		p.End(launcher.Verdict{}, why)
	}
}

// declineBound is how long a node that cannot take part looks for the others.
const declineBound = 10 * time.Second

// Follows reports whether this node is a follower.
func (p *Part) Follows() bool { return p.terms.Nodes > 1 && p.opts.At.NodeRank > 0 }

// Follow follows the head until the launch is over, and returns the run's exit code. An error says why this
// node left early.
func (p *Part) Follow(ctx context.Context, grace time.Duration, begin func(w Welcome, note func(string)) (Here, error)) (code int, err error) {
	end := p.follow(ctx, FollowOptions{Begin: begin, Grace: grace, Seen: &p.seen, Waits: func(why string) {
		p.noteWait("node 0 on "+p.opts.At.Head, why)
	}})
	if end.Told {
		return end.Code, nil
	}
	return end.Code, errext.WithCode(errext.Errorf("gpurun verdict RUNDIR shows how the run ended, and so does the output of node 0", "%s: %s", strategy.NodeName(p.opts.At.NodeRank, p.host()), end.Reason), end.Code)
}

func (p *Part) follow(ctx context.Context, o FollowOptions) End {
	o.Hello = Hello{
		Terms: p.terms, Node: p.opts.At.NodeRank, Inc: rand.Text(), Host: p.host(), Unable: o.Hello.Unable,
	}
	o.Join, o.Replaces, o.Dial = p.opts.At.JoinTimeout(), p.opts.At.Replaces(), p.dialer.Dial
	return Follow(ctx, o)
}

func (p *Part) host() string {
	host, _ := os.Hostname()
	return cmp.Or(p.opts.At.Node, host)
}

// Lead makes the launcher of this node the launcher of all nodes.
func (p *Part) Lead(l *launcher.Launcher, run RunInfo) {
	o := LeadOptions{
		RunInfo: run, Terms: p.terms, Local: l.Starter, Seen: &p.seen,
		Join: p.opts.At.JoinTimeout(), Hosts: p.opts.At.Hosts, Check: p.opts.At.WhyMissing(),
	}
	if p.links != nil {
		o.Links, o.Mistrusted, o.Way = p.links, p.trust.Mistrusted(), p.trust.Way
	}
	p.lead = NewLead(o)
	l.Starter, l.World = p.lead, p.lead.World(l.World)
}

// Notice passes a notice on to the ranks of all other nodes that have a handler for it.
func (p *Part) Notice(signal syscall.Signal) { p.lead.Notice(signal) }

// End reports the end of the run to all nodes, even if it never began, and closes the connections.
func (p *Part) End(v launcher.Verdict, err error) {
	if p.lead == nil && p.links == nil { // a single node that started nothing
		return
	}
	code, reason := v.Code, v.Reason
	if err != nil {
		code, reason = errext.Code(err, strategy.CodeUsage), err.Error()
	}
	if p.lead == nil {
		p.Lead(&launcher.Launcher{}, RunInfo{})
	}
	p.lead.Finish(code, reason)
	_ = p.lead.Close()
	_ = os.Remove(p.secret) // if there is one
}
