package node

import (
	"fmt"
	"maps"
	"path/filepath"
	"slices"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/probe"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/strategy"
)

// ranks describes the processes to start.
func (n *Node) ranks(a *attempt, l launcher.Launch) []proc.Rank {
	hook := n.hook(a, l)
	var ranks []proc.Rank
	for local, k := range a.ranks() {
		env, argv := n.opts.Env.With(l.Command.Env, n.rankEnv(a, local)), n.opts.Argv(l.Command.Argv, local)
		if !probe.Frozen(argv[0], n.opts.Workdir) { // whose children would have the variables
			env = env.With(hook(k, env.Words()))
		}
		r := proc.Rank{Rank: k, LocalRank: local, Argv: argv, Env: env.Words(), Dir: n.opts.Workdir}
		if k == 0 {
			r.Stdin = n.opts.Output.stdin()
		}
		r.Stdout, r.Stderr = a.out.Files(k)
		ranks = append(ranks, r)
	}
	return ranks
}

// rankEnv gives a rank its place. A job that is one process gets none, or it would
// take itself for a rank that torchrun has started.
func (n *Node) rankEnv(a *attempt, local int) map[string]string {
	k := a.meeting.Offset + local
	r := rankEnvironment{
		Rank: k, LocalRank: local, WorldSize: a.meeting.World, LocalWorld: a.local, Node: a.meeting.Node, Nodes: a.meeting.Nodes,
		MasterAddr: a.meeting.Addr, MasterPort: a.meeting.Port,
		RunID: n.runID(a.n), Attempt: a.n, MaxRestarts: n.opts.MaxRestarts, Role: n.opts.Output.Role,
		ErrorFile: filepath.Join(a.dir, fmt.Sprintf("rank%d", k), "error.json"),
	}
	switch {
	case n.opts.Plain && n.opts.Launcher:
		return map[string]string{errorFileVariable: r.ErrorFile}
	case n.opts.Plain:
		return nil
	}
	vars := r.vars(n.opts.Env)
	for name, same := range n.opts.Numbers {
		vars[name] = vars[same]
	}
	return vars
}

func (n *Node) runID(attempt int) string {
	if n.opts.RunID != "" {
		return n.opts.RunID
	}
	return fmt.Sprintf("%s.%d", n.opts.Run, attempt)
}

// hook gives the variables with which a rank's Python tells of its own end. Where
// they cannot be had the ranks do without, and a fact says so.
func (n *Node) hook(a *attempt, l launcher.Launch) func(rank int, env []string) map[string]string {
	none := func(int, []string) map[string]string { return nil }
	if !n.opts.Probe {
		return none
	}
	installed, err := probe.Install(l.Dir, n.orders(a, l), slices.Sorted(maps.Keys(l.Command.Env))...)
	if err != nil {
		a.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: err.Error()})
		return none
	}
	a.probe = installed
	return installed.Variables
}

// orders say what the processes of an attempt are to change in themselves.
func (n *Node) orders(a *attempt, l launcher.Launch) probe.Orders {
	batch := func(c strategy.Call) bool {
		return c.Knob == strategy.MicroBatchSize || c.Knob == strategy.GradientAccumulationSteps
	}
	return probe.Orders{
		Script: n.opts.Script, Module: n.opts.Module, Hooks: n.opts.Hooks, Turn: l.Command.Turn, Calls: l.Command.Calls,
		Batch: l.Confirm || slices.ContainsFunc(l.Command.Calls, batch), Ranks: a.meeting.World,
		Record: n.record(l), Stalls: n.opts.stacks(),
	}
}
