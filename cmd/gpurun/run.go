package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"slices"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/strategy"
)

// failureGrace is what ranks get to end by themselves after a diagnosed failure
// of one of them.
const failureGrace = 3 * time.Second

// runCommand launches a job. Its flags are torchrun's, so that urfave/cli cannot
// parse them: package job does.
func runCommand(s streams) *cli.Command {
	return &cli.Command{
		Name:            "run",
		Usage:           "run a job (the verb may be left out)",
		UsageText:       "gpurun [--json] [--quiet] [--run-dir DIR] [--propagate-exit-code] train.toml\ngpurun [flags] script.py [arguments …]",
		Description:     launchFlags,
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return orHelp(c, run(c.Context, c.Args().Slice(), s)) },
	}
}

func run(ctx context.Context, args []string, s streams) error {
	j, own, err := readJob(ctx, args)
	if err != nil {
		return err
	}
	if own.JSON {
		s.out = s.err // stdout carries the events only
	}
	ctx, desk := listen(ctx)
	defer desk.close()
	p, err := prepareOrStop(ctx, j)
	if err != nil {
		return err
	}
	defer p.close()
	if err := p.Startable(); err != nil {
		return err
	}
	release, err := proc.Reap() // as the first process of a container, also between attempts
	if err != nil {
		return err
	}
	defer release()
	verdict, err := launch(ctx, p, own, s, desk)
	if err != nil {
		return err
	}
	return verdictError(verdict, own)
}

// prepareOrStop prepares the job, or gives up at a signal: nothing runs yet, and
// what hangs, a file system for example, must not keep gpurun from ending.
func prepareOrStop(ctx context.Context, j *job.Job) (*prepared, error) {
	type result struct {
		p   *prepared
		err error
	}
	done := make(chan result, 1)
	go func() {
		p, err := prepare(ctx, j)
		done <- result{p, err}
	}()
	select {
	case r := <-done:
		if stop := stoppedEarly(ctx); stop != nil && r.err != nil {
			return nil, stop
		}
		return r.p, r.err
	case <-ctx.Done():
		return nil, stoppedEarly(ctx)
	}
}

// verdictError is nil for a run that trained; people have read the verdict by then.
func verdictError(v launcher.Verdict, own job.Own) error {
	if v.Code == 0 {
		return nil
	}
	code := v.Code
	if own.Propagate && v.Outcome == strategy.Failed && len(v.Attempts) > 0 {
		if c := v.Attempts[len(v.Attempts)-1].ExitCode; c >= 1 && c <= 63 {
			code = c
		}
	}
	return &coded{err: errors.New(v.Reason), code: code, said: true}
}

// launch opens the run directory and runs the job in it.
func launch(ctx context.Context, p *prepared, own job.Own, s streams, desk *desk) (launcher.Verdict, error) {
	dir, err := runDir(p, own)
	if err != nil {
		return launcher.Verdict{}, err
	}
	p = &prepared{Prepared: p.Pinned(filepath.Base(dir)), nvml: p.nvml}
	warnings := p.Warnings()
	if root := p.Job().Recovery.NVMePath; root != "" {
		if err := sweepSwaps(root); err != nil {
			warnings = append(warnings, err.Error())
		}
	}
	said := output.NewWords(s.err)
	defer said.Close()
	people := console.NewPeople(said, dir, own.Quiet, p.propose(dir))
	show := people.Show
	if own.JSON {
		events := output.NewWords(s.json)
		defer events.Close()
		show = console.NewJSON(events).Show
	}
	store, events, err := journal.Open(dir, show)
	if err != nil {
		return launcher.Verdict{}, unusable(dir, err)
	}
	ledger := openLedger(store)
	defer ledger.close()
	desk.record(ledger)
	defer desk.record(nil)
	people.Recall(events)

	state, done, err := goOn(p, dir, events)
	if err != nil {
		return state.Verdict, err
	}
	if done {
		show(launcher.Finished{Verdict: state.Verdict})
		return state.Verdict, nil
	}
	w := newWorld(p, beganAt(events), desk, ledger.note)
	if len(events) > 0 {
		state.Next.Checkpoint = w.checkpoint()
	}
	if err := open(ledger, p.began(filepath.Base(dir)), warnings); err != nil {
		return state.Verdict, err
	}
	state.Next.Facts = w.before(ctx)
	verdict, err := start(ctx, p, state, w, &node{
		p: p, run: filepath.Base(dir), token: rand.Text(), console: s, ledger: ledger, desk: desk, grace: p.Job().Launch.ShutdownTimeout, early: earlyBound,
	})
	if err != nil {
		return verdict, err
	}
	if err := tellParent(dir, verdict, ledger.last); err != nil {
		fmt.Fprintf(said, "gpurun: warning: %v\n", err)
	}
	return verdict, nil
}

// open journals what runs, and what people should know beforehand.
func open(ledger *ledger, began launcher.Began, warnings []string) error {
	if err := ledger.Append(began); err != nil {
		return err
	}
	for _, text := range warnings {
		if err := ledger.Append(launcher.Noticed{Text: "warning: " + text}); err != nil {
			return err
		}
	}
	return nil
}

// start runs the job to its verdict. A signal that comes while no rank runs ends
// the run with one too.
func start(ctx context.Context, p *prepared, state launcher.State, w *world, n *node) (launcher.Verdict, error) {
	l := &launcher.Launcher{
		Policy: p.Policy(), Job: p.StrategyJob(), Recipe: p, Starter: n, World: w, Store: n.ledger,
		Graces:      launcher.Graces{User: n.grace, Failure: failureGrace},
		HangTimeout: p.Job().Launch.HangTimeout,
	}
	verdict, err := state.Verdict, context.Cause(ctx)
	if err == nil {
		verdict, err = l.Run(ctx, state)
	}
	var stop *launcher.Signal
	if errors.As(err, &stop) {
		verdict = interrupted(verdict, stop)
		err = n.ledger.Finish(verdict)
	}
	return verdict, err
}

// runDir is the folder of the run: named, or a new one below .gpurun, or the one
// that a scheduler's restart of the same job left behind.
func runDir(p *prepared, own job.Own) (string, error) {
	if own.RunDir != "" {
		return filepath.Abs(own.RunDir)
	}
	root := filepath.Join(p.Job().Workdir, ".gpurun", p.Job().Name)
	if p.Job().Launch.LogDir != "" {
		root = p.Job().Launch.LogDir // as torchrun: a folder of its own below it for each run
	}
	if p.Restarted() {
		runs, err := journal.Runs(root)
		if err != nil {
			return "", runDirError(err)
		}
		for _, dir := range slices.Backward(runs) {
			if events, err := journal.Read(dir); err == nil && scheduler(events) == p.Scheduler() {
				return dir, nil
			}
		}
	}
	tail := make([]byte, 2)
	if _, err := rand.Read(tail); err != nil {
		return "", fmt.Errorf("name the run: %w", err)
	}
	return filepath.Join(root, time.Now().UTC().Format("20060102-150405-")+hex.EncodeToString(tail)), nil
}

func scheduler(events []launcher.Event) string {
	for _, e := range events {
		if b, ok := e.(launcher.Began); ok {
			return b.Scheduler
		}
	}
	return ""
}

// goOn rebuilds the state of a run directory that exists, and refuses one of
// another job.
func goOn(p *prepared, dir string, events []launcher.Event) (launcher.State, bool, error) {
	for _, e := range events {
		b, ok := e.(launcher.Began)
		if !ok {
			continue
		}
		switch same, known := p.Same(b.Digest); {
		case !known:
			return launcher.State{}, false, usagef("name another --run-dir, or none for a new run",
				"the run directory %s cannot be gone on with: its digest is of a version that this gpurun does not know", dir)
		case !same:
			return launcher.State{}, false, usagef("name another --run-dir, or none for a new run",
				"the run directory %s is of another job: its command, train.toml or configuration differs", dir)
		}
	}
	state, done := launcher.Resume(p.Plan(), filepath.Base(dir), events)
	return state, done, nil
}

// beganAt is when attempt 0 of the run was started, now for a new run. The
// second is cut off, since file systems keep times more coarsely than clocks.
func beganAt(events []launcher.Event) time.Time {
	for _, e := range events {
		if ended, ok := e.(launcher.Ended); ok {
			return ended.Evidence.Started.Truncate(time.Second)
		}
		if b, ok := e.(launcher.Began); ok && !b.At.IsZero() {
			return b.At.Truncate(time.Second)
		}
	}
	return time.Now().Truncate(time.Second)
}

func (p *prepared) began(run string) launcher.Began {
	digest, _ := p.Digest(job.DigestVersion)
	return launcher.Began{
		Run: run, Name: p.Job().Name, Version: version(), Digest: digest, Recipe: p.RecipeName(), Python: p.Python(),
		Place: p.Place(), Policy: p.Policy(), Job: p.StrategyJob(), Plan: p.Plan(), Scheduler: p.Scheduler(), At: time.Now().UTC(),
	}
}

// wantsTTY: "auto" gives a single rank a pseudo-terminal where gpurun has one.
func wantsTTY(mode string, s streams) bool {
	switch mode {
	case "always":
		return true
	case "auto":
		return term.IsTerminal(int(s.out.Fd())) && term.IsTerminal(int(s.err.Fd()))
	}
	return false
}

// unusable says why a run directory cannot be used.
func unusable(dir string, err error) error {
	if errors.Is(err, journal.ErrLocked) {
		return usagef("wait for it, or name another --run-dir", "the run directory %s is in use: %v", dir, err)
	}
	return runDirError(err)
}

// runDirError gives file errors the code of a run directory that cannot be
// written, and leaves others as they are.
func runDirError(err error) error {
	var path *os.PathError
	var link *os.LinkError
	if errors.As(err, &path) || errors.As(err, &link) {
		return &coded{err: err, code: strategy.CodeRunDir, hint: "gpurun needs a run directory that it can write: see --run-dir"}
	}
	return err
}
