package main

import (
	"context"
	"errors"
	"fmt"
	"log/slog"
	"net"
	"os"
	"path/filepath"
	"strconv"
	"syscall"
	"time"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/host"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/strategy"
	"github.com/gpurun/gpurun/strategy/cause"
)

// outputBound is how long to read on after the last rank is gone, for a process
// that was left over and holds a rank's output open.
const outputBound = 5 * time.Second

// A node is the launcher's Starter: it starts the ranks of this machine.
type node struct {
	p       *prepared
	run     string // the run's name
	console streams
	log     *slog.Logger
	grace   time.Duration // for what ranks leave behind when they end well

	// hurry cuts a grace of the attempt that runs short.
	hurry chan func()
}

// Start starts all ranks of one attempt.
func (n *node) Start(ctx context.Context, l launcher.Launch) (launcher.Attempt, error) {
	a := &attempt{node: n, facts: make(chan strategy.Fact, 64), dir: l.Dir, world: n.p.local}
	if n.p.job.Launch.Self {
		a.world = 1
	}
	var err error
	if a.out, err = n.openOutput(a, l); err != nil {
		return nil, fmt.Errorf("open the ranks' output: %w", err)
	}
	ranks, err := n.ranks(a, l)
	if err == nil {
		a.counters = host.This().OpenCounters()
		a.group, err = proc.Start(ctx, ranks, proc.Options{
			Marker: fmt.Sprintf("%s.%d", n.run, l.N), Limits: proc.Limits{Data: n.p.ceiling.data}, Logger: n.log,
		})
	}
	a.out.Started()
	if err != nil {
		go drain(a.facts)
		err = errors.Join(err, a.out.Wait(ctx))
		close(a.facts)
		return nil, err
	}
	n.remember(a.group.Kill)
	go a.collect()
	return a, nil
}

func drain(facts <-chan strategy.Fact) {
	for range facts {
	}
}

// remember keeps what a second Ctrl-C calls.
func (n *node) remember(kill func()) {
	select {
	case <-n.hurry:
	default:
	}
	n.hurry <- kill
}

// Hurry cuts the grace of a stop that is under way short.
func (n *node) Hurry() {
	select {
	case kill := <-n.hurry:
		kill()
		n.hurry <- kill
	default:
	}
}

func (n *node) openOutput(a *attempt, l launcher.Launch) (*output.Output, error) {
	launch := n.p.job.Launch
	var ranks []int
	for k := range a.world {
		ranks = append(ranks, k)
	}
	template, _ := launcher.Lookup(n.p.env, "TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
	o := output.Options{
		Ranks: ranks, Dir: l.Dir, Stdout: n.console.out, Stderr: n.console.err,
		Redirect: streamsOf(launch.Redirects), Tee: streamsOf(launch.Tee), Filter: launch.LocalRanksFilter,
		Role: launch.Role, Template: template, Restarts: l.N,
		TTY:    a.world == 1 && wantsTTY(launch.TTY, n.console),
		OnFact: func(f strategy.Fact) { a.facts <- f },
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
func (n *node) ranks(a *attempt, l launcher.Launch) ([]proc.Rank, error) {
	port := n.p.job.Launch.MasterPort
	if port == 0 {
		var err error
		if port, err = freePort(); err != nil {
			return nil, err
		}
	}
	var ranks []proc.Rank
	for k := range a.world {
		dir := filepath.Join(l.Dir, fmt.Sprintf("rank%d", k))
		seat := launcher.Seat{
			Rank: k, LocalRank: k, WorldSize: a.world, LocalWorld: a.world, MasterAddr: "127.0.0.1", MasterPort: port,
			RunID: n.runID(l.N), Attempt: l.N, MaxRestarts: n.p.job.Launch.MaxRestarts, Role: n.p.job.Launch.Role,
			ErrorFile: filepath.Join(dir, "error.json"),
		}
		env := launcher.Overlay(n.p.env, l.Command.Env, n.seatEnviron(seat))
		r := proc.Rank{Rank: k, LocalRank: k, Argv: n.argv(l.Command.Argv, k), Env: env, Dir: n.p.job.Workdir}
		if k == 0 {
			r.Stdin = n.console.in
		}
		r.Stdout, r.Stderr = a.out.Files(k)
		ranks = append(ranks, r)
	}
	return ranks, nil
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
	argv = append(argv, words...)
	if n.p.job.Launch.LocalRankArg {
		argv = append(argv, "--local-rank="+strconv.Itoa(local))
	}
	return argv
}

// freePort asks the kernel for a port that nobody listens on.
func freePort() (int, error) {
	l, err := net.Listen("tcp", "127.0.0.1:0")
	if err != nil {
		return 0, fmt.Errorf("find a free port: %w", err)
	}
	defer l.Close()
	return l.Addr().(*net.TCPAddr).Port, nil
}

// An attempt is the running ranks of this machine.
type attempt struct {
	node     *node
	dir      string
	world    int
	group    *proc.Group
	out      *output.Output
	counters *host.Counters
	facts    chan strategy.Fact
}

// Facts delivers what is observed; collect closes it.
func (a *attempt) Facts() <-chan strategy.Fact { return a.facts }

// Stop ends the ranks and all that they started.
func (a *attempt) Stop(signal int, grace time.Duration) {
	a.report(a.group.Stop(grace, syscall.Signal(signal)))
}

// LastSign is when a rank last wrote anything, and its longest step so far.
func (a *attempt) LastSign(rank int) (time.Time, time.Duration) {
	activity := a.out.Activity(rank)
	return activity.Output, activity.Longest
}

// collect waits for the ranks, sweeps up what they left, reads their output to
// the end and closes the facts. It is the attempt's one goroutine.
func (a *attempt) collect() {
	defer close(a.facts)
	failed := false
	for f := range a.group.Exits() {
		failed = failed || f.Exit.Code != 0
		a.facts <- f
	}
	grace := a.node.grace
	if failed {
		grace = 0
	}
	a.report(a.group.Stop(grace))
	ctx, cancel := context.WithTimeout(context.Background(), outputBound)
	defer cancel()
	if err := a.out.Wait(ctx); err != nil {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Gap: fmt.Sprintf("a rank's log is not complete: %v", err)}
	}
	a.errorFiles()
	for _, f := range a.counters.Rise() {
		a.facts <- f
	}
}

// report makes facts of what could not be ended.
func (a *attempt) report(r proc.StopReport) {
	for _, p := range r.Leftover {
		a.facts <- strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Stuck: &strategy.Stuck{PID: p.PID, Channel: p.Channel}}
	}
}

// errorFiles reads what ranks wrote about their own end: torch's @record.
func (a *attempt) errorFiles() {
	for k := range a.world {
		text, err := os.ReadFile(filepath.Join(a.dir, fmt.Sprintf("rank%d", k), "error.json"))
		if err != nil {
			continue // most scripts write none
		}
		if s, at, ok := cause.ErrorFile(text); ok {
			a.facts <- strategy.Fact{Time: at, Rank: k, Source: "error.json", Sighting: &s}
		}
	}
}
