package commandline

import (
	"errors"
	"fmt"
	"slices"
	"strconv"
	"strings"
	"time"

	"github.com/gpurun/gpurun/launcher/errext"
)

// RankOptions are torchrun's options for the ranks of a node.
type RankOptions struct {
	// NprocPerNode is the number of ranks per node: "auto", "gpu", "cpu" or a number from 1.
	NprocPerNode string
	// MasterPort is 0 for a free one in each attempt.
	MasterPort int
	// MaxRestarts bounds restarts of the whole group for failures other than memory.
	MaxRestarts int
	LogDir      string // empty for none
	// Redirects are the streams that go only to files, Tee the streams that go to files and the console.
	Redirects, Tee Streams
	// LocalRanksFilter are the local ranks whose output reaches the console; nil
	// for all.
	LocalRanksFilter []int
	// Role is ROLE_NAME and the prefix of console lines.
	Role string
	// RunID is the user's TORCHELASTIC_RUN_ID, empty for a new one in each attempt.
	RunID string
	// ShutdownTimeout is the grace between SIGTERM and SIGKILL.
	ShutdownTimeout time.Duration
	// LocalRankArg: each rank's arguments get --local-rank=N, as
	// torch.distributed.launch does without --use-env.
	LocalRankArg bool
}

// A TorchrunCommand is torchrun's command line. Options and defaults are those of
// torch/distributed/run.py.
type TorchrunCommand struct {
	RankOptions
	Nodes Nodes

	Kind    CommandKind
	Command []string // script, module or program, and its arguments
	// Flags are the words before the command, without those for one run only: --run-dir, --run-id, --fresh.
	// Torchrun are the Flags that torchrun has too. From is the index of the first word after the flags.
	Flags    []string
	From     int
	Torchrun []string
	// Python and the options in Own are gpurun's own.
	Python string
	Own    Own
	// Set maps the name of each given option to its spelling.
	Set      map[string]string
	Warnings []string

	given              []Given
	standalone, useEnv bool
	module, noPython   bool
	// idle lists given options without effect here, in order.
	idle []string
}

// Own has the options that only gpurun has. They may appear among torchrun's options, before the script or
// the train.toml.
type Own struct {
	JSON      bool   // events and verdict as JSON lines on stdout
	Quiet     bool   // show only failures and the end of gpurun's messages
	RunDir    string // the run directory, as given
	RunID     string // the run's name in the folder of the job's runs; torchrun's run id is Launch.RunID
	IfTrained string // "skip" or "run", as given: what to do if the job has trained before
	JUnit     string // the file for a JUnit report, as given
	Deadline  string // the time by which the run must be over, as given
	Propagate bool   // exit with the job's own code if it failed by itself
	Fresh     bool   // start with the job as written, despite remembered plans

	// The policy, as given; empty if not given. Several --never add up.
	Mode, Numerics, MaxAttempts, DeviceMemory string
	Never                                     string // joined by commas
	NotInPlace                                bool   // --no-in-place
}

// ErrHelp: the command line requests help.
var ErrHelp = errors.New("help was asked for")

// shutdownTimeout is PyTorch's own variable for the grace.
const shutdownTimeout = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"

// ReadTorchrun reads torchrun's command line: options, a script, the script's arguments. env has the PET_*
// variables. legacy means torch.distributed.launch. Errors have a hint. An error in the words is an
// *OptionProblem; ErrHelp means that the user requests help.
func ReadTorchrun(args []string, env Environ, legacy bool) (*TorchrunCommand, error) {
	l := newLaunch()
	if seconds := env[shutdownTimeout]; seconds != "" {
		if err := l.takeShutdownTimeout(Given{Source: shutdownTimeout, Value: seconds}); err != nil {
			return nil, err
		}
	}
	grammar := &gpurun
	if legacy {
		grammar = &legacyGpurun
	}
	read, err := grammar.Read(args)
	if err != nil {
		return nil, err
	}
	l.given = append(grammar.fromVariables(read.Given, env), read.Given...)
	if err := l.takeAll(l.given); err != nil {
		return nil, err
	}
	if len(read.Rest) == 0 {
		return nil, nothingGiven(read.Given)
	}
	l.Command, l.From = read.Rest, read.From
	l.Flags = flags(args[:read.From], read.Given, func(o *Option) bool { return slices.Contains(ofOneRun, o.Name) })
	l.Torchrun = flags(args[:read.From], read.Given, func(o *Option) bool {
		return IsOwnOption(o.Name) || o.Name == "python"
	})
	l.LocalRankArg = legacy && !l.useEnv
	return l, l.finish()
}

// nothingGiven returns the error for a line without a job, or whose job was read as a flag's value.
func nothingGiven(given []Given) error {
	const missing = "no script or train.toml was given"
	if n := len(given) - 1; n >= 0 && given[n].At >= 0 && !given[n].Bare && !given[n].Attached {
		if g := given[n]; strings.HasSuffix(g.Value, ".toml") || strings.HasSuffix(g.Value, ".py") {
			value, hint := "a value", "write its value behind "+g.Source
			if g.Name == "if-trained" {
				value, hint = "skip or run", fmt.Sprintf("write --if-trained skip %[1]s, or --if-trained run %[1]s", g.Value)
			}
			return errext.Errorf(hint, "%s needs %s, and takes %q for it: %s", g.Source, value, g.Value, missing)
		}
	}
	return errext.Errorf("gpurun [flags] script.py args…, or gpurun train.toml", missing)
}

// flags returns the words with options, without those for which without is true: the next run, for example,
// has another run directory.
func flags(words []string, given []Given, without func(*Option) bool) []string {
	drop := map[int]bool{}
	for _, g := range given {
		if g.At >= 0 && without(g.Option) {
			drop[g.At], drop[g.At+1] = true, drop[g.At+1] || !g.Attached && !g.Bare
		}
	}
	var left []string
	for i, w := range words {
		if !drop[i] {
			left = append(left, w)
		}
	}
	return left
}

// More reads further options after the train.toml. rest are the words after them.
func (l *TorchrunCommand) More(words []string) (rest []string, err error) {
	read, err := gpurun.Read(words)
	if err != nil || len(read.Rest) > 0 {
		return read.Rest, err
	}
	return nil, l.takeAll(read.Given)
}

func (l *TorchrunCommand) takeAll(found []Given) error {
	for _, g := range found {
		if err := l.take(g); err != nil {
			return err
		}
		l.Set[g.Name] = g.Source
	}
	return nil
}

// finish checks the options together.
func (l *TorchrunCommand) finish() error {
	switch {
	case l.module && l.noPython:
		return errext.Errorf("drop one of them", "--module and --no-python contradict each other")
	case l.module:
		l.Kind = Module
	case l.noPython:
		l.Kind = Program
	default:
		l.Kind = Script
	}
	if source, set := l.Set["master-port"]; set && l.standalone && l.MasterPort != 0 {
		l.MasterPort = 0
		l.idle = append(l.idle, source)
	}
	var err error
	if l.Nodes, err = nodesOf(l.given); err != nil {
		return err
	}
	l.warnOfMeeting()
	return nil
}

// warnOfMeeting warns about rendezvous options without effect: on a single node, ranks need not find other
// nodes.
func (l *TorchrunCommand) warnOfMeeting() {
	where := " on one node"
	if l.Nodes.Several() {
		where = ""
		l.idle = slices.DeleteFunc(l.idle, func(source string) bool {
			return slices.ContainsFunc(l.given, func(g Given) bool {
				return g.Source == source && slices.Contains(onOneNode, g.Name)
			})
		})
	} else if g, ok := (Reading{Given: l.given}).Last("master-addr"); ok && !slices.Contains(loopbacks, g.Value) {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s=%s has no effect on one node: ranks meet at 127.0.0.1", g.Source,
			g.Value))
	}
	if len(l.idle) > 0 {
		verb := "have"
		if len(l.idle) == 1 {
			verb = "has"
		}
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s %s no effect with gpurun%s", strings.Join(l.idle, ", "), verb, where))
	}
}

// loopbacks are the addresses of a rendezvous on a single node.
var loopbacks = []string{"127.0.0.1", "localhost", "::1", "[::1]"}

// take takes in one option.
func (l *TorchrunCommand) take(g Given) (err error) {
	switch g.Means {
	case Help:
		return ErrHelp
	case Idle:
		l.idle = append(l.idle, g.Source)
		return nil
	case Refused:
		on := !g.Bare
		if g.Bare {
			if on, err = g.truth(); err != nil {
				return err
			}
		}
		if on {
			return errext.Errorf(g.Hint, "%s is not supported", g.Source)
		}
		return nil
	}
	if g.field == nil {
		return l.takeValue(g)
	}
	switch field := g.field(l).(type) {
	case *string:
		*field = g.Value
	case *bool:
		*field, err = g.truth()
	case *Streams:
		*field, err = g.streams()
	}
	return err
}

// takeValue takes in an option of torchrun, or one that counts each time that it is given.
func (l *TorchrunCommand) takeValue(g Given) (err error) {
	switch g.Name {
	case "nproc-per-node":
		return l.takeNproc(g)
	case "max-restarts":
		l.MaxRestarts, err = g.whole(g.Value, 0, many)
	case "local-ranks-filter":
		return l.takeFilter(g)
	case "rdzv-id":
		if g.Value != "none" { // torchrun's value for no choice
			l.RunID = g.Value
		}
	case "nnodes", "node-rank", "master-addr": // nodesOf reads these together
	case "master-port":
		l.MasterPort, err = g.whole(g.Value, 0, 65535)
	case "signals-to-handle":
		l.takeSignals(g)
	case "shutdown-timeout":
		return l.takeShutdownTimeout(g)
	case "never":
		l.Own.Never = strings.TrimPrefix(l.Own.Never+","+g.Value, ",")
	default:
		return fmt.Errorf("%s has no meaning here", g.Source) // an option without a case: a test excludes that
	}
	return err
}

// truth reads an option without a value. In a variable it is 0 or 1.
func (g Given) truth() (bool, error) {
	n, err := strconv.Atoi(g.Value)
	if err != nil {
		return false, errext.Errorf("write 1 or 0", "%s: %q is not a number", g.Source, g.Value)
	}
	return n != 0, nil
}

// whole reads a whole number from least to most.
func (g Given) whole(v string, least, most int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil {
		return 0, fmt.Errorf("%s: %q is not a whole number", g.Source, v)
	}
	if n < least || n > most {
		return 0, fmt.Errorf("%s: %d is out of range", g.Source, n)
	}
	return n, nil
}

// streams reads the streams that an option selects by rank.
func (g Given) streams() (Streams, error) {
	s, ok := parseStreams(g.Value)
	if !ok {
		return s, errext.Errorf(`write 0 (none), 1 (out), 2 (err) or 3 (both), or RANK:STREAMS pairs such as "0:3,1:1"`,
			"%s: %q names no streams", g.Source, g.Value)
	}
	return s, nil
}

// many bounds numbers that have no other bound.
const many = 1 << 30

func (l *TorchrunCommand) takeNproc(g Given) error {
	switch g.Value {
	case "auto", "gpu", "cpu":
		l.NprocPerNode = g.Value
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(g.Value))
	if errors.Is(err, strconv.ErrRange) {
		return fmt.Errorf("%s: %s is out of range", g.Source, g.Value)
	}
	if err != nil {
		return errext.Errorf(`write a number, "auto", "gpu" or "cpu"`, "%s: %q is not a number of ranks", g.Source, g.Value)
	}
	if n < 1 {
		return fmt.Errorf("%s: %d is less than 1", g.Source, n)
	}
	l.NprocPerNode = strconv.Itoa(n)
	return nil
}

// takeSignals warns about a list that is not the default: gpurun always handles these four.
func (l *TorchrunCommand) takeSignals(g Given) {
	const handled = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
	if g.Value != handled {
		l.Warnings = append(l.Warnings, fmt.Sprintf("%s=%s has no effect: gpurun handles %s", g.Source, g.Value, handled))
	}
}

// takeShutdownTimeout reads seconds, as torchrun does, or a duration.
func (l *TorchrunCommand) takeShutdownTimeout(g Given) error {
	d, err := time.ParseDuration(g.Value)
	if seconds, bare := strconv.ParseFloat(g.Value, 64); bare == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
		if !(seconds >= 0 && seconds <= many) {
			d = -1
		}
	}
	if err != nil || d < 0 {
		return errext.Errorf("write seconds, or a duration such as 30s", "%s: %q is not a time to wait", g.Source, g.Value)
	}
	l.ShutdownTimeout = d
	return nil
}

// takeFilter reads local ranks: "0,2".
func (l *TorchrunCommand) takeFilter(g Given) error {
	var ranks []int
	for part := range strings.SplitSeq(g.Value, ",") {
		n, err := g.whole(part, 0, many)
		if err != nil {
			return err
		}
		ranks = append(ranks, n)
	}
	l.LocalRanksFilter = ranks
	return nil
}

// LaunchOf returns torchrun's command line with only a number of ranks, which came from source.
func LaunchOf(ranks, source string) *TorchrunCommand {
	l := newLaunch()
	l.NprocPerNode, l.Set["nproc-per-node"] = ranks, source
	return l
}

// DefaultGrace is how long ranks have to end by themselves after a stop. torchrun allows 30 s. Slurm
// (KillWait) also waits 30 s before it kills gpurun, which must end its ranks and write the verdict before
// that.
const DefaultGrace = 25 * time.Second

// DefaultRankOptions returns torchrun's defaults, except for the grace.
func DefaultRankOptions() RankOptions {
	return RankOptions{NprocPerNode: "1", Role: "default", ShutdownTimeout: DefaultGrace}
}

// newLaunch returns torchrun's command line without any option.
func newLaunch() *TorchrunCommand {
	return &TorchrunCommand{RankOptions: DefaultRankOptions(), Set: map[string]string{}}
}

// WithOption returns gpurun's arguments with an option that has the given value, or without it if the value
// is empty, and without the options for one run only.
func WithOption(args []string, name, value string) []string {
	drop := func(o *Option) bool { return o.Name == name || slices.Contains(ofOneRun, o.Name) }
	read, err := gpurun.Read(args)
	if err != nil {
		return args
	}
	words := flags(args[:read.From], read.Given, drop)
	if rest := read.Rest; len(rest) > 1 && strings.HasSuffix(rest[0], ".toml") {
		if more, err := gpurun.Read(rest[1:]); err == nil {
			read.Rest = append([]string{rest[0]}, flags(rest[1:], more.Given, drop)...)
		}
	}
	if value != "" {
		words = append([]string{"--" + name, value}, words...)
	}
	return append(words, read.Rest...)
}
