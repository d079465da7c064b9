package commandline

import "slices"

// composer is MosaicML's (composer/cli/launcher.py).
var composer = Launcher{
	Command: []string{"composer"},
	Modules: []string{"composer.cli.launcher"},
	takes:   takeFramework,
	Vars:    NodeVars{Rank: "NODE_RANK"}, // composer.utils.dist.get_node_rank
	Grammar: Grammar{Abbreviations: true, Remainder: true, Options: slices.Concat(
		[]Option{
			{Name: "nproc", Short: 'n', Means: Ranks}, {Name: "module_mode", Short: 'm', Bare: true, Means: AsModule},
			{Name: "verbose", Short: 'v', Bare: true}, {Name: "command_mode", Short: 'c', Bare: true, Means: Refused},
		},
		valued("stdout", "stderr", "master_addr", "master_port"),
		meaning(Refused, valued("world_size", "base_rank", "node_rank")),
	)},
}

// tune is torchtune's, which has torchrun's options (torchtune/_cli/run.py) and
// starts its recipes by their names.
var tune = Launcher{
	Command: []string{"tune", "run"},
	takes:   takeFramework,
	Grammar: Grammar{Options: without(torchrunOptions(), "no-python", "module"), Abbreviations: true, Remainder: true},
	Starts:  Starts{Site: "recipes/{1}.py", One: true, Alone: true, Files: map[string]string{"config": "recipes/configs/{}.yaml"}},
}

// without are options of which some are refused.
func without(options []Option, names ...string) []Option {
	for i := range options {
		if slices.Contains(names, options[i].Name) {
			options[i].Means = Refused
		}
	}
	return options
}

// llamaFactory starts its launcher module by torchrun, by variables alone.
var llamaFactory = Launcher{
	Command: []string{"llamafactory-cli", "train"}, Aliases: [][]string{{"lmf", "train"}},
	takes:   takeFramework,
	Grammar: Grammar{Mixed: true},
	Starts:  Starts{Module: "llamafactory.launcher", Ranks: "NPROC_PER_NODE", Nodes: "NNODES", Alone: true, Forced: "FORCE_TORCHRUN"},
}

// swift is ms-swift's (swift/cli/main.py).
func swift(command string) Launcher {
	return Launcher{
		Command: []string{"swift", command},
		takes:   takeFramework,
		Grammar: Grammar{Mixed: true},
		Starts:  Starts{Module: "swift.cli." + command, Expand: true, Ranks: "NPROC_PER_NODE", Nodes: "NNODES", One: true, Alone: true},
	}
}

// axolotl starts its module by accelerate launch, or as --launcher says; what
// follows "--" is that launcher's.
var axolotl = Launcher{
	Command: []string{"axolotl", "train"},
	takes:   takeThrough,
	Grammar: Grammar{Mixed: true, Options: slices.Concat(
		handedOn("num_processes", "main_process_port"), valued("launcher"), meaning(Refused, append(valued("cloud", "sweep"), bare("use_ray")...)))},
	Starts: Starts{Module: "axolotl.cli.train", Through: "launcher"},
}

// trl has a command for each trainer, and starts its module by accelerate launch.
var trl = []Launcher{trlCommand("sft"), trlCommand("dpo"), trlCommand("grpo"), trlCommand("kto"), trlCommand("reward"), trlCommand("rloo")}

func trlCommand(command string) Launcher {
	return Launcher{
		Command: []string{"trl", command},
		takes:   takeThrough,
		Grammar: Grammar{Mixed: true, Options: slices.Concat(valued("accelerate_config"), handedOn(
			"num_processes", "main_process_port", "main_process_ip", "machine_rank", "num_machines", "config_file", "gpu_ids", "mixed_precision", "multi_gpu",
			"use_deepspeed", "use_fsdp", "cpu", "same_network", "num_cpu_threads_per_process", "zero_stage", "deepspeed_config_file", "offload_optimizer_device",
			"offload_param_device", "zero3_init_flag", "zero3_save_16bit_model", "fsdp_version", "fsdp_offload_params", "fsdp_sharding_strategy",
			"fsdp_reshard_after_forward", "fsdp_auto_wrap_policy", "fsdp_transformer_layer_cls_to_wrap", "fsdp_state_dict_type", "fsdp_activation_checkpointing",
			"dynamo_backend", "dynamo_mode"))},
		Starts: Starts{
			Module: "trl.scripts." + command, HandedIn: "config",
			Configs: map[string]string{"accelerate_config": "trl/accelerate_configs/{}.yaml"},
		},
	}
}

// handedOn are options of accelerate launch that another launcher hands on to it.
func handedOn(names ...string) []Option {
	all := make([]Option, len(names))
	for i, name := range names {
		o := accelerateGrammar.named(name)
		all[i] = Option{Name: name, Bare: o.Bare, Means: HandedOn}
	}
	return all
}
