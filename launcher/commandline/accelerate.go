package commandline

import (
	"errors"
	"fmt"
	"maps"
	"path"
	"slices"
	"strconv"
	"strings"
)

// accelerate is Hugging Face's launcher.
var accelerate = RankLauncher{
	Command: []string{"accelerate", "launch"}, Aliases: [][]string{{"accelerate-launch"}},
	Modules: []string{"accelerate.commands.launch"}, Programs: []string{"accelerate.commands.accelerate_cli"},
	takes:   takeAccelerate,
	Grammar: accelerateGrammar,
}

// accelerateGrammar has the options of accelerate launch (accelerate/commands/launch.py, 1.15); it recognises
// and refuses the options for Megatron-LM, FP8, parallelism, TPU and SageMaker.
var accelerateGrammar = OptionGrammar{
	Abbreviations: true, Remainder: true,
	Options: slices.Concat(
		[]Option{
			{Name: "module", Short: 'm', Bare: true, Means: AsModule}, {Name: "no_python", Bare: true, Means: AsProgram},
			{Name: "num_processes", Means: Ranks}, {Name: "quiet", Short: 'q', Bare: true}, {Name: "tee", Short: 't'},
		},
		bare(
			"cpu", "multi_gpu", "tpu", "enable_cpu_affinity", "dynamo_use_fullgraph", "dynamo_use_dynamic",
			"dynamo_use_regional_compilation", "use_deepspeed",
			"use_fsdp", "use_parallelism_config", "use_megatron_lm", "same_network", "downcast_bf16", "debug",
		),
		valued(
			"config_file", "mixed_precision", "num_machines", "num_cpu_threads_per_process", "dynamo_backend", "dynamo_mode",
			"gpu_ids", "machine_rank",
			"main_process_ip", "main_process_port", "log_dir", "role", "rdzv_backend", "rdzv_conf", "max_restarts",
			"monitor_interval", "main_training_function",
			"deepspeed_config_file", "zero_stage", "offload_optimizer_device", "offload_param_device",
			"offload_optimizer_nvme_path", "offload_param_nvme_path",
			"gradient_accumulation_steps", "gradient_clipping", "zero3_init_flag", "zero3_save_16bit_model",
			"deepspeed_hostfile", "deepspeed_exclusion_filter",
			"deepspeed_inclusion_filter", "deepspeed_multinode_launcher", "deepspeed_moe_layer_cls_names", "fsdp_version",
			"fsdp_offload_params", "fsdp_min_num_params",
			"fsdp_sharding_strategy", "fsdp_reshard_after_forward", "fsdp_auto_wrap_policy",
			"fsdp_transformer_layer_cls_to_wrap", "fsdp_backward_prefetch",
			"fsdp_state_dict_type", "fsdp_forward_prefetch", "fsdp_use_orig_params", "fsdp_cpu_ram_efficient_loading",
			"fsdp_sync_module_states", "fsdp_activation_checkpointing",
			"fsdp_activation_checkpointing_offload", "mpirun_hostfile", "fp8_backend",
		),
	),
}

// fsdpDefaults are the launcher's own defaults for FSDP.
var fsdpDefaults = map[string]string{
	"fsdp_version": "1", "fsdp_sharding_strategy": "FULL_SHARD", "fsdp_reshard_after_forward": "true",
	"fsdp_offload_params": "false", "fsdp_min_num_params": "100000000",
	"fsdp_forward_prefetch": "false", "fsdp_use_orig_params": "true", "fsdp_cpu_ram_efficient_loading": "true",
	"fsdp_sync_module_states":       "true",
	"fsdp_activation_checkpointing": "false", "fsdp_activation_checkpointing_offload": "false",
}

// takeAccelerate replaces accelerate launch: like the launcher, it turns the options and the configuration
// file into variables, the only thing that the script gets from them. The call can come from another launcher
// that passes its options on.
func takeAccelerate(_ *RankLauncher, c LauncherCall) (Inner, error) {
	read, err := readLauncher(&accelerateGrammar, c.Args)
	if err != nil {
		return Inner{}, err
	}
	if len(read.Rest) == 0 {
		return Inner{}, errNoScript
	}
	options := map[string]string{}
	for _, g := range read.Given {
		if options[g.Name] = g.Value; g.Bare {
			options[g.Name] = "true"
		}
	}
	var config accelerateFile
	if options["config_file"] != "" || options["cpu"] == "" { // with --cpu the user's default file does not count
		if config, err = accelerateConfig(options["config_file"], c); err != nil {
			return Inner{}, err
		}
	}
	v := config.merged(options)
	if err := v.refuse(); err != nil {
		return Inner{}, err
	}
	inner := Inner{Argv: read.Rest, Env: v.environment(config)}
	inner.Ranks, inner.Alone = v.processes()
	if inner.Nodes, err = v.nodes(options); err != nil {
		return Inner{}, err
	}
	if inner.Nodes.Several() {
		inner.Alone = false
		inner.Ranks = v.onThisNode(inner.Ranks)
	}
	inner.Kind, _ = read.understood()
	if v["module"] != "" { // the configuration file can set this too
		inner.Kind = Module
	}
	return inner, nil
}

// An accelerateFile is a configuration file of Accelerate: its values by the
// names of the launcher's options, and the names in its deepspeed_config.
type accelerateFile struct {
	values    map[string]string
	deepspeed []string
}

// accelerateConfig reads the given file, else the user's default file, which the launcher uses silently.
func accelerateConfig(name string, c LauncherCall) (accelerateFile, error) {
	if name == "" {
		if name = defaultAccelerate(c.Env); !c.Files.Exists(name) {
			return accelerateFile{}, nil
		}
	}
	table, err := c.Files.Table(name)
	if err != nil {
		return accelerateFile{}, err
	}
	file := accelerateFile{values: map[string]string{}}
	for _, pair := range table {
		file.add("", pair)
	}
	return file, nil
}

// defaultAccelerate returns the path to which accelerate config writes.
func defaultAccelerate(env map[string]string) string {
	home := env["HF_HOME"]
	if home == "" && env["XDG_CACHE_HOME"] != "" {
		home = path.Join(env["XDG_CACHE_HOME"], "huggingface")
	}
	if home == "" {
		home = path.Join(env["HOME"], ".cache", "huggingface")
	}
	return path.Join(home, "accelerate", "default_config.yaml")
}

// add takes in one key of the file. Keys in its tables are options too.
func (f *accelerateFile) add(table string, pair Pair) {
	if pair.Kind == Nested {
		for _, inner := range pair.Table {
			f.add(pair.Key, inner)
		}
		return
	}
	key := pair.Key
	if table == "deepspeed_config" {
		f.deepspeed = append(f.deepspeed, key)
	}
	if prefix, nested := strings.CutSuffix(table, "_config"); nested &&
		slices.Contains([]string{"fsdp", "fp8", "dynamo"}, prefix) && !strings.HasPrefix(key, prefix) {
		key = prefix + "_" + key
	}
	if pair.Kind != Null {
		f.values[key] = pair.Text
	}
}

// launchValues are the launcher's settings, by option.
type launchValues map[string]string

// merged returns the settings of the file, overridden by flags.
func (f accelerateFile) merged(flags map[string]string) launchValues {
	v := launchValues{}
	maps.Copy(v, f.values)
	maps.Copy(v, flags)
	chosen := false
	for _, name := range []string{"multi_gpu", "use_deepspeed", "use_fsdp", "use_megatron_lm", "tpu", "cpu"} {
		chosen = chosen || flags[name] != ""
	}
	kind := map[string]string{"DEEPSPEED": "use_deepspeed", "FSDP": "use_fsdp", "MEGATRON_LM": "use_megatron_lm",
		"XLA": "tpu", "TPU": "tpu"}[f.values["distributed_type"]]
	if kind != "" && !chosen {
		v[kind] = "true"
	}
	return v
}

// refuse returns an error for settings that gpurun cannot honour.
func (v launchValues) refuse() error {
	for _, name := range []string{"use_megatron_lm", "tpu", "use_parallelism_config", "mpirun_hostfile"} {
		if on(v[name]) || name == "mpirun_hostfile" && v[name] != "" {
			return fmt.Errorf("gpurun cannot take %s over: set launch.ranks = \"self\"", name)
		}
	}
	if v["compute_environment"] != "" && v["compute_environment"] != "LOCAL_MACHINE" {
		return fmt.Errorf("its configuration is for %s", v["compute_environment"])
	}
	if v["mixed_precision"] == "fp8" {
		return errors.New("gpurun cannot take mixed_precision fp8 over: set launch.ranks = \"self\"")
	}
	return nil
}

// processes returns how many ranks the launcher starts, empty for one per GPU. On the CPU it always starts
// one process. A single process gets a rank only from a launcher of several processes (launch_command in
// accelerate/commands/launch.py, 1.15).
func (v launchValues) processes() (ranks string, alone bool) {
	sharded := v["use_deepspeed"] != "" || v["use_fsdp"] != ""
	if v["cpu"] != "" || on(v["use_cpu"]) && !sharded {
		return "1", true
	}
	return v["num_processes"], !sharded && v["multi_gpu"] == "" && v["distributed_type"] != "MULTI_GPU"
}

// nodes returns what flags and file say about the nodes. The file is often the same on all nodes, with number
// 0. So its number counts only if nothing else numbers the nodes.
func (v launchValues) nodes(flags map[string]string) (Nodes, error) {
	said := func(name string) NodeValue {
		switch {
		case v[name] == "":
			return NodeValue{}
		case flags[name] == "":
			return NodeValue{v[name], name}
		}
		return NodeValue{v[name], "--" + name}
	}
	n := Nodes{Count: said("num_machines"), Default: said("machine_rank"), Head: said("main_process_ip")}
	if flags["machine_rank"] != "" {
		n.Rank = n.Default
	}
	if n.Count.Value != "" {
		if err := (Given{Source: n.Count.By, Value: n.Count.Value}).nodes(); err != nil {
			return Nodes{}, err
		}
	}
	return n, nil
}

// onThisNode returns one node's share of all processes, divided as the launcher does (prepare_multi_gpu_env).
func (v launchValues) onThisNode(all string) string {
	processes, err := strconv.Atoi(all)
	machines, bad := strconv.Atoi(v["num_machines"])
	if err != nil || bad != nil || machines < 1 || processes < machines {
		return all
	}
	return strconv.Itoa(processes / machines)
}

func on(value string) bool { return strings.EqualFold(value, "true") }

// or returns an option's value, or a default if it has none.
func (v launchValues) or(name, otherwise string) string {
	if v[name] != "" {
		return v[name]
	}
	return otherwise
}

// environment returns the variables that prepare_multi_gpu_env and prepare_deepspeed_cmd_env set
// (accelerate/utils/launch.py, 1.15).
func (v launchValues) environment(config accelerateFile) map[string]string {
	env := map[string]string{"ACCELERATE_MIXED_PRECISION": strings.ToLower(v.or("mixed_precision", "no"))}
	if gpus := v["gpu_ids"]; gpus != "" && gpus != "all" {
		env["CUDA_VISIBLE_DEVICES"] = gpus
	}
	if on(v["debug"]) {
		env["ACCELERATE_DEBUG_MODE"] = "true"
	}
	if n := v["num_cpu_threads_per_process"]; n != "" {
		env["OMP_NUM_THREADS"] = n
	}
	if on(v["enable_cpu_affinity"]) {
		env["ACCELERATE_CPU_AFFINITY"] = "1"
	}
	if on(v["use_cpu"]) || v["cpu"] != "" {
		env["ACCELERATE_USE_CPU"] = "True"
		v.dynamo(env)
		return env
	}
	if v["use_deepspeed"] != "" {
		v.zero(env, config)
		return env
	}
	v.dynamo(env)
	if v["use_fsdp"] != "" {
		v.fsdp(env)
	}
	return env
}

func (v launchValues) dynamo(env map[string]string) {
	env["ACCELERATE_DYNAMO_BACKEND"] = strings.ToUpper(v.or("dynamo_backend", "no"))
	env["ACCELERATE_DYNAMO_MODE"] = v.or("dynamo_mode", "default")
	for _, name := range []string{"dynamo_use_fullgraph", "dynamo_use_dynamic", "dynamo_use_regional_compilation"} {
		truth := "False"
		if on(v[name]) {
			truth = "True"
		}
		env["ACCELERATE_"+strings.ToUpper(name)] = truth
	}
}

func (v launchValues) zero(env map[string]string, config accelerateFile) {
	fields := slices.Clone(config.deepspeed)
	if config.values["mixed_precision"] != "" && config.values["mixed_precision"] == v["mixed_precision"] {
		fields = append(fields, "mixed_precision")
	}
	env["ACCELERATE_CONFIG_DS_FIELDS"] = strings.ToLower(strings.Join(fields, ","))
	env["ACCELERATE_USE_DEEPSPEED"] = "true"
	for name, variable := range map[string]string{
		"zero_stage": "DEEPSPEED_ZERO_STAGE", "gradient_accumulation_steps": "GRADIENT_ACCUMULATION_STEPS",
		"gradient_clipping":        "GRADIENT_CLIPPING",
		"offload_optimizer_device": "DEEPSPEED_OFFLOAD_OPTIMIZER_DEVICE",
		"offload_param_device":     "DEEPSPEED_OFFLOAD_PARAM_DEVICE",
		// The plugin reads these two, but the launcher does not set them.
		"offload_optimizer_nvme_path": "DEEPSPEED_OFFLOAD_OPTIMIZER_NVME_PATH",
		"offload_param_nvme_path":     "DEEPSPEED_OFFLOAD_PARAM_NVME_PATH",
		"zero3_init_flag":             "DEEPSPEED_ZERO3_INIT", "zero3_save_16bit_model": "DEEPSPEED_ZERO3_SAVE_16BIT_MODEL",
		"deepspeed_config_file":         "DEEPSPEED_CONFIG_FILE",
		"deepspeed_moe_layer_cls_names": "DEEPSPEED_MOE_LAYER_CLS_NAMES",
	} {
		value := v[name]
		if value == "" {
			continue
		}
		if name != "deepspeed_config_file" && name != "deepspeed_moe_layer_cls_names" && !strings.HasSuffix(name, "_path") {
			value = strings.ToLower(value)
		}
		env["ACCELERATE_"+variable] = value
	}
}

func (v launchValues) fsdp(env map[string]string) {
	env["ACCELERATE_USE_FSDP"] = "true"
	for name, otherwise := range fsdpDefaults {
		value := v.or(name, otherwise)
		if truth := strings.ToLower(value); truth == "true" || truth == "false" {
			value = truth
		}
		env[strings.ToUpper(name)] = value
	}
	for name, variable := range map[string]string{
		"fsdp_auto_wrap_policy":              "FSDP_AUTO_WRAP_POLICY",
		"fsdp_transformer_layer_cls_to_wrap": "FSDP_TRANSFORMER_CLS_TO_WRAP",
		"fsdp_backward_prefetch":             "FSDP_BACKWARD_PREFETCH", "fsdp_state_dict_type": "FSDP_STATE_DICT_TYPE",
		"fsdp_ignored_modules": "FSDP_IGNORED_MODULES",
	} {
		if value := v[name]; value != "" {
			env[variable] = value
		}
	}
}
