package commandline

import (
	"fmt"
	"slices"
	"strconv"
	"strings"
)

// torchrun is PyTorch's own launcher. gpurun accepts the same command line. torchrun's older name differs in
// one option.
var (
	torchrun = RankLauncher{
		Command: []string{"torchrun"},
		Modules: []string{"torch.distributed.run"},
		Grammar: OptionGrammar{Options: torchrunOptions(), Abbreviations: true, Remainder: true},
	}
	torchDistributedLaunch = RankLauncher{
		Modules: []string{"torch.distributed.launch"},
		Grammar: OptionGrammar{Options: append(torchrunOptions(), useEnv), Abbreviations: true, Remainder: true},
	}
)

// torchrunOptions returns the options in torch/distributed/run.py (get_args_parser, torch 2.15). Each has a
// variable, PET_ and its name, unless its Variable is none.
func torchrunOptions() []Option {
	const filters = "leave it out, and filter the files that --tee writes"
	options := []Option{
		{Name: "nproc-per-node", Means: Ranks, Value: "N", About: "the number of ranks, or auto, gpu or cpu"},
		{Name: "module", Short: 'm', Bare: true, Means: AsModule, field: func(l *TorchrunCommand) any { return &l.module },
			About: "the script is a module, as in python -m"},
		{Name: "no-python", Bare: true, Means: AsProgram, field: func(l *TorchrunCommand) any { return &l.noPython },
			About: "the script is a program"},
		{Name: "max-restarts", Value: "N", About: "restarts for failures that no remedy answers"},
		{Name: "log-dir", Value: "DIR", field: func(l *TorchrunCommand) any { return &l.LogDir },
			About: "the folder of the job's runs, in place of .gpurun/JOB"},
		{Name: "redirects", Short: 'r', Value: "STD", field: func(l *TorchrunCommand) any { return &l.Redirects },
			About: "streams that go only to files: 1 (out), 2 (err), 3 (both), or RANK:STD,…"},
		{Name: "tee", Short: 't', Value: "STD", field: func(l *TorchrunCommand) any { return &l.Tee },
			About: "streams that go to files and to the console"},
		{Name: "local-ranks-filter", Value: "R", About: "the ranks whose output reaches the console: 0,1,…"},
		{Name: "role", Value: "NAME", field: func(l *TorchrunCommand) any { return &l.Role },
			About: "ROLE_NAME, and the prefix of the console's lines"},
		{Name: "master-port", Value: "PORT", About: "by default a free one for each attempt"},
		{Name: "rdzv-id", Value: "ID", About: "TORCHELASTIC_RUN_ID; by default a fresh one for each attempt"},
		{Name: "shutdown-timeout", Value: "S", About: "seconds between SIGTERM and SIGKILL; by default 25"},
		{Name: "nnodes", Means: NodeCount, Value: "N",
			About: "the number of nodes, each of which starts gpurun with the same command; fixed, not 2:4"},
		{Name: "node-rank", Value: "K", About: "which of them this is, from 0"},
		{Name: "master-addr", Value: "HOST", About: "where node 0 is; or --rdzv-endpoint HOST"},
		{Name: "standalone", Bare: true, field: func(l *TorchrunCommand) any { return &l.standalone }},
		{Name: "signals-to-handle"},
		{Name: "rdzv-backend", Means: Idle},
		{Name: "rdzv-endpoint", Means: Idle},
		{Name: "rdzv-conf", Means: Idle},
		{Name: "monitor-interval", Means: Idle},
		{Name: "start-method", Means: Idle},
		{Name: "event-log-handler", Means: Idle},
		{Name: "local-addr", Means: Idle},
		{Name: "log-line-prefix-template", Means: Idle},
		{Name: "numa-binding", Means: Idle, Variable: none},
		{Name: "virtual-local-rank", Bare: true, Means: Refused, Hint: "leave it out: each rank finds its GPU by LOCAL_RANK"},
		{Name: "run-path", Bare: true, Means: Refused, Hint: "leave it out: the interpreter runs the script"},
		{Name: "logs-specs", Means: Refused, Variable: none,
			Hint: "gpurun keeps each rank's output in separate files; --log-dir, --redirects and --tee set where"},
		{Name: "print-completion", Means: Refused, Variable: none, Hint: "leave it out"},
		{Name: "duplicate-stdout-filters", Means: Refused, Hint: filters},
		{Name: "duplicate-stderr-filters", Means: Refused, Hint: filters},
		helpOption,
	}
	for i := range options {
		switch o := &options[i]; o.Variable {
		case none:
			o.Variable = ""
		case "":
			o.Variable = "PET_" + strings.ToUpper(strings.ReplaceAll(o.Name, "-", "_"))
		}
	}
	return options
}

// useEnv is the option that only torchrun's older name has.
var useEnv = Option{Name: "use-env", Bare: true, field: func(l *TorchrunCommand) any { return &l.useEnv }}

// none marks an option of torchrun without a variable.
const none = "-"

// helpOption requests help.
var helpOption = Option{Name: "help", Short: 'h', Bare: true, Variable: none, Means: Help, About: "show this"}

// ownOptions are gpurun's own options, which may appear among torchrun's, before the script or the
// train.toml. They have no variables, since PET_* belongs to torchrun. Newer ones are Whole, so that an
// abbreviation of a torchrun option keeps its meaning.
var ownOptions = []Option{
	{Name: "json", Bare: true, field: func(l *TorchrunCommand) any { return &l.Own.JSON },
		About: "print events as JSON lines on stdout, the verdict last; all else goes to stderr"},
	{Name: "quiet", Bare: true, field: func(l *TorchrunCommand) any { return &l.Own.Quiet },
		About: "show only failures and the end"},
	{Name: "run-dir", Value: "DIR", field: func(l *TorchrunCommand) any { return &l.Own.RunDir },
		About: "the run directory; one that exists continues where it stopped"},
	{Name: "run-id", Value: "ID", Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.RunID },
		About: `its name in .gpurun/JOB: letters, digits, ".", "_", "-"; the same ID continues the same run`},
	{Name: "if-trained", Value: "WHAT", Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.IfTrained },
		About: "where this job has trained before: skip ends at once with 0, run starts again"},
	{Name: "fresh", Bare: true, Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.Fresh },
		About: "start with the job as written, not with the plan that fitted before; a named run that failed\nis set aside for a new one"},
	{Name: "deadline", Value: "TIME", field: func(l *TorchrunCommand) any { return &l.Own.Deadline },
		About: "when the run must be over, such as 4h or 07:30: it stops at a checkpoint before, with code 75, and starts\n" +
			"no attempt that would be cut off before it makes progress"},
	{Name: "junit", Value: "FILE", Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.JUnit },
		About: "write a JUnit report: a case for each attempt and one for the run"},
	{Name: "propagate-exit-code", Bare: true, field: func(l *TorchrunCommand) any { return &l.Own.Propagate },
		About: "end with the job's own code, if that is 1-63, where the job itself failed"},
	{Name: "python", Value: "PATH", field: func(l *TorchrunCommand) any { return &l.Python },
		About: "the interpreter; by default the active environment's, then torchrun's, then python3"},
}

// policyOptions are gpurun's options for the policy.
var policyOptions = []Option{
	{Name: "mode", Value: "MODE", Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.Mode },
		About: "ladder: one remedy at a time; predict; off: name the cause, change nothing"},
	{Name: "numerics", Value: "WHICH", Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.Numerics },
		About: "preserve: same dtypes and optimizer; mixed-precision; any"},
	{Name: "never", Value: "NAME,…", Whole: true, About: "remedies or knobs to leave alone; may be given several times"},
	{Name: "no-in-place", Bare: true, Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.NotInPlace },
		About: "do not do a step again inside the process that ran out of memory: relaunch the job"},
	{Name: "max-attempts", Value: "N", Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.MaxAttempts },
		About: "the most attempts; one that a signal or the scheduler ended does not count"},
	{Name: "device-memory", Value: "SIZE", Whole: true, field: func(l *TorchrunCommand) any { return &l.Own.DeviceMemory },
		About: "a ceiling for each rank, such as 24GiB"},
}

// runOptions are all options that only gpurun has.
var runOptions = slices.Concat(ownOptions, policyOptions)

// ofOneRun are those that apply to one run only.
var ofOneRun = []string{"run-dir", "run-id", "fresh"}

// gpurun is the command line that gpurun takes in place of torchrun. legacyGpurun is that of python -m
// torch.distributed.launch.
var (
	gpurun       = OptionGrammar{Options: append(torchrunOptions(), runOptions...), Abbreviations: true, Remainder: true}
	legacyGpurun = OptionGrammar{Options: append(torchrunOptions(), append(runOptions, useEnv)...), Abbreviations: true,
		Remainder: true}
)

// IsTorchrunOption reports whether torchrun has an option of that name, which is written with dashes.
func IsTorchrunOption(name string) bool { return torchrun.Grammar.named(name) != nil }

// IsOwnOption reports whether only gpurun has this option.
func IsOwnOption(name string) bool {
	own := OptionGrammar{Options: runOptions}
	return own.named(name) != nil && name != "python"
}

// named finds an option by its full name.
func (g *OptionGrammar) named(name string) *Option {
	for i := range g.Options {
		if g.Options[i].Name == name {
			return &g.Options[i]
		}
	}
	return nil
}

// AsksJSON reports whether --json is among the options of a gpurun verb, even if other options are wrong.
// Options after a train.toml or a size count, options of a script do not.
func AsksJSON(verb string, words []string) bool {
	p := parser{OptionGrammar: &gpurun, words: words}
	if verb == "estimate" {
		p.OptionGrammar = &estimate
	}
	for p.at < len(words) && words[p.at] != "--" {
		at := p.at
		other, err := p.option(words[at])
		if other {
			break
		}
		if err != nil {
			p.at = at + 1
		}
	}
	rest := words[p.at:]
	return slices.ContainsFunc(p.found, func(g Given) bool { return g.Name == "json" }) ||
		len(rest) > 0 && (strings.HasSuffix(rest[0], ".toml") || verb == "estimate" && sizeLike().MatchString(rest[0])) &&
			slices.Contains(rest, "--json")
}

// Verbs are gpurun's verbs, including reserved ones. As the first word a verb is never a program, unless it
// follows a "--".
var Verbs = []string{
	"run", "plan", "diagnose", "explain", "recipes", "init", "estimate", "doctor", "runs", "resume", "status", "logs",
	"report", "verdict", "clean", "secret", "completion", "version", "help",
}

// Std is a set of standard streams, with torchrun's numbers.
type Std uint8

// The sets of streams.
const (
	NoStd Std = 0
	Out   Std = 1
	Err   Std = 2
	Both  Std = 3
)

// Streams chooses standard streams by local rank.
type Streams struct {
	// All applies to ranks that are not in Ranks.
	All Std
	// Ranks maps a local rank to its streams; nil if All applies to every rank.
	Ranks map[int]Std
}

// parseStreams reads "3" for every rank, or "0:3,1:1" for some: 0 none, 1 out, 2 err, 3 both. torchrun reads
// only single digits for ranks here; gpurun also reads longer numbers.
func parseStreams(v string) (s Streams, ok bool) {
	digit := func(s string) (Std, bool) {
		if len(s) != 1 || s[0] < '0' || s[0] > '3' {
			return NoStd, false
		}
		return Std(s[0] - '0'), true
	}
	if all, ok := digit(v); ok {
		return Streams{All: all}, true
	}
	ranks := map[int]Std{}
	for pair := range strings.SplitSeq(v, ",") {
		rank, which, _ := strings.Cut(pair, ":")
		n, err := strconv.ParseUint(rank, 10, 16)
		std, ok := digit(which)
		if err != nil || !ok {
			return Streams{}, false
		}
		ranks[int(n)] = std
	}
	return Streams{Ranks: ranks}, true
}

// A HelpEntry is an option in the help of a verb, or a text between options.
type HelpEntry struct {
	Names []string // with their dashes; nil for a text
	Value string   // placeholder of the option's value; empty for none
	About string   // what the option does, or the text; a heading ends in a colon
}

// entry returns the option as help shows it.
func (o *Option) entry() HelpEntry {
	e := HelpEntry{Names: []string{"--" + o.Name}, Value: o.Value, About: o.About}
	switch {
	case o.Means == Help:
		e.Names = append(e.Names, "-"+string(o.Short))
	case o.Short != 0:
		e.Names = slices.Insert(e.Names, 0, "-"+string(o.Short))
	}
	return e
}

// entries returns the options that help lists.
func entries(options ...Option) (all []HelpEntry) {
	for i := range options {
		if options[i].About != "" {
			all = append(all, options[i].entry())
		}
	}
	return all
}

// oneDocument is the option --json of verbs that do not run a job.
var oneDocument = Option{Name: "json", Bare: true, About: "print one JSON document on stdout"}

// HelpFor returns the help for the options of a verb that reads its command line itself.
func HelpFor(verb string) []HelpEntry {
	text := func(about string) []HelpEntry { return []HelpEntry{{About: about}} }
	ofJob := torchrunOptions()
	switch verb {
	case "run":
		return slices.Concat(
			text("gpurun's own:"), entries(ownOptions...), entries(helpOption),
			text("the policy, over train.toml and the defaults in ~/.config/gpurun/config.toml:"), entries(policyOptions...),
			text("torchrun's, before the script (with a train.toml: its [launch] table, or job.command):"),
			entries(slices.DeleteFunc(ofJob, func(o Option) bool { return o.Means == Help })...),
			text("--standalone and torchrun's other flags for rendezvous and monitoring are accepted and have no effect."))
	case "estimate":
		return slices.Concat(entries(oneDocument), entries(estimateOptions...), entries(helpOption),
			text("With a job, the flags override the job's settings; those of \"gpurun plan\" count before it, too."))
	}
	ofJob = slices.DeleteFunc(slices.Concat(ofJob, ownOptions), func(o Option) bool {
		return !slices.Contains([]string{"nproc-per-node", "module", "no-python", "python"}, o.Name)
	})
	return slices.Concat(entries(oneDocument), entries(ofJob...), entries(helpOption),
		text("Those of the policy (--mode, --numerics, --never, --device-memory) count as in \"gpurun run\", whose other flags\n"+
			"are accepted, and change nothing here."))
}

// HelpText returns HelpFor as lines.
func HelpText(verb string) string {
	all := HelpFor(verb)
	indent, width := 0, 20
	if all[0].Names == nil { // under headings
		indent, width = 2, 24
	}
	var b strings.Builder
	for i, e := range all {
		switch {
		case e.Names != nil:
			about := strings.ReplaceAll(e.About, "\n", "\n"+strings.Repeat(" ", indent+width))
			fmt.Fprintf(&b, "%*s%-*s%s\n", indent, "", width, strings.TrimSpace(strings.Join(e.Names, ", ")+" "+e.Value), about)
		case strings.HasSuffix(e.About, ":") && i > 0:
			fmt.Fprintf(&b, "\n%s\n", e.About)
		case strings.HasSuffix(e.About, ":"):
			fmt.Fprintf(&b, "%s\n", e.About)
		default:
			fmt.Fprintf(&b, "%*s%s\n", indent, "", e.About)
		}
	}
	return strings.TrimSuffix(b.String(), "\n")
}

// Completable returns the options of such a verb that a shell can complete: those in its help, and those that
// only its reader knows.
func Completable(verb string) []HelpEntry {
	all := slices.DeleteFunc(HelpFor(verb), func(e HelpEntry) bool { return e.Names == nil })
	more := runOptions
	if verb == "estimate" {
		more = estimateOptions
	}
	for i := range more {
		e := more[i].entry()
		if e.Value == "" && !more[i].Bare {
			e.Value = "VALUE"
		}
		if !slices.ContainsFunc(all, func(listed HelpEntry) bool { return slices.Contains(listed.Names, e.Names[0]) }) {
			all = append(all, e)
		}
	}
	return all
}
