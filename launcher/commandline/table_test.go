package commandline

import (
	"strings"
	"testing"
)

func TestStartsRanks(t *testing.T) {
	for line, want := range map[string]string{
		"torchrun a.py": "torchrun", "/opt/bin/torchrun a.py": "torchrun", "accelerate launch a.py": "accelerate launch",
		"accelerate env": "", "accelerate --debug launch": "accelerate launch", "tune run --nproc 2 full": "tune run", "tune ls": "",
		"deepspeed a.py": "deepspeed", "mpirun -n 4 python a.py": "mpirun", "srun python a.py": "srun", "composer a.py": "composer",
		"axolotl train x": "axolotl", "uv run torchrun a.py": "torchrun", "conda run -n deepspeed python a.py": "",
		"nice -n 10 deepspeed a.py": "deepspeed", "uv run a.py deepspeed": "", "uv run python a.py --backend deepspeed": "",
		"uv run python -m torch.distributed.run a.py": "torchrun", "python -W ignore -m torch.distributed.launch a.py": "torch.distributed.launch",
		"python -maccelerate.commands.launch a.py": "accelerate launch", "python /opt/bin/accelerate launch a.py": "accelerate launch",
		"python a.py torchrun": "", "./run.sh torchrun": "", "python": "", "nohup ./run.sh": "", "env A=1 torchrun a.py": "torchrun",
		"python -c x": "", "python -m pkg.train": "",
	} {
		if got := Known.StartsRanks(Program, strings.Fields(line)); got != want {
			t.Errorf("StartsRanks(%q) = %q, want %q", line, got, want)
		}
	}
	for script, want := range map[string]string{
		"cd x && A=1 torchrun a.py": "torchrun", "echo torchrun": "", "a; accelerate launch b": "accelerate launch", "": "",
	} {
		if got := Known.StartsRanks(Program, []string{"bash", "-ec", script}); got != want {
			t.Errorf("StartsRanks(bash -ec %q) = %q, want %q", script, got, want)
		}
	}
}
