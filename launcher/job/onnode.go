package job

import (
	"cmp"
	"os"

	"github.com/gpurun/gpurun/launcher/cluster"
	"github.com/gpurun/gpurun/strategy"
)

// nodeVariables are what pods call the name of their node, which the downward API gives.
var nodeVariables = []string{"NODE_NAME", "K8S_NODE_NAME", "MY_NODE_NAME"}

// Node names this node as the scheduler does who placed the job here.
func (p *Prepared) Node() strategy.Node {
	host, err := os.Hostname()
	if err != nil {
		host = "" // nobody knows it
	}
	switch place := p.resolved.place; {
	case place.Slurm():
		return strategy.Node{Name: cmp.Or(place.Node, host), Scheduler: "slurm", Job: place.Job}
	case place.Kind == cluster.Kubernetes || p.resolved.env["KUBERNETES_SERVICE_HOST"] != "":
		n := strategy.Node{Scheduler: "kubernetes", Job: host}
		for _, name := range nodeVariables {
			n.Name = cmp.Or(n.Name, p.resolved.env[name])
		}
		return n
	}
	return strategy.Node{Name: host}
}
