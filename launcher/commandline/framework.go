package commandline

import (
	"cmp"
	"errors"
	"fmt"
	"path"
	"slices"
	"strings"
)

// UnwrapLauncher removes a framework's launcher from a command, and returns what it would start. It reports
// false if the command begins with no launcher that gpurun can replace. The error names an option that gpurun
// cannot honour. torchrun is not among these launchers: [ReadTorchrun] reads it.
func (t *ProgramTable) UnwrapLauncher(words []string, env Environ, files Files) (Inner, bool, error) {
	f, found := t.Find(words)
	if !found || f.Skipped || f.takes == nil {
		return Inner{}, false, nil
	}
	inner, err := f.takes(f.RankLauncher, LauncherCall{Args: f.Args, Env: env, Files: files})
	if err != nil {
		return Inner{}, true, fmt.Errorf("%s: %w", f.Name, err)
	}
	inner.Wrapper, inner.Vars = f.Name, f.Vars
	for name, value := range f.Starts.Env {
		if _, set := env[name]; set {
			continue
		}
		if inner.Env == nil {
			inner.Env = map[string]string{}
		}
		inner.Env[name] = value
	}
	return inner, true, nil
}

// read reads the launcher's own options, and refuses those that gpurun cannot honour.
func (l *RankLauncher) read(args []string) (Reading, error) { return readLauncher(&l.Grammar, args) }

func readLauncher(g *OptionGrammar, args []string) (Reading, error) {
	r, err := g.Read(args)
	var problem *OptionProblem
	if errors.As(err, &problem) && problem.Fault == Unknown {
		return r, fmt.Errorf("gpurun does not know the option %s: set launch.ranks = \"self\"", problem.Option)
	}
	if err != nil {
		return r, err
	}
	for _, g := range r.Given {
		if g.Means == Refused || g.Means == Help {
			return r, fmt.Errorf("gpurun cannot take %s over: set launch.ranks = \"self\", or leave it out", g.Source)
		}
	}
	return r, nil
}

// understood returns, by the meanings of the options, the kind of the first word of the rest and the number
// of ranks.
func (r Reading) understood() (kind CommandKind, ranks string) {
	kind = Script
	for _, g := range r.Given {
		switch g.Means {
		case Ranks:
			ranks = g.Value
		case AsModule:
			kind = Module
		case AsProgram:
			if kind == Script { // a module stays one, whatever other options say
				kind = Program
			}
		}
	}
	return kind, ranks
}

var (
	errNoScript = errors.New("it names no script")
	errNothing  = errors.New("it names nothing to start")
)

// takeFramework replaces a launcher that [Starts] describes completely.
func takeFramework(l *RankLauncher, c LauncherCall) (Inner, error) {
	read, err := l.read(c.Args)
	if err != nil {
		return Inner{}, err
	}
	args := read.Rest
	if read.Beyond != nil {
		args = slices.Concat(args, []string{"--"}, read.Beyond)
	}
	inner := Inner{Env: map[string]string{}}
	if inner.Nodes, err = nodesOf(read.Given); err != nil {
		return Inner{}, err
	}
	kind, ranks := read.understood()
	if l.Starts.Expand && len(args) > 0 && isConfig(args[0]) {
		words, err := expand(args[0], c, inner.Env)
		if err != nil {
			return Inner{}, err
		}
		args = append(words, args[1:]...)
	}
	s := &l.Starts
	switch {
	case s.Module != "":
		inner.Kind, inner.Argv = Module, append([]string{s.Module}, args...)
	case len(args) == 0:
		return Inner{}, errNothing
	case s.Site != "" && !strings.HasSuffix(args[0], ".py"):
		inner.Kind, inner.Argv = Script, append([]string{Site + strings.ReplaceAll(s.Site, "{1}", args[0])}, args[1:]...)
	default: // for a Site, the user's own copy
		inner.Kind, inner.Argv = kind, args
	}
	inner.Alone = s.Alone && !slices.Contains([]string{"1", "true", "y", "yes", "on"}, strings.ToLower(c.Env[s.Forced]))
	s.count(&inner, ranks, c.Env)
	s.name(&inner, c.Files)
	return inner, nil
}

// count sets the number of ranks, and what variables say about the nodes. The user's variables override those
// of an expanded file.
func (s *Starts) count(inner *Inner, given string, env map[string]string) {
	variable := func(name string) string {
		if value, set := env[name]; set || name == "" {
			return value
		}
		return inner.Env[name]
	}
	if s.Nodes != "" && variable(s.Nodes) != "" {
		inner.Nodes = Nodes{
			Count: NodeValue{variable(s.Nodes), s.Nodes}, Rank: NodeValue{variable(nodeRank), nodeRank},
			Head: NodeValue{variable(masterAddr), masterAddr},
		}
	}
	inner.Alone = inner.Alone && !inner.Nodes.Several()
	inner.Ranks = given
	if given == "" {
		inner.Ranks = variable(s.Ranks)
	}
	if inner.Ranks == "" && s.One {
		inner.Ranks = "1"
	}
}

// The variables with the node's number and the address of node 0, in frameworks that have a variable for the
// number of nodes.
const nodeRank, masterAddr = "NODE_RANK", "MASTER_ADDR"

// name replaces arguments that name a file of the framework with the file's path.
func (s *Starts) name(inner *Inner, files Files) {
	for option, file := range s.Files {
		g, found := argument(inner.Argv, option)
		if !found || isConfig(g.Value) || files.Exists(g.Value) {
			continue
		}
		value := Site + strings.ReplaceAll(file, "{}", g.Value)
		inner.Argv = slices.Clone(inner.Argv)
		if g.Attached {
			head, _, _ := strings.Cut(inner.Argv[g.At], "=")
			inner.Argv[g.At] = head + "=" + value
		} else {
			inner.Argv[g.At+1] = value
		}
	}
}

// argument finds the last occurrence of an option among the arguments of a script or module, the first word
// of argv.
func argument(argv []string, option string) (Given, bool) {
	one := OptionGrammar{Mixed: true, Options: valued(option)}
	read, err := one.Read(argv[1:])
	if err != nil {
		return Given{}, false // the reader of the arguments reports the error
	}
	g, found := read.Last(option)
	g.At++
	return g, found
}

// isConfig reports whether a word names a configuration file.
func isConfig(word string) bool {
	switch strings.ToLower(path.Ext(word)) {
	case ".json", ".jsonc", ".json5", ".hjson", ".yaml", ".yml", ".toml":
		return true
	}
	return false
}

// expand turns the keys of a file into arguments, in their order; its ENV sets variables that are not set.
func expand(file string, c LauncherCall, into map[string]string) ([]string, error) {
	table, err := c.Files.Table(file)
	if err != nil {
		return nil, err
	}
	var words []string
	for _, pair := range table {
		switch {
		case pair.Key == "ENV" && pair.Kind == Nested:
			for _, variable := range pair.Table {
				if _, set := c.Env[variable.Key]; !set {
					into[variable.Key] = variable.Text
				}
			}
		case pair.Kind == Null:
		case pair.Kind == Single:
			words = append(words, "--"+pair.Key, pair.Text)
		case pair.Kind == List:
			words = append(append(words, "--"+pair.Key), pair.List...)
		default:
			return nil, fmt.Errorf("%s: %s is a table, which gpurun cannot turn into an argument", file, pair.Key)
		}
	}
	return words, nil
}

// composer is MosaicML's launcher (composer/cli/launcher.py).
var composer = RankLauncher{
	Command: []string{"composer"},
	Modules: []string{"composer.cli.launcher"},
	takes:   takeFramework,
	Vars:    NodeVars{Rank: "NODE_RANK"}, // composer.utils.dist.get_node_rank
	Grammar: OptionGrammar{Abbreviations: true, Remainder: true, Options: slices.Concat(
		[]Option{
			{Name: "nproc", Short: 'n', Means: Ranks}, {Name: "module_mode", Short: 'm', Bare: true, Means: AsModule},
			{Name: "verbose", Short: 'v', Bare: true}, {Name: "command_mode", Short: 'c', Bare: true, Means: Refused},
		},
		valued("stdout", "stderr", "master_addr", "master_port"),
		meaning(Refused, valued("world_size", "base_rank", "node_rank")),
	)},
}

// tune is torchtune's launcher, which has torchrun's options (torchtune/_cli/run.py) and starts recipes by
// name.
var tune = RankLauncher{
	Command: []string{"tune", "run"},
	takes:   takeFramework,
	Grammar: OptionGrammar{Options: without(torchrunOptions(), "no-python", "module"), Abbreviations: true,
		Remainder: true},
	Starts: Starts{Site: "recipes/{1}.py", One: true, Alone: true,
		Files: map[string]string{"config": "recipes/configs/{}.yaml"}},
}

// without returns options, the named ones with the meaning Refused.
func without(options []Option, names ...string) []Option {
	for i := range options {
		if slices.Contains(names, options[i].Name) {
			options[i].Means = Refused
		}
	}
	return options
}

// llamaFactory starts its launcher module with torchrun, configured only by variables.
var llamaFactory = RankLauncher{
	Command: []string{"llamafactory-cli", "train"}, Aliases: [][]string{{"lmf", "train"}},
	takes:   takeFramework,
	Grammar: OptionGrammar{Mixed: true},
	Starts: Starts{Module: "llamafactory.launcher", Ranks: "NPROC_PER_NODE", Nodes: "NNODES", Alone: true,
		Forced: "FORCE_TORCHRUN"},
}

// swift is ms-swift's launcher (swift/cli/main.py).
func swift(command string) RankLauncher {
	return RankLauncher{
		Command: []string{"swift", command},
		takes:   takeFramework,
		Grammar: OptionGrammar{Mixed: true},
		Starts: Starts{Module: "swift.cli." + command, Expand: true, Ranks: "NPROC_PER_NODE", Nodes: "NNODES", One: true,
			Alone: true},
	}
}

// axolotl starts its module with accelerate launch, or with the launcher in --launcher. Words after "--"
// belong to that launcher.
var axolotl = RankLauncher{
	Command: []string{"axolotl", "train"},
	takes:   takeThrough,
	Grammar: OptionGrammar{Mixed: true, Options: slices.Concat(
		handedOn("num_processes", "main_process_port"), valued("launcher"),
		meaning(Refused, append(valued("cloud", "sweep"), bare("use_ray")...)))},
	Starts: Starts{Module: "axolotl.cli.train", Through: "launcher"},
}

// trl has a command for each trainer, and starts its module with accelerate launch.
var trl = []RankLauncher{trlCommand("sft"), trlCommand("dpo"), trlCommand("grpo"), trlCommand("kto"),
	trlCommand("reward"), trlCommand("rloo")}

func trlCommand(command string) RankLauncher {
	return RankLauncher{
		Command: []string{"trl", command},
		takes:   takeThrough,
		Grammar: OptionGrammar{Mixed: true, Options: slices.Concat(valued("accelerate_config"), handedOn(
			"num_processes", "main_process_port", "main_process_ip", "machine_rank", "num_machines", "config_file", "gpu_ids",
			"mixed_precision", "multi_gpu",
			"use_deepspeed", "use_fsdp", "cpu", "same_network", "num_cpu_threads_per_process", "zero_stage",
			"deepspeed_config_file", "offload_optimizer_device",
			"offload_param_device", "zero3_init_flag", "zero3_save_16bit_model", "fsdp_version", "fsdp_offload_params",
			"fsdp_sharding_strategy",
			"fsdp_reshard_after_forward", "fsdp_auto_wrap_policy", "fsdp_transformer_layer_cls_to_wrap", "fsdp_state_dict_type",
			"fsdp_activation_checkpointing",
			"dynamo_backend", "dynamo_mode"))},
		Starts: Starts{
			Module: "trl.scripts." + command, HandedIn: "config",
			Configs: map[string]string{"accelerate_config": "trl/accelerate_configs/{}.yaml"},
		},
	}
}

// handedOn returns options of accelerate launch that another launcher passes on to it.
func handedOn(names ...string) []Option {
	all := make([]Option, len(names))
	for i, name := range names {
		o := accelerateGrammar.named(name)
		all[i] = Option{Name: name, Bare: o.Bare, Means: HandedOn}
	}
	return all
}

// takeThrough replaces a launcher that starts its module with another launcher, and that launcher too.
func takeThrough(l *RankLauncher, c LauncherCall) (Inner, error) {
	read, err := l.read(c.Args)
	if err != nil {
		return Inner{}, err
	}
	s := &l.Starts
	handed, err := l.handedInFile(read.Rest, c.Files)
	if err != nil {
		return Inner{}, err
	}
	launcher := "accelerate"
	for _, g := range read.Given { // the command line overrides the file
		switch {
		case g.Means == HandedOn && g.Bare:
			handed = append(handed, "--"+g.Name)
		case g.Means == HandedOn:
			handed = append(handed, "--"+g.Name+"="+g.Value)
		case s.Configs[g.Name] != "":
			handed = append(handed, s.config(g.Name, g.Value, c.Files))
		case s.Through != "" && g.Name == s.Through:
			launcher = g.Value
		}
	}
	module := append([]string{"-m", s.Module}, read.Rest...)
	handed = slices.Concat(handed, read.Beyond, module)
	switch launcher {
	case "accelerate":
		return takeAccelerate(l, LauncherCall{Args: handed, Env: c.Env, Files: c.Files})
	case "torchrun":
		return takeTorchrun(handed)
	}
	// python: one process
	return Inner{Kind: Module, Argv: module[1:], Ranks: "1", RankStarter: RankStarter{Alone: true}}, nil
}

// handedInFile returns the launcher's options in the module's configuration file, sorted by name.
func (l *RankLauncher) handedInFile(args []string, files Files) ([]string, error) {
	if l.Starts.HandedIn == "" {
		return nil, nil
	}
	file, named := argument(append([]string{l.Starts.Module}, args...), l.Starts.HandedIn)
	if !named {
		return nil, nil
	}
	table, err := files.Table(file.Value)
	if err != nil {
		return nil, err
	}
	slices.SortStableFunc(table, func(a, b Pair) int { return cmp.Compare(a.Key, b.Key) })
	var words []string
	for _, pair := range table {
		o := l.Grammar.named(pair.Key)
		switch {
		case o == nil:
		case o.Means == Refused:
			return nil, fmt.Errorf("gpurun cannot take %s in %s over: set launch.ranks = \"self\", or leave it out", pair.Key,
				file.Value)
		case pair.Kind == Null, pair.Kind == Single && strings.EqualFold(pair.Text, "false"):
		case pair.Kind != Single:
			return nil, fmt.Errorf("%s: %s is not a single value, which gpurun cannot turn into an option", file.Value, pair.Key)
		case l.Starts.Configs[o.Name] != "":
			words = append(words, l.Starts.config(o.Name, pair.Text, files))
		case o.Means == HandedOn && o.Bare && strings.EqualFold(pair.Text, "true"):
			words = append(words, "--"+o.Name)
		case o.Means == HandedOn:
			words = append(words, "--"+o.Name+"="+pair.Text)
		}
	}
	return words, nil
}

// config returns the path of the configuration of accelerate launch: the value if it is a file, else a file
// of the framework.
func (s *Starts) config(option, value string, files Files) string {
	if !files.Exists(value) {
		value = Site + strings.ReplaceAll(s.Configs[option], "{}", value)
	}
	return "--config_file=" + value
}

// takeTorchrun reads the torchrun options that a launcher passes on. Only the numbers of ranks and nodes
// matter, since gpurun handles the ranks' output.
func takeTorchrun(args []string) (Inner, error) {
	read, err := readLauncher(&torchrun.Grammar, args)
	if err != nil {
		return Inner{}, err
	}
	if len(read.Rest) == 0 {
		return Inner{}, errNoScript
	}
	kind, ranks := read.understood()
	if ranks == "" {
		ranks = "1" // as torchrun does
	}
	nodes, err := nodesOf(read.Given)
	return Inner{Kind: kind, Argv: read.Rest, Ranks: ranks, Nodes: nodes}, err
}
