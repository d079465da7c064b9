package commandline

import (
	"errors"
	"fmt"
	"github.com/gpurun/gpurun/launcher/lazy"
	"slices"
	"strings"
)

// deepspeed is DeepSpeed's launcher (deepspeed/launcher/runner.py). gpurun must be started on each node, and
// selects devices only by CUDA_VISIBLE_DEVICES.
var deepspeed = RankLauncher{
	Command: []string{"deepspeed"},
	Modules: []string{"deepspeed", "deepspeed.launcher.runner"},
	takes:   takeDeepSpeed,
	// deepspeed/launcher/launch.py sets these. runtime/model_checkpointing/utils.py reads the first two,
	// accelerator/cpu_accelerator.py and csrc/cpu/comm the last.
	Vars: NodeVars{Rank: "CROSS_RANK", Count: "CROSS_SIZE", Local: "LOCAL_SIZE"},
	Grammar: OptionGrammar{Abbreviations: true, Remainder: true, Options: slices.Concat(
		[]Option{
			{Name: "module", Bare: true, Means: AsModule}, {Name: "no_python", Bare: true, Means: AsProgram},
			{Name: "num_gpus", Means: Ranks}, {Name: "num_accelerators", Means: Ranks}, {Name: "num_nodes"},
			{Name: "include", Short: 'i'}, {Name: "quiet", Short: 'q', Bare: true},
			{Name: "hostfile", Short: 'H'}, {Name: "exclude", Short: 'e', Means: Refused},
			{Name: "help", Short: 'h', Bare: true, Means: Help},
		},
		meaning(Refused, valued("launcher_args", "autotuning", "venv_script")), meaning(Refused, bare("elastic_training")),
		bare("no_local_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid", "bind_cores_to_rank"),
		valued("master_port", "master_addr", "node_rank", "launcher", "enable_each_rank_log", "bind_core_list", "ssh_port",
			"log_level", "min_elastic_nodes", "max_elastic_nodes"),
	)},
}

// takeDeepSpeed replaces the deepspeed launcher. Like the launcher (deepspeed/launcher/launch.py) it puts
// --local_rank=N before the script's arguments, since some scripts require it.
func takeDeepSpeed(l *RankLauncher, c LauncherCall) (Inner, error) {
	read, err := l.read(c.Args)
	if err != nil {
		return Inner{}, err
	}
	if len(read.Rest) == 0 {
		return Inner{}, errNoScript
	}
	inner := Inner{RankStarter: RankStarter{NUMA: true}, Argv: read.Rest, Env: map[string]string{}}
	inner.Kind, inner.Ranks = read.understood()
	if inner.Ranks == "-1" { // all devices
		inner.Ranks = ""
	}
	if _, without := read.Last("no_local_rank"); !without {
		inner.Argv = slices.Concat(read.Rest[:1], []string{LocalRank}, read.Rest[1:])
	}
	return inner, inner.onHosts(l, read, c)
}

// defaultHostfile is read if no hostfile is given (DLTS_HOSTFILE).
const defaultHostfile = "/job/hostfile"

// onHosts reads the hosts of the launch, and the devices of each. The launcher would itself start ranks on
// other hosts, where gpurun could not supervise them. So gpurun must be started on each host.
func (inner *Inner) onHosts(l *RankLauncher, read Reading, c LauncherCall) error {
	hosts, by, err := hostfile(read, c.Files)
	if err != nil {
		return err
	}
	include, _ := read.Last("include")
	switch {
	case hosts == nil:
		return inner.onThisHost(read, include.Value)
	case include.Value != "":
		devices := ""
		if hosts, devices, err = included(hosts, include.Value); err != nil {
			return err
		}
		inner.use(devices)
	}
	if g, given := read.Last("num_nodes"); given && g.Value != "-1" {
		n, err := g.whole(g.Value, 1, len(hosts))
		if err != nil {
			return err
		}
		hosts = hosts[:n]
	}
	if inner.Ranks == "" {
		inner.Ranks = sameSlots(hosts)
	}
	inner.Nodes = Nodes{Count: NodeValue{fmt.Sprint(len(hosts)), by}, Head: NodeValue{hosts[0].name, by},
		How: oneANodeOf(l, c.Args, len(hosts))}
	if address, given := read.Last("master_addr"); given {
		inner.Nodes.Head = NodeValue{address.Value, address.Source}
	}
	if rank, given := read.Last("node_rank"); given && rank.Value != "-1" { // with --no_ssh
		inner.Nodes.Rank = NodeValue{rank.Value, rank.Source}
	}
	return nil
}

// hostfile returns the hosts in the given file, or in the default one; none if there is no file.
func hostfile(read Reading, files Files) (hosts []host, by string, err error) {
	name := defaultHostfile
	by = name
	if g, given := read.Last("hostfile"); given {
		name, by = g.Value, "--hostfile "+g.Value
	} else if !files.Exists(name) {
		return nil, "", nil
	}
	text, err := files.Text(name)
	if err == nil {
		hosts, err = hostsOf(text)
	}
	if err != nil {
		return nil, "", fmt.Errorf("%s: %w", by, err)
	}
	return hosts, by, nil
}

// onThisHost handles a launch without other hosts.
func (inner *Inner) onThisHost(read Reading, include string) error {
	if g, given := read.Last("num_nodes"); given && g.Value != "-1" && g.Value != "1" {
		return fmt.Errorf("%s %s: there is no hostfile that names the nodes", g.Source, g.Value)
	}
	if include == "" {
		return nil
	}
	host, slots, found := strings.Cut(include, ":")
	if !found || host != "localhost" || strings.Contains(slots, "@") {
		return fmt.Errorf("--include %s: there is no hostfile that names the nodes", include)
	}
	inner.use(slots)
	return nil
}

// use makes the chosen devices the only visible ones, with a rank for each.
func (inner *Inner) use(devices string) {
	if devices == "" {
		return
	}
	inner.Env["CUDA_VISIBLE_DEVICES"] = devices
	inner.Ranks = fmt.Sprint(strings.Count(devices, ",") + 1)
}

// oneANodeOf returns how to start the launch with one gpurun per node.
func oneANodeOf(l *RankLauncher, args []string, nodes int) string {
	line := Paste(append([]string{"gpurun", l.Name()}, args...)...)
	return fmt.Sprintf("deepspeed's own pdsh would start the ranks behind gpurun's back, so start gpurun once a node: "+
		"srun --mpi=pmi2 --nodes=%d --ntasks-per-node=1 %s; or by ssh on each host, numbered from 0 as in the hostfile: GPURUN_NODE_RANK=0 %s", nodes, line, line)
}

// A host is a line of a hostfile of DeepSpeed: "worker-1 slots=8".
type host struct{ name, slots string }

// mostHosts bounds the hosts that are read from a hostfile.
const mostHosts = 1 << 16

// hostLine matches a host as DeepSpeed does.
var hostLine = lazy.Regexp(`^(\S+)\s+slots=(\d+)`)

// hostsOf reads a hostfile (_parse_hostfile in deepspeed/launcher/runner.py, 0.19).
func hostsOf(text string) ([]host, error) {
	var hosts []host
	known := map[string]bool{}
	for line := range strings.Lines(text) {
		line = strings.TrimSpace(line)
		if line == "" || strings.HasPrefix(line, "#") {
			continue
		}
		m := hostLine().FindStringSubmatch(line)
		switch {
		case m == nil:
			return nil, fmt.Errorf("%.80q is not a line such as \"worker-1 slots=8\"", line)
		case known[m[1]]:
			return nil, fmt.Errorf("%.80q is in it twice", m[1])
		case len(hosts) == mostHosts:
			return nil, fmt.Errorf("it has more than %d hosts", mostHosts)
		}
		known[m[1]] = true
		hosts = append(hosts, host{m[1], m[2]})
	}
	if len(hosts) == 0 {
		return nil, errors.New("it names no host")
	}
	return hosts, nil
}

// included returns the hosts that --include selects, "a@b" or "a:0,1@b:0,1", in the hostfile's order, and the
// devices that each uses; empty for all.
func included(hosts []host, include string) (chosen []host, devices string, err error) {
	choice := map[string]bool{}
	for i, spec := range strings.Split(include, "@") {
		name, slots, _ := strings.Cut(spec, ":")
		switch {
		case !slices.ContainsFunc(hosts, func(h host) bool { return h.name == name }):
			return nil, "", fmt.Errorf("--include %s: no host %s is in the hostfile", include, name)
		case i > 0 && slots != devices:
			return nil, "", fmt.Errorf("--include %s: gpurun uses the same devices on each node", include)
		}
		choice[name], devices = true, slots
	}
	return slices.DeleteFunc(slices.Clone(hosts), func(h host) bool { return !choice[h.name] }), devices, nil
}

// sameSlots returns the number of ranks per host, empty if the hosts differ.
func sameSlots(hosts []host) string {
	for _, h := range hosts {
		if h.slots != hosts[0].slots {
			return ""
		}
	}
	return hosts[0].slots
}
