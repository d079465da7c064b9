package commandline

import (
	"fmt"
	"slices"
	"strings"
)

// deepspeed is DeepSpeed's (deepspeed/launcher/runner.py). gpurun starts the nodes
// itself, and chooses no devices in another way than by CUDA_VISIBLE_DEVICES.
var deepspeed = Launcher{
	Command: []string{"deepspeed"},
	Modules: []string{"deepspeed", "deepspeed.launcher.runner"},
	takes:   takeDeepSpeed,
	Grammar: Grammar{Abbreviations: true, Remainder: true, Options: slices.Concat(
		[]Option{
			{Name: "module", Bare: true, Means: AsModule}, {Name: "no_python", Bare: true, Means: AsProgram},
			{Name: "num_gpus", Means: Ranks}, {Name: "num_accelerators", Means: Ranks}, {Name: "num_nodes", Means: OneNode},
			{Name: "include", Short: 'i'}, {Name: "quiet", Short: 'q', Bare: true},
			{Name: "hostfile", Short: 'H', Means: Refused}, {Name: "exclude", Short: 'e', Means: Refused}, {Name: "help", Short: 'h', Bare: true, Means: Help},
		},
		meaning(Refused, valued("launcher_args", "autotuning", "venv_script")), meaning(Refused, bare("elastic_training")),
		bare("no_local_rank", "no_ssh", "no_ssh_check", "force_multi", "save_pid", "bind_cores_to_rank"),
		valued("master_port", "master_addr", "node_rank", "launcher", "enable_each_rank_log", "bind_core_list", "ssh_port", "log_level", "min_elastic_nodes", "max_elastic_nodes"),
	)},
}

// takeDeepSpeed takes the deepspeed launcher over. Like the launcher
// (deepspeed/launcher/launch.py) it puts --local_rank=N before the arguments of the
// script, some of which demand it.
func takeDeepSpeed(l *Launcher, c Call) (Inner, error) {
	read, err := l.read(c.Args)
	if err != nil {
		return Inner{}, err
	}
	if len(read.Rest) == 0 {
		return Inner{}, errNoScript
	}
	inner := Inner{Argv: read.Rest, Env: map[string]string{}, NUMA: true}
	inner.Kind, inner.Ranks = read.understood()
	if inner.Ranks == "-1" { // all there are
		inner.Ranks = ""
	}
	if _, without := read.Last("no_local_rank"); !without {
		inner.Argv = slices.Concat(read.Rest[:1], []string{LocalRank}, read.Rest[1:])
	}
	if include, _ := read.Last("include"); include.Value != "" {
		host, slots, found := strings.Cut(include.Value, ":")
		if !found || host != "localhost" || strings.Contains(slots, "@") {
			return Inner{}, fmt.Errorf("--include %s: start gpurun on each node", include.Value)
		}
		inner.Env["CUDA_VISIBLE_DEVICES"] = slots
		inner.Ranks = fmt.Sprint(strings.Count(slots, ",") + 1)
	}
	return inner, nil
}
