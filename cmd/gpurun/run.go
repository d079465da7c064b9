package main

import (
	"context"
	"crypto/rand"
	"encoding/hex"
	"errors"
	"fmt"
	"os"
	"path/filepath"
	"regexp"
	"slices"
	"strings"
	"time"

	"github.com/urfave/cli/v2"
	"golang.org/x/term"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/console"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/output"
	"github.com/gpurun/gpurun/launcher/proc"
	"github.com/gpurun/gpurun/recipes"
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
	j, own, err := readJob(args)
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
	if err := job.Startable(p.job, p.env); err != nil {
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

// readJob reads the command line: gpurun's own flags, then a train.toml or what
// torchrun would be given.
func readJob(args []string) (*job.Job, job.Own, error) {
	dir, err := os.Getwd()
	if err != nil {
		return nil, job.Own{}, fmt.Errorf("find the working directory: %w", err)
	}
	file, own, err := job.TrainFile(args, os.Environ())
	if err != nil {
		return nil, own, err
	}
	if file == "" {
		j, err := job.FromArgs(args, os.Environ(), dir)
		return j, own, err
	}
	j, err := job.LoadWith(file, unwrapLauncher, checkKnobs, checkRecipe(filepath.Dir(file)))
	return j, own, err
}

// checkKnobs lets the recipes judge the [knobs] table.
func checkKnobs(root map[string]any) []job.Problem {
	table, ok := root["knobs"].(map[string]any)
	if !ok {
		return nil
	}
	_, problems := recipes.FromKnobs(table)
	out := make([]job.Problem, 0, len(problems))
	for _, p := range problems {
		out = append(out, job.Problem{Key: p.Key, Message: p.Message, Suggest: p.Suggest})
	}
	return out
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
	p.pin(filepath.Base(dir))
	if root := p.job.Recovery.NVMePath; root != "" {
		if err := sweepSwaps(root); err != nil {
			p.warnings = append(p.warnings, err.Error())
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
	if err := open(ledger, p, filepath.Base(dir), state.Policy); err != nil {
		return state.Verdict, err
	}
	state.Next.Facts = w.before(ctx)
	verdict, err := start(ctx, p, state, w, &node{
		p: p, run: filepath.Base(dir), token: rand.Text(), console: s, ledger: ledger, desk: desk, grace: p.job.Launch.ShutdownTimeout, early: earlyBound,
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
func open(ledger *ledger, p *prepared, run string, policy strategy.Policy) error {
	began := p.began(run)
	began.Policy = policy
	if err := ledger.Append(began); err != nil {
		return err
	}
	for _, text := range p.warnings {
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
		Policy: state.Policy, Job: p.strategyJob(), Recipe: p, Starter: n, World: w, Store: n.ledger,
		Graces:      launcher.Graces{User: n.grace, Failure: failureGrace},
		HangTimeout: p.job.Launch.HangTimeout,
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
	root := filepath.Join(p.job.Workdir, ".gpurun", p.job.Name)
	if p.job.Launch.LogDir != "" {
		root = p.job.Launch.LogDir // as torchrun: a folder of its own below it for each run
	}
	if p.place.Job != "" && p.place.RestartCount > 0 {
		runs, err := journal.Runs(root)
		if err != nil {
			return "", runDirError(err)
		}
		for _, dir := range slices.Backward(runs) {
			if events, err := journal.Read(dir); err == nil && scheduler(events) == p.scheduler() {
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

func (p *prepared) scheduler() string {
	if p.place.Job == "" {
		return ""
	}
	return string(p.place.Kind) + " " + p.place.Job + " " + p.place.Step
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
	digest := func(version int) (string, bool) { return p.digest, version == 1 }
	state, done, err := launcher.GoOn(dir, p.began(filepath.Base(dir)), events, digest)
	if err != nil {
		err = &usageError{err: err, hint: errext.Hint(err)}
	}
	return state, done, err
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
	return launcher.Began{
		Run: run, Name: p.job.Name, Version: version(), Digest: p.digest, Recipe: p.recipeName(), Python: p.python,
		Place: p.placeLine(), Policy: p.policy(), Job: p.strategyJob(), Plan: p.plan, Scheduler: p.scheduler(), At: time.Now().UTC(),
	}
}

func (p *prepared) placeLine() string {
	device := "CPU"
	if p.gpus.Count > 0 {
		device = fmt.Sprintf("%d GPUs (%s)", p.gpus.Count, p.gpus.Source)
		if len(p.gpus.Devices) > 0 {
			device = fmt.Sprintf("%d × %s (%s)", p.gpus.Count, p.gpus.Devices[0].Name, p.gpus.Source)
		}
	}
	return strings.TrimSpace(p.place.Evidence + ", " + device)
}

// step is the pattern of a training step.
func (p *prepared) step() (*regexp.Regexp, error) {
	re, err := regexp.Compile(p.recipe.Progress.Step)
	if err != nil {
		return nil, fmt.Errorf("read the pattern of a step: %w", err)
	}
	return re, nil
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
