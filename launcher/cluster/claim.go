package cluster

import (
	"cmp"
	"fmt"
	"net/netip"
	"slices"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/strategy"
)

// A claim is the nodes of a launch as one source gives them. Weaker sources give what it omits.
type claim struct {
	by     string // the source of nodes
	nodes  int    // 0: not given
	rank   int
	ranked string // the source of rank; empty: not given
	// otherwise is the rank where no source gives one, or not given either.
	otherwise commandline.NodeValue
	head      commandline.NodeValue // parsed where other nodes have to reach it
}

// claims are those of the user and of operators, the strongest first: flags, GPURUN_*, torchrun's
// PET_*, and RANK with WORLD_SIZE, by which PyTorchJob and Volcano number nodes.
func (v variables) claims(flags commandline.Nodes) ([]claim, error) {
	sources := []commandline.Nodes{flags, {Count: v.given("GPURUN_NNODES"), Rank: v.given("GPURUN_NODE_RANK"),
		Head: v.given("GPURUN_HEAD")}, v.torchrun()}
	if v["RANK"] != "" && v["WORLD_SIZE"] != "" {
		sources = append(sources, commandline.Nodes{Count: v.given("WORLD_SIZE"), Rank: v.given("RANK"),
			Head: v.given("MASTER_ADDR")})
	}
	var all []claim
	for _, s := range sources {
		c, err := claimOf(s)
		switch {
		case err == nil:
			all = append(all, c)
		case !slices.ContainsFunc(all, claim.counts): // no stronger source counts the nodes
			return nil, err
		}
	}
	return all, nil
}

func (c claim) counts() bool { return c.nodes > 0 }

func (v variables) given(name string) commandline.NodeValue {
	return commandline.NodeValue{Value: v[name], By: name}
}

// torchrun reads torchrun's own variables as torchrun does; older versions of PyTorchJob set
// MASTER_ADDR only.
func (v variables) torchrun() commandline.Nodes {
	n := commandline.Nodes{Count: v.given("PET_NNODES"), Rank: v.given("PET_NODE_RANK")}
	if backend := v["PET_RDZV_BACKEND"]; backend == "" || backend == "static" {
		n.Default = commandline.NodeValue{Value: "0", By: "PET_NODE_RANK"}
	}
	for _, name := range []string{"MASTER_ADDR", "PET_MASTER_ADDR", "PET_RDZV_ENDPOINT"} {
		if v[name] != "" && v["PET_NNODES"] != "" {
			n.Head = v.given(name)
		}
	}
	return n
}

func claimOf(n commandline.Nodes) (c claim, err error) {
	c = claim{by: n.Count.By, otherwise: n.Default, head: n.Head}
	if c.nodes, err = count(n.Count); err != nil {
		return c, err
	}
	if n.Rank.Value != "" {
		c.ranked = n.Rank.By
		c.rank, err = whole(n.Rank)
	}
	return c, err
}

// whole parses a whole number from 0.
func whole(s commandline.NodeValue) (int, error) {
	n, err := strconv.Atoi(s.Value)
	if err != nil || n < 0 {
		return 0, errext.Errorf("unset it, or set it to what the launch has", "%s=%q is not a whole number", s.By, s.Value)
	}
	return n, nil
}

// count parses a number of nodes, 0 where it is not given. torchrun writes 2 as "2:2", too.
func count(s commandline.NodeValue) (int, error) {
	if s.Value == "" {
		return 0, nil
	}
	least, most, elastic := strings.Cut(s.Value, ":")
	if elastic && least != most {
		return 0, errext.Errorf("give the number of nodes that the launch has",
			"%s=%s: gpurun wants a fixed number of nodes, since a plan is made for a number of ranks", s.By, s.Value)
	}
	n, err := whole(commandline.NodeValue{Value: least, By: s.By})
	if err == nil && n > maxHosts {
		err = errext.Errorf("unset it, or set it to what the launch has", "%s=%s: gpurun runs on %d nodes at most", s.By,
			s.Value, maxHosts)
	}
	return max(n, 1), err
}

// endpoint parses "host", "host:port", "[address]:port", or a plain IPv6 address. Port 0 is none.
func endpoint(s commandline.NodeValue) (host string, port int, err error) {
	host, digits := s.Value, "0"
	if inner, rest, bracketed := strings.Cut(strings.TrimPrefix(host, "["), "]"); bracketed && host[0] == '[' {
		host = inner
		if rest != "" {
			digits = strings.TrimPrefix(rest, ":")
		}
	} else if strings.Count(host, ":") == 1 {
		host, digits, _ = strings.Cut(host, ":")
	}
	if port, err = strconv.Atoi(digits); err != nil || port < 0 || port > 65535 {
		return "", 0, errext.Errorf("write host:port, the port from 1 to 65535", "%s=%q: %q is not a port", s.By, s.Value,
			digits)
	}
	if !validHost(host) {
		return "", 0, errext.Errorf("write the host name or the address of the first node", "%s=%q names no host", s.By,
			s.Value)
	}
	return host, port, nil
}

// validHost reports whether a name could be a host's, or is an address.
func validHost(name string) bool {
	if strings.Contains(name, ":") {
		_, err := netip.ParseAddr(name)
		return err == nil
	}
	return name != "" && len(name) <= maxName && name[0] != '-' && !strings.ContainsFunc(name, func(r rune) bool {
		letter := r >= 'a' && r <= 'z' || r >= 'A' && r <= 'Z' || r >= '0' && r <= '9'
		return !letter && !strings.ContainsRune("-._", r)
	})
}

// contradicts refuses a number of nodes that is not the scheduler's. One gpurun a step is a way to
// start several.
func (c claim) contradicts(found Placement) error {
	if found.byHand() || found.Nodes <= 1 || found.Nodes == c.nodes {
		return nil
	}
	who := string(found.Kind)
	if found.Slurm() {
		who = "Slurm step " + jobStep(found)
	}
	return errext.Errorf(fmt.Sprintf("omit %s: gpurun takes the nodes that there are; or start it on as many as it sets",
		c.by),
		"%s sets %s, but %s has %d", c.by, strategy.Count(c.nodes, "node"), who, found.Nodes)
}

// byHand reports whether a script or a user started gpurun once, in a job that has several nodes.
func (p Placement) byHand() bool { return p.Kind == SlurmBatch || p.Kind == SlurmLogin }

// claim is the scheduler's. A batch script is no node of a launch.
func (p Placement) claim() claim {
	c := claim{nodes: p.Nodes, rank: p.NodeRank, head: commandline.NodeValue{Value: p.Head, By: string(p.Kind)}}
	if !p.byHand() || p.Nodes == 1 {
		c.ranked = string(p.Kind)
	}
	return c
}

// podClaim returns the claim from the variables of a pod when another source counts the nodes: its index, the
// first pod of its JobSet by the variables that manifests conventionally take from annotations, and the
// address that torch.distributed itself would use.
func (v variables) podClaim() (c claim, err error) {
	if v["JOB_COMPLETION_INDEX"] != "" {
		c.ranked = "JOB_COMPLETION_INDEX"
		c.rank, err = whole(v.given(c.ranked))
	}
	set, job := v["JOBSET_NAME"], v["REPLICATED_JOB_NAME"]
	c.head = commandline.NodeValue{Value: set + "-" + job + "-0-0." + set, By: "JOBSET_NAME"}
	if set == "" || job == "" {
		c.head = v.given("MASTER_ADDR")
	}
	return c, err
}

// settle combines the claims with the scheduler's placement. The first claim that counts the nodes
// is right; the rest comes from the claims that count as many nodes, or none.
func (v variables) settle(claims []claim, found Placement, how string) (Placement, error) {
	p := found
	if i := slices.IndexFunc(claims, claim.counts); i >= 0 {
		if err := claims[i].contradicts(found); err != nil {
			return Placement{}, err
		}
		p.Nodes, p.By = claims[i].nodes, claims[i].by
	}
	claims = append(claims, found.claim())
	if p.Nodes > 1 {
		pod, err := v.podClaim()
		if err != nil {
			return Placement{}, err
		}
		claims = append(claims, pod)
	}
	claims = slices.DeleteFunc(claims, func(c claim) bool { return c.counts() && c.nodes != p.Nodes })
	rank, by, err := rankOf(claims, p)
	if found.Kind == SlurmStep && found.Nodes == p.Nodes && p.By != "" && by != "" && rank != found.NodeRank {
		p.Warnings = append(p.Warnings,
			fmt.Sprintf("%s gives this node the number %d, and Slurm %d, which is used: a variable such as $SLURM_NODEID that the batch script itself expands is the same on all nodes",
				by, rank, found.NodeRank))
		claims, rank = []claim{found.claim()}, found.NodeRank
	}
	ranked := by != ""
	if p.By == "" && p.Nodes > 1 { // a rank without a number of nodes belongs to no launch
		rank, ranked, err = found.NodeRank, !found.byHand(), nil
	}
	alone := p.Nodes == 1 && (found.Nodes > 1 || found.Kind == SlurmLogin)
	switch {
	case err != nil:
		return Placement{}, err
	case found.byHand() && (alone || !ranked):
		return found, nil // which Refuse reports
	case !ranked:
		return Placement{}, unnumbered(p, how)
	}
	p.NodeRank = rank
	return p.reached(claims)
}

// rankOf returns this node's number and its source; the source is empty where no claim gives a number.
func rankOf(claims []claim, p Placement) (rank int, by string, err error) {
	if i := slices.IndexFunc(claims, func(c claim) bool { return c.ranked != "" }); i >= 0 {
		rank, by = claims[i].rank, claims[i].ranked
	} else if i := slices.IndexFunc(claims, func(c claim) bool {
		return c.counts() && c.otherwise.Value != ""
	}); i >= 0 && !p.byHand() {
		by = claims[i].otherwise.By
		rank, err = whole(claims[i].otherwise)
	}
	if err == nil && rank >= p.Nodes {
		err = errext.Errorf("nodes are numbered from 0; set their number, too, with --nnodes or GPURUN_NNODES",
			"%s=%d, but the launch has %s", by, rank, strategy.Count(p.Nodes, "node"))
	}
	if err != nil {
		return 0, "", err
	}
	return rank, by, nil
}

// unnumbered refuses a launch in which this node could be any.
func unnumbered(p Placement, how string) error {
	if how == "" {
		how = "number the nodes from 0: --node-rank, or GPURUN_NODE_RANK; or start gpurun once a node by srun --ntasks-per-node=1"
	}
	return errext.Errorf(how, "%s sets %s, and nothing shows which of them this is", p.By, strategy.Count(p.Nodes, "node"))
}

// reached adds the address of node 0 and the evidence.
func (p Placement) reached(claims []claim) (_ Placement, err error) {
	p.Head = ""
	if i := slices.IndexFunc(claims, func(c claim) bool { return c.head.Value != "" }); i >= 0 && p.Nodes > 1 {
		if p.Head, p.HeadPort, err = endpoint(claims[i].head); err != nil {
			return Placement{}, err
		}
	}
	if p.NodeRank > 0 && p.Head == "" {
		hint := "name it by --master-addr, or by GPURUN_HEAD"
		if p.Kind == MPI {
			hint += ": mpirun -x GPURUN_HEAD=HOST …, the first host of its host file"
		}
		return Placement{}, errext.Errorf(hint, "this is node %d of %d, and nothing shows where node 0 is", p.NodeRank,
			p.Nodes)
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

// Refuse returns an error with a hint where gpurun cannot work: several times on one node, each
// running the whole job in the same folders; on only one of a job's nodes; or on a machine outside
// the allocation.
func (p Placement) Refuse() error {
	switch {
	case p.TasksPerNode > 1:
		return p.refuseTasks()
	case p.By != "":
		return nil
	case p.Kind == SlurmLogin:
		return errext.Errorf(p.srun(), "this machine is not part of Slurm job %s", p.Job)
	case p.Kind == SlurmBatch && p.Nodes > 1:
		return errext.Errorf(p.srun(), "Slurm job %s has %d nodes, and gpurun was started on one of them", p.Job, p.Nodes)
	}
	return nil
}

// srun is the hint how to start gpurun on each of a job's nodes.
func (p Placement) srun() string {
	if p.Nodes == 1 {
		return "put `srun -N1 -n1 --ntasks-per-node=1` before gpurun, so that it runs on the job's node"
	}
	return fmt.Sprintf("start one gpurun a node: srun --mpi=pmi2 --nodes=%d --ntasks-per-node=1 gpurun …", p.Nodes)
}

// refuseTasks refuses several gpuruns on a node: one starts all of the node's ranks.
func (p Placement) refuseTasks() error {
	switch p.Kind {
	case SlurmStep:
		return errext.Errorf("use --ntasks-per-node=1: gpurun starts a rank for each GPU by itself",
			"Slurm step %s starts gpurun %d times on a node", jobStep(p), p.TasksPerNode)
	case MPI:
		return errext.Errorf(commandline.Mpirun,
			"mpirun starts gpurun %d times on a node, and gpurun starts a rank for each GPU by itself", p.TasksPerNode)
	}
	return errext.Errorf("start gpurun once, it starts a rank for each GPU by itself",
		"gpurun is started %d times on a node (%s)", p.TasksPerNode, p.Evidence)
}

// gangID names the launch. The first that is set: the user's GPURUN_JOB_ID, the job of a scheduler
// that has all of the nodes, the rendezvous id, and the names that operators give.
func (v variables) gangID(p Placement, rendezvous string) string {
	scheduled := p.Job
	if nodes, _ := jobNodes(v); p.Slurm() && nodes < p.Nodes {
		scheduled = "" // several jobs that make one launch share no job's name
	}
	return cmp.Or(v["GPURUN_JOB_ID"], scheduled, chosenID(rendezvous), chosenID(v["PET_RDZV_ID"]), v.operatorID(p))
}

// chosenID is a rendezvous id that a user chose: "none" is torchrun's word for no id.
func chosenID(id string) string {
	if id == "none" {
		return ""
	}
	return id
}

// operatorID is the name that Kubernetes' operators give: the JobSet's, by the variables that its
// manifests conventionally take from annotations, or that of the first pod, which contains the
// name of the TrainJob or PyTorchJob.
func (v variables) operatorID(p Placement) string {
	switch {
	case p.Kind != Kubernetes:
		return ""
	case v["JOBSET_NAME"] != "":
		return cmp.Or(v["JOBSET_UID"], v["JOBSET_NAME"])
	}
	return v["PET_MASTER_ADDR"]
}

// restarts counts how often all nodes were started again. AWS Batch counts attempts, from 1.
func (v variables) restarts() (int, error) {
	for _, name := range []string{"GPURUN_RESTART", "SLURM_RESTART_COUNT", "JOBSET_RESTART_ATTEMPT"} {
		if v[name] != "" {
			return v.count(name, 0)
		}
	}
	attempt, err := v.count("AWS_BATCH_JOB_ATTEMPT", 1)
	return max(attempt-1, 0), err
}
