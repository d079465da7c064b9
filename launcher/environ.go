package launcher

import (
	"slices"
	"strconv"
	"strings"
)

// A Seat is one rank's place among all ranks of an attempt on one node.
type Seat struct {
	Rank, LocalRank       int
	WorldSize, LocalWorld int
	MasterAddr            string
	MasterPort            int
	RunID                 string // of the attempt
	Attempt               int
	MaxRestarts           int
	Role                  string
	ErrorFile             string
}

// Environ gives the variables that torchrun sets for a worker, as of PyTorch
// 2.12 (torch/distributed/elastic/agent/server/local_elastic_agent.py). There
// is no agent store: rank 0 serves the rendezvous itself, so that each attempt
// has a fresh one.
func (s Seat) Environ(inherited []string) map[string]string {
	env := map[string]string{
		"RANK":                         strconv.Itoa(s.Rank),
		"LOCAL_RANK":                   strconv.Itoa(s.LocalRank),
		"WORLD_SIZE":                   strconv.Itoa(s.WorldSize),
		"LOCAL_WORLD_SIZE":             strconv.Itoa(s.LocalWorld),
		"GROUP_RANK":                   "0",
		"GROUP_WORLD_SIZE":             "1",
		"ROLE_NAME":                    s.Role,
		"ROLE_RANK":                    strconv.Itoa(s.Rank),
		"ROLE_WORLD_SIZE":              strconv.Itoa(s.WorldSize),
		"MASTER_ADDR":                  s.MasterAddr,
		"MASTER_PORT":                  strconv.Itoa(s.MasterPort),
		"TORCHELASTIC_RUN_ID":          s.RunID,
		"TORCHELASTIC_RESTART_COUNT":   strconv.Itoa(s.Attempt),
		"TORCHELASTIC_MAX_RESTARTS":    strconv.Itoa(max(s.MaxRestarts, s.Attempt)),
		"TORCHELASTIC_USE_AGENT_STORE": "False",
		"TORCHELASTIC_ERROR_FILE":      s.ErrorFile,
	}
	if _, set := Lookup(inherited, "TORCH_NCCL_ASYNC_ERROR_HANDLING"); !set {
		env["TORCH_NCCL_ASYNC_ERROR_HANDLING"] = "1"
	}
	if _, set := Lookup(inherited, "OMP_NUM_THREADS"); !set && s.LocalWorld > 1 {
		env["OMP_NUM_THREADS"] = "1"
	}
	return env
}

// Lookup finds a variable in an environment; the last one counts, as for execve.
func Lookup(env []string, name string) (string, bool) {
	for _, word := range slices.Backward(env) {
		if k, v, ok := strings.Cut(word, "="); ok && k == name {
			return v, true
		}
	}
	return "", false
}

// Overlay returns an environment with variables set on top of it, sorted, each
// name once.
func Overlay(env []string, sets ...map[string]string) []string {
	merged := map[string]string{}
	for _, word := range env {
		if k, v, ok := strings.Cut(word, "="); ok {
			merged[k] = v
		}
	}
	for _, set := range sets {
		for k, v := range set {
			merged[k] = v
		}
	}
	words := make([]string, 0, len(merged))
	for k, v := range merged {
		words = append(words, k+"="+v)
	}
	slices.Sort(words)
	return words
}
