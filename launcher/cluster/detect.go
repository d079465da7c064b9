package cluster

import (
	"fmt"
	"strconv"
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// Detect says where a process with this environment runs. It only reads; whether
// gpurun can work there is Refuse's answer. An error means variables that cannot
// be read as what they are, or that contradict each other.
func Detect(env []string) (Place, error) { return Asked{}.Detect(env) }

// Detect says where a process runs that was asked for nodes in words, too. The order:
// flags, the user's variables (GPURUN_NNODES), torchrun's, RANK with WORLD_SIZE, Slurm,
// MPI, clouds, Kubernetes, a plain host. A launch that would start several gpuruns side
// by side goes before the user's word, because each of them has been told so.
func (a Asked) Detect(env []string) (Place, error) {
	vars := readVars(env)
	found, err := fromSurroundings(vars)
	if err != nil {
		return Place{}, err
	}
	if found.RestartCount, err = vars.restarts(); err != nil {
		return Place{}, err
	}
	if found.TasksPerNode > 1 {
		return found, nil
	}
	for _, ask := range []func(variables) (Place, error){fromProcess, fromMPI} {
		if p, err := ask(vars); err != nil || p.TasksPerNode > 1 {
			return p, err
		}
	}
	claims, err := vars.claims(a)
	if err != nil {
		return Place{}, err
	}
	p, err := vars.settle(claims, found, a.How)
	if err != nil {
		return Place{}, err
	}
	p.GangID, p.Element = vars.gangID(p, a), vars.element(p)
	p.Warnings = append(p.Warnings, vars.warnings(p)...)
	return p, nil
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
	return v.said(name).whole()
}

// whole reads a whole number from 0.
func (s Said) whole() (int, error) {
	n, err := strconv.Atoi(s.Value)
	if err != nil || n < 0 {
		return 0, errext.Errorf("unset it, or set it to what the launch has", "%s=%q is no whole number", s.By, s.Value)
	}
	return n, nil
}

// fromProcess knows a gpurun that is one of several on its node: with LOCAL_RANK, RANK
// and WORLD_SIZE number processes, each of which has started a gpurun of its own.
func fromProcess(v variables) (Place, error) {
	if v["LOCAL_RANK"] == "" || v["RANK"] == "" || v["WORLD_SIZE"] == "" {
		return Place{}, nil
	}
	size, err := v.count("WORLD_SIZE", 1)
	if err != nil {
		return Place{}, err
	}
	rank, err := v.count("RANK", 0)
	if err != nil {
		return Place{}, err
	}
	local, err := v.count("LOCAL_WORLD_SIZE", size)
	if err != nil {
		return Place{}, err
	}
	local = max(local, 1)
	return Place{
		Kind: Torchrun, Nodes: max(size/local, 1), NodeRank: rank / local, TasksPerNode: local,
		Evidence: fmt.Sprintf("%s process %d/%d via LOCAL_RANK", Torchrun, rank, size),
	}, nil
}

// fromMPI reads what mpirun tells its processes. Within a Slurm job it starts its daemons
// by srun, one a node, whose variables the processes see, too. Slurm's own PMI says how
// many processes there are, and not how many on a node: that is in the step.
func fromMPI(vars variables) (Place, error) {
	for _, names := range [][3]string{
		{"OMPI_COMM_WORLD_SIZE", "OMPI_COMM_WORLD_LOCAL_SIZE", "OMPI_COMM_WORLD_RANK"},
		{"MV2_COMM_WORLD_SIZE", "MV2_COMM_WORLD_LOCAL_SIZE", "MV2_COMM_WORLD_RANK"},
		{"PMI_SIZE", "MPI_LOCALNRANKS", "PMI_RANK"},
	} {
		if vars[names[0]] == "" || vars[names[1]] == "" && vars["SLURM_JOB_ID"] != "" {
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
		rank, err := vars.count(names[2], 0)
		if err != nil {
			return Place{}, err
		}
		local = max(local, 1)
		return Place{
			Kind: MPI, Nodes: max(size/local, 1), NodeRank: rank / local, TasksPerNode: local,
			Evidence: fmt.Sprintf("%s %d processes via %s", MPI, size, names[0]),
		}, nil
	}
	return Place{}, nil
}

// fromKubernetes recognises a pod. Nothing in it tells how many pods there are;
// operators say so through torchrun's variables.
func fromKubernetes(vars variables) (Place, error) {
	p := Place{Kind: Kubernetes, Nodes: 1, TasksPerNode: 1}
	index := vars["JOB_COMPLETION_INDEX"]
	switch {
	case vars["KUBERNETES_SERVICE_HOST"] != "":
		p.Evidence = p.evidence("KUBERNETES_SERVICE_HOST")
	case index != "":
		p.Evidence = p.evidence("JOB_COMPLETION_INDEX")
	default:
		return Place{}, nil
	}
	if index != "" {
		p.Evidence += ", index " + index + " of its job"
	}
	return p, nil
}

// warnings are about a pod of an indexed Job that was told of no others: as far as it
// knows the whole job is its own, and so do all others think.
func (v variables) warnings(p Place) []string {
	index := v["JOB_COMPLETION_INDEX"]
	if p.Kind != Kubernetes || index == "" || p.By != "" {
		return nil
	}
	return []string{"this is pod " + index + " of an indexed Job, and nothing says how many there are: each of them trains the whole job. " +
		"GPURUN_NNODES and GPURUN_HEAD make them one training, GPURUN_NNODES=1 says that each is one"}
}

// evidence: "slurm-step job=123.0 node 1 of 4 (n3) via SLURM_STEP_NODELIST".
func (p Place) evidence(variable string) string {
	text := string(p.Kind)
	if p.Slurm() {
		text += " job=" + jobStep(p)
	}
	if p.Nodes > 1 {
		text += fmt.Sprintf(" node %d of %d", p.NodeRank, p.Nodes)
	}
	if p.Node != "" {
		text += " (" + p.Node + ")"
	}
	if p.TasksPerNode > 1 {
		text += fmt.Sprintf(" %d tasks a node", p.TasksPerNode)
	}
	return text + " via " + variable
}
