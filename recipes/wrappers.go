package recipes

// wrappers are the launchers of the frameworks of the catalog, by recipe. What
// follows accelerate launch, deepspeed and torchrun is known without a recipe.
var wrappers = map[string][]Wrapper{
	"axolotl": {
		{
			Command:    []string{"axolotl", "train"},
			Module:     "axolotl.cli.train",
			Takes:      []string{"--launcher"},
			Accelerate: []string{"--num_processes", "--main_process_port"},
			Refuse:     []string{"--cloud", "--sweep", "--use-ray", "--use_ray"},
		},
	},
	"composer": {
		{
			Command: []string{"composer"},
			Script:  true,
			Modules: []string{"-m", "--module_mode"},
			Ranks:   []string{"-n", "--nproc"},
			Takes:   []string{"--stdout", "--stderr", "--master_addr", "--master_port"},
			Flags:   []string{"-v", "--verbose"},
			Refuse:  []string{"--world_size", "--base_rank", "--node_rank", "-c", "--command_mode"},
		},
	},
	"llama-factory": {
		{
			Command: []string{"llamafactory-cli", "train"},
			Module:  "llamafactory.launcher",
			Ranks:   []string{"$NPROC_PER_NODE"},
			Refuse:  []string{"$NNODES"},
		},
		{
			Command: []string{"lmf", "train"},
			Module:  "llamafactory.launcher",
			Ranks:   []string{"$NPROC_PER_NODE"},
			Refuse:  []string{"$NNODES"},
		},
	},
	"ms-swift": {
		{
			Command: []string{"swift", "sft"},
			Module:  "swift.cli.sft",
			Expand:  true,
			Ranks:   []string{"$NPROC_PER_NODE"},
			One:     true,
			Refuse:  []string{"$NNODES"},
		},
		{
			Command: []string{"swift", "pt"},
			Module:  "swift.cli.pt",
			Expand:  true,
			Ranks:   []string{"$NPROC_PER_NODE"},
			One:     true,
			Refuse:  []string{"$NNODES"},
		},
	},
	// A recipe and a configuration may be torchtune's own, by name.
	"torchtune": {
		{
			Command: []string{"tune", "run"},
			Site:    "recipes/{1}.py",
			Ranks:   []string{"--nproc-per-node", "--nproc_per_node"},
			One:     true,
			Takes:   []string{"--rdzv-backend", "--rdzv_backend", "--rdzv-id", "--rdzv_id", "--rdzv-conf", "--rdzv_conf", "--max-restarts", "--max_restarts", "--monitor-interval", "--monitor_interval", "--log-dir", "--log_dir", "--role", "--start-method", "--start_method", "--local-addr", "--local_addr", "--local-ranks-filter", "--local_ranks_filter", "--master-addr", "--master_addr", "--master-port", "--master_port", "--logs-specs", "--logs_specs", "--numa-binding", "--numa_binding", "--redirects", "--tee", "-r", "-t", "--nnodes"},
			Flags:   []string{"--standalone"},
			Files:   map[string]string{"--config": "recipes/configs/{}.yaml"},
			Refuse:  []string{"--nnodes", "--rdzv-endpoint", "--rdzv_endpoint", "--node-rank", "--node_rank", "--run-path", "--run_path", "--no-python", "--no_python"},
		},
	},
	"trl": trlWrappers("sft", "dpo", "grpo", "kto", "reward", "rloo"),
}

// trlWrappers are TRL's scripts, which trl hands to accelerate launch together
// with the options that are that one's (trl/cli/main.py).
func trlWrappers(scripts ...string) []Wrapper {
	var all []Wrapper
	for _, script := range scripts {
		all = append(all, Wrapper{
			Command: []string{"trl", script}, Module: "trl.scripts." + script, HandedIn: "--config", Accelerate: trlHandsOn,
			Configs: map[string]string{"--accelerate_config": "trl/accelerate_configs/{}.yaml"},
		})
	}
	return all
}

// trlHandsOn are the options of accelerate launch that trl knows.
var trlHandsOn = []string{
	"--num_processes",
	"--main_process_port",
	"--main_process_ip",
	"--machine_rank",
	"--num_machines",
	"--config_file",
	"--gpu_ids",
	"--mixed_precision",
	"--multi_gpu",
	"--use_deepspeed",
	"--use_fsdp",
	"--cpu",
	"--same_network",
	"--num_cpu_threads_per_process",
	"--zero_stage",
	"--deepspeed_config_file",
	"--offload_optimizer_device",
	"--offload_param_device",
	"--zero3_init_flag",
	"--zero3_save_16bit_model",
	"--fsdp_version",
	"--fsdp_offload_params",
	"--fsdp_sharding_strategy",
	"--fsdp_reshard_after_forward",
	"--fsdp_auto_wrap_policy",
	"--fsdp_transformer_layer_cls_to_wrap",
	"--fsdp_state_dict_type",
	"--fsdp_activation_checkpointing",
	"--dynamo_backend",
	"--dynamo_mode",
}
