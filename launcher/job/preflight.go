package job

import (
	"fmt"

	"github.com/gpurun/gpurun/recipes/document"
)

// A Preflight says what is looked at before the first attempt.
type Preflight string

// The settings of launch.preflight.
const (
	PreflightAuto Preflight = "auto"  // what the driver says of the GPUs, beside the ranks' start
	PreflightOn   Preflight = "true"  // before it, and each GPU is tried
	PreflightOff  Preflight = "false" // nothing
)

// readPreflight reads "auto", true or false.
func readPreflight(t *table) Preflight {
	switch v, set := t.get("preflight"); v := v.(type) {
	case bool:
		return Preflight(fmt.Sprint(v))
	case string:
		if v == string(PreflightAuto) {
			return PreflightAuto
		}
		t.bad("preflight", "%q: want %q, true or false", v, PreflightAuto)
	default:
		if set {
			t.bad("preflight", "want %q, true or false, found %s", PreflightAuto, document.Describe(v))
		}
	}
	return PreflightAuto
}

// Examined is how many GPUs are looked at before the first attempt, the first that the job
// sees: one a rank. A process that starts no ranks uses one for certain. It is 0 where nobody
// is to look, and for a job that trains on the CPU.
func (p *Prepared) Examined() int {
	if l := p.resolved.job.Launch; l.Preflight == PreflightOff || l.NprocPerNode == "cpu" || p.Accelerator() != "cuda" {
		return 0
	}
	return min(p.GPUs().Count, p.Ranks())
}
