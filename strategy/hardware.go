package strategy

import (
	"fmt"
	"slices"
	"strings"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Hardware is what the driver told of a GPU while ranks trained on it, or before: the
// event after which the most has to be done.
type Hardware struct {
	// Text is the event in a few words: "Xid 79 on GPU-…: the GPU has fallen off the bus".
	Text string `json:"text"`
	// Device is "cuda:1", empty where the driver did not say.
	Device string     `json:"device,omitempty"`
	Need   cause.Need `json:"need"`
	// Node is the host that has the GPU, empty for the one that decides.
	Node string `json:"node,omitempty"`
}

// hardware is what the driver's events come to, nil where none says that something has to
// be done. An error that was contained leaves the GPU usable, though the driver also tells
// of it as one that could not be corrected.
func (c *fold) hardware() *Hardware {
	var worst *Hardware
	contained := map[string]bool{}
	for _, f := range c.facts {
		if e := f.DriverEvent; e != nil && e.Need() == cause.Restart {
			contained[e.UUID] = true
		}
	}
	for _, f := range c.facts {
		e := f.DriverEvent
		if e == nil || e.Need() == "" || e.Need() == cause.ResetUnlessContained && contained[e.UUID] {
			continue
		}
		if worst == nil || e.Need().Worse(worst.Need) {
			worst = &Hardware{Text: e.Text(), Device: e.Device, Need: e.Need(), Node: e.Node}
		}
	}
	return worst
}

// endedBy takes in what the driver told, where that can be why the attempt ended.
func (c *fold) endedBy(d *Diagnosis) {
	if d.Cause == cause.GPUHardware || slices.Contains(transientCauses, d.Cause) {
		d.Hardware = c.hardware()
	}
}

// unfit weighs a GPU that was found broken before training began. It explains why the ranks
// were stopped for it, and is a mere hint where one had failed by itself.
func (c *fold) unfit(all []candidate) []candidate {
	if c.firstExitCode() == 0 {
		return all
	}
	for i, a := range all {
		if e := c.facts[a.fact].DriverEvent; e != nil && e.Kind == cause.UnfitEvent {
			all[i].tier = tierWarning
		}
	}
	return all
}

// passes reports whether the failure is one that passes by itself: the same plan may be
// started on the same node again.
func (d Diagnosis) passes() bool {
	switch {
	case d.broken():
		return false
	case d.Cause == cause.GPUHardware:
		return d.Hardware != nil
	}
	return slices.Contains(transientCauses, d.Cause)
}

// broken reports whether the driver told that a GPU cannot be trained on before somebody
// has reset it or restarted the node.
func (d Diagnosis) broken() bool { return d.Hardware != nil && d.Hardware.Need.Worse(cause.Restart) }

// hardwareFailed: the job may not be started on this node again.
func (s *situation) hardwareFailed() bool {
	return s.diagnosis.broken() || s.cause(cause.GPUHardware) && !s.diagnosis.passes()
}

func notOnThisNode(s *situation) Decision {
	if slices.Contains(cause.Remarks(s.diagnosis.Cause, s.diagnosis.Error), cause.SaysNode) {
		return s.stop(Retry, retryLater) // the scheduler names another node
	}
	return s.stop(Retry, s.inventory.Node.avoid(s.diagnosis.Hardware))
}

// A Node is where the ranks ran, as those name it who place jobs there.
type Node struct {
	// Name is the scheduler's for the node, else the host's; empty where nobody knows it.
	Name string `json:"name,omitempty"`
	// Scheduler is who placed the job here: "slurm", "kubernetes", or empty for nobody, or
	// somebody else; Job is that one's name for it: the number of the job, or the pod.
	Scheduler string `json:"scheduler,omitempty"`
	Job       string `json:"job,omitempty"`
}

// avoid says that the job may not be started on the node again, and how that is done.
func (n Node) avoid(h *Hardware) string {
	if h != nil && h.Node != "" {
		n.Name = h.Node
	}
	words := "not on this node"
	if n.Name != "" && n.Scheduler != "kubernetes" {
		words = "not on " + n.Name
	}
	words += " before the GPU was " + mended(h)
	switch {
	case n.Scheduler == "slurm" && n.Name != "":
		return fmt.Sprintf("%s: sbatch --exclude=%s starts it elsewhere, and so does scontrol requeue %s once the node is drained", words, n.Name, n.Job)
	case n.Scheduler == "kubernetes" && n.Name != "":
		return fmt.Sprintf("%s: kubectl cordon %s, and its next pod is placed elsewhere", words, n.Name)
	case n.Scheduler == "kubernetes":
		return fmt.Sprintf("%s: kubectl cordon $(kubectl get pod %s -o jsonpath={.spec.nodeName}), and its next pod is placed elsewhere", words, n.Job)
	}
	return words + "; the same command goes on from there, or on another node"
}

// mended is what has to be done to the GPU.
func mended(h *Hardware) string {
	switch {
	case h == nil || h.Need == cause.Check:
		return "looked at"
	case h.Need == cause.Reboot:
		return "looked at and the node restarted"
	}
	return "reset"
}

// faulty is the driver's word for why a GPU failed, for a sentence.
func (d Diagnosis) faulty() []string {
	if d.Hardware == nil {
		return nil
	}
	return []string{clip(strings.TrimSpace(d.Hardware.Text), 240)}
}
