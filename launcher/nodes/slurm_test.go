package nodes

import (
	"github.com/gpurun/gpurun/launcher/commandline"
	"os"
	"strconv"
	"strings"
	"testing"
	"time"
)

// TestASlurmStep is a task of a real step: build this package's tests, and start them with
// `srun --mpi=pmi2 --nodes=3 --ntasks-per-node=1 ./session.test -test.run ASlurmStep -test.v`.
func TestASlurmStep(t *testing.T) {
	vars := commandline.ParseEnviron(os.Environ())
	node, err := strconv.Atoi(vars["SLURM_NODEID"])
	nodes, none := strconv.Atoi(vars["SLURM_STEP_NUM_NODES"])
	if err != nil || none != nil || vars["PMI_FD"] == "" || os.Getenv("GPURUN_LAB") == "" {
		t.Skip("start it with srun --mpi=pmi2 and GPURUN_LAB=1")
	}
	began := time.Now()
	c, err := Trust(t.Context(), TrustOptions{Run: "slurm " + vars["SLURM_JOB_ID"], Node: node, Nodes: nodes, Environ: vars})
	if err != nil {
		t.Fatal(err)
	}
	t.Logf("node %d trusts %s after %v; the head has %v", node, c.Way, time.Since(began), c.hosts)
	for _, entry := range os.Environ() {
		if strings.HasPrefix(entry, "PMI_") {
			t.Errorf("ranks would inherit %s", entry)
		}
	}
	if node == 0 {
		headOfAStep(t, c, nodes)
		return
	}
	for {
		link, err := NewDialer(c, "head.invalid", 0).Dial(t.Context()) // by the addresses that Slurm carried
		if err != nil {
			time.Sleep(50 * time.Millisecond) // the head does not listen yet
			continue
		}
		defer link.Close()
		sendBody(t, link, vars["SLURMD_NODENAME"])
		receiveBody(t, link)
		sendBody(t, link, "bye")
		return
	}
}

func headOfAStep(t *testing.T, c *Credentials, nodes int) {
	t.Helper()
	links, err := Listen(t.Context(), c, 0)
	if err != nil {
		t.Fatal(err)
	}
	var all []*Link
	for range nodes - 1 {
		link, err := links.Accept(t.Context())
		if err != nil {
			t.Fatal(err)
		}
		t.Logf("node %d is %s; it reaches the head at %s", link.Peer(), receiveBody(t, link), link.Addr())
		all = append(all, link)
	}
	for _, link := range all {
		sendBody(t, link, "final")
		receiveBody(t, link)
	}
	links.Close()
}
