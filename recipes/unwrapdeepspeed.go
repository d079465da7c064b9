package recipes

import (
	"fmt"
	"slices"
	"strings"
)

// The options of the deepspeed launcher (deepspeed/launcher/runner.py).
var deepspeedOptions = launchOptions{
	"module": false, "no_python": false, "no_local_rank": false, "no_ssh": false, "no_ssh_check": false, "force_multi": false, "save_pid": false,
	"bind_cores_to_rank": false, "q": false, "quiet": false, "help": false, "h": false,
	"H": true, "hostfile": true, "i": true, "include": true, "e": true, "exclude": true, "num_nodes": true, "num_gpus": true, "num_accelerators": true,
	"master_port": true, "master_addr": true, "node_rank": true, "launcher": true, "launcher_args": true, "enable_each_rank_log": true, "autotuning": true,
	"bind_core_list": true, "ssh_port": true, "venv_script": true, "log_level": true, "elastic_training": false, "min_elastic_nodes": true, "max_elastic_nodes": true,
}

// refusedByDeepSpeed are those that gpurun cannot honour: it starts the nodes
// itself, and chooses no devices in another way than CUDA_VISIBLE_DEVICES.
var refusedByDeepSpeed = []string{"hostfile", "H", "launcher_args", "autotuning", "elastic_training", "exclude", "e", "venv_script", "help", "h"}

// unwrapDeepSpeed takes the deepspeed launcher off. Like the launcher
// (deepspeed/launcher/launch.py) it puts --local_rank=N before the arguments of
// the script, some of which demand it.
func unwrapDeepSpeed(args []string) (Inner, error) {
	values, rest, err := deepspeedOptions.take(args)
	if err != nil {
		return Inner{}, err
	}
	for _, name := range refusedByDeepSpeed {
		if values[name] != "" {
			return Inner{}, fmt.Errorf("gpurun cannot take --%s over: set launch.ranks = \"self\", or leave it out", name)
		}
	}
	if n := values["num_nodes"]; n != "" && n != "1" && n != "-1" {
		return Inner{}, fmt.Errorf("--num_nodes %s: start gpurun on each node, with launch.nnodes", n)
	}
	if len(rest) == 0 {
		return Inner{}, fmt.Errorf("it names no script")
	}
	inner := Inner{Wrapper: "deepspeed", Kind: InnerScript, Argv: rest, Env: map[string]string{}, Ranks: values["num_gpus"] + values["num_accelerators"]}
	if inner.Ranks == "-1" {
		inner.Ranks = ""
	}
	if values["no_local_rank"] == "" {
		inner.Argv = slices.Concat(rest[:1], []string{LocalRank}, rest[1:])
	}
	switch {
	case values["module"] != "":
		inner.Kind = InnerModule
	case values["no_python"] != "":
		inner.Kind = InnerProgram
	}
	if include := values["include"] + values["i"]; include != "" {
		host, slots, found := strings.Cut(include, ":")
		if !found || host != "localhost" || strings.Contains(slots, "@") {
			return Inner{}, fmt.Errorf("--include %s: start gpurun on each node", include)
		}
		inner.Env["CUDA_VISIBLE_DEVICES"] = slots
		inner.Ranks = fmt.Sprint(len(slices.Collect(strings.SplitSeq(slots, ","))))
	}
	return inner, nil
}
