package node

import (
	"cmp"
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/hook"
	"github.com/gpurun/gpurun/launcher/ranks"
	"github.com/gpurun/gpurun/strategy"
)

// ranks describes the processes to start.
func (n *Node) ranks(a *attempt, l launcher.Launch) []ranks.Rank {
	variables := n.hook(a, l)
	var processes []ranks.Rank
	for local, k := range a.ranks() {
		env, argv := n.opts.Env.With(l.Command.Env, n.rankEnv(a, local)), n.opts.Argv(l.Command.Argv, local)
		if !hook.Frozen(argv[0], n.opts.Workdir) { // else its children would inherit the variables
			env = env.With(variables(k, env.Words()))
		}
		r := ranks.Rank{Rank: k, LocalRank: local, Argv: argv, Env: env.Words(), Dir: n.opts.Workdir}
		if k == 0 {
			r.Stdin = n.opts.Output.stdin()
		}
		r.Stdout, r.Stderr = a.out.Files(k)
		processes = append(processes, r)
	}
	return processes
}

// rankEnv returns the variables for a rank's place among all ranks. A job of one process gets none, or it
// would behave as a rank under torchrun.
func (n *Node) rankEnv(a *attempt, local int) map[string]string {
	folder := filepath.Join(a.dir, fmt.Sprintf("rank%d", a.meeting.Offset+local))
	errorFile := filepath.Join(folder, "error.json")
	switch {
	case n.opts.Plain && n.opts.Launcher:
		return map[string]string{errorFileVariable: errorFile}
	case n.opts.Plain:
		return nil
	}
	vars := n.workerVars(a, local)
	vars[errorFileVariable] = errorFile
	set := func(name string) bool { _, set := n.opts.Env.Lookup(name); return set }
	if !set("TORCH_NCCL_ASYNC_ERROR_HANDLING") {
		vars["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
	}
	// NCCL's watchdog writes its flight record to this file, with the rank added to the name. In /tmp the
	// next attempt would replace it. PyTorch from 2.11 on reads TORCH_FR_DUMP_TEMP_FILE first.
	if !set("TORCH_NCCL_DEBUG_INFO_TEMP_FILE") && !set("TORCH_FR_DUMP_TEMP_FILE") {
		vars["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = filepath.Join(folder, "nccl_trace_rank_")
	}
	if !set("OMP_NUM_THREADS") && a.local > 1 {
		vars["OMP_NUM_THREADS"] = "1"
	}
	for name, same := range n.opts.Numbers {
		vars[name] = vars[same]
	}
	return vars
}

// workerVars returns the variables that torchrun sets for a worker, as of PyTorch 2.12
// (torch/distributed/elastic/agent/server/local_elastic_agent.py). There is no agent store: rank 0 serves the
// rendezvous itself, so that each attempt has a fresh one.
func (n *Node) workerVars(a *attempt, local int) map[string]string {
	rank, world, role := strconv.Itoa(a.meeting.Offset+local), strconv.Itoa(a.meeting.World), n.opts.Output.Role
	return map[string]string{
		"RANK":                         rank,
		"LOCAL_RANK":                   strconv.Itoa(local),
		"WORLD_SIZE":                   world,
		"LOCAL_WORLD_SIZE":             strconv.Itoa(a.local),
		"GROUP_RANK":                   strconv.Itoa(a.meeting.Node),
		"GROUP_WORLD_SIZE":             strconv.Itoa(a.meeting.Nodes),
		"ROLE_NAME":                    role,
		"ROLE_RANK":                    rank,
		"ROLE_WORLD_SIZE":              world,
		"MASTER_ADDR":                  a.meeting.Addr,
		"MASTER_PORT":                  strconv.Itoa(a.meeting.Port),
		"TORCHELASTIC_RUN_ID":          cmp.Or(n.opts.RunID, fmt.Sprintf("%s.%d", n.opts.Run, a.n)),
		"TORCHELASTIC_RESTART_COUNT":   strconv.Itoa(a.n),
		"TORCHELASTIC_MAX_RESTARTS":    strconv.Itoa(max(n.opts.MaxRestarts, a.n)),
		"TORCHELASTIC_USE_AGENT_STORE": "False",
	}
}

// hook returns the variables that load gpurun's hook into a rank's Python. If that fails, the ranks run
// without the hook, and a fact reports it.
func (n *Node) hook(a *attempt, l launcher.Launch) func(rank int, env []string) map[string]string {
	none := func(int, []string) map[string]string { return nil }
	if !n.opts.Hook {
		return none
	}
	installed, err := n.probe.Next(l.Dir, n.orders(a, l), slices.Sorted(maps.Keys(l.Command.Env))...)
	if err != nil {
		a.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: strategy.Gap(err.Error())})
		return none
	}
	installed.Hide(n.opts.Output.Mask.Values())
	a.probe, n.probe = installed, installed
	return installed.Variables
}

// allocator returns the variable of PyTorch's allocator among those that gpurun sets; nil for none.
func (n *Node) allocator(set map[string]string) *hook.AllocatorOrder {
	for _, name := range strategy.AllocatorVariables {
		if value, is := set[name]; is {
			order := hook.AllocatorOrder{Name: name, Value: value}
			if before, had := n.opts.Env.Lookup(name); had {
				order.Before = &before
			}
			return &order
		}
	}
	return nil
}

// orders returns the changes that the hook makes in the processes of an attempt.
func (n *Node) orders(a *attempt, l launcher.Launch) hook.Orders {
	batch := func(c strategy.Call) bool {
		return c.Knob == strategy.MicroBatchSize || c.Knob == strategy.GradientAccumulationSteps
	}
	return hook.Orders{
		Script: n.opts.Script, Module: n.opts.Module, Hooks: true, Turn: l.Command.Turn, Calls: l.Command.Calls, InPlace: l.InPlace, Changes: l.Outside,
		Batch:     l.Confirm || slices.ContainsFunc(l.Command.Calls, batch),
		Allocator: n.allocator(l.Command.Env), Record: n.record(l), Stalls: n.opts.stacks(), Questions: n.opts.Questions.Seconds(),
	}
}
