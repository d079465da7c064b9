package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"time"

	"golang.org/x/sys/unix"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/probe"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/recipes"
	"github.com/gpurun/gpurun/strategy"
)

// startBound is how long starting the ranks may take; it is a matter of
// milliseconds, and longer only where a file system hangs.
const startBound = time.Minute

// A node is the launcher's Starter: it starts the ranks of this machine.
type node struct {
	p       *prepared
	run     string // the run's name
	token   string // tells this gpurun's ranks from those of any other, whatever its run is called
	console streams
	ledger  *ledger
	desk    *desk
	ports   map[int]bool  // that attempts of this run have had
	grace   time.Duration // for what ranks leave behind when they end well
	early   time.Duration // after which a rank that ended before the others is told of
}

// Start starts all ranks of one attempt.
func (n *node) Start(ctx context.Context, l launcher.Launch) (launcher.Attempt, error) {
	a := &attempt{node: n, n: l.N, began: time.Now(), facts: make(chan strategy.Fact, 64), dir: l.Dir, world: n.p.local, ended: map[int]bool{}}
	if n.p.job.Launch.Self {
		a.world = 1
	}
	a.lingering, a.linger = context.WithCancel(context.WithoutCancel(ctx))
	port, err := n.port(ctx, l.N)
	if err != nil {
		return nil, err
	}
	if a.swap, err = n.openSwap(l); err != nil {
		return nil, err
	}
	if a.out, err = n.openOutput(a, l); err != nil {
		err = fmt.Errorf("open the ranks' output: %w", err)
		if !isShort(err) {
			return nil, errors.Join(runDirError(err), a.swap.close())
		}
		return nil, errors.Join(startError(err), a.swap.close())
	}
	a.counters = host.This().OpenCounters()
	ranks := n.ranks(a, l, port)
	a.stopProbe = probe.Watch(l.Dir, a.ranks(), a.emit)
	// A signal that comes while ranks start stops them with their grace, like one
	// that comes later: the first of them may be at work already.
	starting, started := context.WithTimeout(context.WithoutCancel(ctx), startBound)
	defer started()
	n.desk.begin(n.grace)
	a.group, err = proc.Start(starting, ranks, proc.Options{
		Marker: fmt.Sprintf("%s.%s.%d", n.run, n.token, l.N), Limits: proc.Limits{Data: n.p.ceiling.data}, Logger: slog.New(noter{n.ledger}),
	})
	a.out.Started()
	if err != nil {
		n.desk.leave()
		a.linger()
		go drain(a.facts)
		a.stopProbe()
		err = errors.Join(startError(err), a.out.Wait(ctx), a.swap.close())
		close(a.facts)
		return nil, err
	}
	n.desk.adopt(a)
	a.watchProofs(n.proofWatch(a, l))
	go a.collect()
	return a, nil
}

// openSwap makes the folder for what the attempt offloads to NVMe, and tells how
// fast it is; nil where nothing is offloaded there.
func (n *node) openSwap(l launcher.Launch) (*swap, error) {
	dir := n.p.swapDir(l.Dir)
	if dir == "" || !toNVMe(l.Plan) {
		return nil, nil
	}
	s, err := openSwap(dir)
	if err != nil {
		return nil, &coded{err: err, code: strategy.CodeRetry, hint: "recovery.nvme_path says where"}
	}
	speed, err := s.speed()
	if err != nil {
		return nil, errors.Join(&coded{err: err, code: strategy.CodeRetry, hint: "recovery.nvme_path says where"}, s.close())
	}
	n.ledger.note(fmt.Sprintf("%s takes what is offloaded: %s free, %s written in a second", dir, strategy.GiB(freeOnNVMe(dir)), strategy.GiB(int64(speed))))
	return s, nil
}

// startError gives the reason why a rank cannot be started its exit code: what
// the machine is short of may be there later; else the job itself is wrong.
func startError(err error) error {
	var stop *launcher.Signal
	if errors.As(err, &stop) {
		return err
	}
	if isShort(err) {
		return &coded{err: err, code: strategy.CodeRetry, hint: "the machine is short of processes, descriptors or memory: see ulimit -a, and pids.max of the cgroup"}
	}
	return &coded{err: err, code: strategy.CodeUsage}
}

// isShort reports whether what failed did so because there is no more of something.
func isShort(err error) bool {
	for _, short := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, proc.ErrNoGuard} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}

func drain(facts <-chan strategy.Fact) {
	for range facts {
	}
}

func (n *node) openOutput(a *attempt, l launcher.Launch) (*output.Output, error) {
	launch := n.p.job.Launch
	template, _ := launcher.Lookup(n.p.env, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
	o := output.Options{
		Ranks: a.ranks(), Dir: l.Dir, Stdout: n.console.out, Stderr: n.console.err,
		Redirect: streamsOf(launch.Redirects), Tee: streamsOf(launch.Tee), Filter: launch.LocalRanksFilter,
		Role: launch.Role, Template: template, Restarts: l.N,
		TTY:    a.world == 1 && wantsTTY(launch.TTY, n.console),
		OnFact: a.emit, Observe: n.p.recipe.Prover(),
	}
	if step := n.p.recipe.Progress.Step; step != "" {
		re, err := n.p.step()
		if err != nil {
			return nil, err
		}
		o.Step = re
	}
	return output.Open(o)
}

func streamsOf(s job.Streams) map[int]output.Streams {
	m := map[int]output.Streams{}
	if s.All != job.NoStd {
		m[output.AllRanks] = output.Streams(s.All)
	}
	for local, std := range s.Ranks {
		m[local] = output.Streams(std)
	}
	return m
}

// ranks describes the processes to start.
func (n *node) ranks(a *attempt, l launcher.Launch, port int) []proc.Rank {
	hook := n.hook(a, l)
	var ranks []proc.Rank
	for k := range a.world {
		dir := filepath.Join(l.Dir, fmt.Sprintf("rank%d", k))
		seat := launcher.Seat{
			Rank: k, LocalRank: k, WorldSize: a.world, LocalWorld: a.world, MasterAddr: "127.0.0.1", MasterPort: port,
			RunID: n.runID(l.N), Attempt: l.N, MaxRestarts: n.p.job.Launch.MaxRestarts, Role: n.p.job.Launch.Role,
			ErrorFile: filepath.Join(dir, "error.json"),
		}
		env := launcher.Overlay(n.p.env, l.Command.Env, n.seatEnviron(seat))
		env = launcher.Overlay(env, hook(k, env))
		r := proc.Rank{Rank: k, LocalRank: k, Argv: n.argv(l.Command.Argv, k), Env: env, Dir: n.p.job.Workdir}
		if k == 0 {
			r.Stdin = n.console.stdin()
		}
		r.Stdout, r.Stderr = a.out.Files(k)
		ranks = append(ranks, r)
	}
	return ranks
}

// hook gives the variables with which a rank's Python tells of its own end. Where
// they cannot be had the ranks do without, and a fact says so.
func (n *node) hook(a *attempt, l launcher.Launch) func(rank int, env []string) map[string]string {
	none := func(int, []string) map[string]string { return nil }
	if !n.p.job.Launch.Probe {
		return none
	}
	environ, err := probe.Install(l.Dir, slices.Sorted(maps.Keys(l.Command.Env))...)
	if err != nil {
		a.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: err.Error()})
		return none
	}
	return environ
}

// stdin is what rank 0 reads: gpurun's own stdin, unless gpurun runs in the
// background of a terminal. There a rank, which has no controlling terminal and
// so is not stopped by SIGTTIN, would take what is typed for the shell.
func (s streams) stdin() *os.File {
	front, err := unix.IoctlGetInt(int(s.in.Fd()), unix.TIOCGPGRP)
	if err == nil && front != unix.Getpgrp() {
		return nil
	}
	return s.in
}

// seatEnviron gives a rank its place. A job that starts its own ranks gets none,
// or it would take itself for one of them.
func (n *node) seatEnviron(s launcher.Seat) map[string]string {
	env := s.Environ(n.p.env)
	if !n.p.job.Launch.Self {
		return env
	}
	return map[string]string{"TORCHELASTIC_ERROR_FILE": env["TORCHELASTIC_ERROR_FILE"]}
}

func (n *node) runID(attempt int) string {
	if id := n.p.job.Launch.RunID; id != "" {
		return id
	}
	return fmt.Sprintf("%s.%d", n.run, attempt)
}

// argv puts the interpreter before the job's words, as torchrun does.
func (n *node) argv(words []string, local int) []string {
	var argv []string
	switch n.p.job.Kind {
	case job.Script:
		argv = []string{n.p.python, "-u"}
	case job.Module:
		argv = []string{n.p.python, "-u", "-m"}
	}
	argv = append(argv, recipes.ForRank(words, local)...)
	if n.p.job.Launch.LocalRankArg {
		argv = append(argv, "--local-rank="+strconv.Itoa(local))
	}
	return argv
}
