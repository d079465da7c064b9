package node

import (
	"path/filepath"
	"strconv"

	"github.com/gpurun/gpurun/launcher/environ"
)

// A rankEnvironment is one rank's place among all ranks of an attempt, as torchrun
// tells it to a worker.
type rankEnvironment struct {
	Rank, LocalRank       int
	WorldSize, LocalWorld int
	Node, Nodes           int
	MasterAddr            string
	MasterPort            int
	RunID                 string // of the attempt
	Attempt               int
	MaxRestarts           int
	Role                  string
	ErrorFile             string
}

// vars gives the variables that torchrun sets for a worker, as of PyTorch
// 2.12 (torch/distributed/elastic/agent/server/local_elastic_agent.py). There
// is no agent store: rank 0 serves the rendezvous itself, so that each attempt
// has a fresh one.
func (r rankEnvironment) vars(inherited environ.Vars) map[string]string {
	env := map[string]string{
		"RANK":                         strconv.Itoa(r.Rank),
		"LOCAL_RANK":                   strconv.Itoa(r.LocalRank),
		"WORLD_SIZE":                   strconv.Itoa(r.WorldSize),
		"LOCAL_WORLD_SIZE":             strconv.Itoa(r.LocalWorld),
		"GROUP_RANK":                   strconv.Itoa(r.Node),
		"GROUP_WORLD_SIZE":             strconv.Itoa(r.Nodes),
		"ROLE_NAME":                    r.Role,
		"ROLE_RANK":                    strconv.Itoa(r.Rank),
		"ROLE_WORLD_SIZE":              strconv.Itoa(r.WorldSize),
		"MASTER_ADDR":                  r.MasterAddr,
		"MASTER_PORT":                  strconv.Itoa(r.MasterPort),
		"TORCHELASTIC_RUN_ID":          r.RunID,
		"TORCHELASTIC_RESTART_COUNT":   strconv.Itoa(r.Attempt),
		"TORCHELASTIC_MAX_RESTARTS":    strconv.Itoa(max(r.MaxRestarts, r.Attempt)),
		"TORCHELASTIC_USE_AGENT_STORE": "False",
		"TORCHELASTIC_ERROR_FILE":      r.ErrorFile,
	}
	if _, set := inherited.Lookup("TORCH_NCCL_ASYNC_ERROR_HANDLING"); !set {
		env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
	}
	// Where NCCL's watchdog leaves its flight record: in the rank's folder, not in /tmp, where
	// the next attempt's would replace it. The rank is added to the name. Newer versions of
	// PyTorch read a second name first (TORCH_FR_DUMP_TEMP_FILE, as of 2.11).
	_, set := inherited.Lookup("TORCH_NCCL_DEBUG_INFO_TEMP_FILE")
	_, newer := inherited.Lookup("TORCH_FR_DUMP_TEMP_FILE")
	if !set && !newer {
		env["TORCH_NCCL_DEBUG_INFO_TEMP_FILE"] = filepath.Join(filepath.Dir(r.ErrorFile), "nccl_trace_rank_")
	}
	if _, set := inherited.Lookup("OMP_NUM_THREADS"); !set && r.LocalWorld > 1 {
		env["OMP_NUM_THREADS"] = "1"
	}
	return env
}
