package job

import (
	"errors"
	"fmt"
	"strconv"
	"strings"
	"time"
)

// A commandLine is what torchrun's flags and positional arguments say. Flags and
// defaults are those of torch/distributed/run.py.
type commandLine struct {
	launch     Launch
	module     bool
	noPython   bool
	standalone bool
	useEnv     bool
	python     string
	own        Own
	command    []string // script, module or program, and its arguments
	from       string   // how the flag at hand is spelled: "--tee", "PET_TEE"
	// set maps the name of each flag that was given to how it was spelled.
	set map[string]string
	// idle lists flags without effect here, in the order given.
	idle     []string
	warnings []string
}

// parseTorchrun reads torchrun's command line: flags, a script, the script's
// arguments. env gives the PET_* variables. legacy is torch.distributed.launch.
func parseTorchrun(args []string, env func(string) string, legacy bool) (*commandLine, error) {
	c := &commandLine{launch: defaults().Launch, set: map[string]string{}}
	c.launch.NprocPerNode = "1"
	if seconds := env("TORCH_ELASTIC_SHUTDOWN_TIMEOUT"); seconds != "" {
		c.from = "TORCH_ELASTIC_SHUTDOWN_TIMEOUT"
		if err := takeShutdownTimeout(c, seconds); err != nil {
			return nil, err
		}
	}
	flags := append(torchrunFlags(), ownFlags()...)
	if legacy {
		flags = append(flags, &flag{name: "use-env", truth: true, noVariable: true,
			take: func(c *commandLine, v string) error { return c.truth(&c.useEnv, v) }})
	}
	found, rest, err := parseFlags(flags, args)
	if err != nil {
		return nil, err
	}
	for _, g := range append(fromVariables(flags, found, env), found...) {
		c.from = g.source
		if err := g.take(c, g.value); err != nil {
			return nil, err
		}
		c.set[g.name] = g.source
	}
	if len(rest) == 0 {
		return nil, usage("gpurun [flags] script.py args…, or gpurun train.toml", "no script is named")
	}
	c.command = rest
	c.launch.LocalRankArg = legacy && !c.useEnv
	return c, c.finish()
}

// finish judges the flags together.
func (c *commandLine) finish() error {
	if c.module && c.noPython {
		return usage("drop one of them", "--module and --no-python contradict each other")
	}
	if source, set := c.set["master-port"]; set && c.standalone && c.launch.MasterPort != 0 {
		c.launch.MasterPort = 0
		c.idle = append(c.idle, source)
	}
	if len(c.idle) > 0 {
		verb := "have"
		if len(c.idle) == 1 {
			verb = "has"
		}
		c.warnings = append(c.warnings, fmt.Sprintf("%s %s no effect with gpurun on one node", strings.Join(c.idle, ", "), verb))
	}
	return nil
}

// kind says what the command's first word is.
func (c *commandLine) kind() Kind {
	switch {
	case c.module:
		return Module
	case c.noPython:
		return Program
	}
	return Script
}

// ErrHelp says that the command line asks for help.
var ErrHelp = errors.New("help was asked for")

// torchrunFlags lists every flag of torchrun, and those of gpurun that may stand
// among them.
func torchrunFlags() []*flag {
	idle := func(name string) *flag { return &flag{name: name, take: takeIdle} }
	refused := func(name, hint string) *flag {
		return &flag{name: name, take: func(c *commandLine, _ string) error {
			return usage(hint, "%s is not supported", c.from)
		}}
	}
	truth := func(name string, short byte, into func(c *commandLine) *bool) *flag {
		return &flag{name: name, short: short, truth: true,
			take: func(c *commandLine, v string) error { return c.truth(into(c), v) }}
	}
	virtual := refused("virtual-local-rank", "leave it out: each rank finds its GPU by LOCAL_RANK")
	runPath := refused("run-path", "leave it out: the interpreter runs the script")
	for _, f := range []*flag{virtual, runPath} {
		unsupported := f.take
		f.truth = true
		f.take = func(c *commandLine, v string) error {
			var on bool
			if err := c.truth(&on, v); err != nil || !on {
				return err
			}
			return unsupported(c, v)
		}
	}
	logs := refused("logs-specs", "gpurun keeps each rank's output in files of its own; --log-dir, --redirects and --tee say more")
	completion := refused("print-completion", "leave it out")
	logs.noVariable, completion.noVariable = true, true
	numa := idle("numa-binding")
	numa.noVariable = true
	const filters = "leave it out, and filter the files that --tee writes"
	return []*flag{
		{name: "nnodes", take: takeNodes},
		{name: "nproc-per-node", take: takeNproc},
		truth("standalone", 0, func(c *commandLine) *bool { return &c.standalone }),
		{name: "max-restarts", take: takeMaxRestarts},
		truth("module", 'm', func(c *commandLine) *bool { return &c.module }),
		truth("no-python", 0, func(c *commandLine) *bool { return &c.noPython }),
		{name: "log-dir", take: func(c *commandLine, v string) error { c.launch.LogDir = v; return nil }},
		{name: "redirects", short: 'r', take: func(c *commandLine, v string) error { return c.streams(&c.launch.Redirects, v) }},
		{name: "tee", short: 't', take: func(c *commandLine, v string) error { return c.streams(&c.launch.Tee, v) }},
		{name: "local-ranks-filter", take: takeFilter},
		{name: "role", take: func(c *commandLine, v string) error { c.launch.Role = v; return nil }},
		{name: "rdzv-id", take: takeRunID},
		{name: "node-rank", take: takeNodeRank},
		{name: "master-addr", take: takeMasterAddr},
		{name: "master-port", take: takeMasterPort},
		{name: "signals-to-handle", take: takeSignals},
		{name: "shutdown-timeout", take: takeShutdownTimeout},
		idle("rdzv-backend"), idle("rdzv-endpoint"), idle("rdzv-conf"), idle("monitor-interval"),
		idle("start-method"), idle("event-log-handler"), idle("local-addr"), idle("log-line-prefix-template"), numa,
		virtual, runPath, logs, completion, refused("duplicate-stdout-filters", filters), refused("duplicate-stderr-filters", filters),
		{name: "python", noVariable: true, take: func(c *commandLine, v string) error { c.python = v; return nil }},
		{name: "help", short: 'h', truth: true, noVariable: true, take: func(*commandLine, string) error { return ErrHelp }},
	}
}

// takeIdle notes a flag that changes nothing here.
func takeIdle(c *commandLine, _ string) error {
	c.idle = append(c.idle, c.from)
	return nil
}

// truth reads a flag without a value; from a variable it is 0 or 1.
func (c *commandLine) truth(into *bool, v string) error {
	n, err := strconv.Atoi(v)
	if err != nil {
		return usage("write 1 or 0", "%s: %q is not a number", c.from, v)
	}
	*into = n != 0
	return nil
}

// whole reads a whole number from least to most.
func (c *commandLine) whole(v string, least, most int) (int, error) {
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil {
		return 0, usage("", "%s: %q is not a whole number", c.from, v)
	}
	if n < least || n > most {
		return 0, usage("", "%s: %d is out of range", c.from, n)
	}
	return n, nil
}

// many bounds numbers that have no bound of their own.
const many = 1 << 30

// oneNode is the hint for everything that wants more than one node.
const oneNode = "start gpurun with --nnodes=1, or use torchrun for this job"

// takeNodes accepts one node: "1" or "1:1".
func takeNodes(c *commandLine, v string) error {
	least, most, isRange := strings.Cut(v, ":")
	if !isRange {
		most = least
	}
	low, err := c.whole(least, 1, many)
	if err != nil {
		return err
	}
	high, err := c.whole(most, 1, many)
	if err != nil {
		return err
	}
	if high < low {
		return usage("write MIN:MAX", "%s: %s ends before it starts", c.from, v)
	}
	if high > 1 {
		return usage(oneNode, "%s=%s: more than one node is not supported", c.from, v)
	}
	return nil
}

// takeNodeRank accepts the only node's rank.
func takeNodeRank(c *commandLine, v string) error {
	n, err := c.whole(v, 0, many)
	if err == nil && n > 0 {
		return usage(oneNode, "%s=%d: more than one node is not supported", c.from, n)
	}
	return err
}

func takeNproc(c *commandLine, v string) error {
	switch v {
	case "auto", "gpu", "cpu":
		c.launch.NprocPerNode = Count(v)
		return nil
	}
	n, err := strconv.Atoi(strings.TrimSpace(v))
	if err != nil {
		return usage(`write a number, "auto", "gpu" or "cpu"`, "%s: %q is not a number of ranks", c.from, v)
	}
	if n < 1 {
		return usage("", "%s: %d is less than 1", c.from, n)
	}
	c.launch.NprocPerNode = Count(strconv.Itoa(n))
	return nil
}

func takeMaxRestarts(c *commandLine, v string) (err error) {
	c.launch.MaxRestarts, err = c.whole(v, 0, many)
	return err
}

func takeMasterPort(c *commandLine, v string) (err error) {
	c.launch.MasterPort, err = c.whole(v, 0, 65535)
	return err
}

// takeMasterAddr warns of an address that no rank of a single node needs.
func takeMasterAddr(c *commandLine, v string) error {
	switch v {
	case "127.0.0.1", "localhost", "::1", "[::1]":
		return nil
	}
	c.warnings = append(c.warnings, fmt.Sprintf("%s=%s has no effect on one node: ranks meet at 127.0.0.1", c.from, v))
	return nil
}

// takeRunID keeps what the user chose; "none" is torchrun's word for no choice.
func takeRunID(c *commandLine, v string) error {
	if v != "none" {
		c.launch.RunID = v
	}
	return nil
}

// takeSignals warns of a list that is not the default: gpurun handles these four.
func takeSignals(c *commandLine, v string) error {
	const handled = "SIGTERM,SIGINT,SIGHUP,SIGQUIT"
	if v != handled {
		c.warnings = append(c.warnings, fmt.Sprintf("%s=%s has no effect: gpurun handles %s", c.from, v, handled))
	}
	return nil
}

// takeShutdownTimeout reads seconds, as torchrun does, or a duration.
func takeShutdownTimeout(c *commandLine, v string) error {
	d, err := time.ParseDuration(v)
	if seconds, bare := strconv.ParseFloat(v, 64); bare == nil {
		d, err = time.Duration(seconds*float64(time.Second)), nil
		if !(seconds >= 0 && seconds <= many) {
			d = -1
		}
	}
	if err != nil || d < 0 {
		return usage("write seconds, or a duration such as 30s", "%s: %q is not a time to wait", c.from, v)
	}
	c.launch.ShutdownTimeout = d
	return nil
}

// takeFilter reads local ranks: "0,2".
func takeFilter(c *commandLine, v string) error {
	var ranks []int
	for _, part := range strings.Split(v, ",") {
		n, err := c.whole(part, 0, many)
		if err != nil {
			return err
		}
		ranks = append(ranks, n)
	}
	c.launch.LocalRanksFilter = ranks
	return nil
}

// streams reads "3" for every rank, or "0:3,1:1" for some: 0 none, 1 out, 2 err,
// 3 both. torchrun has single digits for ranks here; more are read too.
func (c *commandLine) streams(into *Streams, v string) error {
	bad := usage(`write 0 (none), 1 (out), 2 (err) or 3 (both), or RANK:STREAMS pairs such as "0:3,1:1"`,
		"%s: %q names no streams", c.from, v)
	digit := func(s string) (Std, bool) {
		if len(s) != 1 || s[0] < '0' || s[0] > '3' {
			return NoStd, false
		}
		return Std(s[0] - '0'), true
	}
	if all, ok := digit(v); ok {
		*into = Streams{All: all}
		return nil
	}
	ranks := map[int]Std{}
	for _, pair := range strings.Split(v, ",") {
		rank, which, _ := strings.Cut(pair, ":")
		n, err := strconv.ParseUint(rank, 10, 16)
		std, ok := digit(which)
		if err != nil || !ok {
			return bad
		}
		ranks[int(n)] = std
	}
	*into = Streams{Ranks: ranks}
	return nil
}
