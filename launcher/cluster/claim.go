package cluster

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// Said is a value as it was given, and by what: {"4", "--nnodes"}. An empty value says
// nothing.
type Said struct{ Value, By string }

// Asked is what a command line or a train.toml says of the nodes of a launch. It is
// stronger than variables, which say what it leaves out. The zero value says nothing.
type Asked struct {
	// Nodes counts the nodes, Rank is this one's number from 0, and Default that number
	// where nobody else says it.
	Nodes, Rank, Default Said
	// Head is where node 0 can be reached: host, or host:port.
	Head Said
	// ID is the rendezvous id.
	ID Said
	// How is the hint for a launch of which nobody numbers the nodes; empty for the usual one.
	How string
}

// A claim is what one source says of the nodes. What it leaves out, a weaker one says.
type claim struct {
	by     string // who counts the nodes
	nodes  int    // 0: not said
	rank   int
	ranked string // who says rank; empty: nobody
	// otherwise is what rank is where nobody says it, or not known either.
	otherwise Said
	head      Said // is read where there are others who have to reach it
}

// claims are those of the user and of operators, the strongest first: flags,
// GPURUN_*, torchrun's PET_*, and RANK with WORLD_SIZE, by which PyTorchJob and
// Volcano number nodes.
func (v variables) claims(flags Asked) ([]claim, error) {
	sources := []Asked{flags, {Nodes: v.said("GPURUN_NNODES"), Rank: v.said("GPURUN_NODE_RANK"), Head: v.said("GPURUN_HEAD")}, v.torchrun()}
	if v["RANK"] != "" && v["WORLD_SIZE"] != "" {
		sources = append(sources, Asked{Nodes: v.said("WORLD_SIZE"), Rank: v.said("RANK"), Head: v.said("MASTER_ADDR")})
	}
	var all []claim
	for _, s := range sources {
		c, err := s.claim()
		switch {
		case err == nil:
			all = append(all, c)
		case !slices.ContainsFunc(all, claim.counts): // nobody stronger has said it
			return nil, err
		}
	}
	return all, nil
}

func (c claim) counts() bool { return c.nodes > 0 }

func (v variables) said(name string) Said { return Said{v[name], name} }

// torchrun is what torchrun's own variables say, as it would read them; older versions of
// PyTorchJob say MASTER_ADDR only.
func (v variables) torchrun() Asked {
	a := Asked{Nodes: v.said("PET_NNODES"), Rank: v.said("PET_NODE_RANK")}
	if backend := v["PET_RDZV_BACKEND"]; backend == "" || backend == "static" {
		a.Default = Said{"0", "PET_NODE_RANK"}
	}
	for _, name := range []string{"MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"} {
		if v[name] != "" && v["PET_NNODES"] != "" {
			a.Head = v.said(name)
		}
	}
	return a
}

func (a Asked) claim() (c claim, err error) {
	c = claim{by: a.Nodes.By, otherwise: a.Default, head: a.Head}
	if c.nodes, err = a.Nodes.nodes(); err != nil {
		return c, err
	}
	if a.Rank.Value != "" {
		c.ranked = a.Rank.By
		c.rank, err = a.Rank.whole()
	}
	return c, err
}

// nodes reads a number of nodes, 0 where it is not said. "2:2" is torchrun's word for 2.
func (s Said) nodes() (int, error) {
	if s.Value == "" {
		return 0, nil
	}
	least, most, elastic := strings.Cut(s.Value, ":")
	if elastic && least != most {
		return 0, errext.Errorf("give the number of nodes that the launch has",
			"%s=%s: gpurun wants a fixed number of nodes, since a plan is made for a number of ranks", s.By, s.Value)
	}
	n, err := Said{least, s.By}.whole()
	if err == nil && n > maxHosts {
		err = errext.Errorf("unset it, or set it to what the launch has", "%s=%s: gpurun runs on %d nodes at most", s.By, s.Value, maxHosts)
	}
	return max(n, 1), err
}

// contradicts refuses two numbers of nodes: each gpurun of the launch would believe
// something else than its scheduler does. One gpurun a step is a way to start several.
func (c claim) contradicts(found Place) error {
	if found.byHand() || found.Nodes <= 1 || found.Nodes == c.nodes {
		return nil
	}
	who := string(found.Kind)
	if found.Slurm() {
		who = "Slurm step " + jobStep(found)
	}
	return errext.Errorf(fmt.Sprintf("leave %s out: gpurun takes the nodes that there are; or start it on as many as it says", c.by),
		"%s says %s, but %s has %d", c.by, strategy.Count(c.nodes, "node"), who, found.Nodes)
}

// byHand reports whether gpurun was started once, by a script or at a prompt, in a job
// that has nodes of its own.
func (p Place) byHand() bool { return p.Kind == SlurmBatch || p.Kind == SlurmLogin }

// claim is what the scheduler says. A batch script is no node of a launch.
func (p Place) claim() claim {
	c := claim{nodes: p.Nodes, rank: p.NodeRank, head: Said{p.Head, string(p.Kind)}}
	if !p.byHand() || p.Nodes == 1 {
		c.ranked = string(p.Kind)
	}
	return c
}

// pod is what may be known of a pod whose nodes somebody else counts: its index, the
// first pod of its JobSet by the variables that manifests conventionally take from
// annotations, and the address that torch.distributed itself would use.
func (v variables) pod() (c claim, err error) {
	if v["JOB_COMPLETION_INDEX"] != "" {
		c.ranked = "JOB_COMPLETION_INDEX"
		c.rank, err = v.said(c.ranked).whole()
	}
	set, job := v["JOBSET_NAME"], v["REPLICATED_JOB_NAME"]
	c.head = Said{set + "-" + job + "-0-0." + set, "JOBSET_NAME"}
	if set == "" || job == "" {
		c.head = v.said("MASTER_ADDR")
	}
	return c, err
}

// settle joins what is claimed with what was found: the first who counts the nodes is
// right, and of the others those who speak of as many, or of no number, say the rest.
func (v variables) settle(claims []claim, found Place, how string) (Place, error) {
	p := found
	if i := slices.IndexFunc(claims, claim.counts); i >= 0 {
		if err := claims[i].contradicts(found); err != nil {
			return Place{}, err
		}
		p.Nodes, p.By = claims[i].nodes, claims[i].by
	}
	claims = append(claims, found.claim())
	if p.Nodes > 1 {
		pod, err := v.pod()
		if err != nil {
			return Place{}, err
		}
		claims = append(claims, pod)
	}
	claims = slices.DeleteFunc(claims, func(c claim) bool { return c.counts() && c.nodes != p.Nodes })
	rank, ranked, err := number(claims, p)
	if found.Kind == SlurmStep && found.Nodes == p.Nodes && p.By != "" && ranked && rank != found.NodeRank {
		p.Warnings = append(p.Warnings, fmt.Sprintf("%s says that this is node %d, and Slurm says node %d, which counts: where the batch script itself puts in a variable such as $SLURM_NODEID, it is the same on all nodes",
			numberedBy(claims), rank, found.NodeRank))
		claims, rank = []claim{found.claim()}, found.NodeRank
	}
	if p.By == "" && p.Nodes > 1 { // who counts all nodes numbers them: a rank alone is that of no launch
		rank, ranked, err = found.NodeRank, !found.byHand(), nil
	}
	alone := p.Nodes == 1 && (found.Nodes > 1 || found.Kind == SlurmLogin)
	switch {
	case err != nil:
		return Place{}, err
	case found.byHand() && (alone || !ranked):
		return found, nil // which Refuse knows
	case !ranked:
		return Place{}, unnumbered(p, how)
	}
	p.NodeRank = rank
	return p.reached(claims)
}

// number finds out which node this is; false where nobody says it.
func number(claims []claim, p Place) (rank int, ranked bool, err error) {
	at := slices.IndexFunc(claims, func(c claim) bool { return c.ranked != "" })
	if at < 0 && !p.byHand() {
		at = slices.IndexFunc(claims, func(c claim) bool { return c.counts() && c.otherwise.Value != "" })
		if at >= 0 {
			claims[at].ranked = claims[at].otherwise.By
			claims[at].rank, err = claims[at].otherwise.whole()
		}
	}
	switch {
	case at < 0 || err != nil:
		return 0, false, err
	case claims[at].rank >= p.Nodes:
		return 0, false, errext.Errorf("nodes are numbered from 0; say how many there are, too, by --nnodes or GPURUN_NNODES",
			"%s=%d, but the launch has %s", claims[at].ranked, claims[at].rank, strategy.Count(p.Nodes, "node"))
	}
	return claims[at].rank, true, nil
}

// numberedBy is who numbers this node.
func numberedBy(claims []claim) string {
	for _, c := range claims {
		if c.ranked != "" {
			return c.ranked
		}
	}
	return ""
}

// unnumbered refuses a launch in which this node could be any.
func unnumbered(p Place, how string) error {
	if how == "" {
		how = "number the nodes from 0: --node-rank, or GPURUN_NODE_RANK; or start gpurun once a node by srun --ntasks-per-node=1"
	}
	return errext.Errorf(how, "%s says %s, and nothing says which of them this is", p.By, strategy.Count(p.Nodes, "node"))
}

// reached says where node 0 is, and what says all that.
func (p Place) reached(claims []claim) (_ Place, err error) {
	p.Head = ""
	if i := slices.IndexFunc(claims, func(c claim) bool { return c.head.Value != "" }); i >= 0 && p.Nodes > 1 {
		if p.Head, p.HeadPort, err = claims[i].head.endpoint(); err != nil {
			return Place{}, err
		}
	}
	if p.NodeRank > 0 && p.Head == "" {
		return Place{}, errext.Errorf("name it by --master-addr, or by GPURUN_HEAD", "this is node %d of %d, and nothing says where node 0 is", p.NodeRank, p.Nodes)
	}
	if p.By == "" {
		return p, nil
	}
	if p.Kind == Host {
		p.Kind = Torchrun
	}
	p.Evidence = p.evidence(p.By)
	return p, nil
}
