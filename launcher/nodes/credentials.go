// These files transport the messages between the nodes of a launch, over one connection per node with
// mutual TLS, and manage the nodes' credentials.
//
//	credentials.go  the sources of credentials, the first that applies
//	secret.go       a secret that all nodes have
//	folder.go       a secret in a folder that all nodes see
//	pmi.go          certificates that Slurm distributes
//	certificate.go  the certificates
//	listen.go       the head's side
//	dial.go         a follower's
//	link.go         a connection, on either side
//
// From a stranger, only the TLS handshake is read, bounded in size, time and number. A node that has the
// credentials is trusted: any process that can read the secret can be a node. Its messages are bounded in size.

package nodes

import (
	"context"
	"crypto/ed25519"
	"crypto/rand"
	"crypto/sha256"
	"crypto/tls"
	"crypto/x509"
	"fmt"
	"os"
	"slices"
	"strings"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
)

// TrustOptions are the inputs for a node's credentials.
type TrustOptions struct {
	// Run is the unique name of the launch, and Restart counts its restarts. Both are the same on all nodes.
	Run     string
	Restart int
	// Node is this node's number, of Nodes in total; 0 is the head.
	Node, Nodes int
	// Environ is gpurun's own environment.
	Environ commandline.Environ
	// Shared is the path of a file for a secret, in a folder that all nodes may see; empty for none. The head
	// writes the secret, or uses that of an earlier start of the same launch.
	Shared string
}

// Credentials identify a node to others, and others to the node.
type Credentials struct {
	// Way describes the source of the credentials to the user.
	Way string

	node, nodes int
	ports       []int
	hosts       []string // addresses of the head's machine, if known
	own         tls.Certificate
	trusts      func(*x509.Certificate) bool // the certificate is of a node of the launch
	tag         string                       // of the launch; empty if Slurm distributes the certificates
}

// Trust makes credentials from the first source that applies: a secret in the environment, Slurm's exchange
// between tasks, a shared folder. It waits for the other nodes if the source needs them, until ctx is done.
// Afterwards gpurun's memory and environment are closed to other processes, and the variables with
// credentials are removed.
//
// An error without an exit code is a mistake of the user.
func Trust(ctx context.Context, o TrustOptions) (*Credentials, error) {
	if o.Node < 0 || o.Node >= o.Nodes {
		return nil, fmt.Errorf("node %d of %d nodes", o.Node, o.Nodes)
	}
	if err := hide(); err != nil {
		return nil, err
	}
	p := openPMI(o.Environ)
	defer p.close()
	c := &Credentials{node: o.Node, nodes: o.Nodes, ports: candidates(o.Run, o.Restart)}
	for _, way := range []way{c.bySecret, c.bySlurm, c.byFolder} {
		if applies, err := way(ctx, o, p); err != nil {
			return nil, err
		} else if applies {
			return c, nil
		}
	}
	return nil, nothing(o.Nodes, p != nil && p.spent)
}

// nothing returns the error if no source applies.
func nothing(nodes int, spent bool) error {
	const what = "the %d nodes of this launch have no credential to authenticate each other"
	if spent {
		return errext.Errorf("start each gpurun with a separate srun",
			what+": Slurm carries one exchange a task, and there was one before", nodes)
	}
	return errext.Errorf("on one of them `(umask 077; gpurun secret > FILE)`, then GPURUN_SECRET_FILE=FILE on all of "+
		"them, each with a copy; under Slurm `srun --mpi=pmi2 gpurun …` does without", what, nodes)
}

// codeRetry is the exit code where a later try may help.
const codeRetry = 75

// A way makes credentials from one source, if it applies.
type way func(context.Context, TrustOptions, *pmi) (applies bool, err error)

// bySecret uses a secret in the environment.
func (c *Credentials) bySecret(_ context.Context, o TrustOptions, _ *pmi) (bool, error) {
	secret, name, err := givenSecret(o.Environ)
	if err != nil || secret == nil {
		return false, err
	}
	c.Way = "the secret of " + name
	return true, c.derive(secret, o.Run)
}

// byFolder uses a secret that node 0 writes for the others.
func (c *Credentials) byFolder(ctx context.Context, o TrustOptions, _ *pmi) (bool, error) {
	if o.Shared == "" {
		return false, nil
	}
	var secret []byte
	var err error
	if o.Node == 0 {
		secret, err = leaveSecret(o.Shared)
	} else {
		secret, err = awaitSecret(ctx, o.Shared)
	}
	if err != nil || secret == nil {
		return false, err
	}
	c.Way = "the secret in " + o.Shared
	return true, c.derive(secret, o.Run)
}

// bySlurm uses certificates that Slurm distributes.
func (c *Credentials) bySlurm(ctx context.Context, o TrustOptions, p *pmi) (bool, error) {
	if p == nil || p.size != o.Nodes {
		return false, nil
	}
	if err := p.begin(ctx); ctx.Err() != nil {
		return false, context.Cause(ctx)
	} else if err != nil {
		p.spent = true
		return false, nil
	}
	_, key, err := ed25519.GenerateKey(rand.Reader)
	if err != nil {
		return false, fmt.Errorf("make this node's key: %w", err)
	}
	if c.own, err = certificate(c.node, key, ""); err != nil {
		return false, err
	}
	cards, err := p.exchange(ctx, o.Node, newCard(c.own))
	if err != nil {
		err = fmt.Errorf("exchange certificates with the other nodes through Slurm: %w", err)
		return false, errext.WithCode(err, codeRetry)
	}
	c.Way, c.hosts = "the certificates that Slurm distributed", cards[0].Addrs
	c.trusts = func(cert *x509.Certificate) bool {
		print := sha256.Sum256(cert.Raw)
		return slices.ContainsFunc(cards, func(c card) bool { return c.Fingerprint == print })
	}
	return true, nil
}

// derive makes credentials from a secret, and overwrites it.
func (c *Credentials) derive(secret []byte, run string) error {
	defer clear(secret)
	key, err := launchKey(secret, run)
	if err != nil {
		return err
	}
	c.trusts = func(cert *x509.Certificate) bool { return key.Public().(ed25519.PublicKey).Equal(cert.PublicKey) }
	c.tag = tagOf(run)
	c.own, err = certificate(c.node, key, c.tag)
	return err
}

// hide closes gpurun's memory and its first environment, as in /proc, to other processes of the same user, and
// removes the nodes' credentials from the environment. Ranks and other programs that gpurun runs do not inherit
// them.
func hide() error {
	for _, entry := range os.Environ() {
		variable, _, _ := strings.Cut(entry, "=")
		secret := variable == secretVariable || variable == secretFileVariable
		if !secret && !strings.HasPrefix(variable, "PMI_") && !strings.HasPrefix(variable, "PMI2_") {
			continue
		}
		if err := os.Unsetenv(variable); err != nil {
			return fmt.Errorf("take %s out of gpurun's environment: %w", variable, err)
		}
	}
	if err := unix.Prctl(unix.PR_SET_DUMPABLE, 0, 0, 0, 0); err != nil {
		return fmt.Errorf("close gpurun's memory to other processes: %w", err)
	}
	return nil
}
