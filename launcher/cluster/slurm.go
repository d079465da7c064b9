package cluster

import (
	"cmp"
	"context"
	"fmt"
	"os/exec"
	"slices"
	"strconv"
	"strings"
	"time"
)

// interactiveStep is the step id of the shell that salloc opens on the first node
// of an allocation (SLURM_INTERACTIVE_STEP in slurm/slurm.h).
const interactiveStep = "4294967290"

// fromSlurm reads Slurm's variables. A job that is submitted from within a step inherits that
// step's variables, so that a step counts only if all its variables agree.
func fromSlurm(vars variables) (Placement, error) {
	if vars["SLURM_JOB_ID"] == "" {
		return Placement{}, nil
	}
	p := Placement{Job: slurmJob(vars), End: slurmEnd(vars), Node: vars["SLURMD_NODENAME"]}
	if mpi, ok := vars.mpirunStep(p); ok {
		return mpi, nil
	}
	step, reason := readStep(vars)
	if reason == "" {
		p.Kind, p.Step = SlurmStep, step.id
		p.Nodes, p.NodeRank, p.TasksPerNode = len(step.hosts), step.node, slices.Max(step.tasks)
		// Not SLURM_LAUNCH_NODE_IPADDR: that is srun's own host.
		p.Head, p.Hosts = step.hosts[0], step.hosts
		p.Evidence = p.evidence("SLURM_STEP_NODELIST")
		return p, nil
	}
	nodes, variable := jobNodes(vars)
	p.Kind, p.Nodes, p.TasksPerNode = SlurmBatch, nodes, 1
	if p.Node == "" {
		p.Kind = SlurmLogin
	}
	p.Evidence = p.evidence(variable)
	if vars["SLURM_STEP_ID"] != "" && vars["SLURM_STEP_ID"] != interactiveStep {
		p.Leaked = true
		p.Evidence += fmt.Sprintf(", SLURM_STEP_ID=%s ignored: %s", vars["SLURM_STEP_ID"], reason)
	}
	return p, nil
}

// mpirunStep returns the placement of a process that mpirun started on each node of a Slurm job. mpirun
// numbers the nodes as Slurm lists them. It starts its processes in the batch script itself on the first
// node, and on the others in a step of these.
func (v variables) mpirunStep(p Placement) (Placement, bool) {
	mpi, err := fromMPI(v)
	hosts, _ := Hosts(v["SLURM_JOB_NODELIST"])
	if err != nil || mpi.TasksPerNode != 1 || mpi.Nodes < 2 || mpi.Nodes != len(hosts) || mpi.NodeRank >= mpi.Nodes ||
		hosts[mpi.NodeRank] != p.Node {
		return Placement{}, false
	}
	p.Kind, p.Nodes, p.NodeRank, p.TasksPerNode, p.Head, p.Hosts = SlurmStep, mpi.Nodes, mpi.NodeRank, 1, hosts[0], hosts
	_, variable, _ := strings.Cut(mpi.Evidence, " via ")
	p.Evidence = p.evidence(variable)
	return p, true
}

// slurmJob names the job. The last element of an array has the array's own
// number as its job id, so elements are named by array and element.
func slurmJob(vars variables) string {
	if array, element := vars["SLURM_ARRAY_JOB_ID"], vars["SLURM_ARRAY_TASK_ID"]; array != "" && element != "" {
		return array + "_" + element
	}
	return vars["SLURM_JOB_ID"]
}

// slurmEnd is the end of the job's time, which Slurm has in the environment since 23.02. A job
// without a limit gets a year.
func slurmEnd(vars variables) time.Time {
	start, _ := strconv.ParseInt(vars["SLURM_JOB_START_TIME"], 10, 64)
	end, err := strconv.ParseInt(vars["SLURM_JOB_END_TIME"], 10, 64)
	if err != nil || end <= 0 || start > 0 && time.Duration(end-start)*time.Second >= unlimited {
		return time.Time{}
	}
	return time.Unix(end, 0)
}

// jobNodes counts the nodes of an allocation over all components of a heterogeneous job, whose
// batch script has only the first component's nodes in SLURM_JOB_NODELIST.
func jobNodes(vars variables) (int, string) {
	nodes := 0
	for component := 0; ; component++ {
		list, ok := vars[fmt.Sprintf("SLURM_JOB_NODELIST_HET_GROUP_%d", component)]
		if !ok {
			break
		}
		hosts, _ := Hosts(list)
		nodes += len(hosts)
	}
	if nodes > 0 {
		return nodes, "SLURM_JOB_NODELIST_HET_GROUP_*"
	}
	if hosts, _ := Hosts(vars["SLURM_JOB_NODELIST"]); len(hosts) > 0 {
		return len(hosts), "SLURM_JOB_NODELIST"
	}
	if n, err := vars.count("SLURM_JOB_NUM_NODES", 1); err == nil && n > 0 {
		return n, "SLURM_JOB_NUM_NODES"
	}
	return 1, "SLURM_JOB_ID"
}

// slurmStep is a step of a job, which srun started.
type slurmStep struct {
	id    string
	hosts []string
	node  int   // index of this node in hosts
	tasks []int // on each host
}

// readStep returns the step that this process is a task of, or the reason why there is none.
func readStep(vars variables) (slurmStep, string) {
	s := slurmStep{id: vars["SLURM_STEP_ID"]}
	switch s.id {
	case "":
		return s, "no step"
	case interactiveStep:
		return s, "an interactive shell"
	}
	name := vars["SLURMD_NODENAME"]
	if name == "" {
		return s, "SLURMD_NODENAME is not set"
	}
	var err error
	if s.hosts, err = Hosts(vars["SLURM_STEP_NODELIST"]); err != nil {
		return s, err.Error()
	}
	job, err := Hosts(vars["SLURM_JOB_NODELIST"])
	if err != nil {
		return s, err.Error()
	}
	for _, host := range s.hosts {
		if !slices.Contains(job, host) {
			return s, fmt.Sprintf("its node %s is not in SLURM_JOB_NODELIST", host)
		}
	}
	if vars["SLURM_STEP_NUM_NODES"] != strconv.Itoa(len(s.hosts)) {
		return s, fmt.Sprintf("SLURM_STEP_NUM_NODES=%s for %d nodes", vars["SLURM_STEP_NUM_NODES"], len(s.hosts))
	}
	s.node, err = strconv.Atoi(vars["SLURM_NODEID"])
	if err != nil || s.node < 0 || s.node >= len(s.hosts) || s.hosts[s.node] != name {
		return s, fmt.Sprintf("SLURM_NODEID=%s is not %s", vars["SLURM_NODEID"], name)
	}
	s.tasks, err = tasksPerNode(cmp.Or(vars["SLURM_STEP_TASKS_PER_NODE"], "1"))
	if err != nil {
		return s, err.Error()
	}
	return s, ""
}

// tasksPerNode expands Slurm's short form of one number a node: "2(x3),1".
func tasksPerNode(text string) ([]int, error) {
	var tasks []int
	for word := range strings.SplitSeq(text, ",") {
		number, times, repeated := strings.Cut(word, "(x")
		n, err := strconv.Atoi(number)
		count := 1
		if err == nil && repeated {
			count, err = strconv.Atoi(strings.TrimSuffix(times, ")"))
		}
		if err != nil || n < 0 || count < 1 || len(tasks)+count > maxHosts {
			return nil, fmt.Errorf("tasks per node %q cannot be read", text)
		}
		tasks = append(tasks, slices.Repeat([]int{n}, count)...)
	}
	return tasks, nil
}

func jobStep(p Placement) string {
	if p.Step == "" {
		return p.Job
	}
	return p.Job + "." + p.Step
}

// slurmTime is scontrol's format of times, in the zone of its process.
const slurmTime = "2006-01-02T15:04:05"

// unlimited is the time that Slurm gives a job without a limit.
const unlimited = 365 * 24 * time.Hour

// Ends returns the end of the job's time, zero where it is not known, and whether the scheduler
// starts the job again afterwards. It runs scontrol where that is installed: the environment has
// the end only since Slurm 23.02, as of the job's start, and never whether the job is requeued.
func (p Placement) Ends(ctx context.Context) (end time.Time, again bool) {
	end, again = p.End, p.RestartCount > 0
	if !p.Slurm() {
		return end, again
	}
	if job, err := querySlurm(ctx, p.Job); err == nil {
		return job.end, job.requeue
	}
	return end, again
}

// Preempted reports whether Slurm takes the nodes away now for another job, so that SIGTERM does
// not mean the end of the job. It is false where Slurm does not state.
func (p Placement) Preempted(ctx context.Context) bool {
	if !p.Slurm() {
		return false
	}
	job, err := querySlurm(ctx, p.Job)
	return err == nil && job.preempted
}

// A slurmJobState is the state of a job as scontrol shows it.
type slurmJobState struct {
	end                time.Time // zero for never
	requeue, preempted bool
}

func querySlurm(ctx context.Context, job string) (slurmJobState, error) {
	line, err := scontrol(ctx, "--oneliner", "show", "job", job)
	if err != nil {
		return slurmJobState{}, fmt.Errorf("query Slurm about job %s: %w", job, err)
	}
	return readJob(line)
}

// readJob parses scontrol's line about a job: "JobId=7 … Requeue=1 … EndTime=… …". A job that is
// being preempted has PreemptTime and still runs; one that is cancelled or requeued does not run
// any more when it gets SIGTERM.
func readJob(line string) (slurmJobState, error) {
	fields := map[string]string{}
	for word := range strings.FieldsSeq(line) {
		if name, value, ok := strings.Cut(word, "="); ok && fields[name] == "" {
			fields[name] = value
		}
	}
	if fields["JobId"] == "" {
		return slurmJobState{}, fmt.Errorf("query Slurm about a job: %q is not an answer", line)
	}
	_, none := time.ParseInLocation(slurmTime, fields["PreemptTime"], time.Local)
	runs := fields["JobState"] == "RUNNING" || fields["JobState"] == "SIGNALING"
	state := slurmJobState{requeue: fields["Requeue"] == "1", preempted: none == nil && runs}
	start, started := time.ParseInLocation(slurmTime, fields["StartTime"], time.Local)
	end, known := time.ParseInLocation(slurmTime, fields["EndTime"], time.Local)
	if started == nil && known == nil && (state.preempted || fields["TimeLimit"] != "UNLIMITED") &&
		end.Sub(start) < unlimited {
		state.end = end
	}
	return state, nil
}

// scontrol runs scontrol, and returns what it prints.
func scontrol(ctx context.Context, args ...string) (string, error) {
	var output, errors strings.Builder
	cmd := exec.CommandContext(ctx, "scontrol", args...)
	cmd.Stdout, cmd.Stderr, cmd.WaitDelay = &output, &errors, time.Second
	if err := cmd.Run(); err != nil {
		if said := strings.TrimSpace(errors.String()); said != "" {
			return "", fmt.Errorf("%w: %s", err, said)
		}
		return "", err
	}
	return output.String(), nil
}
