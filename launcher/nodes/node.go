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
	"github.com/gpurun/gpurun/launcher/errext"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// JoinOptions describe this node and its launch.
type JoinOptions struct {
	At cluster.Placement
	// Name and Digest are the job's, Version gpurun's.
	Name, Digest, Version string
	// Ranks is the number of ranks on this node.
	Ranks   int
	Environ commandline.Environ
	// Folder is the folder of the job's runs, which all nodes may share; empty if not known.
	Folder string
	// Note shows the user of this node a text; nil: texts are dropped.
	Note func(text string)
}

// A Node is this node's part of a launch. On a single node it is the whole launch, without connections.
type Node struct {
	opts      JoinOptions
	agreement Agreement
	secret    string // file with the secret that the head leaves for the others, empty for none
	links     *Links // of the head
	trust     *Credentials
	dialer    *Dialer
	head      *Head
	samples   sampleStore
}

// Join opens this node's part: the credentials, and the head's port or the connection to it. It waits for
// other nodes if they exchange credentials.
func Join(ctx context.Context, o JoinOptions) (*Node, error) {
	if o.Note == nil {
		o.Note = func(string) {}
	}
	n := &Node{opts: o, agreement: Agreement{
		Run: cmp.Or(o.At.GangID, o.Name+" in "+o.Folder), Restart: o.At.RestartCount, Version: o.Version, Digest: o.Digest,
		Nodes: max(o.At.Nodes, 1), Ranks: o.Ranks, Once: o.At.Kind == cluster.SlurmStep,
	}}
	if n.agreement.Nodes == 1 {
		return n, nil
	}
	if o.Folder != "" {
		sum := sha256.Sum256(fmt.Appendf(nil, "%q %d", n.agreement.Run, n.agreement.Restart))
		n.secret = filepath.Join(o.Folder, ".nodes", hex.EncodeToString(sum[:8])+".secret")
	}
	note := time.AfterFunc(noteAfter, func() {
		others := fmt.Sprintf("the other %d nodes", n.agreement.Nodes-1)
		if n.Follows() {
			others = "node 0 on " + o.At.Head
		}
		n.noteWait(others, o.At.WhyMissing())
	})
	defer note.Stop()
	ctx, cancel := context.WithTimeoutCause(ctx, o.At.JoinTimeout(), errJoin)
	defer cancel()
	trust, err := Trust(ctx, TrustOptions{
		Run: n.agreement.Run, Restart: n.agreement.Restart, Node: o.At.NodeRank, Nodes: o.At.Nodes, Environ: o.Environ,
		Shared: n.secret,
	})
	if err != nil {
		return nil, fmt.Errorf("meet the other nodes: %w", err)
	}
	n.trust = trust
	if n.Follows() {
		n.dialer = NewDialer(trust, o.At.Head, o.At.HeadPort)
		return n, nil
	}
	if n.links, err = Listen(ctx, trust, o.At.HeadPort); err != nil {
		return nil, fmt.Errorf("meet the other nodes: %w", err)
	}
	return n, nil
}

func (n *Node) noteWait(others, why string) {
	n.opts.Note(fmt.Sprintf("waiting for %s, for %s at most: %s", others, n.opts.At.JoinTimeout(), why))
}

// Decline reports to the other nodes of a launch why this one cannot take part, so that they do
// not wait for it. It does so only in a step of Slurm, which starts all nodes at once.
func Decline(ctx context.Context, o JoinOptions, why error) {
	if o.At.Kind != cluster.SlurmStep || o.At.Nodes == 1 {
		return
	}
	ctx, cancel := context.WithTimeout(ctx, declineBound)
	defer cancel()
	n, err := Join(ctx, o)
	switch {
	case err != nil: // the other nodes time out
	case n.Follows():
		unable := NotReady{Why: why.Error(), Code: errext.Code(why, strategy.CodeUsage)}
		n.follow(ctx, FollowOptions{Hello: Hello{Unable: &unable}})
	default:
		n.End(launcher.Verdict{}, why)
	}
}

// declineBound is how long a node that cannot take part looks for the others.
const declineBound = 10 * time.Second

// Follows reports whether this node is a follower.
func (n *Node) Follows() bool { return n.agreement.Nodes > 1 && n.opts.At.NodeRank > 0 }

// Follow follows the head until the launch is over, and returns the run's exit code. An error says why this
// node left early.
func (n *Node) Follow(
	ctx context.Context, grace time.Duration, begin func(w Welcome, note func(string)) (Resources, error),
) (code int, err error) {
	end := n.follow(ctx, FollowOptions{Begin: begin, Grace: grace, Samples: &n.samples, Waits: func(why string) {
		n.noteWait("node 0 on "+n.opts.At.Head, why)
	}})
	if end.FromHead {
		return end.Code, nil
	}
	err = errext.Errorf("gpurun verdict RUNDIR shows how the run ended, and so does the output of node 0",
		"%s: %s", strategy.NodeName(n.opts.At.NodeRank, n.host()), end.Reason)
	return end.Code, errext.WithCode(err, end.Code)
}

func (n *Node) follow(ctx context.Context, o FollowOptions) End {
	o.Hello = Hello{
		Agreement: n.agreement, Node: n.opts.At.NodeRank, Process: rand.Text(), Host: n.host(), Unable: o.Hello.Unable,
	}
	o.Join, o.Replaces, o.Dial = n.opts.At.JoinTimeout(), n.opts.At.Replaces(), n.dialer.Dial
	return Follow(ctx, o)
}

func (n *Node) host() string {
	host, _ := os.Hostname()
	return cmp.Or(n.opts.At.Node, host)
}

// Head makes the launcher of this node the launcher of all nodes.
func (n *Node) MakeHead(l *launcher.Launcher, run RunInfo) {
	o := HeadOptions{
		RunInfo: run, Agreement: n.agreement, Local: l.Starter, Samples: &n.samples,
		Join: n.opts.At.JoinTimeout(), Hosts: n.opts.At.Hosts, Check: n.opts.At.WhyMissing(),
	}
	if n.links != nil {
		o.Links, o.Way = n.links, n.trust.Way
	}
	n.head = NewHead(o)
	l.Starter, l.World = n.head, n.head.World(l.World)
}

// Notice passes a notice on to the ranks of all other nodes that have a handler for it.
func (n *Node) Notice(signal syscall.Signal) { n.head.Notice(signal) }

// End reports the end of the run to all nodes, even if it never began, and closes the connections.
func (n *Node) End(v launcher.Verdict, err error) {
	if n.head == nil && n.links == nil { // a single node that started nothing
		return
	}
	code, reason := v.Code, v.Reason
	if err != nil {
		code, reason = errext.Code(err, strategy.CodeUsage), err.Error()
	}
	if n.head == nil {
		n.MakeHead(&launcher.Launcher{}, RunInfo{})
	}
	n.head.Finish(code, reason)
	_ = n.head.Close()
	_ = os.Remove(n.secret) // if there is one
}
