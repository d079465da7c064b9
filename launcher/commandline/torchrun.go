package commandline

import (
	"slices"
	"strconv"
	"strings"
)

// torchrun is PyTorch's own launcher, whose command line gpurun takes, too. Its
// older name differs by one option.
var (
	torchrun = Launcher{
		Command: []string{"torchrun"},
		Modules: []string{"torch.distributed.run"},
		Grammar: Grammar{Options: torchrunOptions(), Abbreviations: true, Remainder: true},
	}
	torchDistributedLaunch = Launcher{
		Modules: []string{"torch.distributed.launch"},
		Grammar: Grammar{Options: append(torchrunOptions(), Option{Name: "use-env", Bare: true}), Abbreviations: true, Remainder: true},
	}
)

// torchrunOptions are those of torch/distributed/run.py (get_args_parser, torch
// 2.15). Each has a variable, PET_ and its name, where none is ruled out.
func torchrunOptions() []Option {
	const filters = "leave it out, and filter the files that --tee writes"
	options := []Option{
		{Name: "nnodes", Means: NodeCount},
		{Name: "nproc-per-node", Means: Ranks},
		{Name: "standalone", Bare: true},
		{Name: "max-restarts"},
		{Name: "module", Short: 'm', Bare: true, Means: AsModule},
		{Name: "no-python", Bare: true, Means: AsProgram},
		{Name: "log-dir"},
		{Name: "redirects", Short: 'r'},
		{Name: "tee", Short: 't'},
		{Name: "local-ranks-filter"},
		{Name: "role"},
		{Name: "rdzv-id"},
		{Name: "node-rank"},
		{Name: "master-addr"},
		{Name: "master-port"},
		{Name: "signals-to-handle"},
		{Name: "shutdown-timeout"},
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
			Hint: "gpurun keeps each rank's output in files of its own; --log-dir, --redirects and --tee say more"},
		{Name: "print-completion", Means: Refused, Variable: none, Hint: "leave it out"},
		{Name: "duplicate-stdout-filters", Means: Refused, Hint: filters},
		{Name: "duplicate-stderr-filters", Means: Refused, Hint: filters},
		{Name: "help", Short: 'h', Bare: true, Variable: none, Means: Help},
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

// none is the variable of an option of torchrun that has none.
const none = "-"

// ownOptions are gpurun's among torchrun's: they may stand before the script or
// the train.toml. They have no variables: PET_* is torchrun's.
// Those of the policy and of pipelines have to be written in full: a beginning that fits one of
// torchrun's goes on meaning that.
var ownOptions = slices.Concat(valued("python"), bare("json", "quiet", "propagate-exit-code"), valued("run-dir", "deadline"),
	optionsOf([]string{"fresh"}, Option{Whole: true, Bare: true}), optionsOf([]string{"mode", "numerics", "never", "max-attempts", "device-memory", "run-id", "if-trained", "junit"}, Option{Whole: true}))

// ofOneRun are those of them that say something of one run only.
var ofOneRun = []string{"run-dir", "run-id", "fresh"}

// gpurun is the command line that gpurun itself takes in torchrun's place.
// legacyGpurun is what stands behind python -m torch.distributed.launch.
var (
	gpurun       = Grammar{Options: append(torchrunOptions(), ownOptions...), Abbreviations: true, Remainder: true}
	legacyGpurun = Grammar{Options: append(torchrunOptions(), append(ownOptions, Option{Name: "use-env", Bare: true})...), Abbreviations: true, Remainder: true}
)

// IsTorchrunOption reports whether torchrun has an option of that name, whose words
// are joined by dashes.
func IsTorchrunOption(name string) bool { return torchrun.Grammar.named(name) != nil }

// IsOwnOption reports whether the option is one that gpurun has and torchrun has not.
func IsOwnOption(name string) bool {
	own := Grammar{Options: ownOptions}
	return own.named(name) != nil && name != "python"
}

// OwnOptions are the names of the options that a verb which reads its command line itself has
// beside torchrun's, with their dashes, and whether each has a value.
func OwnOptions(verb string) map[string]bool {
	options := ownOptions
	if verb == "estimate" {
		options = estimateOptions
	}
	valued := map[string]bool{}
	for _, o := range options {
		valued["--"+o.Name] = !o.Bare
	}
	return valued
}

// named finds an option by its name, written in full.
func (g *Grammar) named(name string) *Option {
	for i := range g.Options {
		if g.Options[i].Name == name {
			return &g.Options[i]
		}
	}
	return nil
}

// AsksJSON reports whether --json stands among the options that a verb of gpurun takes, also
// where others are wrong: those of a script do not count, those behind a train.toml do, and
// those behind a size.
func AsksJSON(verb string, words []string) bool {
	p := parser{Grammar: &gpurun, words: words}
	if verb == "estimate" {
		p.Grammar = &estimate
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
		len(rest) > 0 && (strings.HasSuffix(rest[0], ".toml") || verb == "estimate" && sizeLike.MatchString(rest[0])) && slices.Contains(rest, "--json")
}

// Verbs are gpurun's, those that are still to come among them: as the first word none
// is ever a program, unless it stands behind a "--".
var Verbs = []string{
	"run", "plan", "diagnose", "explain", "recipes", "init", "estimate", "doctor", "runs", "resume", "status", "logs", "report", "verdict", "clean", "secret", "completion", "version", "help",
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

// Has reports whether all streams of want are in the set.
func (s Std) Has(want Std) bool { return s&want == want }

// Streams chooses standard streams by local rank.
type Streams struct {
	// All holds for ranks that Ranks does not name.
	All Std
	// Ranks maps a local rank to its streams; nil where All says it all.
	Ranks map[int]Std
}

// For returns the streams of one local rank.
func (s Streams) For(localRank int) Std {
	if std, named := s.Ranks[localRank]; named {
		return std
	}
	return s.All
}

// parseStreams reads "3" for every rank, or "0:3,1:1" for some: 0 none, 1 out, 2
// err, 3 both. torchrun has single digits for ranks here; more are read too.
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
