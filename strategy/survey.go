package strategy

import "github.com/gpurun/gpurun/strategy/cause"

// An Offer is what one rung could do for a job that runs with a plan.
type Offer struct {
	Rung      Rung `json:"rung"`
	Available bool `json:"available"`
	// Reason is why it is not available; where it is, what its training rests on.
	Reason  string  `json:"reason"`
	By      string  `json:"by,omitempty"` // who would turn it: "recipe" or "hook"; empty where nothing is turned
	Changed Changes `json:"changed"`
	// Training is what the change does to the training; of a rung that is not available, what
	// it does where nothing more is known.
	Training Training `json:"training,omitempty"`
}

// Survey goes through every rung, those for host memory last, and says what the
// rung would change in the plan if it were the one to be taken, whatever the
// phase of the failure.
func Survey(p Policy, j Job, plan Plan, inv Inventory) []Offer {
	s := &situation{policy: p, job: j, inventory: inv, plan: plan, diagnosis: Diagnosis{Cause: cause.CUDAOOM, Phase: cause.NoPhase, Rank: -1}}
	filter := phaseFilter{}
	if inv.Accelerator == "cpu" {
		filter = filter.onCPU()
	}
	var offers []Offer
	for _, rung := range DeviceRungs {
		offers = append(offers, s.offer(rung, filter))
	}
	for _, rung := range HostRungs {
		offers = append(offers, s.offer(rung, phaseFilter{}))
	}
	return offers
}

func (s *situation) offer(rung Rung, filter phaseFilter) Offer {
	changes, skip := s.consider(rung, filter)
	if skip != nil {
		return Offer{Rung: rung, Reason: skip.Reason, Changed: Changes{}, Training: rung.row().training}
	}
	offered := Offer{Rung: rung, Available: true, Changed: s.plan.Changed(s.plan.With(changes[0]))}
	for k, pair := range offered.Changed {
		pair[0] = s.current(k)
		offered.Changed[k] = pair
		offered.By = "recipe"
	}
	for k := range offered.Changed {
		if s.job.Knobs[k].By == ByHook {
			offered.By = string(ByHook)
		}
	}
	job := s.job
	job.Written = s.plan
	offered.Training, offered.Reason = job.Training(s.plan.With(changes[0]), nil)
	return offered
}
