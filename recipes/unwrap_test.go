package recipes_test

import (
	"errors"
	"io/fs"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"

	"github.com/gpurun/gpurun/launcher/commandline"
	"github.com/gpurun/gpurun/recipes"
)

const accelerateYAML = `compute_environment: LOCAL_MACHINE
distributed_type: DEEPSPEED
mixed_precision: bf16
num_machines: 1
num_processes: 2
deepspeed_config:
  deepspeed_config_file: ds.json
  zero3_init_flag: true
`

// TestUnwrap: the command that each launcher would start on a rank, with its variables.
func TestUnwrap(t *testing.T) {
	files := map[string]string{
		"a.yaml":       accelerateYAML,
		"anchors.yaml": "base: &b {num_processes: 8, mixed_precision: fp16}\n<<: *b\nnum_processes: &n 3\nlater: *n\nmixed_precision: &p \"no\"\nnum_machines: 1\n",
		"alias.yaml":   "p: &p \"no\"\nn: &n 3\nmixed_precision: *p\nnum_processes: *n\n",
		"sft.yaml":     "max_length: 512\naccelerate_config: zero2\nnum_processes: 8\nuse_deepspeed: true\nuse_fsdp: false\n",
		commandline.Site + "trl/accelerate_configs/zero2.yaml": "distributed_type: DEEPSPEED\ndeepspeed_config:\n  zero_stage: 2\n",
		"swift.yaml": "model: m\nENV:\n  NPROC_PER_NODE: 2\nlora: [a, b]\nnone:\n",
		"/home/u/.cache/huggingface/accelerate/default_config.yaml": "mixed_precision: fp16\nnum_processes: 4\n",
	}
	read := func(name string) ([]byte, error) {
		if text, there := files[name]; there {
			return []byte(text), nil
		}
		return nil, fs.ErrNotExist
	}
	dynamo := map[string]string{
		"ACCELERATE_DYNAMO_BACKEND": "NO", "ACCELERATE_DYNAMO_MODE": "default", "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
		"ACCELERATE_DYNAMO_USE_DYNAMIC": "False", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "False",
	}
	plain := map[string]string{"ACCELERATE_MIXED_PRECISION": "no"}
	for k, v := range dynamo {
		plain[k] = v
	}
	zero2 := map[string]string{
		"ACCELERATE_MIXED_PRECISION": "no", "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_ZERO_STAGE": "2", "ACCELERATE_CONFIG_DS_FIELDS": "zero_stage",
	}
	tests := []struct {
		line, home string
		kind       commandline.CommandKind
		argv, rank string
		env        map[string]string
	}{
		{"accelerate launch --num-processes=2 train.py --x 1 --num_processes 9", "", commandline.Script, "train.py --x 1 --num_processes 9", "2", plain},
		{"accelerate launch --config_file anchors.yaml train.py", "", commandline.Script, "train.py", "3", plain},
		{"accelerate launch --config_file alias.yaml train.py", "", commandline.Script, "train.py", "3", plain},
		{"/opt/bin/accelerate launch -m pkg.train a", "", commandline.Module, "pkg.train a", "", plain},
		{"python3 -m accelerate.commands.launch --multi_gpu train.py", "", commandline.Script, "train.py", "", plain},
		{"accelerate launch --config_file a.yaml --gpu_ids 0,1 train.py", "", commandline.Script, "train.py", "2", map[string]string{
			"ACCELERATE_MIXED_PRECISION": "bf16", "CUDA_VISIBLE_DEVICES": "0,1", "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "ds.json",
			"ACCELERATE_DEEPSPEED_ZERO3_INIT": "true", "ACCELERATE_CONFIG_DS_FIELDS": "deepspeed_config_file,zero3_init_flag,mixed_precision"}},
		{"accelerate launch --mixed_precision bf16 train.py", "/home/u", commandline.Script, "train.py", "4", map[string]string{
			"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_DYNAMO_BACKEND": "NO", "ACCELERATE_DYNAMO_MODE": "default", "ACCELERATE_DYNAMO_USE_FULLGRAPH": "False",
			"ACCELERATE_DYNAMO_USE_DYNAMIC": "False", "ACCELERATE_DYNAMO_USE_REGIONAL_COMPILATION": "False"}},
		{"deepspeed --num_gpus 2 --master_port=1 train.py --deepspeed ds.json", "", commandline.Script, "train.py --local_rank={local_rank} --deepspeed ds.json", "2", map[string]string{}},
		{"deepspeed --include localhost:1,3 --module pkg.train", "", commandline.Module, "pkg.train --local_rank={local_rank}", "2", map[string]string{"CUDA_VISIBLE_DEVICES": "1,3"}},
		{"deepspeed --no_local_rank train.py --x 1", "", commandline.Script, "train.py --x 1", "", map[string]string{}},
		{"tune run --nnodes 1 --nproc_per_node 2 full_finetune_distributed --config llama3_2/1B_full batch_size=2", "", commandline.Script,
			"{site}/recipes/full_finetune_distributed.py --config {site}/recipes/configs/llama3_2/1B_full.yaml batch_size=2", "2", map[string]string{}},
		{"/v/bin/tune run lora_finetune_single_device --config a.yaml", "", commandline.Script, "{site}/recipes/lora_finetune_single_device.py --config a.yaml", "1", map[string]string{}},
		{"tune run mine.py --config a.yaml", "", commandline.Script, "mine.py --config a.yaml", "1", map[string]string{}},
		{"swift sft --model m", "", commandline.Module, "swift.cli.sft --model m", "1", map[string]string{}},
		{"swift sft swift.yaml --lr 1", "", commandline.Module, "swift.cli.sft --model m --lora a b --lr 1", "2", map[string]string{"NPROC_PER_NODE": "2"}},
		{"llamafactory-cli train a.yaml lr=1", "", commandline.Module, "llamafactory.launcher a.yaml lr=1", "", map[string]string{}},
		{"trl sft --num_processes 2 --config sft.yaml --output_dir o", "", commandline.Module, "trl.scripts.sft --config sft.yaml --output_dir o", "2", zero2},
		{"trl dpo --accelerate_config zero2 --num-processes=4 --output_dir o", "", commandline.Module, "trl.scripts.dpo --output_dir o", "4", zero2},
		{"trl sft --accelerate_config a.yaml --gradient_accumulation_steps 2", "", commandline.Module, "trl.scripts.sft --gradient_accumulation_steps 2", "2", map[string]string{
			"ACCELERATE_MIXED_PRECISION": "bf16", "ACCELERATE_USE_DEEPSPEED": "true", "ACCELERATE_DEEPSPEED_CONFIG_FILE": "ds.json",
			"ACCELERATE_DEEPSPEED_ZERO3_INIT": "true", "ACCELERATE_CONFIG_DS_FIELDS": "deepspeed_config_file,zero3_init_flag,mixed_precision"}},
		{"axolotl train c.yml --num-processes 2 --micro-batch-size=1", "", commandline.Module, "axolotl.cli.train c.yml --micro-batch-size=1", "2", plain},
		{"axolotl train c.yml --seed 1 -- --num_processes=3", "", commandline.Module, "axolotl.cli.train c.yml --seed 1", "3", plain},
		{"axolotl train c.yml --launcher torchrun -- --nproc_per_node=3 --nnodes 1", "", commandline.Module, "axolotl.cli.train c.yml", "3", nil},
	}
	for _, test := range tests {
		inner, known, err := recipes.Unwrap(strings.Fields(test.line), map[string]string{"HOME": test.home}, read)
		if err != nil || !known {
			t.Errorf("%s: %v, %v", test.line, known, err)
			continue
		}
		want := commandline.Inner{RankStarter: inner.RankStarter, Kind: test.kind, Argv: strings.Fields(test.argv), Ranks: test.rank, Env: test.env, Nodes: inner.Nodes}
		if diff := cmp.Diff(want, inner); diff != "" || inner.Wrapper == "" {
			t.Errorf("%s (-want +got):\n%s", test.line, diff)
		}
	}
}

// TestForRank: each rank gets its own number, and all other words unchanged.
func TestForRank(t *testing.T) {
	argv := strings.Fields("train.py --local_rank={local_rank} --name {local_rank} --local_rank 7")
	got := strings.Join(recipes.ForRank(argv, 3), " ")
	if want := "train.py --local_rank=3 --name {local_rank} --local_rank 7"; got != want || argv[1] != commandline.LocalRank {
		t.Errorf("%s, and the command of all is %q", got, argv)
	}
}

// TestUnwrapRefuses: options that gpurun cannot handle are reported, not dropped.
func TestUnwrapRefuses(t *testing.T) {
	read := func(string) ([]byte, error) { return nil, errors.New("there is none") }
	for line, want := range map[string]string{
		"accelerate launch --num_machines 2:3 train.py":      "a fixed number of nodes",
		"accelerate launch --use_megatron_lm train.py":       "use_megatron_lm",
		"accelerate launch --config_file none.yaml train.py": "none.yaml",
		"accelerate launch --new_option 1 train.py":          "--new_option",
		"accelerate launch --num_processes 2":                "no script",
		"accelerate launch --mixed_precision fp8 train.py":   "fp8",
		"deepspeed --hostfile hosts train.py":                "--hostfile",
		"deepspeed --num_nodes 2 train.py":                   "no hostfile",
		"deepspeed --include worker-1:0 train.py":            "no hostfile",
		"tune run --nnodes 2:3 full --config a.yaml":         "--nnodes",
		"tune run --new_option x full --config a.yaml":       "--new_option",
		"tune run --nproc_per_node 2":                        "nothing to start",
		"swift sft none.yaml":                                "none.yaml",
	} {
		if _, known, err := recipes.Unwrap(strings.Fields(line), nil, read); !known || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, %v; want %q", line, known, err, want)
		}
	}
	for _, line := range []string{"python train.py", "accelerate config", "bash run.sh", ""} {
		if _, known, err := recipes.Unwrap(strings.Fields(line), nil, read); known || err != nil {
			t.Errorf("%s: %v, %v", line, known, err)
		}
	}
}
