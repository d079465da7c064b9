package node

import (
	"cmp"
	"context"
	"errors"
	"fmt"
	"io"
	"maps"
	"os"
	"path/filepath"
	"slices"
	"strconv"
	"strings"
	"time"

	"golang.org/x/sys/unix"
	"golang.org/x/term"

	"github.com/gpurun/gpurun/launcher"
	"github.com/gpurun/gpurun/launcher/errext"
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
		Script: n.opts.Script, Module: n.opts.Module, Hooks: true, Turn: l.Command.Turn, Calls: l.Command.Calls,
		InPlace: l.InPlace, Changes: l.Outside,
		Batch:     l.Confirm || slices.ContainsFunc(l.Command.Calls, batch),
		Allocator: n.allocator(l.Command.Env), Record: n.record(l), Stalls: n.opts.stacks(),
		Questions: n.opts.Questions.Seconds(),
	}
}

// openOutput opens the files and pipes of an attempt's output.
func (n *Node) openOutput(a *attempt) (*ranks.Output, error) {
	o, terminal := n.opts.Output.OutputOptions, n.opts.Output.isTerminal()
	o.Ranks, o.Dir, o.Restarts, o.OnFact = a.ranks(), a.dir, a.n, a.emit
	o.Template, _ = n.opts.Env.Lookup("TORCHELASTIC_LOG_LINE_PREFIX_TEMPLATE")
	mode := n.opts.Output.TTY
	o.TTY = a.local == 1 && (mode == "always" || mode == "auto" && terminal)
	return ranks.OpenOutput(o)
}

// isTerminal reports whether both streams of the console are terminals.
func (c Console) isTerminal() bool {
	for _, w := range []io.Writer{c.Stdout, c.Stderr} {
		if f, ok := w.(*os.File); !ok || !term.IsTerminal(int(f.Fd())) {
			return false
		}
	}
	return true
}

// stdin returns the stdin of rank 0: gpurun's own, unless gpurun runs in the background of a terminal. A rank
// has no controlling terminal, so SIGTTIN would not stop it, and it would read input that is typed for the
// shell.
func (c Console) stdin() *os.File {
	front, err := unix.IoctlGetInt(int(c.Stdin.Fd()), unix.TIOCGPGRP)
	if err == nil && front != unix.Getpgrp() {
		return nil
	}
	return c.Stdin
}

// cannotStart gives the error of a failed start its exit code, if it has none: a shortage of the machine may
// pass, else the job itself is wrong. A stop by the user stays a stop.
func cannotStart(err error) error {
	var stop *launcher.Signal
	switch {
	case err == nil || errors.As(err, &stop) || errext.Code(err, 0) != 0:
		return err
	case isShort(err):
		return errext.WithCode(errext.WithHint(err,
			"the machine is short of processes, descriptors or memory: see ulimit -a, and pids.max of the cgroup"),
			strategy.CodeRetry)
	}
	return errext.WithCode(err, strategy.CodeUsage)
}

// isShort reports whether an error is a shortage of resources.
func isShort(err error) bool {
	for _, short := range []error{unix.EAGAIN, unix.ENOMEM, unix.EMFILE, unix.ENFILE, ranks.ErrNoGuard} {
		if errors.Is(err, short) {
			return true
		}
	}
	return false
}

// Usable returns why gpurun cannot supervise ranks on this machine, with a hint; nil if it can.
func Usable() error {
	err := ranks.CheckProcesses()
	hint := "raise it: ulimit -v unlimited"
	if errors.Is(err, ranks.ErrProc) {
		hint = "mount this namespace's own: unshare --mount-proc, or mount -t proc proc /proc"
	}
	return errext.WithCode(errext.WithHint(err, hint), strategy.CodeUsage)
}

// shell reports whether the job is a program that starts other programs, such as a shell script. Its exit
// code may be that of any of them.
func (n *Node) shell(l launcher.Launch) bool {
	argv := n.opts.Argv(l.Command.Argv, 0)
	return n.opts.Plain && !n.opts.Launcher && n.opts.Script == "" && n.opts.Module == "" &&
		!strings.HasPrefix(filepath.Base(argv[0]), "python")
}

// openPrograms prepares to follow the programs of a shell; nil for other jobs.
func (n *Node) openPrograms(a *attempt, l launcher.Launch) *hook.Programs {
	if !n.shell(l) {
		return nil
	}
	programs, err := hook.OpenPrograms(l.Dir, a.meeting.Offset, a.emit)
	if err != nil {
		a.emit(strategy.Fact{Time: time.Now(), Rank: -1, Source: "gpurun", Content: strategy.Gap(err.Error())})
	}
	return programs
}

// awaitPrograms delays a shell's exit until its background programs have trained, and emits the ends of all
// programs below it.
func (a *attempt) awaitPrograms(f *strategy.Fact) {
	if a.programs == nil {
		return
	}
	exit := f.Exit()
	exit.Shell = true
	if exit.Code == 0 && !exit.Stopped {
		waited := a.programs.AwaitTraining(a.lingering, a.patience(), func(names string) {
			a.node.log.Note(fmt.Sprintf("the command has ended and left its training in the background; waiting for it: %s",
				names))
		})
		if waited {
			f.Time = time.Now()
		}
		exit.Stopped = waited && a.lingering.Err() != nil
	}
	a.programs.Look()
}

// preflight checks the devices before the first attempt of this process, and returns the facts that prevent
// the start. An error comes from the journal, or means that ctx is done.
func (n *Node) preflight(ctx context.Context) ([]strategy.Fact, error) {
	if n.opts.Preflight == nil || n.checked {
		return nil, nil
	}
	var failed error
	show := func(text string) {
		if failed == nil {
			failed = n.log.Append(launcher.Noticed{Text: text})
		}
	}
	show("preflight: the GPUs are checked before the ranks are started, for a minute at most")
	unfit := n.opts.Preflight(ctx, func(text string) { show("warning: " + text) })
	if ctx.Err() != nil {
		return nil, context.Cause(ctx)
	}
	n.checked = true
	for _, f := range unfit {
		show("warning: " + f.DriverEvent().Text())
	}
	return unfit, failed
}

// grounded is an attempt without ranks. Its facts say why they were not started.
type grounded struct{ facts chan strategy.Fact }

func ground(unfit []strategy.Fact) grounded {
	facts := make(chan strategy.Fact, len(unfit))
	for _, f := range unfit {
		facts <- f
	}
	close(facts)
	return grounded{facts}
}

func (g grounded) Facts() <-chan strategy.Fact { return g.facts }
func (grounded) Stop(int, time.Duration)       {}
func (grounded) StopPeers(int, []int)          {}
func (grounded) Release()                      {}
func (grounded) LastSign(int) strategy.Sign    { return strategy.Sign{} }
func (grounded) Stacks()                       {}
func (grounded) Progress() []strategy.Fact     { return nil }
