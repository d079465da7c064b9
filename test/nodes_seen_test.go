package test

import (
	"encoding/json"
	osexec "os/exec"
	"testing"

	"github.com/gpurun/gpurun/launcher"
)

// The status on node 0 has the ranks of all nodes, by their global numbers, with the memory of each.
func TestNodesStatus(t *testing.T) {
	t.Parallel()
	c := newCrew(t, nodesJob(t), map[int][]string{0: {"FITS=8"}, 1: {"FITS=8"}, 2: {"FITS=8"}})
	c.awaitSteps(t)
	var s launcher.Status
	await(t, "the memory of three ranks", func() bool {
		cmd := osexec.Command(binary(t), "status", "--json", "run")
		cmd.Dir = c.dir
		out, err := cmd.Output()
		s = launcher.Status{}
		return err == nil && json.Unmarshal(out, &s) == nil && len(s.Ranks) == 3
	})
	for k, rank := range s.Ranks {
		if rank.Rank != k || rank.Device != "cpu" || rank.Used == 0 || rank.Allowed == 0 {
			t.Errorf("rank %d: %+v", k, rank)
		}
	}
	rest(t, c.dir)
	c.exits(t, 0, 0, 0)
}
