package main

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"strings"
	"time"

	"github.com/urfave/cli/v2"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/launcher/doctor"
	"github.com/gpurun/gpurun/launcher/errext"
	"github.com/gpurun/gpurun/launcher/job"
	"github.com/gpurun/gpurun/launcher/journal"
	"github.com/gpurun/gpurun/launcher/manual"
	"github.com/gpurun/gpurun/launcher/node"
	"github.com/gpurun/gpurun/launcher/nodes"
	"github.com/gpurun/gpurun/launcher/notify"
	"github.com/gpurun/gpurun/launcher/ranks"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/strategy"
)

// runCommand launches a job. Package job parses its flags, since urfave/cli cannot parse torchrun's.
func runCommand(s stdio) *cli.Command {
	return &cli.Command{
		Name:  "run",
		Usage: "run a job (the verb may be omitted)",
		UsageText: "gpurun [--json] [--quiet] [--run-id ID] [--deadline TIME] [--junit FILE] [--propagate-exit-code] train.toml\n" +
			"gpurun [flags] COMMAND…\n" +
			"gpurun [flags] script.py [arguments …]",
		SkipFlagParsing: true,
		Action:          func(c *cli.Context) error { return manual.OrHelp(c, run(c.Context, c.Args().Slice(), s)) },
	}
}

func run(ctx context.Context, args []string, s stdio) error {
	if err := whereOff(args); err != nil {
		return err
	}
	dir, err := os.Getwd()
	if err != nil {
		return fmt.Errorf("find the working directory: %w", err)
	}
	return runJob(ctx, journal.CommandLine{Args: args, Dir: dir}, s, func(*job.Own) {})
}

// runJob runs the job of a command line, with gpurun's own flags as modified by set.
func runJob(ctx context.Context, begun journal.CommandLine, s stdio, set func(*job.Own)) error {
	j, own, err := readJob(ctx, begun.Args)
	if err == nil {
		err = node.Usable()
	}
	if err != nil {
		return decline(ctx, err)
	}
	set(&own)
	deadline, err := node.NoticeOptions{Mode: j.Launch.OnNotice, Grace: j.Launch.NoticeGrace}.ReadDeadline(own.Deadline,
		time.Now())
	if err != nil {
		return err
	}
	o := notify.PipelineSetup{
		JUnit: own.JUnit, Held: searchOf(j, own).Held(), Follows: j.Follows(os.Environ()),
		Job: j.Name, Stderr: s.err,
	}
	if own.JSON {
		s.out = s.err // stdout carries the events only
	}
	pipe, err := notify.OpenPipeline(o)
	if err != nil {
		return err
	}
	verdict, err := prepareAndLaunch(ctx, j, own, begun, s, pipe, deadline)
	if pipe.End(err); err != nil {
		return err
	}
	return verdictError(verdict, own)
}

// prepareAndLaunch prepares the job and runs it. The error explains why there is no verdict, or why it was
// not written.
func prepareAndLaunch(
	ctx context.Context, j *job.Job, own job.Own, begun journal.CommandLine, s stdio, pipe *notify.Pipeline,
	deadline time.Time,
) (verdict launcher.Verdict, err error) {
	ctx, signals := node.Listen(ctx)
	defer signals.Close()
	if at, err := cluster.Detect(os.Environ()); err == nil && at.Slurm() {
		signals.AskWhether(at.Preempted)
	}
	guards := ranks.LaunchGuards()
	defer guards.Close()
	p, err := launcher.OrStop(ctx, func() (*prepared, error) { return prepare(ctx, j, true) })
	if err != nil {
		return verdict, onlyTried(decline(ctx, err), j, own)
	}
	defer p.close()
	p.begun, p.guards = begun, guards
	err = p.Startable()
	if err == nil && own.IfTrained == journal.SkipTrained {
		err = p.Comparable()
	}
	if err != nil {
		return verdict, decline(ctx, err)
	}
	release, err := ranks.Reap() // for the first process of a container, also between attempts
	if err != nil {
		return verdict, err
	}
	defer release()
	thisNode, err := take(ctx, p, own, s)
	if err != nil {
		return verdict, err
	}
	if thisNode.Follows() {
		return verdict, follow(ctx, p, thisNode, signals, s)
	}
	err = errBug
	defer func() { thisNode.End(verdict, err) }()
	return launch(ctx, p, own, s, signals, pipe, deadline, thisNode)
}

// errBug is the end of a run that all nodes get if a panic ends node 0.
var errBug = errext.WithCode(errors.New("node 0 ended by a bug in gpurun"), strategy.CodeBug)

// verdictError returns the error for the exit code of a verdict, nil for a run that trained. The verdict has
// been shown by then.
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
	return &manual.ExitCode{Reason: v.Reason, Code: code}
}

// launch opens the run directory and runs the job in it.
func launch(
	ctx context.Context, p *prepared, own job.Own, s stdio,
	signals *node.Signals, pipe *notify.Pipeline, deadline time.Time, thisNode *nodes.Node,
) (launcher.Verdict, error) {
	place := search(p, own)
	place.Settled = func(d launcher.Decided) bool {
		level := p.nvml.Baseline(p.Environ().Words(), p.GPUs, 0).Level
		return p.Unchanged(ctx, manual.Version(), d.Conditions, d.Inventory, p.DeviceOf(level))
	}
	dir, err := place.Find()
	if err != nil {
		return launcher.Verdict{}, err
	}
	p = &prepared{p.Pinned(filepath.Base(dir)), p.nvml, p.begun, p.guards}
	a := newAudience(p, dir, own, s, pipe)
	defer a.close()
	store, events, err := openRun(ctx, place, dir, a.said, a.show)
	if err != nil {
		return launcher.Verdict{}, err
	}
	store.Mask(a.secrets)
	log := node.OpenEventLog(store)
	defer log.Close()
	signals.Record(log)
	defer signals.Record(nil)
	a.recall(events)
	defer a.begin(ctx, log.Note)()

	before := journal.RunOf(events)
	began := cmp.Or(before.First.At, time.Now())
	w, err := wire(p, filepath.Base(dir), cmp.Or(before.First.Tracked, journal.TrackerName(filepath.Base(dir))), began, s)
	if err != nil {
		return launcher.Verdict{}, err
	}
	w.thisNode, w.run = thisNode, nodes.RunInfo{
		Dir: dir, Tracked: w.began.Tracked, Began: began, Note: log.Note,
		Grace: node.FailureGrace, Reach: p.Job.Launch.Preflight != job.PreflightOff,
	}
	w.node.Preflight = doctor.PreflightOf(p.Prepared, w.before, before.GPUFailed())
	w.node.Output.Screen, w.node.Samples = a.monitor.Screen, thisNode.Samples(a.meters.Samples(a.monitor.Sample), log.Note)
	w.notice.Deadline, w.launcher.Memory, w.launcher.Adviser = deadline, p.Memory(os.Getenv, own.Fresh), nextWriter(p, dir)
	w.world.Deadline = w.notice.Ends
	w.launcher.Checkpoints = w.notice.Checkpoints(func(path string) bool { return p.Checkpoints().Complete(path, began) })
	state, over, err := goOn(p, &w, dir, before, events, log, a.show)
	if over || err != nil {
		return state.Verdict, err
	}
	if err := store.KeepStart(p.begun); err != nil {
		return state.Verdict, launcher.RunDirError(dir, err)
	}
	defer a.meters.Start(events, log.Note)()
	verdict, err := start(ctx, w, state, log, signals)
	if err != nil {
		return verdict, err
	}
	if err := node.TellParent(commandline.ParseEnviron(os.Environ()), dir, verdict, log.Last(), p.secrets()); err != nil {
		a.page().Printf("gpurun: warning: %v\n", err)
	}
	return verdict, nil
}

// goOn finds the state of a run from its events, which make the run before. over reports that nothing is left to run:
// the verdict exists, or was written now, or an error explains why not.
func goOn(
	p *prepared, w *wiring, dir string, before *journal.Run, events []launcher.Event, log *node.EventLog,
	show func(launcher.Event),
) (state launcher.State, over bool, err error) {
	if events, err = log.RecoverEnds(before, events, p.Accelerator()); err != nil {
		return state, true, err
	}
	state, done, err := launcher.GoOn(dir, w.began, events)
	switch {
	case err != nil:
		return state, true, err
	case done && state.Closed:
		show(launcher.Finished{Verdict: state.Verdict})
		return state, true, nil
	case done:
		return state, true, launcher.Finish(log, state.Verdict)
	}
	if len(events) > 0 {
		w.warnings = append(w.warnings, p.Job.Replaced(before.First.Policy, state.Policy)...)
	}
	w.began.Policy, w.launcher.Policy = state.Policy, state.Policy
	state, notice, err := state.Restart(w.launcher.Job, p.FoundCheckpoints(w.run.Began))
	if err != nil {
		return state, true, err
	}
	if notice != "" {
		w.warnings = append(w.warnings, notice)
	}
	if d, stuck := before.Standstill(w.began.Restart, state.Next); stuck {
		state.Verdict, err = state.Close(log, d)
		return state, true, err
	}
	return state, false, nil
}

// openRun opens the run directory, with a message if it has to wait for it.
func openRun(
	ctx context.Context, place journal.RunSearch, dir string, said io.Writer, show func(launcher.Event),
) (*journal.Journal, []launcher.Event, error) {
	say := func(text string) { fmt.Fprintf(said, "gpurun: %s\n", text) }
	store, events, err := place.OpenRun(ctx, dir, show, journal.LockWait{Note: say})
	if stop := launcher.StoppedEarly(ctx); stop != nil && err != nil {
		err = stop
	}
	if err == nil {
		ranks.SweepLogs(dir)
	}
	return store, events, err
}

// start journals the begin of the run and the warnings, and runs the job to its verdict.
func start(ctx context.Context, w wiring, state launcher.State, log *node.EventLog,
	signals *node.Signals) (launcher.Verdict, error) {
	signals.OnNotice(w.notice)
	w.before.Warn = func(text string) { log.Note("warning: " + text) }
	world := node.NewWorld(w.world, signals, log.Note)
	own := node.New(w.node, log, signals)
	w.launcher.Starter, w.launcher.World, w.launcher.Store = own, world, log
	w.run.Port = own.Port
	w.thisNode.MakeHead(&w.launcher, w.run)
	signals.Share(w.thisNode.Notice)
	remembered := w.launcher.Recall(ctx, &state)
	w.began.Job = w.launcher.Job
	if err := log.Append(w.began); err != nil {
		return state.Verdict, err
	}
	if err := node.SweepSwaps(w.node.NVMePath); err != nil {
		w.warnings = append(w.warnings, strings.ReplaceAll(err.Error(), "\n", "; "))
	}
	for _, text := range w.warnings {
		if err := log.Append(launcher.Noticed{Text: "warning: " + text}); err != nil {
			return state.Verdict, err
		}
	}
	for _, text := range remembered {
		log.Note(text)
	}
	return w.launcher.Run(ctx, state)
}
