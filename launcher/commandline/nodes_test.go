package commandline

import (
	"errors"
	"strings"
	"testing"

	"github.com/google/go-cmp/cmp"
)

// hostfiles are what launchers find where they look.
func hostfiles(texts map[string]string) Files {
	return Files{
		Exists: func(name string) bool { return texts[name] != "" },
		Text: func(name string) (string, error) {
			if texts[name] == "" {
				return "", errors.New("there is none")
			}
			return texts[name], nil
		},
		Table: func(name string) ([]Pair, error) {
			var table []Pair
			for line := range strings.Lines(texts[name]) {
				key, value, _ := strings.Cut(strings.TrimSpace(line), ": ")
				table = append(table, Pair{Key: key, Text: value})
			}
			return table, nil
		},
	}
}

// What a launcher's words say of nodes is what they say without gpurun, and so is how
// many ranks there are on this one.
func TestNodesOfLaunchers(t *testing.T) {
	files := hostfiles(map[string]string{
		"hosts": "# workers\nw0 slots=8\nw1  slots=8 extra\n\nw2 slots=8\n", "uneven": "w0 slots=8\nw1 slots=4\n", "single": "w0 slots=4\n",
		"a.yaml": "num_machines: 4\nnum_processes: 32\nmachine_rank: 0\nmain_process_ip: 10.0.0.1\nmain_process_port: 29500\n",
	})
	zero, hosts := NodeValue{"0", "--node-rank"}, "--hostfile hosts"
	env := Environ{"HOME": "/none"}
	for line, want := range map[string]struct {
		nodes Nodes
		ranks string
		alone bool
	}{
		"accelerate launch --num_machines 4 --machine_rank 1 --main_process_ip h --num_processes 32 --multi_gpu train.py": {Nodes{
			Count: NodeValue{"4", "--num_machines"}, Rank: NodeValue{"1", "--machine_rank"}, Default: NodeValue{"1", "--machine_rank"}, Head: NodeValue{"h", "--main_process_ip"}}, "8", false},
		"accelerate launch --config_file a.yaml train.py": {Nodes{
			Count: NodeValue{"4", "num_machines"}, Default: NodeValue{"0", "machine_rank"}, Head: NodeValue{"10.0.0.1", "main_process_ip"}}, "8", false},
		"accelerate launch --config_file a.yaml --machine_rank 3 train.py": {Nodes{
			Count: NodeValue{"4", "num_machines"}, Rank: NodeValue{"3", "--machine_rank"}, Default: NodeValue{"3", "--machine_rank"}, Head: NodeValue{"10.0.0.1", "main_process_ip"}}, "8", false},
		"accelerate launch --config_file a.yaml --num_machines 1 train.py": {Nodes{
			Count: NodeValue{"1", "--num_machines"}, Default: NodeValue{"0", "machine_rank"}, Head: NodeValue{"10.0.0.1", "main_process_ip"}}, "32", true},
		"accelerate launch --num_machines 2 --num_processes 2 train.py": {Nodes{Count: NodeValue{"2", "--num_machines"}}, "1", false},
		"accelerate launch train.py":                                    {Nodes{}, "", true},
		"trl sft --num_machines 2 --machine_rank 1 --output_dir o": {Nodes{
			Count: NodeValue{"2", "--num_machines"}, Rank: NodeValue{"1", "--machine_rank"}, Default: NodeValue{"1", "--machine_rank"}}, "", false},
		"tune run --nnodes 2 --nproc_per_node 4 --rdzv_id 101 --rdzv_backend c10d --rdzv_endpoint h:29500 full": {Nodes{
			Count: NodeValue{"2", "--nnodes"}, Head: NodeValue{"h:29500", "--rdzv-endpoint"}, ID: NodeValue{"101", "--rdzv-id"}}, "4", false},
		"axolotl train c.yml --launcher torchrun -- --nnodes 2 --node-rank 1 --master-addr h": {Nodes{
			Count: NodeValue{"2", "--nnodes"}, Rank: NodeValue{"1", "--node-rank"}, Default: zero, Head: NodeValue{"h", "--master-addr"}}, "1", false},
		"deepspeed --num_gpus 2 train.py":           {Nodes{}, "2", false},
		"deepspeed -H single train.py":              {Nodes{Count: NodeValue{"1", "--hostfile single"}, Head: NodeValue{"w0", "--hostfile single"}}, "4", false},
		"deepspeed --hostfile hosts train.py":       {Nodes{Count: NodeValue{"3", hosts}, Head: NodeValue{"w0", hosts}}, "8", false},
		"deepspeed --hostfile uneven train.py":      {Nodes{Count: NodeValue{"2", "--hostfile uneven"}, Head: NodeValue{"w0", "--hostfile uneven"}}, "", false},
		"deepspeed -H hosts --num_nodes 2 train.py": {Nodes{Count: NodeValue{"2", hosts}, Head: NodeValue{"w0", hosts}}, "8", false},
		"deepspeed -H hosts --num_gpus 2 train.py":  {Nodes{Count: NodeValue{"3", hosts}, Head: NodeValue{"w0", hosts}}, "2", false},
		// In the hostfile's order, whatever that of the words is.
		"deepspeed -H hosts --include w2@w1 train.py":         {Nodes{Count: NodeValue{"2", hosts}, Head: NodeValue{"w1", hosts}}, "8", false},
		"deepspeed -H hosts --include w1:0,3@w2:0,3 train.py": {Nodes{Count: NodeValue{"2", hosts}, Head: NodeValue{"w1", hosts}}, "2", false},
		"deepspeed -H hosts --no_ssh --node_rank 1 --master_addr h train.py": {Nodes{
			Count: NodeValue{"3", hosts}, Rank: NodeValue{"1", "--node_rank"}, Head: NodeValue{"h", "--master_addr"}}, "8", false},
	} {
		inner, known, err := Known.UnwrapLauncher(strings.Fields(line), env, files)
		if err != nil || !known {
			t.Errorf("%s: %v, %v", line, known, err)
			continue
		}
		how := inner.Nodes.How
		inner.Nodes.How = ""
		if diff := cmp.Diff(want.nodes, inner.Nodes); diff != "" || inner.Ranks != want.ranks || inner.Alone != want.alone {
			t.Errorf("%s: %q ranks, alone %v (-want +got):\n%s", line, inner.Ranks, inner.Alone, diff)
		}
		if hosts := strings.Contains(line, "-H ") || strings.Contains(line, "--hostfile"); hosts != (how != "") ||
			hosts && (!strings.Contains(how, "--ntasks-per-node=1 gpurun "+line) || !strings.Contains(how, "GPURUN_NODE_RANK=0 gpurun "+line) || !strings.Contains(how, "pdsh")) {
			t.Errorf("%s: the hint is %q", line, how)
		}
	}
}

// The default hostfile is read where there is one.
func TestDefaultHostfile(t *testing.T) {
	inner, _, err := Known.UnwrapLauncher(strings.Fields("deepspeed train.py"), nil, hostfiles(map[string]string{"/job/hostfile": "a slots=1\nb slots=1\n"}))
	if err != nil || inner.Nodes.Count != (NodeValue{"2", "/job/hostfile"}) {
		t.Errorf("%+v, %v", inner.Nodes, err)
	}
}

func TestNodesRefused(t *testing.T) {
	files := hostfiles(map[string]string{"hosts": "w0 slots=8\nw1 slots=8\n", "words": "w0 8\n", "twice": "w0 slots=1\nw0 slots=1\n", "empty": "# none\n",
		"many": strings.Repeat("x", 100) + "\n"})
	for line, want := range map[string]string{
		"deepspeed -H none a.py": "--hostfile none: there is none", "deepspeed -H words a.py": `"w0 8" is not a line such as "worker-1 slots=8"`,
		"deepspeed -H twice a.py": `"w0" is in it twice`, "deepspeed -H empty a.py": "it names no host", "deepspeed -H many a.py": "is not a line such as",
		"deepspeed -H hosts --include w9 a.py": "no host w9 is in the hostfile", "deepspeed -H hosts --include w0:0@w1:1 a.py": "the same devices on each node",
		"deepspeed -H hosts --num_nodes 3 a.py": "--num_nodes: 3 is out of range", "deepspeed -H hosts --exclude w1 a.py": "cannot take --exclude over",
		"deepspeed --num_nodes 2 a.py": "there is no hostfile that names the nodes", "deepspeed --include w1:0 a.py": "there is no hostfile that names the nodes",
		"accelerate launch --num_machines x a.py": `--num_machines: "x" is not a whole number`, "tune run --nnodes 2:4 full": "gpurun wants a fixed number of nodes",
		"axolotl train c --launcher torchrun -- --nnodes 0": "--nnodes: 0 is out of range", "axolotl train c --launcher torchrun -- --node-rank -1": "--node-rank: -1 is out of range",
	} {
		if _, known, err := Known.UnwrapLauncher(strings.Fields(line), Environ{"HOME": "/none"}, files); !known || err == nil || !strings.Contains(err.Error(), want) {
			t.Errorf("%s: %v, want %q", line, err, want)
		}
	}
}

// Frameworks that start torchrun by variables alone count nodes in variables, too.
func TestNodesInVariables(t *testing.T) {
	env := Environ{"NNODES": "2", "NODE_RANK": "1", "MASTER_ADDR": "h", "NPROC_PER_NODE": "1"}
	want := Nodes{Count: NodeValue{"2", "NNODES"}, Rank: NodeValue{"1", "NODE_RANK"}, Head: NodeValue{"h", "MASTER_ADDR"}}
	for _, line := range []string{"llamafactory-cli train a.yaml", "swift sft --model m"} {
		inner, _, err := Known.UnwrapLauncher(strings.Fields(line), env, noFiles)
		if diff := cmp.Diff(want, inner.Nodes); err != nil || diff != "" || inner.Alone || inner.Ranks != "1" {
			t.Errorf("%s: %+v, %v %s", line, inner, err, diff)
		}
		if inner, _, err = Known.UnwrapLauncher(strings.Fields(line), Environ{"NNODES": "1"}, noFiles); err != nil || inner.Nodes.Several() || !inner.Alone {
			t.Errorf("%s on one: %+v, %v", line, inner, err)
		}
	}
}

// torchrun's own flags, and what gpurun says of those that have no effect.
func TestNodesOfTorchrun(t *testing.T) {
	zero := NodeValue{"0", "--node-rank"}
	for line, want := range map[string]struct {
		nodes    Nodes
		warnings string
	}{
		"": {Nodes{}, ""},
		"--nnodes 4 --node-rank 1 --master-addr h --master-port 29500":             {Nodes{Count: NodeValue{"4", "--nnodes"}, Rank: NodeValue{"1", "--node-rank"}, Default: zero, Head: NodeValue{"h", "--master-addr"}}, ""},
		"--nnodes=2:2 --rdzv-backend=c10d --rdzv-endpoint=h:29400 --rdzv-id=x":     {Nodes{Count: NodeValue{"2:2", "--nnodes"}, Head: NodeValue{"h:29400", "--rdzv-endpoint"}, ID: NodeValue{"x", "--rdzv-id"}}, ""},
		"--nnodes=2 --rdzv-backend=static --rdzv-endpoint=h:29400 --master-addr=i": {Nodes{Count: NodeValue{"2", "--nnodes"}, Default: zero, Head: NodeValue{"h:29400", "--rdzv-endpoint"}}, ""},
		"--nnodes=2 --rdzv-backend=c10d --rdzv-endpoint=h --rdzv-conf=timeout=900": {Nodes{Count: NodeValue{"2", "--nnodes"}, Head: NodeValue{"h", "--rdzv-endpoint"}}, "--rdzv-conf has no effect with gpurun"},
		"--standalone":                                    {Nodes{Count: NodeValue{"1", "--standalone"}, Default: zero}, ""},
		"--standalone --nnodes 2":                         {Nodes{Count: NodeValue{"2", "--nnodes"}, Default: zero}, ""},
		"--nnodes 1 --master-addr h":                      {Nodes{Count: NodeValue{"1", "--nnodes"}, Default: zero, Head: NodeValue{"h", "--master-addr"}}, "--master-addr=h has no effect on one node: ranks meet at 127.0.0.1"},
		"--rdzv-backend=c10d --rdzv-endpoint=localhost:0": {Nodes{Head: NodeValue{"localhost:0", "--rdzv-endpoint"}}, "--rdzv-backend, --rdzv-endpoint have no effect with gpurun on one node"},
	} {
		l, err := ReadTorchrun(append(strings.Fields(line), "train.py"), nil, false)
		if err != nil {
			t.Errorf("%s: %v", line, err)
			continue
		}
		if diff := cmp.Diff(want.nodes, l.Nodes); diff != "" || strings.Join(l.Warnings, "; ") != want.warnings {
			t.Errorf("%s: warns %q (-want +got):\n%s", line, l.Warnings, diff)
		}
	}
}

// Flags of gpurun's own in front of a launcher say what it leaves out, or something else.
func TestNodesOver(t *testing.T) {
	hosts := Nodes{Count: NodeValue{"2", "--hostfile f"}, Head: NodeValue{"w0", "--hostfile f"}, How: "so"}
	own := Nodes{Rank: NodeValue{"1", "--node-rank"}}
	if got, want := own.Over(hosts), (Nodes{Count: hosts.Count, Rank: own.Rank, Head: hosts.Head, How: "so"}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
	own.Count, own.Default = NodeValue{"3", "--nnodes"}, NodeValue{"0", "--node-rank"}
	if got, want := own.Over(hosts), (Nodes{Count: own.Count, Default: own.Default, Rank: own.Rank, Head: hosts.Head}); got != want {
		t.Errorf("%+v, want %+v", got, want)
	}
}
