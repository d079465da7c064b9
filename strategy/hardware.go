package strategy

import (
	"cmp"
	"fmt"
	"slices"

	"github.com/gpurun/gpurun/strategy/cause"
)

// Hardware is the worst event that the driver reported for a GPU, while ranks trained on it or
// before.
type Hardware struct {
	// Text is the event in a few words: "Xid 79 on GPU-…: the GPU has fallen off the bus".
	Text   string     `json:"text"`
	Device string     `json:"device,omitempty"` // "cuda:1"; empty: not reported
	Need   cause.Need `json:"need"`
	Node   string     `json:"node,omitempty"` // the GPU's host; empty: the deciding node
}

// hardware returns the worst of the driver's events; nil if none needs an action. A contained
// error leaves the GPU usable, though the driver also reports it as uncorrectable.
func (c *fold) hardware() *Hardware {
	var worst *Hardware
	contained := map[string]bool{}
	for _, f := range c.facts {
		if e := f.DriverEvent(); e != nil && e.Need() == cause.Restart {
			contained[e.UUID] = true
		}
	}
	for _, f := range c.facts {
		e := f.DriverEvent()
		if e == nil || e.Need() == "" || e.Need() == cause.ResetUnlessContained && contained[e.UUID] {
			continue
		}
		if worst == nil || e.Need().Worse(worst.Need) {
			worst = &Hardware{Text: e.Text(), Device: e.Device, Need: e.Need(), Node: e.Node}
		}
	}
	return worst
}

// unfit weighs a GPU that was found broken before training began. It is the reason why the ranks
// were stopped, or a mere hint if one had failed before.
func (c *fold) unfit(all []candidate) []candidate {
	if c.firstExitCode() == 0 {
		return all
	}
	for i, a := range all {
		if e := c.facts[a.fact].DriverEvent(); e != nil && e.Kind == cause.UnfitEvent {
			all[i].tier = tierWarning
		}
	}
	return all
}

// passes reports whether the failure is transient: the same plan may be started on the same node
// again.
func (d Diagnosis) passes() bool {
	switch {
	case d.broken():
		return false
	case d.Cause == cause.GPUHardware:
		return d.Hardware != nil
	}
	return slices.Contains(transientCauses, d.Cause)
}

// broken reports whether a GPU has to be reset, or its node restarted, before it can train.
func (d Diagnosis) broken() bool { return d.Hardware != nil && d.Hardware.Need.Worse(cause.Restart) }

// hardwareFailed reports whether the job must not be started on this node again.
func (s *situation) hardwareFailed() bool {
	return s.diagnosis.broken() || s.cause(cause.GPUHardware) && !s.diagnosis.passes()
}

func notOnThisNode(s *situation) Decision {
	if slices.Contains(cause.Remarks(s.diagnosis.Cause, s.diagnosis.Error), cause.SaysNode) {
		return s.stop(Retry, retryLater) // the scheduler names another node
	}
	return s.stop(Retry, s.inventory.Node.avoid(s.diagnosis.Hardware))
}

// A Node is the place where the ranks ran, by the scheduler's names.
type Node struct {
	// Name is the scheduler's name of the node, or else the host's; empty: not known.
	Name string `json:"name,omitempty"`
	// Scheduler placed the job here: "slurm", "kubernetes", or empty; Job is its name for the
	// job: a number, or the pod.
	Scheduler string `json:"scheduler,omitempty"`
	Job       string `json:"job,omitempty"`
}

// avoid returns that the job must not be started on the node again, and how to do that.
func (n Node) avoid(h *Hardware) string {
	mended := "reset"
	switch {
	case h == nil || h.Need == cause.Check:
		mended = "looked at"
	case h.Need == cause.Reboot:
		mended = "looked at and the node restarted"
	}
	if h != nil {
		n.Name = cmp.Or(h.Node, n.Name)
	}
	words := "do not use this node"
	if n.Name != "" && n.Scheduler != "kubernetes" {
		words = "do not use " + n.Name
	}
	words += " before the GPU is " + mended
	switch {
	case !plainName(n.Name) || !plainName(n.Job): // a shell would read something else in a command
	case n.Scheduler == "slurm" && n.Name != "":
		return fmt.Sprintf("%s: sbatch --exclude=%s starts it elsewhere, and so does scontrol requeue %s once the node is drained", words, n.Name, n.Job)
	case n.Scheduler == "kubernetes" && n.Name != "":
		return fmt.Sprintf("%s: kubectl cordon %s, and its next pod is placed elsewhere", words, n.Name)
	case n.Scheduler == "kubernetes":
		return fmt.Sprintf("%s: kubectl cordon $(kubectl get pod %s -o jsonpath={.spec.nodeName}), and its next pod is placed elsewhere", words, n.Job)
	}
	return words + "; the same command continues from there, or on another node"
}

// plainName reports whether a name can stand in a command as it is.
func plainName(name string) bool {
	for i, r := range name {
		letter := r >= '0' && r <= '9' || r >= 'A' && r <= 'Z' || r >= 'a' && r <= 'z'
		if !letter && r != '_' && r != '.' && (r != '-' || i == 0) { // a "-" in front begins an option
			return false
		}
	}
	return true
}

// Health is a GPU's state in the driver's report. Zero: not reported, for example without ECC or
// by an old driver.
type Health struct {
	// Uncorrected counts the memory errors since the driver was loaded that ECC could not
	// correct; Remapped the memory rows that were replaced after such errors.
	Uncorrected int64
	Remapped    int
	Pending     bool // rows will be remapped, or pages retired, at the GPU's next reset
	Failed      bool // a row could not be remapped: no spare row was available
	// Recovery is the action that the driver requests; empty: none.
	Recovery cause.RecoveryAction
	// Links counts the active NVLinks, and Recovered how often one came up again after errors.
	Links     int
	Recovered int64
	// Fabric is the driver's text if the GPU has not joined the NVLink fabric of its NVSwitches;
	// empty if it has, or there is none.
	Fabric string
	// Slowed is the reason, other than the load, why the clocks are reduced: "heat", "power
	// brake", "hardware".
	Slowed  string
	Celsius int    // temperature of the chip
	Bus     string // PCI address, "00000000:4B:00.0"
}

// Unfit returns why nothing should be trained on the GPU; empty if it is fit. NVIDIA's GPU memory
// error management requires a reset before new work if rows wait to be remapped, and another GPU
// if one could not be (https://docs.nvidia.com/deploy/a100-gpu-mem-error-mgmt/).
func (h Health) Unfit() string {
	switch {
	case h.Failed:
		return "broken memory, and no spare rows left"
	case h.Recovery != "":
		return h.Recovery.Text()
	case h.Pending:
		return "broken memory waits to be remapped"
	}
	return ""
}

// Notable lists remarks about a fit GPU. most is the number of active links on the node's other
// GPUs of its model; 0 if there are none.
func (h Health) Notable(most int) []string {
	var all []string
	if h.Uncorrected > 0 {
		all = append(all, fmt.Sprintf("%s of its memory that ECC could not correct since the driver was loaded",
			Count(h.Uncorrected, "error")))
	}
	if h.Links < most {
		all = append(all, fmt.Sprintf("%d NVLinks are up, and %d on another GPU of its model", h.Links, most))
	}
	if h.Recovered == 1 {
		all = append(all, "NVLinks were brought up again after errors once")
	} else if h.Recovered > 1 {
		all = append(all, fmt.Sprintf("NVLinks were brought up again after errors %d times", h.Recovered))
	}
	if h.Fabric != "" {
		all = append(all, h.Fabric)
	}
	if h.Slowed != "" {
		all = append(all, fmt.Sprintf("slowed down by %s at %d °C", h.Slowed, h.Celsius))
	}
	return all
}
