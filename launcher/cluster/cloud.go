package cluster

import (
	"strings"

	"github.com/gpurun/gpurun/launcher/errext"
)

// clouds are the services that number nodes in variables of their own. The head is the
// first word of its variable. AWS Batch leaves it out on the main node itself, may have
// another main node than number 0, and numbers a job's nodes in its id.
var clouds = []struct{ nodes, rank, head, main, job string }{
	{nodes: "SKYPILOT_NUM_NODES", rank: "SKYPILOT_NODE_RANK", head: "SKYPILOT_NODE_IPS", job: "SKYPILOT_TASK_ID"},
	{nodes: "DSTACK_NODES_NUM", rank: "DSTACK_NODE_RANK", head: "DSTACK_MASTER_NODE_IP", job: "DSTACK_RUN_ID"},
	{nodes: "AWS_BATCH_JOB_NUM_NODES", rank: "AWS_BATCH_JOB_NODE_INDEX", head: "AWS_BATCH_JOB_MAIN_NODE_PRIVATE_IPV4_ADDRESS",
		main: "AWS_BATCH_JOB_MAIN_NODE_INDEX", job: "AWS_BATCH_JOB_ID"},
}

func fromCloud(vars variables) (Place, error) {
	for _, c := range clouds {
		if vars[c.nodes] == "" {
			continue
		}
		said, err := Asked{Nodes: vars.said(c.nodes), Rank: vars.said(c.rank)}.claim()
		if err != nil {
			return Place{}, err
		}
		main, err := vars.count(c.main, 0)
		if err != nil {
			return Place{}, err
		}
		if said.rank >= said.nodes || main >= said.nodes {
			return Place{}, errext.Errorf("nodes are numbered from 0", "%s=%s, but %s=%s", c.rank, vars[c.rank], c.nodes, vars[c.nodes])
		}
		job, _, _ := strings.Cut(vars[c.job], "#")
		p := Place{Kind: Cloud, Job: job, Nodes: said.nodes, NodeRank: (said.rank - main + said.nodes) % said.nodes, TasksPerNode: 1}
		if ips := strings.Fields(vars[c.head]); len(ips) > 0 {
			p.Head = ips[0]
		}
		p.Evidence = p.evidence(c.nodes)
		return p, nil
	}
	return Place{}, nil
}
