package main

import (
	"context"
	"fmt"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/launcher/doctor"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/node"
	"github.com/gpurun/gpurun/launcher/nodes"
	"github.com/gpurun/gpurun/launcher/show"
)

// take takes this node's part of a launch.
func take(ctx context.Context, p *prepared, own job.Own, s stdio) (*nodes.Node, error) {
	j := p.Job
	return nodes.Join(ctx, nodes.JoinOptions{
		At: p.Where, Name: j.Name, Digest: p.Digest, Version: manual.Version(),
		Ranks: p.Ranks, Environ: commandline.ParseEnviron(os.Environ()), Folder: searchOf(&j, own).Root,
		Note: func(text string) { note(p.Where, s, text) },
	})
}

// decline reports to the other nodes that this node cannot take part because of err, and returns err.
func decline(ctx context.Context, err error) error {
	if at, unknown := cluster.Detect(os.Environ()); unknown == nil && ctx.Err() == nil {
		nodes.Decline(ctx, nodes.JoinOptions{At: at, Version: manual.Version(),
			Environ: commandline.ParseEnviron(os.Environ())}, err)
	}
	return err
}

// note prints a message of this node. Under Slurm only node 0 prints: srun merges the output of
// all nodes.
func note(at cluster.Placement, s stdio, text string) {
	switch {
	case at.NodeRank == 0:
		show.NewPage(s.err, nil).Printf("gpurun: %s\n", text)
	case !at.Slurm():
		show.NewPage(s.err, nil).Printf("gpurun: node %d of %d: %s\n", at.NodeRank, at.Nodes, text)
	}
}

// follow carries out node 0's orders for the ranks of this node, until the run is over.
func follow(ctx context.Context, p *prepared, thisNode *nodes.Node, signals *node.Signals, s stdio) error {
	devNull, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // node 0 shows its own ranks; all have logs
	if err != nil {
		return err
	}
	defer devNull.Close()
	at := p.Where
	note(at, s, fmt.Sprintf("node 0 decides, on %s, and shows the run", at.Head))
	grace := p.Job.Launch.ShutdownTimeout
	code, err := thisNode.Follow(ctx, grace, func(w nodes.Welcome, tellHead func(string)) (nodes.Resources, error) {
		run := filepath.Base(w.Dir)
		q := &prepared{p.Pinned(run), p.nvml, p.begun, p.guards}
		wired, err := wire(q, run, w.Tracked, w.Began, stdio{devNull, devNull, devNull, devNull})
		if err != nil {
			return nodes.Resources{}, err
		}
		store, err := journal.OpenNode(w.Dir, p.Where.NodeRank, func(e launcher.Event) {
			if n, ok := e.(launcher.Noticed); ok {
				tellHead(n.Text)
			}
		})
		if err != nil {
			return nodes.Resources{}, err
		}
		store.Mask(p.secrets())
		log := node.OpenEventLog(store)
		wired.node.Samples = thisNode.Sampled
		wired.node.Preflight = doctor.PreflightOf(p.Prepared, wired.before, false)
		wired.before.Warn = func(text string) { log.Note("warning: " + text) }
		return nodes.Resources{
			Recipe:  wired.launcher.Recipe,
			Starter: node.New(wired.node, log, signals),
			World:   node.NewWorld(wired.world, signals, log.Note),
			Store:   log, Notice: signals.Heed, Close: log.Close,
		}, nil
	})
	if err == nil {
		note(at, s, fmt.Sprintf("the run ended with %d, see node 0 for the reason", code))
	}
	if err == nil && code != 0 {
		err = &manual.ExitCode{Code: code}
	}
	return err
}
