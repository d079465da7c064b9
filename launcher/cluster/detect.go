package cluster

import (
	"cmp"
	"fmt"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// Detect says where a process with this environment runs. It only reads; whether
// gpurun can work there is Refuse's answer. An error means variables that cannot
// be read as what they are.
//
// The order: what the user says about nodes (GPURUN_NNODES, then torchrun's
// variables), Slurm, MPI, clouds, Kubernetes, a plain host. A launch that would
// start several gpuruns side by side goes before the user's word that there is
// only one node, because each of them has been told so.
func Detect(env []string) (Place, error) {
	vars := readVars(env)
	said, err := fromUser(vars)
	if err != nil {
		return Place{}, err
	}
	found, err := fromSurroundings(vars)
	if err != nil {
		return Place{}, err
	}
	if said.Kind == "" || found.TasksPerNode > 1 || said.Nodes == 1 && found.Nodes > 1 {
		return found, nil
	}
	// The scheduler's identity of the job remains, whoever counts the nodes.
	said.Job, said.Element, said.End, said.Step, said.Node = found.Job, found.Element, found.End, found.Step, found.Node
	said.RestartCount, said.Leaked = found.RestartCount, found.Leaked
	if said.Job != "" {
		said.Evidence = fmt.Sprintf("%s job=%s %s", said.Kind, jobStep(said), strings.TrimPrefix(said.Evidence, string(said.Kind)+" "))
	}
	return said, nil
}

// fromSurroundings asks each scheduler's variables in turn.
func fromSurroundings(vars variables) (Place, error) {
	for _, ask := range []func(variables) (Place, error){fromSlurm, fromMPI, fromCloud, fromKubernetes} {
		p, err := ask(vars)
		if err != nil || p.Kind != "" {
			return p, err
		}
	}
	return Place{Kind: Host, Nodes: 1, TasksPerNode: 1, Evidence: "host"}, nil
}

// variables are an environment by name, the last value of each, as os/exec
// would hand it on.
type variables map[string]string

func readVars(env []string) variables {
	vars := variables{}
	for _, entry := range env {
		if name, value, ok := strings.Cut(entry, "="); ok {
			vars[name] = value
		}
	}
	return vars
}

// count reads a whole number from 0; a variable that is unset or empty is fallback.
func (v variables) count(name string, fallback int) (int, error) {
	if v[name] == "" {
		return fallback, nil
	}
	n, err := strconv.Atoi(v[name])
	if err != nil || n < 0 {
		return 0, errext.Errorf("unset it, or set it to what the launch has",
			"%s=%q is no whole number", name, v[name])
	}
	return n, nil
}

// fromUser reads what the user, or an operator that follows torchrun, says
// about nodes.
func fromUser(vars variables) (Place, error) {
	switch {
	case vars["GPURUN_NNODES"] != "":
		return nodesFrom(vars, Torchrun, "GPURUN_NNODES", "GPURUN_NODE_RANK")
	case vars["PET_NNODES"] != "":
		// An elastic range, "2:4": the launch may grow to its upper end.
		_, upper, elastic := strings.Cut(vars["PET_NNODES"], ":")
		if elastic {
			vars = variables{"PET_NNODES": upper, "PET_NODE_RANK": vars["PET_NODE_RANK"]}
		}
		return nodesFrom(vars, Torchrun, "PET_NNODES", "PET_NODE_RANK")
	case vars["WORLD_SIZE"] != "" && vars["RANK"] != "":
		return fromRank(vars)
	}
	return Place{}, nil
}

// fromRank reads RANK and WORLD_SIZE. Operators (PyTorchJob, Volcano) number
// nodes with them. With LOCAL_RANK they number processes, and then each process
// of a launch has started a gpurun of its own.
func fromRank(vars variables) (Place, error) {
	p, err := nodesFrom(vars, Torchrun, "WORLD_SIZE", "RANK")
	if err != nil || vars["LOCAL_RANK"] == "" {
		return p, err
	}
	local, err := vars.count("LOCAL_WORLD_SIZE", p.Nodes)
	if err != nil {
		return Place{}, err
	}
	p.TasksPerNode = max(local, 1)
	p.Nodes = max(p.Nodes/p.TasksPerNode, 1)
	p.NodeRank /= p.TasksPerNode
	p.Evidence = fmt.Sprintf("%s process %s/%s via LOCAL_RANK", Torchrun, vars["RANK"], vars["WORLD_SIZE"])
	return p, nil
}

// nodesFrom makes a place of two variables that hold a number of nodes and this
// node's number.
func nodesFrom(vars variables, kind Kind, nodes, rank string) (Place, error) {
	n, err := vars.count(nodes, 1)
	if err != nil {
		return Place{}, err
	}
	k, err := vars.count(rank, 0)
	if err != nil {
		return Place{}, err
	}
	n = max(n, 1)
	if k >= n {
		return Place{}, errext.Errorf("nodes are numbered from 0",
			"%s=%s but %s=%s", rank, vars[rank], nodes, cmp.Or(vars[nodes], "1"))
	}
	return Place{
		Kind: kind, Nodes: n, NodeRank: k, TasksPerNode: 1,
		Evidence: fmt.Sprintf("%s node %d/%d via %s", kind, k+1, n, nodes),
	}, nil
}

// fromMPI reads what mpirun tells its processes.
func fromMPI(vars variables) (Place, error) {
	for _, names := range [][2]string{
		{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE"},
		{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE"},
		{"PMI_SIZE", "MPI_LOCALNRANKS"},
	} {
		if vars[names[0]] == "" {
			continue
		}
		size, err := vars.count(names[0], 1)
		if err != nil {
			return Place{}, err
		}
		local, err := vars.count(names[1], size)
		if err != nil {
			return Place{}, err
		}
		local = max(local, 1)
		return Place{
			Kind: MPI, Nodes: max(size/local, 1), TasksPerNode: local,
			Evidence: fmt.Sprintf("%s %d processes via %s", MPI, size, names[0]),
		}, nil
	}
	return Place{}, nil
}

// clouds are the services that number nodes in variables of their own.
var clouds = []struct{ nodes, rank, job string }{
	{"SKYPILOT_NUM_NODES", "SKYPILOT_NODE_RANK", "SKYPILOT_TASK_ID"},
	{"DSTACK_NODES_NUM", "DSTACK_NODE_RANK", "DSTACK_RUN_ID"},
	{"AWS_BATCH_JOB_NUM_NODES", "AWS_BATCH_JOB_NODE_INDEX", "AWS_BATCH_JOB_ID"},
}

func fromCloud(vars variables) (Place, error) {
	for _, c := range clouds {
		if vars[c.nodes] != "" {
			p, err := nodesFrom(vars, Cloud, c.nodes, c.rank)
			p.Job = vars[c.job]
			return p, err
		}
	}
	return Place{}, nil
}

// fromKubernetes recognises a pod. Nothing in it tells how many pods there are;
// operators say so through torchrun's variables.
func fromKubernetes(vars variables) (Place, error) {
	if vars["KUBERNETES_SERVICE_HOST"] == "" {
		return Place{}, nil
	}
	evidence := fmt.Sprintf("%s node 1/1 via KUBERNETES_SERVICE_HOST", Kubernetes)
	if index := vars["JOB_COMPLETION_INDEX"]; index != "" {
		evidence += ", index " + index + " of its job"
	}
	return Place{Kind: Kubernetes, Nodes: 1, TasksPerNode: 1, Evidence: evidence}, nil
}
