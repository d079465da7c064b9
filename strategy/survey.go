package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// An Offer is what one rung could do for a job that runs with a plan.
type Offer struct {
	Rung      Rung    `json:"rung"`
	Available bool    `json:"available"`
	Reason    string  `json:"reason"` // why not, empty where it is available
	Changed   Changes `json:"changed"`
}

// Survey goes through every rung, those for host memory last, and says what the
// rung would change in the plan if it were the one to be taken, whatever the
// phase of the failure.
func Survey(p Policy, j Job, plan Plan, inv Inventory) []Offer {
	s := &situation{policy: p, job: j, inventory: inv, plan: plan, diagnosis: Diagnosis{Cause: cause.CUDAOOM, Phase: cause.NoPhase, Rank: -1}}
	shut := phaseFilter{}
	if inv.Accelerator == "cpu" {
		shut = shut.shutOnCPU()
	}
	var offers []Offer
	for _, rung := range DeviceRungs {
		offers = append(offers, s.offer(rung, shut))
	}
	for _, rung := range HostRungs {
		offers = append(offers, s.offer(rung, phaseFilter{}))
	}
	return offers
}

func (s *situation) offer(rung Rung, shut phaseFilter) Offer {
	o := Offer{Rung: rung, Changed: Changes{}}
	if o.Reason = shut[rung]; o.Reason != "" {
		return o
	}
	if rung == RungWait {
		o.Available = s.refused(rung) == ""
		o.Reason = s.refused(rung)
		return o
	}
	changes, reason := remedies[rung](s)
	if reason == "" {
		reason = s.inventory.Missing[rung]
	}
	if reason == "" {
		reason = s.refused(rung, changes...)
	}
	if o.Reason = reason; reason == "" {
		o.Available, o.Changed = true, s.plan.Changed(s.plan.With(changes[0]))
	}
	return o
}
