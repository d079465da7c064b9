package main

import (
	"context"
	"os"
	"path/filepath"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/environ"
	"github.com/gpurun/gpurun/launcher/gang"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/node"
	"github.com/gpurun/gpurun/launcher/nodes"
	"github.com/gpurun/gpurun/launcher/preflight"
	"github.com/gpurun/gpurun/launcher/verb"
)

// take takes this node's part of a launch.
func take(ctx context.Context, p *prepared, own job.Own) (*nodes.Part, error) {
	j := p.Job()
	return nodes.Take(ctx, nodes.PartOptions{
		At: p.Where(), Name: j.Name, Digest: p.Digest(), Version: manual.Version(),
		Ranks: p.Ranks(), Environ: environ.Parse(os.Environ()), Folder: searchOf(&j, own).Root,
	})
}

// follow starts the ranks of this node as node 0 says, until the run is over.
func follow(ctx context.Context, p *prepared, part *nodes.Part, signals *node.Signals, s streams) error {
	nobody, err := os.OpenFile(os.DevNull, os.O_RDWR, 0) // node 0 shows its own ranks; all have logs
	if err != nil {
		return err
	}
	defer nobody.Close()
	at := p.Where()
	say := func(format string, args ...any) {
		if !at.Slurm() { // which shows the words of all nodes as one text
			console.NewPage(s.err, nil).Printf("gpurun: node %d of %d: "+format+"\n", append([]any{at.NodeRank, at.Nodes}, args...)...)
		}
	}
	say("node 0 decides, on %s, and shows the run", at.Head)
	grace := p.Job().Launch.ShutdownTimeout
	code, err := part.Follow(ctx, grace, func(w gang.Welcome, note func(string)) (nodes.Here, error) {
		run := filepath.Base(w.Dir)
		q := &prepared{p.Pinned(run), p.nvml, p.begun}
		wired, err := wire(q, run, w.Tracked, w.Began, streams{nobody, nobody, nobody, nobody})
		if err != nil {
			return nodes.Here{}, err
		}
		store, err := journal.OpenNode(w.Dir, p.Where().NodeRank, func(e launcher.Event) {
			if n, ok := e.(launcher.Noticed); ok {
				note(n.Text)
			}
		})
		if err != nil {
			return nodes.Here{}, err
		}
		store.Mask(p.secrets())
		log := node.OpenEventLog(store)
		wired.node.Samples = part.Sampled
		wired.node.Preflight = preflight.Of(p.Prepared, wired.before, false)
		wired.before.Warn = func(text string) { log.Note("warning: " + text) }
		return nodes.Here{
			Recipe:  wired.launcher.Recipe,
			Starter: node.New(wired.node, log, signals),
			World:   node.NewWorld(wired.world, signals, log.Note),
			Store:   log, Notice: signals.Heed, Close: log.Close,
		}, nil
	})
	if err == nil {
		say("the run ended with %d, and node 0 says why", code)
	}
	if err == nil && code != 0 {
		err = &verb.Ended{Code: code}
	}
	return err
}
